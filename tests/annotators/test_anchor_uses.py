"""Anchors one by one: what they match, where they fired, and why one never can."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from whatelse.annotators import AnchorSet
from whatelse.annotators.anchor_uses import anchor_uses
from whatelse.cli import app
from whatelse.cohort import build_cohort
from whatelse.cohort.findings import Finder
from whatelse.visits import Code, Visit

CONDITIONS = {
    "conditions": [
        {"name": "belly", "anchors": {"notes": ["abd. pain", "belly ache"]}},
        {"name": "chest", "anchors": {"notes": ["pain, chest", "no pulse"], "coded": {"rfv": ["10500"]}}},
        {"name": "ache", "anchors": {"drugs": ["ibuprofen"]}},
    ]
}
ANCHORS = AnchorSet.from_json(CONDITIONS)


@pytest.mark.parametrize(
    ("phrase", "note", "fires"),
    [
        ("abd. pain", "c/o abd. pain since", True),
        ("abd. pain", "ABD.  PAIN", True),
        ("abd. pain", "abd pain", False),
        ("abd. pain", "abd; pain", False),
        ("abd. pain", "abd.\npain", False),
        ("abd. pain", "no abd. pain", False),
        ("abd. pain", "swelling of abd. pain", True),
        ("pain, chest", "pain, chest and arm", True),
        ("pain, chest", "pain ,chest", True),
        ("pain, chest", "pain chest", False),
        ("pain, chest", "pain,, chest", False),
        ("chest pain", "chest, pain", False),
        ("chest pain", "chest-pain", True),
        ("x-ray (chest)", "x-ray (chest) done", True),
        ("x-ray (chest)", "x ray chest done", False),
    ],
)
def test_a_phrase_matches_what_it_says(phrase: str, note: str, fires: bool) -> None:
    finder = Finder(AnchorSet.from_json({"conditions": [{"name": "x", "anchors": {"notes": [phrase]}}]}))
    assert bool(finder.anchor_mentions([Visit("1", triage_note=note)])) == fires
    cohort = build_cohort([Visit("1", triage_note=note), Visit("2", triage_note="other")], finder.anchors)
    assert cohort.A.tolist() == [[fires], [False]]


VISITS = [
    Visit("1", triage_note="here for abd. pain and belly ache since the morning, worse after eating"),
    Visit("2", triage_note="belly ache", chief_complaint="belly ache"),
    Visit("3", chief_complaint="pain, chest", coded=(Code("rfv", "10500", "chest pain"),)),
    Visit("4", dispensed=(Code("name", "ibuprofen", "Ibuprofen 400 mg"),), triage_note="no pulse"),
]


def test_each_anchor_is_counted_with_examples() -> None:
    vocabulary = build_cohort(VISITS, ANCHORS, lexicon="none").vocabulary
    uses = {use.value: use for use in anchor_uses(vocabulary, VISITS, examples=1)}
    counts = {value: (use.condition, use.visits, use.alone) for value, use in uses.items()}
    assert counts == {
        "abd. pain": ("belly", 1, 0),
        "belly ache": ("belly", 2, 1),
        "pain, chest": ("chest", 1, 0),
        "no pulse": ("chest", 0, 0),
        "10500": ("chest", 1, 0),
        "ibuprofen": ("ache", 1, 1),
    }
    (example,) = uses["belly ache"].examples
    assert example.visit == "1" and example.text[example.start : example.end] == "belly ache"
    assert example.text.endswith("…") and uses["ibuprofen"].examples[0].text == "Ibuprofen 400 mg"
    assert uses["no pulse"].problem is not None and "its own words negate it" in uses["no pulse"].problem
    assert "morning" not in json.dumps(uses["belly ache"].to_json())


def test_anchors_check_reads_the_records_again(tmp_path: Path) -> None:
    from whatelse.sources import write_visits

    write_visits(VISITS, tmp_path / "visits.jsonl")
    (tmp_path / "c.yaml").write_text(json.dumps(CONDITIONS), encoding="utf-8")
    run = CliRunner()
    built = run.invoke(
        app,
        [
            "build",
            str(tmp_path / "visits.jsonl"),
            "--conditions",
            str(tmp_path / "c.yaml"),
            "--out",
            str(tmp_path / "c"),
        ],
    )
    assert built.exit_code == 0, built.output
    said = run.invoke(app, ["anchors", "check", str(tmp_path / "c")])
    assert said.exit_code == 0 and "what fired" in said.output and "belly ache since the morning" in said.output
    as_json = json.loads(run.invoke(app, ["anchors", "check", str(tmp_path / "c"), "--json"]).output)
    assert [a["visits"] for a in as_json[0]["anchors"]] == [1, 2] and "morning" not in json.dumps(as_json)
    (tmp_path / "visits.jsonl").rename(tmp_path / "moved.jsonl")
    gone = run.invoke(app, ["anchors", "check", str(tmp_path / "c")])
    assert gone.exit_code == 0 and "cannot be read again" in gone.output and "give --visits" in gone.output
    moved = run.invoke(app, ["anchors", "check", str(tmp_path / "c"), "--visits", str(tmp_path / "moved.jsonl")])
    assert "what fired" in moved.output
    wrong = run.invoke(app, ["anchors", "check", str(tmp_path / "c"), "--visits", str(tmp_path / "none.jsonl")])
    assert wrong.exit_code == 2 and "no such file" in wrong.output
