"""docs/answers.md: what the shipped model says to ten notes is what it says today."""

from __future__ import annotations

import re
from pathlib import Path

from whatelse.tagger import Tagger
from whatelse.visits import Visit

PAGE = Path(__file__).parents[1] / "docs" / "answers.md"
ASKED = re.compile(r'^\$ whatelse ask "(.+)" --age (\S+) --sex (\S)$', re.MULTILINE)


def test_the_first_suggestion_to_each_note_is_the_one_on_the_page() -> None:
    parts = re.findall(r"^```text\n(.*?)^```$", PAGE.read_text("utf-8"), re.MULTILINE | re.DOTALL)
    tagger = Tagger.load("emergency")
    for part in parts:
        (asked,) = ASKED.findall(part)
        found = tagger.read(Visit("note", age=float(asked[1]), sex=asked[2], triage_note=asked[0])).suggest()
        shown = (*found.likely, *found.must_not_miss, *found.candidates)[0].title
        first = re.search(r"^│ (\S.*?)\s+│", part, re.MULTILINE)
        assert first and shown.startswith(first[1]), f"{asked[0]}: {shown} is first; python scripts/knowledge_page.py"
    assert len(parts) == 10
