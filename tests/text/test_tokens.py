"""Notes to tokens: cutting, numbers, offsets, negation, rules files, bigrams."""

from __future__ import annotations

import importlib
import time
from collections.abc import Callable
from math import log
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.bigrams import count_bigrams, join_bigrams, learn_bigrams
from whatelse.errors import InputError
from whatelse.text import BigramCounts, NoteReader, Token, load_rules, piece_table, tokenize
from whatelse.text.matcher import ID
from whatelse.text.pieces import WORD, lower, pieces, read

CLINICAL = [
    *[
        "no",
        "not",
        "denies",
        "without",
        "non",
        "unable",
        "but",
        "and",
        "pt",
        "has",
        "did",
        "aox3",
        "ruled out",
        "negative",
    ],
    *[
        "fever",
        "chest",
        "pain",
        "x3",
        "120/80",
        "s/p",
        "w/",
        "follow-up",
        "no change",
        "was",
        "is absent",
        "for",
        "none",
    ],
    *[".", ";", "[", "-", "+", "\n", ",", ":", "(", ")", "?", "-fever", " ", "  ", "\t", "\r\n", "’", "é", "İ", "\x00"],
]
notes = st.one_of(
    st.text(max_size=80),
    st.lists(st.sampled_from(CLINICAL), max_size=25).map(" ".join),
    st.lists(st.sampled_from(CLINICAL), max_size=25).map("".join),
)


def negated(text: str, rules: str = "default") -> list[str]:
    return [t.text for t in tokenize(text, rules) if t.negated]


# Cutting


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (
            "Pt s/p fall, h/o CAD, c/o N/V/D w/ fever",
            ["pt", "s/p", "fall", "h/o", "cad", "c/o", "n/v/d", "w/", "fever"],
        ),
        ("w/fever w/o LOC r/o MI", ["w/", "fever", "w/o", "loc", "r/o", "mi"]),
        ("fever/chills and/or cough", ["fever", "chills", "and", "or", "cough"]),
        ("follow-up x-ray, non-tender", ["follow", "up", "x", "ray", "non", "tender"]),
        ("takes 5mg p.o. b.i.d.", ["takes", "#mg", "po", "bid"]),
        ("T 101.5 BP 120/80 at 12:30", ["t", "###.#", "bp", "###/##", "at", "##:##"]),
        ("45yo F, 2d of pain x3, 3-4 times", ["##yo", "f", "#d", "of", "pain", "x#", "#-#", "times"]),
        ("O2 sat, A1c, aox3, covid-19", ["o2", "sat", "a1c", "aox3", "covid", "##"]),
        ("patient's mother’s doesn't", ["patient", "mother", "doesn't"]),
        ("chest_pain", ["chest", "pain"]),
        (" \t\n ", []),
        ("\x00fever\x00", ["fever"]),
    ],
)
def test_words_and_numbers(text: str, expected: list[str]) -> None:
    assert [t.text for t in tokenize(text)] == expected


@given(notes)
def test_tokens_lie_in_the_text_in_order(text: str) -> None:
    end = 0
    for token in tokenize(text):
        assert end <= token.start < token.end <= len(text)
        end = token.end
        own = text[token.start : token.end]
        assert read(lower(own))[0] == token.text  # the token is made of its own characters alone
        assert token.cue is not None or not token.negated
        if cue := token.cue:
            assert 0 <= cue.start < cue.end <= len(text)
            assert cue.end <= token.start or token.end <= cue.start


@given(notes)
def test_looking_up_what_stands_between_spaces_is_cutting_the_whole(text: str) -> None:
    place, expected = 0, []
    for piece in pieces(lower(text)):
        body, what, offset, length = read(piece)
        if what == WORD:
            expected.append((body, place + offset, place + offset + length))
        place += len(piece)
    assert place == len(text)
    assert [t[:3] for t in tokenize(text)] == expected


