"""OMOP CDM tables -> visits, and results back: from files, DuckDB and SQLAlchemy the same."""

from __future__ import annotations

import csv
import shutil
import sqlite3
from datetime import date, datetime
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.support import postgres
from whatelse.annotators import AnchorSet
from whatelse.batch.omop.results import Stay, definition_id, make_results, write_results
from whatelse.cohort import build_cohort
from whatelse.errors import InputError
from whatelse.sources import read_visits
from whatelse.sources.omop.tables import TABLES
from whatelse.visits import Code, Visit

CDM: dict[str, list[dict[str, Any]]] = {
    "visit_occurrence": [
        {"visit_occurrence_id": 1, "person_id": 7, "visit_concept_id": 9203, "visit_start_date": "2026-05-01",
         "visit_start_datetime": "2026-05-01 10:00:00", "visit_end_date": "2026-05-01"},
        {"visit_occurrence_id": 2, "person_id": 7, "visit_concept_id": 9202, "visit_start_date": "2026-01-01",
         "visit_start_datetime": None, "visit_end_date": "2026-01-01"},
        {"visit_occurrence_id": 3, "person_id": 8, "visit_concept_id": 262, "visit_start_date": "2026-06-01",
         "visit_start_datetime": None, "visit_end_date": None},
    ],
    "person": [
        {"person_id": 7, "gender_concept_id": 8532, "year_of_birth": 1946, "month_of_birth": 5, "day_of_birth": 2},
        {"person_id": 8, "gender_concept_id": 0, "year_of_birth": 1990, "month_of_birth": None, "day_of_birth": None},
    ],
    "drug_exposure": [
        {"person_id": 7, "drug_concept_id": 10, "drug_exposure_start_date": "2026-05-01", "visit_occurrence_id": 1,
         "drug_exposure_end_date": "2026-05-01", "drug_type_concept_id": 32818, "drug_source_value": "x"},
        {"person_id": 7, "drug_concept_id": 11, "drug_exposure_start_date": "2026-01-01", "visit_occurrence_id": 2,
         "drug_exposure_end_date": "2026-12-31", "drug_type_concept_id": 32838, "drug_source_value": "y"},
        {"person_id": 7, "drug_concept_id": 0, "drug_exposure_start_date": "2026-05-01", "visit_occurrence_id": 1,
         "drug_exposure_end_date": None, "drug_type_concept_id": 32830, "drug_source_value": "Lasix 40mg"},
        {"person_id": 7, "drug_concept_id": 10, "drug_exposure_start_date": "2025-01-01", "visit_occurrence_id": 2,
         "drug_exposure_end_date": "2025-01-09", "drug_type_concept_id": 32838, "drug_source_value": "ended"},
    ],
    "condition_occurrence": [
        {"person_id": 7, "condition_concept_id": 20, "condition_start_date": "2026-05-01", "visit_occurrence_id": 1,
         "condition_end_date": None, "condition_source_value": "N39.0", "condition_source_concept_id": 21},
        {"person_id": 7, "condition_concept_id": 22, "condition_start_date": "2026-01-01", "visit_occurrence_id": 2,
         "condition_end_date": None, "condition_source_value": "I10", "condition_source_concept_id": 0},
        {"person_id": 7, "condition_concept_id": 20, "condition_start_date": "2025-01-01", "visit_occurrence_id": 2,
         "condition_end_date": "2025-02-01", "condition_source_value": "N39.0", "condition_source_concept_id": 21},
    ],
    "measurement": [
        {"measurement_concept_id": 30, "measurement_date": "2026-05-01", "measurement_datetime": "2026-05-01 12:00:00",
         "value_as_number": 80, "visit_occurrence_id": 1},
        {"measurement_concept_id": 30, "measurement_date": "2026-05-01", "measurement_datetime": "2026-05-01 10:05:00",
         "value_as_number": 118, "visit_occurrence_id": 1},
    ],
    "observation": [{"observation_concept_id": 31, "value_as_string": "s/p fall", "visit_occurrence_id": 1}],
    "note": [
        {"note_id": 2, "note_date": "2026-05-01", "note_datetime": None, "note_class_concept_id": 0,
         "note_title": "ED Provider Note", "note_text": "fell; ct \"neg\"\nhome", "visit_occurrence_id": 1},
        {"note_id": 1, "note_date": "2026-05-01", "note_datetime": None, "note_class_concept_id": 32,
         "note_title": "note", "note_text": "fell, hit head", "visit_occurrence_id": 1},
    ],
    "observation_period": [
        {"person_id": 7, "observation_period_start_date": "2020-01-01", "observation_period_end_date": "2026-12-31"},
    ],
    "concept": [
        {"concept_id": i, "concept_name": n, "vocabulary_id": v, "concept_class_id": k, "concept_code": c}
        for i, n, v, k, c in [
            (10, "acetaminophen 325 MG / hydrocodone bitartrate 5 MG Oral Tablet", "RxNorm", "Clinical Drug", "856987"),
            (11, "warfarin sodium 5 MG Oral Tablet", "RxNorm", "Clinical Drug", "855332"),
            (12, "acetaminophen", "RxNorm", "Ingredient", "161"), (13, "hydrocodone", "RxNorm", "Ingredient", "5489"),
            (14, "opioids", "ATC", "ATC 3rd", "N02A"),
            (20, "Urinary tract infectious disease", "SNOMED", "x", "68566005"),
            (21, "Urinary tract infection", "ICD10CM", "x", "N39.0"), (22, "Hypertension", "SNOMED", "x", "38341003"),
            (30, "Heart rate", "LOINC", "x", "8867-4"), (31, "Chief complaint", "LOINC", "x", "8661-1"),
            (32, "Emergency department Triage note", "LOINC", "x", "54094-8"),
        ]
    ],
    "concept_ancestor": [{"ancestor_concept_id": a, "descendant_concept_id": 10} for a in (12, 13, 14)],
}  # fmt: skip
EXPECTED = [
    Visit(
        "1", age=79.0, sex="F", chief_complaint="s/p fall", triage_note="fell, hit head",
        md_comments='fell; ct "neg"\nhome', time=datetime(2026, 5, 1, 10),
        medication_history=(Code("name", "lasix", "lasix"), Code("rxnorm", "855332", "warfarin")),
        dispensed=(Code("rxnorm", "856987", "acetaminophen-hydrocodone"),),
        billing=(Code("icd10", "N390", "Urinary tract infection"),),
        coded=(Code("vital", "pulse-high", "pulse > 100"), Code("chronic", "htn", "hypertension")),
    ),
    Visit(
        "3", age=36.0, triage_note="", md_comments="", medication_history=(), dispensed=(), billing=(), coded=(),
        time=datetime(2026, 6, 1),
    ),
]  # fmt: skip


