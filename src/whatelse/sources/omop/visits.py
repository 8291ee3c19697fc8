"""Emergency visits of an OMOP CDM -> Visit, by one join.

| field | from |
|---|---|
| triage_note, md_comments | NOTE of the visit, by the LOINC code of its class, else by its title |
| chief_complaint | OBSERVATION or NOTE with the complaint |
| dispensed | DRUG_EXPOSURE of the visit |
| medication_history | DRUG_EXPOSURE of the person that began before the visit and lasted into it, and its lists |
| coded | the first vital signs (MEASUREMENT by LOINC); conditions of the person from before the visit, not ended |
| billing | CONDITION_OCCURRENCE of the visit, in the source's own codes where they are ICD |
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from importlib.resources import files
from pathlib import Path
from typing import Any

import duckdb

from whatelse.errors import InputError
from whatelse.io.files import scratch_folder
from whatelse.sources.address import hide_password
from whatelse.sources.codings import Codings, drug_name, load_codings
from whatelse.sources.description import Description
from whatelse.sources.omop.tables import open_cdm, rows
from whatelse.sources.report import Report
from whatelse.sources.vitals import vital_codes
from whatelse.visits import Code, Sex, Visit

SEXES: dict[int, Sex] = {8532: "F", 8507: "M"}
VOCABULARIES = {
    **{"SNOMED": "snomed", "ICD10CM": "icd10", "ICD10": "icd10", "ICD9CM": "icd9"},
    **{"RxNorm": "rxnorm", "RxNorm Extension": "rxnorm", "NDC": "ndc", "LOINC": "loinc"},
}
JOIN = (files("whatelse.sources") / "omop" / "visits.sql").read_text("utf-8")


def read_omop(place: str | Path, report: Report, how: Description) -> Iterator[tuple[int, Visit]]:
    """(visit_occurrence_id, visit) of every emergency visit of a folder of tables or a database's address."""
    known = load_codings(how.options.get("codings"))
    with scratch_folder() as scratch, open_cdm(place, how.options.get("cdm_schema"), scratch, report) as connection:
        yield from cdm_visits(connection, known, report, hide_password(str(place)))


def cdm_visits(
    connection: duckdb.DuckDBPyConnection, codings: Codings, report: Report, shown: str
) -> Iterator[tuple[int, Visit]]:
    """(visit_occurrence_id, visit) of every emergency visit of tables that are loaded."""
    connection.execute("CREATE OR REPLACE TABLE wanted (loinc VARCHAR, sign VARCHAR)")
    connection.executemany("INSERT INTO wanted VALUES (?, ?)", [list(pair) for pair in codings.vitals.items()])
    tables = ("drug_exposure", "condition_occurrence", "measurement", "note")
    kept = {name for name in tables if connection.execute(f"SELECT 1 FROM {name} LIMIT 1").fetchone() is not None}
    for number, row in enumerate(rows(connection, JOIN), start=1):
        if row["visit_occurrence_id"] is None or row["visit_start_date"] is None:
            problem = "visit has no id or no start date"
            report.leave_out(problem, InputError(problem, file=shown, row=number))
            continue
        yield row["visit_occurrence_id"], _visit(row, codings, kept)


def _visit(row: dict[str, Any], codings: Codings, kept: set[str]) -> Visit:
    arrived: datetime = row["visit_start_datetime"] or datetime.combine(row["visit_start_date"], datetime.min.time())
    notes: dict[str, list[str]] = {"triage": [], "provider": []}
    complaint = [text for code, text in row["said"] or () if code in codings.complaint]
    for code, name, title, text in row["notes"] or ():
        if code in codings.complaint:
            complaint.append(text)
        elif text and (kind := codings.note([code] if code else [], " ".join(filter(None, (name, title))))):
            notes[kind].append(text.strip())
    drugs, coded = "drug_exposure" in kept, []
    if row["signs"]:
        coded += vital_codes(**{sign: float(value) for sign, value in row["signs"]})
    problems = {codings.problem(_codes(entry), _name(entry)) for entry in row["problems"] or ()}
    coded += sorted((p for p in problems if p is not None), key=lambda code: (code.system, code.code))
    billing = {codings.diagnosis(_codes(entry)) for entry in row["billing"] or ()}
    ill = "condition_occurrence" in kept
    return Visit(
        id=str(row["visit_occurrence_id"]),
        age=_age(row, arrived),
        sex=SEXES.get(row["gender_concept_id"] or 0),
        chief_complaint="; ".join(dict.fromkeys(c.strip() for c in complaint if c and c.strip())) or None,
        triage_note="\n".join(notes["triage"]) if "note" in kept else None,
        md_comments="\n".join(notes["provider"]) if "note" in kept else None,
        medication_history=_drugs(row["home"]) if drugs else None,
        dispensed=_drugs(row["given"]) if drugs else None,
        billing=tuple(sorted((b for b in billing if b), key=lambda c: (c.system, c.code))) if ill else None,
        coded=tuple(dict.fromkeys(coded)) if ill or "measurement" in kept else None,
        time=arrived.replace(tzinfo=None),
    )


def _age(row: dict[str, Any], arrived: datetime) -> float | None:
    if row["year_of_birth"] is None:
        return None
    month, day = row["month_of_birth"], row["day_of_birth"]
    late = month is not None and (arrived.month, arrived.day) < (month, day or 1)
    age = arrived.year - row["year_of_birth"] - late
    return float(age) if 0 <= age <= 130 else None


def _codes(entry: list[list[str | None]]) -> list[Code]:
    """Source concept, standard concept, source value, in this order; only code systems of VOCABULARIES."""
    found = [Code(VOCABULARIES[v], code, name) for v, code, name in entry if v in VOCABULARIES and code]
    if not found and (text := entry[-1][1]):
        found = [Code("source", text)]
    return found


def _name(entry: list[list[str | None]]) -> str | None:
    return next((name for _, _, name in reversed(entry) if name), None)


def _drugs(entries: list[list[str | None]] | None) -> tuple[Code, ...]:
    found = set()
    for vocabulary, code, name, ingredients, source in entries or ():
        system = VOCABULARIES.get(vocabulary or "")
        said = ingredients or (drug_name(name) if name and system else None) or (source and drug_name(source))
        if system and code:
            found.add(Code(system, code, said and said.lower()))
        elif said:
            found.add(Code("name", said.lower(), said.lower()))
    return tuple(sorted(found, key=lambda c: (c.name or "", c.system, c.code)))
