"""The tables of an OMOP CDM (5.3, 5.4), copied as far as emergency visits need them into a DuckDB database on disk.

From a folder of CSV or Parquet files, a DuckDB file, or any database that SQLAlchemy reaches; whatever it is, the joins
are then the same SQL in one place, and memory does not grow with the number of visits.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa

from whatelse.errors import InputError
from whatelse.io.limits import shipped_yaml
from whatelse.sources.address import hide_password
from whatelse.sources.report import Report

BATCH = 20_000
AT_ONCE = 1_000  # keys in one query: no database takes fewer
_NAME = re.compile(r"^[A-Za-z_][A-Za-z0-9_$]{0,127}$")


@dataclass(frozen=True, slots=True)
class Table:
    """One table of `tables.yaml`: its columns with their types."""

    key: str
    columns: dict[str, str]
    without: str = ""


_FILE = shipped_yaml("whatelse.sources", "omop/tables.yaml")
CHOSEN: dict[str, str] = _FILE["chosen"]
TABLES = {name: Table(**entry) for name, entry in _FILE["tables"].items()}


@contextmanager
def open_cdm(
    place: str | Path, schema: str | None, scratch: Path, report: Report
) -> Iterator[duckdb.DuckDBPyConnection]:
    """A DuckDB connection with TABLES filled; a table that is not there is empty, and `report` says so."""
    with open_scratch(scratch) as connection:
        connection.execute("SET preserve_insertion_order = false")
        text = str(place)
        if re.match(r"^[a-z0-9+]+:/", text) is None:
            source: _Relations | _Sql = _files(connection, Path(place))
        elif text.startswith("duckdb:"):
            source = _duckdb(connection, text, schema)
        else:
            source = _Sql(connection, text, schema)
        try:
            _fill(connection, source, place, report)
        finally:
            source.close()
        yield connection


@contextmanager
def open_scratch(folder: Path) -> Iterator[duckdb.DuckDBPyConnection]:
    """A DuckDB database in a temporary folder, which takes at most 1 GB of memory."""
    config = {"temp_directory": str(folder), "memory_limit": "1GB"}
    with duckdb.connect(str(folder / "scratch.duckdb"), config=config) as connection:
        yield connection


def _fill(connection: duckdb.DuckDBPyConnection, source: _Relations | _Sql, place: object, report: Report) -> None:
    shown = hide_password(str(place))
    for name, table in TABLES.items():
        fields = ", ".join(f"{column} {kind}" for column, kind in table.columns.items())
        connection.execute(f"CREATE TABLE {name} ({fields})")
        there = source.columns(name)
        if there is None:
            if not table.without:
                raise InputError(f"no table {name} in it; an OMOP CDM has one", file=shown)
            report.note(f"{shown}: no table {name}, so {table.without}")
            continue
        if lacking := [c for c in table.columns if c not in there and not c.endswith(("_datetime", "_of_birth"))]:
            raise InputError(f"the table {name} has no column {lacking[0]!r}", file=shown)
        source.copy(name, table, there)
        if table.without and connection.execute(f"SELECT count(*) FROM {name}").fetchone() == (0,):
            report.note(f"{shown}: the table {name} holds nothing for emergency visits, so {table.without}")


class _Relations:
    """Tables that DuckDB reads itself. relation: what stands after FROM for a table; None if there is no such table."""

    def __init__(self, connection: duckdb.DuckDBPyConnection, relation: Callable[[str], str | None]) -> None:
        self.connection, self.relation = connection, relation

    def close(self) -> None:
        """Let go of a DuckDB file: results may be written to it."""
        self.connection.execute("DETACH DATABASE IF EXISTS omop_source")

    def columns(self, name: str) -> set[str] | None:
        """The columns of a table in lower case; None if there is no such table."""
        relation = self.relation(name)
        if relation is None:
            return None
        try:
            found = self.connection.execute(f"SELECT * FROM {relation} LIMIT 0").description
        except duckdb.CatalogException:
            return None
        except duckdb.Error:
            raise InputError(f"the table {name} cannot be read as a table") from None
        return {column[0].lower() for column in found or ()}

    def copy(self, name: str, table: Table, there: set[str]) -> None:
        """Fill the table of the scratch database with the rows that are needed."""
        fields = [f"TRY_CAST({c} AS {kind})" if c in there else "NULL" for c, kind in table.columns.items()]
        chosen = f"TRY_CAST({table.key} AS BIGINT) IN ({CHOSEN[table.key]})"
        query = f"INSERT INTO {name} SELECT {', '.join(fields)} FROM {self.relation(name)} WHERE {chosen}"
        try:
            self.connection.execute(query)
        except duckdb.Error:  # DuckDB quotes the row it stumbled over
            raise InputError(f"the table {name} is damaged or not what its name says") from None


def _files(connection: duckdb.DuckDBPyConnection, folder: Path) -> _Relations:
    """The tables of a folder of CSV and Parquet files."""
    if not folder.is_dir():
        raise InputError("OMOP tables are read from a folder of CSV or Parquet files, or a database", file=folder)
    there = {file.name.lower(): file for file in sorted(folder.iterdir()) if file.is_file()}

    def relation(name: str) -> str | None:
        for end in (".parquet", ".csv", ".csv.gz", ".csv.zst", ".tsv", ".tsv.gz"):
            if (file := there.get(name + end)) is not None:
                more = "" if end == ".parquet" else ", all_varchar = true"
                return f"read_{'csv' if more else 'parquet'}({_quoted(file)}{more})"
        return None

    return _Relations(connection, relation)


def _duckdb(connection: duckdb.DuckDBPyConnection, address: str, schema: str | None) -> _Relations:
    """The tables of a DuckDB file, attached read-only."""
    file, schema = duckdb_file(address), check_name(schema or "main")
    if not file.is_file():
        raise InputError("no such DuckDB file", file=file)
    try:
        connection.execute(f"ATTACH {_quoted(file)} AS omop_source (READ_ONLY)")
    except duckdb.Error:
        raise InputError("is no DuckDB database, or another program is writing to it", file=file) from None
    return _Relations(connection, lambda name: f'omop_source."{schema}".{name}')


def _quoted(file: Path) -> str:
    return "'" + str(file).replace("'", "''") + "'"


class _Sql:
    """Any other database, through SQLAlchemy: rows stream in batches."""

    def __init__(self, connection: duckdb.DuckDBPyConnection, address: str, schema: str | None) -> None:
        self.connection, self._schema = connection, schema
        self._engine = sql_engine(address)
        import sqlalchemy as sa

        try:
            self._known = {n.lower(): n for n in sa.inspect(self._engine).get_table_names(schema=schema)}
        except sa.exc.SQLAlchemyError as error:
            cause = type(error.__cause__ or error).__name__
            raise InputError(f"the database cannot be read ({cause})", file=hide_password(address)) from None

    def columns(self, name: str) -> set[str] | None:
        import sqlalchemy as sa

        if name not in self._known:
            return None
        found = sa.inspect(self._engine).get_columns(self._known[name], schema=self._schema)
        return {column["name"].lower() for column in found}

    def copy(self, name: str, table: Table, there: set[str]) -> None:
        import sqlalchemy as sa

        columns: list[Any] = [sa.column(column) for column in there]
        this = sa.table(self._known[name], *columns, schema=self._schema)
        fields = [this.c[c] if c in there else sa.null().label(c) for c in table.columns]
        ids = [row[0] for row in self.connection.execute(f"SELECT DISTINCT * FROM ({CHOSEN[table.key]})").fetchall()]
        some = [[key for key in ids[k : k + AT_ONCE] if key is not None] for k in range(0, len(ids), AT_ONCE)]
        queries = [sa.select(*fields).where(this.c[table.key].in_(keys)) for keys in some]
        casts = ", ".join(f"TRY_CAST({c} AS {kind})" for c, kind in table.columns.items())
        try:
            with self._engine.connect().execution_options(yield_per=BATCH) as database:
                for one in queries:
                    for rows in database.execute(one).partitions(BATCH):
                        batch = pa.table({c: _column([row[i] for row in rows]) for i, c in enumerate(table.columns)})
                        self.connection.register("batch", batch)
                        self.connection.execute(f"INSERT INTO {name} SELECT {casts} FROM batch")
                        self.connection.unregister("batch")
        except sa.exc.SQLAlchemyError as error:  # which quotes the statement, and with some drivers the row
            cause = type(error.__cause__ or error).__name__
            raise InputError(f"the table {name} cannot be read ({cause}); may this user read it?") from None

    def close(self) -> None:
        self._engine.dispose()


def _column(values: list[Any]) -> pa.Array:
    """Numbers as they are, everything else as text: databases give dates as dates or as text."""
    if all(value is None or type(value) in (int, float) for value in values):
        return pa.array([None if value is None else float(value) for value in values], pa.float64())
    return pa.array([None if value is None else str(value) for value in values], pa.string())


def sql_engine(address: str) -> Any:
    """An engine of SQLAlchemy; InputError without the password if there can be none."""
    try:
        import sqlalchemy as sa
    except ImportError:
        raise InputError("reading a database needs SQLAlchemy: pip install 'whatelse[serve]'") from None
    try:
        return sa.create_engine(address)
    except (sa.exc.ArgumentError, sa.exc.NoSuchModuleError, ImportError) as error:
        problem = f"the database cannot be reached ({type(error).__name__}); its driver must be installed"
        example = "its address looks like postgresql+psycopg://user@host/db"
        raise InputError(f"{problem}, and {example}", file=hide_password(address)) from None


def duckdb_file(address: str) -> Path:
    """The file of duckdb:///relative.duckdb or duckdb:////absolute.duckdb."""
    return Path(address.removeprefix("duckdb:").removeprefix("///"))


def check_name(name: str) -> str:
    """A schema or table name that may stand in SQL."""
    if _NAME.match(name) is None:
        raise InputError("a schema or table name has letters, digits and '_' only")
    return name


def rows(connection: duckdb.DuckDBPyConnection, query: str) -> Iterator[dict[str, Any]]:
    """The rows of a query, a batch at a time."""
    found = connection.execute(query)
    names = [column[0] for column in found.description]
    while batch := found.fetchmany(2_000):
        for values in batch:
            yield dict(zip(names, values, strict=True))
