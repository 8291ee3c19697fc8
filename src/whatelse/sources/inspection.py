"""`whatelse inspect`: guesses the field of every column of a table and writes a column map that reads the table.

A guess needs the name of the column (`column_names.yaml`) and its values to agree. Columns that are known only after
the visit are left out. The map is tried on the rows that were inspected; a column that cannot be read is left out.
"""

from __future__ import annotations

import csv
import itertools
import json
import re
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from difflib import SequenceMatcher
from functools import cache, cached_property, partial
from importlib.resources import files
from pathlib import Path
from typing import Any, TypeVar

import pyarrow as pa
import pyarrow.parquet as pq
import yaml

from whatelse.errors import InputError
from whatelse.sources.columns import FIELDS, normal
from whatelse.sources.description import describe
from whatelse.sources.fields import SEXES, cell_text, parse_age, parse_time
from whatelse.sources.numbers import parse_number
from whatelse.sources.report import BadValue, Report
from whatelse.sources.tables import DAMAGED, open_csv, read_table, table_format
from whatelse.sources.textfile import damage, detect_encoding, open_text
from whatelse.visits import Sex

T = TypeVar("T")

ROWS = 20_000  # rows that are inspected
LOOKED_AT = 300  # cells by which the form of dates is found
FEW = 12  # most values of a column of codes
MARKS = 5  # cells of a column that may be taken for "unknown" because they cannot be read
ONCE = ("id", "age", "sex", "time", "chief_complaint")  # fields that take one column
TEXT = ("chief_complaint", "triage_note", "md_comments")
EVERY_ROW = "a different value in every row"
UNRELATED = "says nothing about the patient's health"
SAME = "the same value in every row"
AFTER = "known only after the visit: it would give the answer away"
_ICD = re.compile(r"[A-Z]\d[\dA-Z](\.?[\dA-Z]{1,4})?|\d{3}(\.\d{1,2})?")
_MARK = re.compile(r"[?.*\-–—_/\\]+|#\D\S*")  # "??", "--", and errors of spreadsheets such as "#N/A"


@cache
def _names() -> Any:
    return yaml.safe_load((files("whatelse.sources") / "column_names.yaml").read_text("utf-8"))


@dataclass(frozen=True)
class ColumnGuess:
    """One column and the guess of its field.

    filled     cells that are not empty and do not mean unknown; different: distinct values among them
    field      field of a visit, "numbers", or "" for a column that is left out
    why        reason for the guess; never holds a cell of a column with many values
    line       entry of the column map, as YAML values
    """

    name: str
    filled: int
    different: int
    field: str
    why: str
    line: Any = None


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
        for title, wanted in (("known only after the visit", True), ("not read", False)):
            some = [guess for guess in self.columns if not guess.field and (guess.why == AFTER) == wanted]
            if some:
                out += ["", f"# {title}:"]
                if wanted:
                    names = ", ".join(_inline(guess.name) for guess in some)
                    out += [f"# shown: [{names}]  # without the first #: shown on label sheets, never a finding"]
                    continue
                out += [f"#   {_inline(guess.name)}: {guess.why}" for guess in some]
        return "\n".join(out) + "\n"


def inspect_file(path: Path, *, delimiter: str | None = None, encoding: str | None = None) -> Inspection:
    """Inspect the first ROWS rows of a table. O(rows columns)."""
    if not path.is_file():
        raise InputError("is not a file; 'whatelse inspect' reads one table", file=path)
    header, rows, settings = _read_rows(path, delimiter, encoding)
    if not rows:
        raise InputError("has no rows to read; needs CSV with a header, or JSON Lines, an object a line", file=path)
    cells = [_Cells(name, [row[at] for row in rows if at < len(row)], len(rows)) for at, name in enumerate(header)]
    claimed = {column.by_name for column in cells if column.values}
    guesses: list[ColumnGuess] = []
    for column in cells:
        taken = {guess.field for guess in guesses if guess.field in ONCE}
        if not column.name.strip() or header.count(column.name) > 1:
            guesses.append(column.guess("", "has no name, or the name of another column"))
        else:
            guesses.append(_guess(column, taken, claimed))
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


