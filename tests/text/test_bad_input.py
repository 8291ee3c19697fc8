"""Bad input: a plain reading or a clear message, in linear time."""

from __future__ import annotations

from pathlib import Path
from time import process_time

import pytest

from whatelse.errors import InputError
from whatelse.text import NoteReader, load_lexicon, tokenize

READER = NoteReader(load_lexicon())


def test_every_unicode_block_is_read() -> None:
    for first in range(0, 0x110000, 0x400):
        block = "".join(chr(c) for c in range(first, first + 0x400, 7) if not 0xD800 <= c < 0xE000)
        for note in (f"no fever {block} cough", block):
            for mention in READER.mentions(note):
                assert 0 <= mention.start < mention.end <= len(note)
            assert all(note[t.start : t.end] for t in tokenize(note))


@pytest.mark.parametrize(
    "note",
    [
        "<p>denies <b>fever</b></p><script>alert('cough')</script>",
        "\x00\x01\x02 no fever \x7f\x1b[31m",
        "الحمى fever السعال \u202eno cough\u202c",
        "\ud800 fever",
        "fever\u0301\u0301\u0301 \ufeffcough",
        " \t\n\r\v\f\u2028",
        "",
    ],
)
def test_odd_notes_are_read_with_places_inside_the_note(note: str) -> None:
    found = READER.note(note)
    assert all(0 <= m.start < m.end <= len(note) for m in found.mentions)
    assert "<script>" not in found._repr_html_() and str(found)


def test_html_tags_do_not_hide_what_is_between() -> None:
    assert [m.finding for m in READER.mentions("<p>denies <b>fever</b></p>")] == ["neg:fever"]


@pytest.mark.parametrize("piece", ["no fever, ", "pain and ", "? ", "bp 120/80 ", "( ", "a", "h/o ", "wrist and "])
def test_time_is_linear_in_the_length_of_the_note(piece: str) -> None:
    def seconds(size: int) -> float:
        note = (piece * (size // len(piece) + 1))[:size]
        best = 1e9
        for _ in range(2):
            begin = process_time()
            READER.note(note)
            best = min(best, process_time() - begin)
        return best

    seconds(1000)
    assert seconds(160_000) < 40 * max(seconds(16_000), 0.002)


def test_note_of_one_megabyte() -> None:
    assert len(READER.mentions("no fever, cough x 3 days. " * 40_000)) >= 80_000


@pytest.mark.parametrize(
    ("content", "says"),
    [
        ("concepts: {a: [", "YAML"),
        ("concepts: {one: {kind: sign, same: [blarg]}, two: {kind: sign, same: [blarg]}}", "two concepts"),
        ("concepts: {one: {kind: sign, is_a: [two], same: [blarg]}, two: {kind: sign, is_a: [one]}}", "kind of itself"),
    ],
)
def test_bad_lexicon_is_refused_with_its_file(tmp_path: Path, content: str, says: str) -> None:
    file = tmp_path / "mine.yaml"
    file.write_text(content, "utf-8")
    with pytest.raises(InputError, match=says) as problem:
        load_lexicon(file)
    assert "mine.yaml" in str(problem.value)