def write_csv(folder: Path) -> Path:
    folder.mkdir(exist_ok=True)
    for name, rows in CDM.items():
        with (folder / f"{name.upper()}.csv").open("w", newline="") as stream:
            writer = csv.DictWriter(stream, list(rows[0]))
            writer.writeheader()
            writer.writerows(rows)
    return folder


def write_duckdb(tmp_path: Path) -> str:
    folder = write_csv(tmp_path / "csv")
    with duckdb.connect(str(tmp_path / "hospital.duckdb")) as connection:
        connection.execute("CREATE SCHEMA cdm")
        for name in CDM:
            connection.execute(f"CREATE TABLE cdm.{name} AS SELECT * FROM read_csv('{folder / name.upper()}.csv')")
    return f"duckdb:///{tmp_path / 'hospital.duckdb'}"


def write_sqlite(tmp_path: Path) -> str:
    with sqlite3.connect(tmp_path / "cdm.db") as connection:
        _fill(connection.execute, "?")
    return f"sqlite:///{tmp_path / 'cdm.db'}"


def _fill(execute: Any, mark: str, schema: str = "") -> None:
    kinds = {"BIGINT": "BIGINT", "DATE": "DATE", "TIMESTAMP": "TIMESTAMP", "DOUBLE": "NUMERIC", "VARCHAR": "TEXT"}
    for name, rows in CDM.items():
        fields = ", ".join(f"{c} {kinds[k]}" for c, k in TABLES[name].columns.items())
        execute(f"CREATE TABLE {schema}{name} ({fields})")
        for row in rows:
            columns = ", ".join(row)
            execute(
                f"INSERT INTO {schema}{name} ({columns}) VALUES ({', '.join([mark] * len(row))})", tuple(row.values())
            )


