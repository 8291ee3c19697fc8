"""Results of a model in the tables of OHDSI: COHORT with its definitions, and NOTE_NLP.

Each condition is one cohort: the visits whose probability reaches the threshold. Rows end with the person's observation
period; overlapping rows of one person are joined. Rows of the same conditions from an earlier run are replaced in the
same transaction, so writing again changes nothing. Only the results schema is written.
"""

from __future__ import annotations

import csv
import hashlib
import io
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa

from whatelse.batch.omop import nlp
from whatelse.errors import InputError
from whatelse.io.files import writing
from whatelse.sources.address import hide_password
from whatelse.sources.omop.tables import check_name, duckdb_file, sql_engine

COLUMNS: dict[str, dict[str, str]] = nlp.TABLES["cohort"]
STEPS = ("visits at or above the threshold", "within an observation period", "overlapping visits of a person joined")
PERSON = 56  # concept of a cohort's subjects: Person
Tables = Mapping[str, list[tuple[Any, ...]]]  # what follows "cohort" in the name of a table -> its rows


@dataclass(frozen=True, slots=True)
class Stay:
    """Whose visit it was, and when."""

    person: int
    start: date
    end: date


def stays(connection: duckdb.DuckDBPyConnection) -> tuple[dict[str, Stay], dict[int, list[tuple[date, date]]]]:
    """Visit id -> its stay, and person -> observation periods, of tables that are loaded."""
    query = "SELECT visit_occurrence_id, person_id, visit_start_date, visit_end_date FROM visit_occurrence"
    visits = connection.execute(query).fetchall()
    found = {str(visit): Stay(person, s, max(s, e or s)) for visit, person, s, e in visits if s}
    periods: dict[int, list[tuple[date, date]]] = {}
    for row in connection.execute("SELECT * FROM observation_period").fetchall():
        if None not in row:
            periods.setdefault(row[0], []).append((row[1], row[2]))
    return found, periods


def definition_id(condition: str) -> int:
    """The same number for a condition at every writing, whatever else a model knows: 1,000,000,000 and above."""
    return 1_000_000_000 + int.from_bytes(hashlib.sha256(condition.encode()).digest()[:4], "big") % 1_000_000_000


def make_results(
    conditions: Sequence[str],
    likely: Iterable[tuple[str, Sequence[float]]],
    found: Mapping[str, Stay],
    periods: Mapping[int, list[tuple[date, date]]],
    threshold: float,
    about: str,
    today: date,
) -> Tables:
    """Rows of each table from (visit id, probabilities in the order of conditions). O(visits x conditions)."""
    if not 0 < threshold <= 1:
        raise InputError("the threshold is a probability above 0, at most 1")
    ids = [definition_id(c) for c in conditions]
    chosen: list[list[Stay]] = [[] for _ in conditions]
    for visit, probabilities in likely:
        for i, p in enumerate(probabilities):
            if p >= threshold and visit in found:
                chosen[i].append(found[visit])
    cohort: list[tuple[Any, ...]] = []
    attrition: list[tuple[Any, ...]] = []
    for number, picked in zip(ids, chosen, strict=True):
        held = [h for stay in picked if (h := _within(stay, periods)) is not None] if periods else picked
        merged = _merged(held)
        cohort += [(number, s.person, s.start, s.end) for s in merged]
        before = picked
        for reason, (text, now) in enumerate(zip(STEPS, (picked, held, merged), strict=True), start=1):
            people = len({s.person for s in now})
            lost = len({s.person for s in before}) - people
            attrition.append((number, len(now), people, reason, text, len(before) - len(now), lost))
            before = now
    definitions: list[tuple[Any, ...]] = []
    names: list[tuple[Any, ...]] = []
    for number, c in zip(ids, conditions, strict=True):
        said = f"emergency visits with P({c}) >= {threshold:g}; {about}"[:1000]
        definitions.append((number, f"whatelse: {c}", said, 0, "", PERSON, today))
        names.append((number, "whatelse_" + re.sub(r"[^a-z0-9]+", "_", c.lower())))
    return {"": cohort, "_definition": definitions, "_set": names, "_attrition": attrition}


def _within(stay: Stay, periods: Mapping[int, list[tuple[date, date]]]) -> Stay | None:
    for start, end in periods.get(stay.person, ()):
        if start <= stay.start <= end:
            return Stay(stay.person, stay.start, min(stay.end, end))
    return None


def _merged(given: list[Stay]) -> list[Stay]:
    out: list[Stay] = []
    for stay in sorted(given, key=lambda s: (s.person, s.start, s.end)):
        if out and out[-1].person == stay.person and stay.start <= out[-1].end:
            out[-1] = Stay(stay.person, out[-1].start, max(out[-1].end, stay.end))
        else:
            out.append(stay)
    return out


# ---- writing