@pytest.mark.parametrize(
    "unit",
    [
        "no fever ",
        "-",
        "a/",
        "a.",
        "1/",
        "a'",
        "not ",
        " ",
        "\n",
        "ruled out ",
        "e\u0301",
        "x\x00",
        ", neg",
        "is absent,",
    ],
)
def test_time_is_linear_in_the_note(unit: str) -> None:
    """A quadratic step takes 256 times as long for 16 times the text at every try, a busy machine at one or two."""

    def seconds(size: int) -> float:
        text = unit * (size // len(unit))
        start = time.process_time()
        tokenize(text)
        return time.process_time() - start

    assert any(seconds(96_000) < 60 * seconds(6_000) + 0.2 for _ in range(20))


def test_a_note_of_one_megabyte() -> None:
    text = "denies chest pain, " * 55_000
    tokens = tokenize(text)
    assert len(tokens) == 165_000
    assert text[tokens[-1].start : tokens[-1].end] == "pain"


def test_the_table_of_pieces_stays_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(piece_table, "MOST", 10)
    reader = NoteReader()
    long = "a" * 1000
    for word in (*(f"word{i}" for i in range(100)), long):
        items = reader.items([word])
        assert reader.pieces.names[items[0, ID]] == word
    assert len(reader.pieces._memo) <= 11 and long not in reader.pieces._memo


# Negation: the paper's rules


def paper_by_the_letter(text: str) -> list[bool]:
    """Appendix A, word by word: the nearest start word or stop before a word decides; "-" negates the word after it."""
    start = {"no", "not", "denies", "without", "non", "unable"}
    stop = {
        ".",
        ";",
        "[",
        "-",
        "\n",
        "+",
        "but",
        "and",
        "pt",
        "except",
        "reports",
        "alert",
        "complains",
        "has",
        "states",
    }
    stop |= {"secondary", "per", "did", "aox3"}
    cut = [read(piece)[:2] for piece in pieces(lower(text))]
    cut = [(body, what) for body, what in cut if body]
    result = []
    for k, (body, what) in enumerate(cut):
        if what == WORD:
            before = next((b for b, _ in reversed(cut[:k]) if b in start or b in stop), None)
            scoped = before in start and body not in start and body not in stop
            result.append(scoped or (k > 0 and cut[k - 1][0] == "-"))
    return result


@given(notes)
@settings(max_examples=300)
def test_paper_rules_are_appendix_a(text: str) -> None:
    assert [t.negated for t in tokenize(text, "paper")] == paper_by_the_letter(text)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("denies fever, chills, or cough but has sob", ["fever", "chills", "or", "cough"]),
        ("no fever and cough", ["fever"]),
        ("no fever\ncough", ["fever"]),
        ("-CP -SOB +fever", ["cp", "sob"]),
        ("- fever chills", ["fever"]),
        ("follow-up x-ray", []),
        ("unable to ambulate. weak", ["to", "ambulate"]),
        ("fever ruled out", []),
    ],
)
def test_paper_rules(text: str, expected: list[str]) -> None:
    assert negated(text, "paper") == expected


# Negation: the default rules


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("denies fever, chills, or cough but has sob", ["fever", "chills", "or", "cough"]),
        ("no fever and chills", ["fever", "and", "chills"]),
        ("no fever and the heart is large", ["fever"]),
        ("pneumonia was ruled out", ["pneumonia", "was"]),
        ("cough, edema not seen", ["edema"]),
        ("ruled out for MI", ["mi"]),
        ("no change in weight", []),
        ("no increase in cough", []),
        ("not only fever", []),
        ("gram negative rods", []),
        ("PE can not be excluded", []),
        ("r/o pneumonia", []),
        ("Denies: fever, chills", ["fever", "chills"]),
        ("fever: no, cough: yes", ["fever"]),
        ("Allergies - none", ["allergies"]),
        ("HEENT - normal", []),
        ("-CP, -SOB, +fever", ["cp", "sob"]),
        ("(-) fever (+) cough", ["fever"]),
        ("GI  -  No nausea or  vomiting", ["nausea", "or", "vomiting"]),
        ("strep neg, flu positive", ["strep"]),
        ("chest pain with negative stress test", []),
        ("non-tender belly", ["tender"]),
        ("never had a stroke", ["a", "stroke"]),
        ("doesn’t smoke", ["smoke"]),
    ],
)
def test_default_rules(text: str, expected: list[str]) -> None:
    assert negated(text) == expected


def test_the_cue_is_the_whole_phrase() -> None:
    text = "UA Negative  for blood; PE ruled out"
    tokens = {t.text: t for t in tokenize(text)}
    blood, pe = tokens["blood"].cue, tokens["pe"].cue
    assert blood is not None and pe is not None
    assert (blood.text, text[blood.start : blood.end]) == ("negative for", "Negative  for")
    assert (pe.text, text[pe.start : pe.end]) == ("ruled out", "ruled out")
    assert tokens["ua"].cue is None
    cough, no, fever = tokenize("cough; no fever")
    assert (cough.cue, no.cue, fever.cue) == (None, None, no)  # a cue of one word is that token


def test_words_mark_negation() -> None:
    tokens = tokenize("denies fever but has cough")
    assert [t.word for t in tokens] == ["denies", "neg:fever", "but", "has", "cough"]


