"""Reading what a language model says."""

from __future__ import annotations

import json

import pytest

from whatelse.annotators.language_model.answers import (
    ANSWERED,
    CONTRADICTED,
    MISSING,
    UNKNOWN,
    UNSUPPORTED,
    looks_refused,
    read_answers,
    repaired,
)

RECORD = "triage note: Pt c/o  CHEST pain, denies fever. Fell yesterday."
GOOD = {"answers": [{"condition": "chest pain", "answer": "yes", "words": "chest pain"}]}


def said(*entries: tuple[str, object, str]) -> str:
    return json.dumps({"answers": [{"condition": c, "answer": a, "words": w} for c, a, w in entries]})


def test_yes_needs_words_that_stand_in_the_record() -> None:
    found = read_answers(
        said(("fall", "yes", "fell yesterday"), ("fever", "yes", "fever of 40"), ("chest pain", "YES", "")),
        ["fall", "fever", "chest pain"],
        RECORD,
    )
    assert found is not None
    assert found["fall"] == (True, "fell yesterday", ANSWERED)
    assert found["fever"] == found["chest pain"] == (None, "", UNSUPPORTED)


def test_words_are_compared_without_case_blanks_and_quotes() -> None:
    for words in ("Chest Pain", "'chest pain,'", "pt c/o ... fell", "c/o chest\npain"):
        found = read_answers(said(("fall", "yes", words)), ["fall"], RECORD)
        assert found is not None and found["fall"].value is True, words
    found = read_answers(said(("fall", "yes", "fell ... from a roof")), ["fall"], RECORD)
    assert found is not None and found["fall"].status == UNSUPPORTED


def test_no_needs_no_words_and_unknown_is_an_abstention() -> None:
    found = read_answers(
        said(("fall", "no", ""), ("uti", "unknown", "x"), ("cva", None, "")), ["fall", "uti", "cva"], ""
    )
    assert found is not None
    assert found["fall"] == (False, "", ANSWERED)
    assert found["uti"] == found["cva"] == (None, "", UNKNOWN)


def test_two_answers_that_differ_are_no_vote() -> None:
    text = said(("fall", "no", ""), ("fall", "yes", "fell"), ("fall", "no", ""), ("uti", "no", ""), ("uti", "no", ""))
    found = read_answers(text, ["fall", "uti"], RECORD)
    assert found is not None
    assert found["fall"] == (None, "", CONTRADICTED) and found["uti"].value is False


def test_only_conditions_that_were_asked_about_are_read() -> None:
    found = read_answers(
        said(("gout", "yes", "fell"), ("Chest_Pain", "yes", "chest pain")), ["chest pain", "uti"], RECORD
    )
    assert found is not None
    assert list(found) == ["chest pain", "uti"]
    assert found["chest pain"].value is True and found["uti"].status == MISSING


@pytest.mark.parametrize(
    "text",
    [
        json.dumps(GOOD),
        "```json\n" + json.dumps(GOOD, indent=2) + "\n```\nHope this helps {really}."[:30],
        "<think>{not this}</think> Sure: " + json.dumps(GOOD),
        json.dumps(GOOD)[:-2] + ",]}",
        json.dumps(GOOD)[:-2] + ', {"condition": "fal',
        json.dumps(GOOD["answers"]),
        json.dumps({"chest pain": {"answer": "yes", "words": "chest pain"}}),
    ],
)
def test_mended(text: str) -> None:
    found = read_answers(text, ["chest pain"], RECORD)
    assert found is not None and found["chest pain"].value is True


@pytest.mark.parametrize(
    "text", ["", "The patient is ill.", "{", "[[[[", "{}", "[1, 2]", '{"answers": 3}', "[" * 100_000, '{"answers": []}']
)
def test_not_to_be_mended(text: str) -> None:
    assert read_answers(text, ["chest pain"], RECORD) is None


def test_answers_of_other_types_are_passed_over() -> None:
    odd = {"answers": [3, None, {"condition": 4, "answer": "yes"}, {"condition": "fall", "answer": ["yes"]}]}
    assert read_answers(json.dumps(odd), ["fall"], RECORD) is None
    assert repaired("no json") is None


def test_refusals() -> None:
    assert looks_refused("I'm sorry, I can't help with that.") and looks_refused("As an AI, I do not diagnose")
    assert not looks_refused("The patient is sorry")