def test_from_csv_parquet_duckdb_and_sql_it_is_the_same(tmp_path: Path) -> None:
    folder = write_csv(tmp_path / "csv")
    assert list(read_visits(folder, "omop")) == EXPECTED
    parquet = tmp_path / "parquet"
    parquet.mkdir()
    for name, rows in CDM.items():
        pq.write_table(pa.Table.from_pylist(rows), parquet / f"{name}.parquet")
    assert list(read_visits(parquet, "omop")) == EXPECTED
    assert list(read_visits(write_duckdb(tmp_path), "omop", options={"cdm_schema": "cdm"})) == EXPECTED
    through_a_path = Path(f"duckdb:///{tmp_path}/hospital.duckdb")  # as the command line gives it
    assert list(read_visits(through_a_path, "omop", options={"cdm_schema": "cdm"})) == EXPECTED
    assert list(read_visits(write_sqlite(tmp_path), "omop")) == EXPECTED


def test_what_is_missing_is_unknown_and_said(tmp_path: Path) -> None:
    folder = write_csv(tmp_path)
    for name in ("NOTE", "MEASUREMENT", "DRUG_EXPOSURE", "CONCEPT_ANCESTOR", "CONDITION_OCCURRENCE"):
        (folder / f"{name}.csv").unlink()
    reader = read_visits(folder, "omop")
    first = next(reader)
    assert (first.triage_note, first.dispensed, first.billing, first.coded) == (None, None, None, None)
    assert sum("no table" in note for note in reader.notes) == 5
    (folder / "PERSON.csv").unlink()
    with pytest.raises(InputError, match="no table person"):
        list(read_visits(folder, "omop"))


def test_errors_name_the_table_and_quote_nothing(tmp_path: Path) -> None:
    folder = write_csv(tmp_path)
    (folder / "PERSON.csv").write_text("person_id,gender\n7,secret\n")
    with pytest.raises(InputError, match="gender_concept_id") as refused:
        list(read_visits(folder, "omop"))
    assert "secret" not in str(refused.value)
    with pytest.raises(InputError, match="no such DuckDB file"):
        list(read_visits("duckdb:///nowhere.duckdb", "omop"))
    with pytest.raises(InputError) as hidden:
        list(read_visits("postgresql+nodriver://me:hunter2@db/x", "omop"))
    assert "hunter2" not in str(hidden.value)
    with pytest.raises(InputError, match="letters, digits"):
        list(read_visits(write_duckdb(tmp_path), "omop", options={"cdm_schema": 'x"; DROP'}))
    database = write_sqlite(tmp_path)
    with sqlite3.connect(tmp_path / "cdm.db") as connection:  # whose own error quotes the note
        connection.execute("UPDATE note SET note_text = CAST(X'736563726574FF' AS TEXT) WHERE visit_occurrence_id = 1")
    with pytest.raises(InputError, match="the table note cannot be read") as damaged:
        list(read_visits(database, "omop"))
    assert "secret" not in str(damaged.value) and damaged.value.__cause__ is None


@pytest.mark.parametrize(
    ("address", "shown"),
    [
        ("postgresql+psycopg://me:hunter2@db/omop", "postgresql+psycopg://me:***@db/omop"),
        ("postgresql://me:hun@ter2@db:5432/omop?x=1", "postgresql://me:***@db:5432/omop?x=1"),
        ("postgresql://me:hun/ter2@db/omop", "postgresql://me:***@db/omop"),
        ("postgresql://db/omop?user=me&password=hunter2&x=1", "postgresql://db/omop?user=me&password=***&x=1"),
        ("mssql://me@db/omop?PWD=hunter2", "mssql://me@db/omop?PWD=***"),
        ("sqlite:////data/a:b.db", "sqlite:////data/a:b.db"),
    ],
)
def test_a_cohort_keeps_the_address_and_not_the_password(address: str, shown: str) -> None:
    assert read_visits(address, "omop").about["files"] == [shown]


def test_synthea_builds_and_says_what_it_lacks(data_folder: Path) -> None:
    reader = read_visits(data_folder / "synthea-omop", "omop")
    visits = list(reader)
    assert len(visits) == 56 and not reader.left_out
    assert any("notes are unknown" in note for note in reader.notes)
    assert any(v.dispensed for v in visits) and any(v.medication_history for v in visits)
    assert build_cohort(visits, AnchorSet.shipped()).X.shape[0] == 56


