"""`whatelse inspect`: guesses the field of every column of a table and writes a column map that reads the table.

A guess needs the name of the column (`column_names.yaml`) and its values to agree. Columns that are known only after
the visit are left out. The map is tried on the rows that were inspected; a column that cannot be read is left out.
"""

from __future__ import annotations

import csv
import itertools
import json
import re
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import yaml

from whatelse.errors import InputError
from whatelse.sources.column_guess import AFTER, EVERY_ROW, MARKS, ONCE, Cells, ColumnGuess, guess_field, known_names
from whatelse.sources.columns import FIELDS, normal
from whatelse.sources.description import describe
from whatelse.sources.report import Report
from whatelse.sources.tables import DAMAGED, open_csv, read_table, table_format
from whatelse.sources.textfile import damage, detect_encoding, open_text

ROWS = 20_000  # rows that are inspected


@dataclass(frozen=True)
class Inspection:
    """An inspected table.

    rows      rows inspected
    settings  delimiter, encoding and cells that mean unknown
    notes     rows that cannot be read, by reason: `build` then needs `--on-error skip`
    """

    file: str
    rows: int
    columns: list[ColumnGuess]
    settings: dict[str, Any]
    notes: list[str] = field(default_factory=list)

    def to_map(self) -> dict[str, Any]:
        """The column map as `read_visits(columns=…)` takes it."""
        out: dict[str, Any] = {name: value for name, value in self.settings.items() if value}
        if not any(guess.field == "id" for guess in self.columns):
            out["id"] = {"row_number": True}
        for guess in self.columns:
            if guess.field == "numbers":
                out.setdefault("numbers", {})[guess.name] = guess.line
            elif guess.field == "coded":
                out.setdefault("coded", []).append(guess.line)
            elif guess.field:
                out[guess.field] = _joined(out[guess.field], guess.line) if guess.field in out else guess.line
        left_out = [normal(guess.name) for guess in self.columns if not guess.field]
        return out | {name: None for name in left_out if name in FIELDS and name not in out}

    def to_yaml(self) -> str:
        """The column map as a file, with the reasons as comments."""
        out = [
            f"# How to read {self.file}: guessed from {self.rows:,} rows. Check it, then",
            "#     whatelse build FILE --map THIS-FILE --conditions CONDITIONS --out COHORT",
            "# docs/records.md explains the lines. Columns that are not named here are not read.",
            *(f"# {note}" for note in self.notes),
        ]
        for name, line in self.to_map().items():
            guesses = [guess for guess in self.columns if guess.field == name]
            why = "; ".join(guess.why for guess in guesses)
            if name == "coded":
                out += ["coded:", *(f"  - {_inline(guess.line)}  # {guess.why}" for guess in guesses)]
            elif name == "numbers" and guesses:
                out += ["numbers:", *(f"  {_inline(g.name)}: {_inline(g.line)}  # {g.why}" for g in guesses)]
            else:
                out.append(f"{name}: {_inline(line)}" + (f"  # {why}" if why else ""))
        left_out = [guess for guess in self.columns if not guess.field]
        if after := ", ".join(_inline(guess.name) for guess in left_out if guess.why == AFTER):
            out += ["", "# known only after the visit:"]
            out += [f"# shown: [{after}]  # without the first #: shown on label sheets, never a finding"]
        if rest := [f"#   {_inline(guess.name)}: {guess.why}" for guess in left_out if guess.why != AFTER]:
            out += ["", "# not read:", *rest]
        return "\n".join(out) + "\n"


def inspect_file(path: Path, *, delimiter: str | None = None, encoding: str | None = None) -> Inspection:
    """Inspect the first ROWS rows of a table. O(rows columns)."""
    if not path.is_file():
        problem = "is not a file; 'whatelse inspect' reads one table"
        raise InputError(problem if path.exists() else "no such file; check the path", file=path)
    header, rows, settings = _read_rows(path, delimiter, encoding)
    if not rows:
        raise InputError("has no rows to read; needs CSV with a header, or JSON Lines, an object a line", file=path)
    cells = [Cells(name, [row[at] for row in rows if at < len(row)], len(rows)) for at, name in enumerate(header)]
    claimed = {column.by_name for column in cells if column.values}
    guesses: list[ColumnGuess] = []
    for column in cells:
        taken = {guess.field for guess in guesses if guess.field in ONCE}
        if not column.name.strip() or header.count(column.name) > 1:
            guesses.append(column.guess("", "has no name, or the name of another column"))
        else:
            guesses.append(guess_field(column, taken, claimed))
    first = cells[0]
    if all(guess.field != "id" for guess in guesses) and guesses[0].line in (None, "bands") and first.identifies:
        guesses[0] = first.guess("id", EVERY_ROW)
    settings["missing"] = sorted({mark for column in cells for mark in column.marks})
    return _tried(path, Inspection(path.name, len(rows), guesses, settings), header, rows)