@pytest.mark.data
@pytest.mark.parametrize(("rules", "least"), [("default", 0.95), ("paper", 0.93)])
def test_negex_kit(data_folder: Path, rules: str, least: float, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(Path(__file__).parents[2])
    negation = importlib.import_module("benchmarks.negation")
    path = data_folder / "negex" / "annotated_sentences_dev.tsv"
    if not path.exists():
        pytest.skip("the NegEx kit is not here")
    mentions = list(negation.read_kit(path))
    pairs = [(m.negated, negation.assertion(m, rules) == "negated") for m in mentions]
    hits = sum(truth and guess for truth, guess in pairs)
    assert 2 * hits / sum(truth + guess for truth, guess in pairs) >= least


# Rules files


def test_rules_from_a_file(tmp_path: Path) -> None:
    path = tmp_path / "mine.yaml"
    path.write_text('before: ["no", [kein, keine]]\nstop: [aber]\n')
    rules = load_rules(path)
    text = "keine Schmerzen aber Fieber"
    assert [t.text for t in tokenize(text, rules) if t.negated] == ["schmerzen"]
    assert tokenize(text, rules) == tokenize(text, path) == tokenize(text, str(path))


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("before: [no]\n", "quote"),
        ("before: no evidence\n", "list of phrases"),
        ("befor: [none]\n", "keys among"),
        ("- none\n", "mapping"),
        ("before: [", "not YAML"),
        ("open: [as well]\n", "single words"),
    ],
)
def test_bad_rules_files_say_what_is_wrong(tmp_path: Path, content: str, message: str) -> None:
    path = tmp_path / "bad.yaml"
    path.write_text(content)
    with pytest.raises(InputError, match=message) as caught:
        load_rules(path)
    assert "bad.yaml" in str(caught.value)


@pytest.mark.parametrize("make", [lambda p: None, lambda p: p.write_bytes(b"\xff\xfe\x00"), lambda p: p.mkdir()])
def test_unreadable_rules_name_the_choices(tmp_path: Path, make: Callable[[Path], object]) -> None:
    make(tmp_path / "defualt")
    with pytest.raises(InputError, match="'default' or 'paper'"):
        load_rules(str(tmp_path / "defualt"))


# Bigrams


def test_join_spans_both_words_and_keeps_negation() -> None:
    text = "denies Chest  pain but has chest-pain"
    joined = join_bigrams(tokenize(text), {("chest", "pain")})
    assert [t.word for t in joined] == ["denies", "neg:chest_pain", "but", "has", "chest_pain"]
    assert [text[t.start : t.end] for t in joined if "_" in t.text] == ["Chest  pain", "chest-pain"]
    assert joined[1].cue == tokenize(text)[0]._replace(cue=None)


@pytest.mark.parametrize("text", ["chest. pain", "chest, pain", "chest\npain", "chest -pain", "non chest pain"])
def test_never_joined_across_a_sign_or_the_edge_of_a_negation(text: str) -> None:
    assert "chest_pain" not in [t.text for t in join_bigrams(tokenize(text), {("chest", "pain")})]


def test_pairs_are_taken_from_the_left() -> None:
    bigrams = {("a", "b"), ("b", "c"), ("c", "d")}
    assert [t.word for t in join_bigrams(tokenize("aa a b c d"), bigrams)] == ["aa", "a_b", "c_d"]
    assert join_bigrams([], bigrams) == []


@given(notes, st.sets(st.tuples(st.sampled_from(["fever", "chest", "pain"]), st.sampled_from(["fever", "pain"]))))
def test_joining_loses_no_word(text: str, bigrams: set[tuple[str, str]]) -> None:
    tokens = tokenize(text)
    joined = join_bigrams(tokens, bigrams)
    assert [part for t in joined for part in t.text.split("_")] == [t.text for t in tokens]
    assert join_bigrams(tokens, set()) == tokens


def corpus() -> list[list[Token]]:
    texts = ["chest pain today", "pain in the leg", "the chest pain", "the leg", "denies chest pain", "fever 101 pain"]
    texts += [f"severe {word} with {word} and severe {word}" for word in ("fall", "cough", "dyspnea", "hematuria")]
    return [tokenize(t) for t in texts * 20]


def test_learned_pairs_are_those_that_come_together_more_than_by_chance() -> None:
    learned = learn_bigrams(corpus(), min_count=20)
    assert ("chest", "pain") in learned
    assert ("severe", "cough") not in learned  # seen nearly as often, but "severe" stands before many words
    assert not {"the", "###"} & {word for pair in learned for word in pair}
    assert learn_bigrams(corpus(), min_count=1000) == frozenset()
    assert learn_bigrams(corpus(), min_count=20, max_bigrams=1) == {("chest", "pain")}


def test_npmi_by_hand() -> None:
    counts = BigramCounts()
    for tokens in corpus()[:2]:
        count_bigrams(counts, tokens)  # 7 words, pain twice
    assert counts.npmi("chest", "pain") == pytest.approx(log((1 / 7) / ((1 / 7) * (2 / 7))) / -log(1 / 7))
    assert counts.npmi("pain", "chest") == -1.0


def test_counting_stays_bounded_and_says_so() -> None:
    counts = BigramCounts(max_pairs=50)
    for i in range(500):
        count_bigrams(counts, tokenize(f"chest pain word{i} other{i}"))
    assert len(counts.pairs) <= 50 and counts.floor > 0
    assert 500 - counts.floor <= counts.pairs["chest", "pain"] <= 500
