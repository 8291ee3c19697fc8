"""Figures and claims of README.md and of the first page of the site."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from whatelse.cli import app
from whatelse.knowledge import load_knowledge

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text("utf-8")
INDEX = (ROOT / "docs" / "index.md").read_text("utf-8")
NOTE = "72M on coumadin, headache, confused since yesterday"
POINTS = 0.02  # a printed probability may be off by so much: the page need not change with every entry


def ask(*options: str) -> dict[str, Any]:
    ran = CliRunner().invoke(app, ["ask", NOTE, "--json", *options])
    assert ran.exit_code == 0, ran.output
    answer: dict[str, Any] = json.loads(ran.stdout)
    return answer


@pytest.fixture(scope="module")
def answer() -> dict[str, Any]:
    return ask()


def test_the_answer_in_the_readme_is_what_ask_answers(answer: dict[str, Any]) -> None:
    assert f'whatelse ask "{NOTE}"' in README
    parts = ("likely", "must_not_miss", "also_possible")
    answered = {tag["title"]: (part, tag) for part in parts for tag in answer[part]}
    rows = re.findall(r"^(\S[^\n]*?) {2,}(\d+)% +(\d+) ", README, re.MULTILINE)
    assert len(rows) >= 3
    for title, percent, times in rows:
        tag = answered[title][1]
        assert tag["probability"] == pytest.approx(int(percent) / 100, abs=POINTS), title
        assert tag["probability"] / tag["usual"] == pytest.approx(int(times), rel=0.35), title
    dangers = re.search(r"^must not be missed.*\n(\S.*?) {2,}", README, re.MULTILINE)
    assert dangers is not None and answered[dangers[1]][0] == "must_not_miss"


def test_confirming_a_fall_lifts_the_hematoma_as_the_pages_say(answer: dict[str, Any]) -> None:
    before, after = (
        next(t["probability"] for t in found["likely"] + found["must_not_miss"] if t["title"] == "Subdural hematoma")
        for found in (answer, ask("--confirmed", "fall"))
    )
    for page, pattern in ((README, r"goes from (\d+)% to (\d+)%"), (INDEX, r"hematoma at (\d+)%, and at (\d+)% once")):
        said = re.search(pattern, page)
        assert said is not None
        assert before == pytest.approx(int(said[1]) / 100, abs=POINTS)
        assert after == pytest.approx(int(said[2]) / 100, abs=2 * POINTS)


def test_the_number_of_conditions() -> None:
    said = {int(text.replace(",", "")) for text in re.findall(r"more than\s+([\d,]+) conditions", README + INDEX)}
    assert len(said) == 1 and len(load_knowledge().conditions) > said.pop()
