"""A note as it was understood, for people."""

from __future__ import annotations

import json
from html import unescape
from re import sub

import pytest

from whatelse.text import NoteReader, load_lexicon

READER = NoteReader(load_lexicon())
NOTE = "72M fell, hit head, no LOC, BP 85/50, HR 121. h/o afib. ?SDH. frobnicated; return if vomiting"


def test_note_says_mentions_values_age_and_what_was_ignored() -> None:
    note = READER.note(NOTE)
    found = {m.finding for m in note.mentions}
    assert {"head_impact", "neg:loss_of_consciousness", "hypotension", "tachycardia"} <= found
    assert {"atrial_fibrillation", "possible:subdural_hematoma"} <= found
    assert [(m.assertion, m.finding) for m in note.mentions if m.concept == "vomiting"] == [("hypothetical", "")]
    assert [word.text for word in note.ignored] == ["frobnicated"]
    assert [age.years for age in note.numbers.ages] == [72]
    assert json.loads(json.dumps(note.to_json()))["values"][0]["value"] == 85
    assert "frobnicated" in str(note) and "hypotension" in str(note)


@pytest.mark.parametrize(
    ("text", "hypotension"),
    [("no LOC, BP 85/50", True), ("denies cp, sob; bp 85/50", True), ("denies BP 85/50", False)],
)
def test_list_of_denials_does_not_reach_a_value(text: str, hypotension: bool) -> None:
    assert any(m.finding == "hypotension" for m in READER.mentions(text)) == hypotension


def test_html_is_the_note_with_marks_and_is_escaped() -> None:
    text = NOTE + " <script>alert(1)</script> & pain and swelling to ankle"
    html = READER.note(text)._repr_html_()
    assert "<script>" not in html and "<mark" in html and "<sup> NO</sup>" in html
    assert unescape(sub("<sup>.*?</sup>|<[^>]*>", "", html)) == text


def test_note_without_a_concept() -> None:
    assert "no concept found" in str(READER.note("")) and READER.note("").words == 0
