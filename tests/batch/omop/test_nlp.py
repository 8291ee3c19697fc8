"""NOTE_NLP: each row points at the very words of the note it names, whoever wrote before."""

from __future__ import annotations

import csv
import sqlite3
from pathlib import Path
from typing import Any

import duckdb
import pytest
from typer.testing import CliRunner

from tests.sources.test_omop import CDM, write_csv
from tests.support.serving import save_model
from whatelse.batch.omop.nlp import COLUMNS, FIRST
from whatelse.cli import app

NOTES = {
    1: ("Emergency department Triage note", "  fell, hit head. denies loc, denies fever"),
    2: ("Emergency department Triage note", "\n81F s/p fall on stairs, dizziness"),
    3: ("ED Provider Note", "s/p fall. ct head neg; wrist pain"),
    4: ("Discharge letter", "fell, hit head"),
}


@pytest.fixture
def cdm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    day = {"note_date": "2026-05-01", "note_datetime": None, "note_class_concept_id": 0, "visit_occurrence_id": 1}
    rows = [{"note_id": n, "note_title": title, "note_text": text, **day} for n, (title, text) in NOTES.items()]
    monkeypatch.setitem(CDM, "note", rows)
    fall = {"concept_name": "Fall", "vocabulary_id": "SNOMED", "concept_class_id": "x"}
    monkeypatch.setitem(CDM, "concept", [*CDM["concept"], {"concept_id": 20, "concept_code": "1912002", **fall}])
    return write_csv(tmp_path / "cdm")


def run(tmp_path: Path, cdm: Path, out: str, *more: str) -> str:
    given = ["tag", str(save_model(tmp_path)), str(cdm), "--omop", out, "--threshold", "0.3", *more]
    done = CliRunner().invoke(app, given)
    assert done.exit_code == 0, done.output
    return done.output


def check(rows: list[dict[str, Any]]) -> None:
    assert rows
    for row in rows:
        text, start = NOTES[int(row["note_id"])][1], int(row["offset"])
        assert text[start : start + len(row["lexical_variant"])] == row["lexical_variant"]
        assert row["lexical_variant"] in row["snippet"] and row["snippet"] in text
        assert row["nlp_system"] == "whatelse" and row["term_exists"] in "YN" and row["nlp_date"]
    assert {int(row["note_id"]) for row in rows} == {1, 2, 3}, "a letter is not a note of the visit"
    said = {(int(row["note_id"]), row["lexical_variant"], row["term_exists"]) for row in rows}
    assert (1, "hit head", "Y") in said or (1, "hit", "Y") in said
    assert any(note == 1 and exists == "N" for note, _, exists in said), "what is denied does not exist"
    fallen = [row for row in rows if str(row["term_modifiers"]).startswith("condition=fall")]
    assert {int(row["note_id"]) for row in fallen} & {2, 3} and {int(r["note_nlp_concept_id"]) for r in fallen} == {20}
    numbers = [int(row["note_nlp_id"]) for row in rows]
    assert len(set(numbers)) == len(numbers) and min(numbers) > FIRST


def test_rows_point_at_their_words_and_writing_twice_is_writing_once(tmp_path: Path, cdm: Path) -> None:
    out = tmp_path / "results"
    for _ in range(2):
        said = run(tmp_path, cdm, str(out), "--note-nlp")
        with (out / "note_nlp.csv").open(newline="") as stream:
            reader = csv.DictReader(stream)
            assert reader.fieldnames == list(COLUMNS)
            rows = list(reader)
        check(rows)
        assert f"note_nlp {len(rows):,}" in said
    other = dict.fromkeys(COLUMNS, "0") | {"note_nlp_id": "7", "nlp_system": "another"}
    with (out / "note_nlp.csv").open("a", newline="") as stream:
        csv.DictWriter(stream, list(COLUMNS)).writerow(other)
    run(tmp_path, cdm, str(out), "--note-nlp")
    with (out / "note_nlp.csv").open(newline="") as stream:
        again = list(csv.DictReader(stream))
    assert [row["nlp_system"] for row in again].count("another") == 1 and len(again) == len(rows) + 1


def test_into_the_results_schema_alone_and_only_if_asked(tmp_path: Path, cdm: Path) -> None:
    target, file = f"duckdb:///{tmp_path / 'hospital.duckdb'}", str(tmp_path / "hospital.duckdb")
    run(tmp_path, cdm, target, "--results-schema", "results")
    with duckdb.connect(file) as connection:
        tables = connection.execute("SELECT table_name FROM duckdb_tables()").fetchall()
        assert ("cohort",) in tables and ("note_nlp",) not in tables
    for _ in range(2):
        run(tmp_path, cdm, target, "--results-schema", "results", "--note-nlp")
    with duckdb.connect(file) as connection:
        found = connection.execute("SELECT * FROM results.note_nlp")
        names = [column[0] for column in found.description or ()]
        check([dict(zip(names, row, strict=True)) for row in found.fetchall()])
        schemas = connection.execute("SELECT DISTINCT schema_name FROM duckdb_tables()").fetchall()
        assert schemas == [("results",)]
    for _ in range(2):
        run(tmp_path, cdm, f"sqlite:///{tmp_path / 'r.db'}", "--note-nlp")
    with sqlite3.connect(tmp_path / "r.db") as database:
        database.row_factory = sqlite3.Row
        check([dict(row) for row in database.execute("SELECT * FROM note_nlp")])
