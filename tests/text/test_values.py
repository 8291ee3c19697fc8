"""Values in notes become mentions; words of values are no findings; a value denies what stands inside it."""

from __future__ import annotations

import time

import pytest

from tests.text.test_reader import ENTRIES, RULES, entry
from whatelse.text.lexicon import Lexicon
from whatelse.text.matcher import ANCHOR, COVERED, FLAGS, ID, TYPE, WORD_ITEM
from whatelse.text.reader import NoteReader, Phrase

MEASURED = [
    *[e for e in ENTRIES if e.name != "fever"],
    entry("fever", "fever; febrile; tmax"),
    entry("tachycardia", "tachycardia"),
    entry("hypotension", "hypotension"),
    entry("elevated_blood_pressure", "elevated blood pressure"),
    entry("severe_pain", "severe pain"),
    entry("lasting_days", "for days", "quality"),
]
READER = NoteReader(Lexicon.of(MEASURED), RULES, [Phrase("fever"), Phrase("pain")])


def read(text: str, age: float | None = None) -> list[str]:
    return [f"{text[m.start : m.end]}={m.finding}" for m in READER.mentions(text, age=age)]


@pytest.mark.parametrize(
    ("text", "age", "expected"),
    [
        ("T 102.3", None, ["T 102.3=fever"]),
        ("temp 98.6", None, ["temp 98.6=neg:fever"]),
        ("tmax 98.6", None, ["tmax=neg:fever", "tmax 98.6=neg:fever"]),
        ("HR 130", 40.0, ["HR 130=tachycardia"]),
        ("HR 130", 0.5, ["HR 130=neg:tachycardia"]),
        ("6 mo old, HR 130", None, ["HR 130=neg:tachycardia"]),
        ("return if temp 103", None, []),
        ("h/o HR 130", 40.0, []),
        ("knee pain 0/10", None, ["knee pain=neg:knee_pain", "pain 0/10=neg:severe_pain"]),
    ],
)
def test_values_are_mentions(text: str, age: float | None, expected: list[str]) -> None:
    assert [item for item in read(text, age) if "lasting" not in item] == expected


def test_a_mention_has_its_measurement() -> None:
    (mention,) = READER.mentions("T 102.3")
    assert mention.value is not None
    assert (mention.value.name, round(mention.value.value, 1), mention.value.unit) == ("temperature", 39.1, "C")


def test_words_of_values_ages_and_durations_are_covered() -> None:
    text = "72 yo male with gizmo, bp 150/90 and hr 101 for 3 days"
    items = READER.items([text])
    words = items[(items[:, TYPE] == WORD_ITEM) & ((items[:, FLAGS] & COVERED) == 0)]
    left = [READER.pieces.names[k] for k in words[:, ID].tolist()]
    assert "gizmo" in left and not {"bp", "hr", "###/##", "days", "yo"} & set(left)


def test_an_abnormal_value_fires_the_anchor_and_a_normal_one_does_not() -> None:
    def fired(text: str) -> set[int]:
        return {int(row[ID]) for row in READER.items([text]) if row[TYPE] == ANCHOR}

    assert fired("tmax over the weekend") == {0}
    assert fired("tmax 98.6") == set()
    assert fired("T 102.3") == {0}  # a measured fever is a fever
    assert fired("T 98.6") == set()


@pytest.mark.parametrize("unit", ["bp 85/50 ", "temp 98.6 tmax ", "pain 0/10, ", "x3 days "])
def test_time_is_linear_in_the_number_of_values(unit: str) -> None:
    def seconds(size: int) -> float:
        text = unit * (size // len(unit))
        start = time.process_time()
        READER.items([text])
        return time.process_time() - start

    seconds(10_000)
    assert min(seconds(160_000) for _ in range(2)) < 16 * min(seconds(20_000) for _ in range(3)) + 0.1