def _tried(path: Path, found: Inspection, header: list[str], rows: list[list[Any]]) -> Inspection:
    """Read the rows with the map until no cell is refused.

    A few odd cells of a CSV column are taken for unknown; a column with more of them is left out.
    """
    odd: dict[str, set[str]] = {}
    while True:
        how, report = describe(found.to_map()), _Trial()
        table = read_table(path, report, how)
        try:
            for _ in itertools.islice(table, ROWS):
                pass
        except _Refused as refused:
            name, known = refused.column, odd.setdefault(refused.column, set())
            csv_row = rows[refused.row - 1] if table_format(path) == "csv" and refused.row <= len(rows) else []
            cell = csv_row[header.index(name)].strip() if csv_row and name in header else ""
            if cell and len(cell) <= 20 and cell not in known and len(known) < MARKS:
                known.add(cell)
                found.settings["missing"] = sorted({*found.settings["missing"], cell})
            else:
                left: dict[str, Any] = {"field": "", "why": refused.kind, "line": None}
                found = replace(found, columns=[replace(g, **left) if g.name == name else g for g in found.columns])
                found.settings["missing"] = sorted(set(found.settings["missing"]) - known)
            continue
        notes = [f"{n:,} rows cannot be read ({kind}): add --on-error skip" for kind, n in report.left_out.items()]
        return replace(found, notes=notes)


class _Refused(Exception):
    def __init__(self, column: str, row: int, kind: str) -> None:
        self.column, self.row, self.kind = column, row, kind


class _Trial(Report):
    """Counts rows that cannot be read, and stops at a cell that cannot."""

    def leave_out(self, kind: str, error: InputError) -> None:
        if error.column is not None and error.row is not None and not kind.startswith("holds "):
            raise _Refused(error.column, error.row, kind)
        self.left_out[kind] += 1


def _joined(before: Any, line: Any) -> Any:
    """Two columns of one field: names, or mappings where one of them is a mapping."""
    several = [*(before if isinstance(before, list) else [before]), line]
    mixed = any(isinstance(entry, dict) for entry in several)
    return [entry if isinstance(entry, dict) or not mixed else {"column": entry} for entry in several]


def _inline(value: Any) -> str:
    """A value on one line of YAML: JSON is YAML."""
    if isinstance(value, str) and re.fullmatch(r"[^\W\d][\w .-]*(?<! )", value) and yaml.safe_load(value) == value:
        return value
    return json.dumps(value, ensure_ascii=False)


def _read_rows(
    path: Path, delimiter: str | None, encoding: str | None
) -> tuple[list[str], list[list[Any]], dict[str, Any]]:
    """Header, the first ROWS rows, and the settings that a column map needs."""
    kind, settings = table_format(path), dict[str, Any]()
    if kind == "parquet":
        try:
            with pq.ParquetFile(path) as file:
                records = next(file.iter_batches(ROWS), pa.record_batch([], names=[])).to_pylist()
                header = list(file.schema_arrow.names)
        except (OSError, ValueError):
            raise InputError(DAMAGED, file=path) from None
    else:
        text = detect_encoding(path, encoding)
        if text.encoding not in ("utf-8", "utf-8-sig"):
            settings["encoding"] = text.encoding
        with damage(path), open_text(path, text, newline="" if kind == "csv" else "\n") as stream:
            if kind == "csv":
                wanted = list(itertools.chain(*known_names()["fields"].values()))
                try:
                    table = open_csv(stream, path, delimiter, wanted, strict=False)
                    rows = [[_readable(c) for c in row] for row in itertools.islice(table.rows, ROWS) if row]
                except csv.Error:
                    problem = "is not a CSV table: quotes do not match, or a cell never ends"
                    raise InputError(problem, file=path) from None
                if table.delimiter != ",":
                    settings["delimiter"] = "tab" if table.delimiter == "\t" else table.delimiter
                return [_readable(name) for name in table.header], rows, settings
            lines = itertools.islice((line for line in stream if line.strip()), ROWS)
            records = [record for line in lines if isinstance(record := _json(line), dict)]
            header = list(dict.fromkeys(key for record in records for key in record))
    return header, [[_flat(record.get(key)) for key in header] for record in records], settings


def _readable(cell: str) -> str:
    """A cell without the bytes that could not be decoded: they can be neither printed nor written."""
    return cell if cell.isascii() else cell.encode("utf-8", "replace").decode()


def _json(line: str) -> Any:
    try:
        return json.loads(_readable(line))
    except ValueError:
        return None


def _flat(value: Any) -> Any:
    """Lists and objects as text."""
    if isinstance(value, list):
        return "|".join(str(v.get("code", v)) if isinstance(v, dict) else str(v) for v in value)
    return str(value) if isinstance(value, dict) else value