def test_postgresql() -> None:
    with postgres.server() as url:
        import sqlalchemy as sa

        address = url.replace("postgresql://", "postgresql+psycopg://")
        engine = sa.create_engine(address)
        with engine.begin() as connection:
            connection.exec_driver_sql("CREATE SCHEMA cdm")
            connection.exec_driver_sql("CREATE SCHEMA results")
            _fill(connection.exec_driver_sql, "%s", "cdm.")
        assert list(read_visits(address, "omop", options={"cdm_schema": "cdm"})) == EXPECTED
        for _ in range(2):
            write_results(results(), address, "results")
        with engine.connect() as connection:
            assert connection.exec_driver_sql("SELECT count(*) FROM results.cohort").scalar() == 2
        engine.dispose()


# ---- results

CONDITIONS = ("uti", "gi bleed")
STAYS = {
    "1": Stay(7, date(2026, 5, 1), date(2026, 5, 3)),
    "2": Stay(7, date(2026, 5, 2), date(2026, 5, 9)),
    "3": Stay(8, date(2026, 5, 2), date(2026, 5, 2)),
    "4": Stay(9, date(2020, 1, 1), date(2020, 1, 1)),
}
PERIODS = {
    7: [(date(2020, 1, 1), date(2026, 5, 5))],
    8: [(date(2020, 1, 1), date(2030, 1, 1))],
    9: [(date(2026, 1, 1),) * 2],
}


def results(threshold: float = 0.5) -> Any:
    likely = [("1", (0.9, 0.1)), ("2", (0.5, 0.2)), ("3", (0.49, 0.8)), ("4", (0.99, 0.99)), ("unknown", (1.0, 1.0))]
    return make_results(CONDITIONS, likely, STAYS, PERIODS, threshold, "model abc", date(2026, 11, 1))


def test_rows_are_what_omopgenerics_checks() -> None:
    made = results()
    uti, bleed = map(definition_id, CONDITIONS)
    assert made[""] == [
        (uti, 7, date(2026, 5, 1), date(2026, 5, 5)),  # two that overlap, held to the observation period
        (bleed, 8, date(2026, 5, 2), date(2026, 5, 2)),
    ]
    for _, person, start, end in made[""]:
        assert start <= end and any(a <= start and end <= b for a, b in PERIODS[person])
    assert made["_set"] == [(uti, "whatelse_uti"), (bleed, "whatelse_gi_bleed")]
    assert [row[1:4] for row in made["_attrition"] if row[0] == uti] == [(3, 2, 1), (2, 1, 2), (1, 1, 3)]
    assert 10**9 <= uti < 2**31 and uti != bleed
    with pytest.raises(InputError, match="threshold"):
        results(0)


def test_writing_twice_is_writing_once_and_others_stay(tmp_path: Path) -> None:
    for _ in range(2):
        assert write_results(results(), tmp_path / "out")["cohort"] == 2
    lines = (tmp_path / "out" / "cohort.csv").read_text().splitlines()
    assert len(lines) == 3
    (tmp_path / "out" / "cohort.csv").write_text("\n".join([*lines, "5,1,2020-01-01,2020-01-02"]) + "\n")
    write_results(results(0.95), tmp_path / "out")
    assert (tmp_path / "out" / "cohort.csv").read_text().splitlines()[1:] == ["5,1,2020-01-01,2020-01-02"]
    assert not [f for f in (tmp_path / "out").iterdir() if f.name.startswith(".")]
    for target in (f"duckdb:///{tmp_path / 'r.duckdb'}", f"sqlite:///{tmp_path / 'r.db'}"):
        for _ in range(2):
            write_results(results(), target, "results" if target.startswith("duckdb") else None, "tags")
    with duckdb.connect(str(tmp_path / "r.duckdb")) as connection:
        assert connection.execute("SELECT count(*) FROM results.tags").fetchone() == (2,)
        assert connection.execute("SELECT count(*) FROM results.tags_definition").fetchone() == (2,)
    with sqlite3.connect(tmp_path / "r.db") as database:
        assert database.execute("SELECT count(*) FROM tags_attrition").fetchone() == (6,)


def test_a_second_copy_of_a_folder_reads_the_same(tmp_path: Path) -> None:
    """Column order and upper case make no difference."""
    folder = write_csv(tmp_path / "a")
    shutil.copytree(folder, tmp_path / "b")
    with (folder / "PERSON.csv").open() as stream:
        table = list(csv.reader(stream))
    with (tmp_path / "b" / "PERSON.csv").open("w", newline="") as out:
        csv.writer(out).writerows([[c.upper() if i == 0 else c for c in reversed(row)] for i, row in enumerate(table)])
    assert list(read_visits(tmp_path / "b", "omop")) == EXPECTED
