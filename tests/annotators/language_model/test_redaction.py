"""Names, dates and numbers are removed before a record is sent."""

from __future__ import annotations

import pytest

from whatelse.annotators import AnchorSet
from whatelse.annotators.language_model.prompt import Prompt, describe, known_words
from whatelse.annotators.language_model.redaction import Redactor
from whatelse.knowledge import load_knowledge
from whatelse.visits import Visit

REDACT = Redactor({"lasix", "parkinson", "smith", "given", "chest", "pain"})


@pytest.mark.parametrize(
    ("text", "sent"),
    [
        ("seen by Dr. Maria Lopez today", "seen by NAME today"),
        ("Pt John Smith fell. Chest pain", "Pt NAME fell. Chest pain"),
        (
            "her son Peter called, given Lasix, has HTN and Parkinson's",
            "her son NAME called, given Lasix, has HTN and Parkinson's",
        ),
        ("fell on 3/12/2019, again 2020-01-02", "fell on DATE, again DATE"),
        ("since March 3rd and 4 May 2020", "since DATE and DATE"),
        ("BP 120/80, call 555-123-4567", "BP #, call #"),
        ("write to a.b@example.org", "write to NAME"),
        ("PT JOHN FELL 3 TIMES", "PT JOHN FELL # TIMES"),
    ],
)
def test_removed(text: str, sent: str) -> None:
    assert REDACT(text) == sent


def test_nothing_removed_is_in_a_question() -> None:
    visit = Visit(
        "V-1", age=44, triage_note="John Meyer says: pain since Jan 5. Mother Anna Meyer, 555 1234, given Lasix"
    )
    base = load_knowledge()
    prompt = Prompt(describe(AnchorSet.shipped(), base), Redactor(known_words(base)))
    text = str(list(prompt.questions(prompt.record(visit))))
    assert "Lasix" in text and not any(word in text for word in ("Meyer", "Anna", "Jan 5", "1234", "44", "V-1"))
