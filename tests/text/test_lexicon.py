"""Lexicons: what is refused, what is kept; spellings, plurals and misspellings of words."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from whatelse.errors import InputError
from whatelse.text.lexicon import EMPTY, Entry, Lexicon, cut_term, load_grammar, load_shorthand
from whatelse.text.spelling import Corrector, american, english, one_slip, singular

FEVER = Entry("fever", "symptom", ("fever", "febrile"))
KNEE, PAIN = Entry("knee", "site", ("knee",)), Entry("pain", "head", ("pain",))


@pytest.mark.parametrize(
    ("entries", "problem"),
    [
        ([FEVER, FEVER], "'fever' twice"),
        ([FEVER, Entry("heat", "symptom", ("Febrile",))], "'Febrile' is in two concepts, 'fever' and 'heat'"),
        ([Entry("dots", "symptom", ("...",))], "'dots': the term '...' has no word in it"),
        ([Entry("chill", "symptom", ("chill",), ("warmth",))], "'chill': the wider concept 'warmth' is not defined"),
        ([Entry("a", "symptom", ("a1",), ("b",)), Entry("b", "symptom", ("b1",), ("a",))], "is a kind of itself"),
        ([Entry("a", "symptom", ("a1",), ("a",))], "is a kind of itself"),
    ],
)
def test_lexicons_that_are_refused(entries: list[Entry], problem: str) -> None:
    with pytest.raises(InputError, match=problem):
        Lexicon.of(entries)


def test_a_composed_name_may_be_a_wider_concept() -> None:
    lexicon = Lexicon.of([KNEE, PAIN, Entry("runners_knee", "disease", ("runners knee",), ("knee_pain",))])
    assert lexicon.ancestors("runners_knee") == ("knee_pain", "pain")


def test_json_gives_the_same_lexicon() -> None:
    lexicon = Lexicon.of([FEVER, KNEE, PAIN])
    assert Lexicon.from_json(json.loads(json.dumps(lexicon.to_json()))) == lexicon
    assert Lexicon.from_json(EMPTY.to_json()).entries == ()


@pytest.mark.parametrize(
    "damage",
    [
        lambda value: value.pop("entries"),
        lambda value: value["entries"].append(["x"]),
        lambda value: value["entries"][0].__setitem__(2, "fever"),
        lambda value: value["grammar"].__setitem__("nouns", []),
        lambda value: value["shorthand"].__setitem__("zz", [{"meaning": "x"}]),
        lambda value: value.__setitem__("leave", [1]),
    ],
)
def test_damaged_json_is_refused(damage: Callable[[dict[str, object]], object]) -> None:
    value = Lexicon.of([FEVER]).to_json()
    damage(value)
    with pytest.raises(InputError):
        Lexicon.from_json(value)


def test_shipped_words_are_text() -> None:
    """YAML reads an unquoted on, no or 02 as something else, which loading refuses."""
    assert "on" in load_grammar()["links"]
    assert all(sense.means for senses in load_shorthand().values() for sense in senses)


@pytest.mark.parametrize(
    ("term", "words"),
    [
        ("Type-2 Diabetes", ("type", "2", "diabetes")),
        ("+ fever", ("+", "fever")),
        ("(fever)", ("fever",)),
        ("abd. pain", ("abd", ".", "pain")),
        ("n/v", ("n/v",)),
        ("?", ()),
    ],
)
def test_terms_are_cut_as_notes_are(term: str, words: tuple[str, ...]) -> None:
    assert cut_term(term) == words


@pytest.mark.parametrize(
    ("british", "form"),
    [("oedema", "edema"), ("haemorrhage", "hemorrhage"), ("tumour", "tumor"), ("generalised", "generalized"),
     ("toe", "toe"), ("pain", "pain"), ("centre", "center")],
)  # fmt: skip
def test_british_spellings(british: str, form: str) -> None:
    assert american(british) == form


@pytest.mark.parametrize(
    ("plural", "form"),
    [("rashes", "rash"), ("injuries", "injury"), ("toes", "toe"), ("masses", "mass"), ("diagnoses", "diagnosis"),
     ("gas", "gas"), ("pus", "pus"), ("loss", "loss"), ("ms", "ms"), ("noses", "nose"), ("pelvis", "pelvis")],
)  # fmt: skip
def test_plurals(plural: str, form: str) -> None:
    assert singular(plural) == form


def slips(word: str) -> set[str]:
    """Every word one slip away from `word`, by definition."""
    letters = "abcdefghijklmnopqrstuvwxyz"
    cuts = [(word[:k], word[k:]) for k in range(len(word) + 1)]
    added = {a + c + b for a, b in cuts for c in letters}
    left_out = {a + b[1:] for a, b in cuts if b}
    changed = {a + c + b[1:] for a, b in cuts if b for c in letters}
    swapped = {a + b[1] + b[0] + b[2:] for a, b in cuts if len(b) > 1}
    return (added | left_out | changed | swapped) - {word}


@given(st.text("abc", max_size=6), st.text("abc", max_size=6))
def test_one_slip_is_its_definition(a: str, b: str) -> None:
    assert one_slip(a, b) == (b in slips(a))


def test_every_slip_with_the_same_first_letter_is_corrected() -> None:
    for target in ("abcdefg", "pneumonia", "hallucination"):
        corrector = Corrector([target])
        for word in slips(target):
            assert corrector.correct(word) == (target if word[0] == target[0] else None), word


def test_words_that_are_left_alone() -> None:
    corrector = Corrector(["dysphagia", "dysphasia", "falling", "short"], leave=english())
    assert corrector.correct("dysphaxia") is None  # two targets
    assert corrector.correct("failing") is None  # an English word
    assert corrector.correct("shortt") is None  # a target of fewer than seven letters
    assert corrector.correct("falllng") == "falling"