class _Cells:
    """The cells of one column. values: cells that are neither empty nor mean unknown; texts: the values as text."""

    def __init__(self, name: str, cells: list[Any], rows: int) -> None:
        self.name, self.plain, self.rows = name, normal(name), rows
        self.words = re.findall(r"[^\W_]+", re.sub(r"(?<=[a-z])(?=[A-Z])", "_", name).lower())
        stripped = [cell.strip() if isinstance(cell, str) else cell for cell in cells]
        unknown, texts = set(_names()["missing"]), {c for c in stripped if isinstance(c, str) and c}
        self.marks = {text for text in texts if text.lower() in unknown or _MARK.fullmatch(text)}
        self.values = [c for c in stripped if c not in (None, "") and not (isinstance(c, str) and c in self.marks)]
        self.texts = [cell_text(value) for value in self.values]
        self.distinct = set(self.texts)
        self.length = round(sum(map(len, self.texts)) / max(len(self.texts), 1))
        self.numbers = _parsed(parse_number, self.values)
        self.numeric = len(self.numbers) >= 0.9 * max(len(self.values), 1)
        if self.numeric and len(self.numbers) < len(self.values):
            self._mark_unreadable()

    def _mark_unreadable(self) -> None:
        """Take the few texts of a column of numbers that are no numbers for "unknown"."""
        odd = {text for text in self.distinct if not _parsed(parse_number, [text])}
        if len(odd) <= MARKS and all(len(text) <= 20 for text in odd):
            self.marks |= odd
            self.values = [value for value, text in zip(self.values, self.texts, strict=True) if text not in odd]
            self.texts = [text for text in self.texts if text not in odd]
            self.distinct -= odd

    @property
    def identifies(self) -> bool:
        """Whether every row has a value of its own, without blanks."""
        return len(self.distinct) == self.rows and not any(" " in text or len(text) > 40 for text in self.distinct)

    def guess(self, field: str, why: str, line: Any = None) -> ColumnGuess:
        line = self.name if field and line is None else line
        return ColumnGuess(self.name, len(self.values), len(self.distinct), field, " ".join(why.split()), line)

    def called(self, name: str) -> bool:
        """Whether the column's name is this name, holds it, is a misspelling of it, or contains all of its words."""
        if self.plain == name:
            return True
        if len(name) > 5 and (name in self.plain or SequenceMatcher(None, self.plain, name).ratio() > 0.9):
            return True
        return len(self.words) <= 4 and set(re.split("[ _]", name)) <= set(self.words)

    @cached_property
    def by_name(self) -> str:
        """The field whose names fit; an exact name counts first. No part of a name makes an id."""
        known, whole = _names()["fields"], _names()["whole"]
        exact = [field for field, names in known.items() if self.plain in (*names, *whole.get(field, ()))]
        alike = [field for field, names in known.items() if field != "id" and any(map(self.called, names))]
        return str((*exact, *alike, "")[0])


def _guess(column: _Cells, taken: set[str], claimed: set[str]) -> ColumnGuess:
    """The field of a column. taken: fields that earlier columns have; claimed: fields that names of columns say."""
    plain, values, different = column.plain, column.values, len(column.distinct)
    if not values:
        return column.guess("", "is empty")
    by_name = "" if column.by_name in taken else column.by_name
    unique = different == len(values) == column.rows
    icd = _is_icd(column.texts) and not (unique and column.rows > FEW)
    if by_name == "billing" or (icd and not by_name):
        return _codes(column, "billing", "diagnoses, never findings") if icd else column.guess("", AFTER)
    if plain not in itertools.chain(*_names()["fields"].values()):
        for names, why in ((_names()["after"], AFTER), (_names()["unrelated"], UNRELATED)):
            if any(map(column.called, names)):
                return column.guess("", why)
    if by_name == "id" or (not by_name and "id" not in taken and re.search(r"(^|_)(id|no|nr|nº|number)\W*$", plain)):
        if unique:
            return column.guess("id", EVERY_ROW)
        if by_name == "id":
            return column.guess("", f"is no id: {different:,} values in {column.rows:,} rows")
    if by_name == "age" and (ages := _parsed(parse_age, values)) and len(ages) >= 0.9 * len(values):
        return column.guess("age", _range(ages))
    if by_name == "sex" or (different <= 4 and "sex" not in claimed | taken and not _odd_sexes(column)):
        return _sex(column)
    if forms := _time_forms(values):
        if by_name != "time":
            return column.guess("", "dates and times; map it as 'time' if it is the arrival")
        written = {"column": column.name, "format": forms[0] if len(forms) == 1 else forms}
        return column.guess("time", "; ".join(form or "ISO 8601" for form in forms), None if forms == [""] else written)
    if by_name in ("medication_history", "dispensed"):
        return _codes(column, by_name, "drugs by name")
    if by_name == "truth":
        return column.guess("truth", "conditions known to be true")
    if by_name in TEXT and not column.numeric:
        return column.guess(by_name, f"text, {column.length} letters on average")
    if (vital := _vital(column)) is not None:
        return vital
    if different == 1 and len(values) == column.rows:
        return column.guess("", SAME)
    whole = not any(isinstance(value, float) and not value.is_integer() for value in values)
    if whole and different <= FEW and different < len(values) and max(map(len, column.texts)) <= 40:
        triage = any(map(column.called, _names()["triage"]))
        system = "triage" if triage else re.sub(r"\W+", "_", plain).strip("_") or "coded"
        line: dict[str, Any] = {"column": column.name, "system": system}
        if sorted(text.lower() for text in column.distinct) in _names()["no_yes"]:
            yes = max(column.distinct, key=str.lower)
            line["values"] = {text: "yes" if text == yes else None for text in sorted(column.distinct)}
        return column.guess("coded", f"{different} values: {', '.join(sorted(column.distinct)[:FEW])}", line)
    if column.numeric:
        return column.guess("numbers", f"{_range(column.numbers)}; bands are learned", "bands")
    words = set(_names()["complaint_words"])
    fits = sum(not words.isdisjoint(text.lower().split()) for text in column.texts)
    if "chief_complaint" not in claimed | taken and column.length <= 60 and fits >= 0.15 * len(values):
        return column.guess("chief_complaint", f"words of complaints, {column.length} letters on average")
    if column.length >= 25 and (different > 0.3 * len(values) or column.length >= 50):
        return column.guess("triage_note", f"text, {column.length} letters on average")
    return column.guess("", f"{different:,} values; map it if it matters")


