"""`simulate --causes`: a file beside the visits that says what put every word and code there."""

from __future__ import annotations

import json
from pathlib import Path

from typer.testing import CliRunner

from whatelse.cli import app
from whatelse.sources import read_visits


def test_causes_join_with_the_text(tmp_path: Path) -> None:
    visits, causes, plain = tmp_path / "visits.jsonl", tmp_path / "causes.jsonl", tmp_path / "plain.jsonl"
    for arguments in (["--out", str(visits), "--causes", str(causes)], ["--out", str(plain)]):
        result = CliRunner().invoke(app, ["simulate", "--visits", "120", "--seed", "6", *arguments])
        assert result.exit_code == 0, result.output
    assert visits.read_bytes() == plain.read_bytes()  # asking why changes nothing
    assert sorted(p.name for p in tmp_path.iterdir()) == ["causes.jsonl", "plain.jsonl", "visits.jsonl"]
    lines = [json.loads(line) for line in causes.read_text("utf-8").splitlines()]
    records = {visit.id: visit for visit in read_visits(visits)}
    assert [line["id"] for line in lines] == list(records)
    named = 0
    for line in lines:
        visit = records[line["id"]]
        for field, start, end, kind, cause in line["causes"]:
            assert kind in ("condition", "outside", "illness", "mention", "none")
            assert 0 <= start < end <= len(getattr(visit, field))
            named += kind == "condition" and cause in (visit.truth or ()) and field == "triage_note"
    assert named > 50