@dataclass(frozen=True, slots=True)
class Output:
    """A table to write: rows whose `key` is among `values` are replaced by those of `batches`."""

    name: str
    columns: Mapping[str, str]
    key: str
    values: tuple[Any, ...]
    batches: Iterable[Sequence[tuple[Any, ...]]]


def write_results(
    results: Tables,
    target: str | Path,
    schema: str | None = None,
    table: str = "cohort",
    mentions: Iterable[Sequence[tuple[Any, ...]]] | None = None,
) -> Counter[str]:
    """Write to a folder (CSV), a DuckDB file or any database of SQLAlchemy. Returns rows by table.

    mentions: rows of NOTE_NLP, batch by batch; without, that table is not touched.
    """
    check_name(table)
    ids = tuple(row[0] for row in results["_definition"])
    outputs = [
        Output(table + end, COLUMNS[end], "cohort_definition_id", ids, [found]) for end, found in results.items()
    ]
    if mentions is not None:
        outputs.append(Output("note_nlp", nlp.COLUMNS, "nlp_system", (nlp.SYSTEM,), mentions))
    text = str(target)
    if re.match(r"^[a-z0-9+]+:/", text) is None:
        return _to_folder(outputs, Path(target))
    if text.startswith("duckdb:"):
        return _to_duckdb(outputs, duckdb_file(text), check_name(schema or "main"))
    return _to_sql(outputs, text, schema)


def _to_folder(outputs: Sequence[Output], folder: Path) -> Counter[str]:
    folder.mkdir(parents=True, exist_ok=True)
    written = Counter({output.name: 0 for output in outputs})
    for output in outputs:
        file = folder / f"{output.name}.csv"
        replaced, kept = {str(value) for value in output.values}, list[list[str]]()
        if file.is_file():  # rows of others stay
            column = list(output.columns).index(output.key)
            with file.open(encoding="utf-8", newline="") as there:
                kept = [row for row in list(csv.reader(there))[1:] if row and row[column] not in replaced]
        with writing(file) as raw:
            stream = io.TextIOWrapper(raw, "utf-8", newline="")
            writer = csv.writer(stream)
            writer.writerow(output.columns)
            writer.writerows(kept)
            for batch in output.batches:
                writer.writerows(batch)
                written[output.name] += len(batch)
            stream.detach()
    return written


def _to_duckdb(outputs: Sequence[Output], file: Path, schema: str) -> Counter[str]:
    written = Counter({output.name: 0 for output in outputs})
    try:
        with duckdb.connect(str(file)) as connection:
            connection.execute("BEGIN")
            connection.execute(f'CREATE SCHEMA IF NOT EXISTS "{schema}"')
            for output in outputs:
                name = f'"{schema}"."{output.name}"'
                fields = ", ".join(f'"{column}" {kind}' for column, kind in output.columns.items())
                connection.execute(f"CREATE TABLE IF NOT EXISTS {name} ({fields})")
                marks = ", ".join("?" * len(output.values))
                connection.execute(f"DELETE FROM {name} WHERE {output.key} IN ({marks})", list(output.values))
                columns = ", ".join(f'"{column}"' for column in output.columns)
                for batch in filter(None, output.batches):
                    arrow = pa.table({c: [row[k] for row in batch] for k, c in enumerate(output.columns)})
                    connection.register("batch", arrow)
                    connection.execute(f"INSERT INTO {name} ({columns}) SELECT {columns} FROM batch")
                    connection.unregister("batch")
                    written[output.name] += len(batch)
            connection.execute("COMMIT")
    except duckdb.Error as error:
        raise InputError(f"the results cannot be written ({type(error).__name__})", file=file) from None
    return written


def _to_sql(outputs: Sequence[Output], address: str, schema: str | None) -> Counter[str]:
    engine = sql_engine(address)
    import sqlalchemy as sa

    kinds: dict[str, Any] = {"INTEGER": sa.Integer(), "BIGINT": sa.BigInteger(), "DATE": sa.Date()}
    kinds["TIMESTAMP"] = sa.DateTime()
    metadata, written = sa.MetaData(schema=schema), Counter({output.name: 0 for output in outputs})
    tables = [
        sa.Table(o.name, metadata, *(sa.Column(c, kinds.get(k, sa.String(2000))) for c, k in o.columns.items()))
        for o in outputs
    ]
    try:
        with engine.begin() as connection:
            metadata.create_all(connection)
            for output, there in zip(outputs, tables, strict=True):
                connection.execute(there.delete().where(there.c[output.key].in_(output.values)))
                for batch in filter(None, output.batches):
                    connection.execute(there.insert(), [dict(zip(output.columns, r, strict=True)) for r in batch])
                    written[output.name] += len(batch)
    except sa.exc.SQLAlchemyError as error:
        cause = type(error.__cause__ or error).__name__
        raise InputError(f"the results cannot be written ({cause})", file=hide_password(address)) from None
    finally:
        engine.dispose()
    return written
