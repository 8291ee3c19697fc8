"""MIMIC-IV-ED: the folder as downloaded.

    ed/edstays, triage, medrecon, pyxis, diagnosis   .csv.gz or .csv; needed
    hosp/patients (of MIMIC-IV)                       ages: anchor_age + (year of intime - anchor_year)

    medrecon  -> medication_history  Code("gsn", "004380", "aspirin"); Code("name", ...) where there is no GSN
    pyxis     -> dispensed           likewise
    diagnosis -> billing             Code("icd9" or "icd10", code, title)
    triage, arrival, disposition -> chief complaint and coded, by the thresholds of `vitals.py`

DuckDB reads the tables into a temporary database on disk and joins them there; visits come out sorted
by stay, so memory does not grow with the number of visits.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from importlib.resources import files
from pathlib import Path
from typing import Any

import duckdb

from whatelse.errors import InputError
from whatelse.io.files import scratch_folder
from whatelse.io.limits import shipped_yaml
from whatelse.sources.columns import need_columns
from whatelse.sources.description import Description
from whatelse.sources.fields import parse_age, parse_sex
from whatelse.sources.omop.tables import open_scratch, rows
from whatelse.sources.report import BadValue, Report
from whatelse.sources.textfile import detect_encoding
from whatelse.sources.vitals import ADMITTED, AMBULANCE, vital_codes
from whatelse.visits import Code, Visit

_COLUMNS = shipped_yaml("whatelse.sources", "mimic_ed.yaml")
TABLES: dict[str, list[str]] = _COLUMNS["tables"]
JOIN = (files("whatelse.sources") / "mimic_ed.sql").read_text("utf-8")


def read_mimic_ed(folder: Path, report: Report, how: Description) -> Iterator[tuple[int, Visit]]:
    """(row of edstays from 1, visit), sorted by stay_id. There is nothing to describe."""
    found = _find_tables(folder, report)
    with scratch_folder() as scratch, open_scratch(scratch) as connection:
        for table, columns in TABLES.items():
            _load(connection, table, columns, found.get(table), report)
        if connection.execute("SELECT count(*) FROM edstays").fetchone() == (0,):
            raise InputError("has no rows, so there are no visits", file=found["edstays"])
        numbered = ((row["row"], row) for row in rows(connection, JOIN))
        yield from report.usable(numbered, lambda row, _: _visit(row), found["edstays"])


def _find_tables(folder: Path, report: Report) -> dict[str, Path]:
    """Where each table is; `folder` may be the download or its `ed` folder."""
    if not folder.is_dir():
        raise InputError("MIMIC-IV-ED is read from its folder (the one that holds ed/ and hosp/)", file=folder)

    def find(table: str, *places: Path) -> Path | None:
        return next((f for p in places for f in (p / f"{table}.csv.gz", p / f"{table}.csv") if f.is_file()), None)

    found = {table: find(table, folder / "ed", folder) for table in TABLES}
    found["patients"] = find("patients", folder / "hosp", folder.parent / "hosp", folder)
    if missing := [table for table in TABLES if found[table] is None and table != "patients"]:
        expected = ", ".join(f"ed/{table}.csv.gz" for table in missing)
        raise InputError(f"no table {', '.join(missing)} here; expected {expected}", file=folder)
    if found["patients"] is None:
        report.note(f"{folder}: no hosp/patients.csv.gz (it comes with MIMIC-IV), so ages are unknown")
    return {table: file for table, file in found.items() if file is not None}


def _load(
    connection: duckdb.DuckDBPyConnection, table: str, columns: list[str], file: Path | None, report: Report
) -> None:
    """Copy the needed columns of a CSV file into a table of the same name, with the row each came from."""
    if file is None:
        fields = ", ".join(f"NULL::VARCHAR AS {name}" for name in columns)
        connection.execute(f"CREATE TABLE {table} AS SELECT {fields}, 0 AS row WHERE false")
        return
    detect_encoding(file)  # DuckDB takes the readable part of a damaged gzip file for the whole
    options = "all_varchar = true, header = true, delim = ',', quote = '\"', escape = '\"'"
    skip = report.on_error == "skip"
    if skip:
        options += f", store_rejects = true, rejects_table = 'rejects_{table}', rejects_scan = 'scan_{table}'"
    try:
        found = connection.execute(f"SELECT * FROM read_csv(?, {options}) LIMIT 0", [str(file)]).description
        need_columns(columns, [column[0] for column in found or ()], file)
        fields = ", ".join(columns)
        query = f"SELECT {fields}, row_number() OVER () AS row FROM read_csv(?, {options})"
        connection.execute(f"CREATE TABLE {table} AS {query}", [str(file)])
    except duckdb.Error as error:  # its message quotes a line of the file, which is not passed on
        line = re.search(r"[Ll]ine:? (\d+)", str(error))
        problem = "is not a complete CSV table: a row with missing or extra columns, or a damaged file"
        raise InputError(problem, file=file, row=int(line[1]) - 1 if line else None) from None
    if skip:
        (count,) = connection.execute(f"SELECT count(DISTINCT line) FROM rejects_{table}").fetchone() or (0,)
        if count:
            report.left_out[f"{table}: row is not valid CSV"] += count


def _visit(row: dict[str, Any]) -> Visit:
    if not row["stay_id"]:
        raise BadValue("stay_id is missing", "stay_id")
    if row["intime"] and row["time"] is None:
        raise BadValue("intime is not a date and time", "intime")
    try:
        sex = parse_sex(row["gender"])
    except BadValue:
        raise BadValue("gender is none of F, M and unknown", "gender") from None
    try:
        age = parse_age(row["age"])
    except BadValue as bad:
        raise BadValue(f"{bad.kind} (anchor_age + year of intime - anchor_year)", "age") from None
    coded = [AMBULANCE] if row["arrival_transport"] == "AMBULANCE" else []
    values = {sign: _number(row[column]) for sign, column in _COLUMNS["vitals"].items()}
    if not 0 <= (values["pain"] or 0) <= 10:  # free text in MIMIC: "uncooperative", "13"
        values["pain"] = None
    coded += vital_codes(**values)
    if row["disposition"] == "ADMITTED":
        coded.append(ADMITTED)
    given = [(version, code.strip().upper(), title) for version, code, title in row["billing"] or () if code]
    billing = [Code("icd9" if version == "9" else "icd10", code, title) for version, code, title in given]
    return Visit(
        id=row["stay_id"],
        age=age,
        sex=sex,
        chief_complaint=row["chiefcomplaint"] or "",
        medication_history=_drugs(row["history"]),
        dispensed=_drugs(row["dispensed"]),
        billing=tuple(dict.fromkeys(billing)),
        coded=tuple(coded),
        time=row["time"],
    )


def _drugs(pairs: list[list[str | None]] | None) -> tuple[Code, ...]:
    """GSN codes with their names; MIMIC writes a missing GSN as blank or 0."""
    codes = []
    for gsn, name in pairs or ():
        if gsn and gsn.strip("0 "):
            codes.append(Code("gsn", gsn, name))
        elif name:
            codes.append(Code("name", name.lower(), name))
    return tuple(dict.fromkeys(codes))


def _number(text: str | None) -> float | None:
    try:
        return float(text) if text else None
    except ValueError:
        return None