def _odd_sexes(column: _Cells) -> list[str]:
    """Values that are no word for a sex."""
    return sorted(text for text in column.distinct if text.lower().rstrip(".") not in SEXES)


def _sex(column: _Cells) -> ColumnGuess:
    texts, letters = sorted(column.distinct), {text.lower() for text in column.distinct}
    own: dict[str, Sex | None] = {}
    if "h" in letters:  # homme beside femme; hombre beside mujer
        own = {text: "M" for text in texts if text.lower() == "h"}
        own |= {text: "F" for text in texts if text.lower() == "m" and "f" not in letters}
    odd = [text for text in _odd_sexes(column) if text not in own]
    if len(odd) > FEW:
        return column.guess("", f"{len(odd):,} values that are no sex")
    known = {text: SEXES[text.lower().rstrip(".")] for text in texts if text not in odd and text not in own} | own
    line = {"column": column.name, "values": known | dict.fromkeys(odd)} if own or odd else None
    if odd:
        return column.guess("sex", f"CHECK: null means unknown; write F or M for {', '.join(odd)}", line)
    return column.guess("sex", ", ".join(f"{text} is {known[text] or 'unknown'}" for text in texts), line)


def _codes(column: _Cells, field: str, why: str) -> ColumnGuess:
    separator = max("|;,", key=lambda sign: sum(sign in text for text in column.texts))
    line: dict[str, Any] = {"column": column.name}
    if separator != "|" and any(separator in text for text in column.texts):
        line["separator"] = separator
    if field == "billing":
        line["system"] = "icd"
    return column.guess(field, why, line if len(line) > 1 else None)


def _is_icd(texts: list[str]) -> bool:
    """Whether most cells begin with an ICD code. Three characters alone may as well be a bed."""
    first = [re.split(r"[|;,]", text)[0].strip().upper() for text in texts]
    fits = sum(bool(_ICD.fullmatch(text)) and any(c.isalpha() or c == "." for c in text) for text in first)
    return fits > 0.8 * len(first) and sum(map(len, first)) > 3.2 * len(first)


def _vital(column: _Cells) -> ColumnGuess | None:
    """A vital sign, if name and values agree: a column of 0 and 1 is no pain score."""
    part = 0 if column.numeric else 1  # 120/80, 5/10: the first number
    numbers = sorted(_parsed(partial(parse_number, part=part), column.values))
    if len(numbers) < (0.7 if part else 0.9) * len(column.values) or len(set(numbers)) < 3:
        return None
    low, high = numbers[len(numbers) // 20], numbers[-1 - len(numbers) // 20]
    for vital in _names()["vitals"]:
        fits = vital["range"][0] <= low and high <= vital["range"][1]
        if fits and any(column.called(name) or name in column.words for name in vital["names"]):
            line = {"part": 1, "rules": vital["rules"]} if part else vital["rules"]
            return column.guess("numbers", f"{_range(numbers)}, {len(numbers):,} measured", line)
    return None


def _range(numbers: Sequence[float]) -> str:
    return f"{min(numbers):g} to {max(numbers):g}"


def _parsed(parse: Callable[[Any], T | None], values: Iterable[Any]) -> list[T]:
    """The values that can be read, read."""
    out = []
    for value in values:
        with suppress(BadValue):
            if (found := parse(value)) is not None:
                out.append(found)
    return out


def _time_forms(values: Sequence[Any]) -> list[str]:
    """The forms of dates and times among the values, commonest first ("" is ISO 8601); none if they are no times."""
    rest, found = [value for value in values if not isinstance(value, int | float)][:LOOKED_AT], list[str]()
    most, forms = len(rest), ["", *_names()["time_formats"]]
    while rest and len(found) < 4:
        count, form = max(((len(_parsed(partial(parse_time, forms=[f]), rest)), f) for f in forms), key=lambda c: c[0])
        if not count:
            break
        found.append(form)
        rest = [value for value in rest if not _parsed(partial(parse_time, forms=[form]), [value])]
    if found and rest and all(re.fullmatch(r"[2-6]\d{4}(\.\d+)?", str(value)) for value in rest):
        found, rest = [*found, "excel"], []
    return found if found and len(rest) <= 0.1 * most else []


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
                wanted = list(itertools.chain(*_names()["fields"].values()))
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
