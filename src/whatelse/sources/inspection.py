"""A first look at a table: what each column seems to be, and a column map to start from.

Names count first (`column_names.yaml`: English and some neighbours), then what the cells look like. It is a guess for a
person to edit: the map says beside each line what was seen, and lists what will be ignored.
"""

from __future__ import annotations

import csv
import itertools
import json
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import yaml

from whatelse.errors import InputError
from whatelse.sources.columns import normal
from whatelse.sources.fields import SEXES
from whatelse.sources.numbers import parse_number
from whatelse.sources.report import BadValue
from whatelse.sources.tables import LONGEST, find_delimiter, table_format
from whatelse.sources.textfile import damage, inspect, open_text

ROWS = 20_000  # looked at; more say nothing new
FEW = 12  # different values of a column that is taken for codes
_ICD = re.compile(r"[A-Z]\d[\dA-Z](\.?[\dA-Z]{1,4})?|\d{3}(\.\d{1,2})?")


@cache
def _names() -> Any:
    return yaml.safe_load((files("whatelse.sources") / "column_names.yaml").read_text("utf-8"))


@dataclass(frozen=True)
class Seen:
    """A column: its name, how many cells hold something, how many different values; what it seems to be, and why.

    field  of a visit, "numbers", or "" where it will be ignored; line  what the map says of it, as YAML's values
    """

    name: str
    filled: int
    different: int
    field: str
    why: str
    line: Any = None


@dataclass(frozen=True)
class Look:
    """A table that was looked at: rows seen, its columns, and what the map says beside them."""

    file: str
    rows: int
    columns: list[Seen]
    settings: dict[str, Any]

    def to_map(self) -> dict[str, Any]:
        """The map as `read_visits(columns=…)` takes it."""
        out: dict[str, Any] = dict(self.settings)
        if not any(seen.field == "id" for seen in self.columns):
            out["id"] = {"row_number": True}
        for seen in self.columns:
            if seen.field == "numbers":
                out.setdefault("numbers", {})[seen.name] = seen.line
            elif seen.field == "coded":
                out.setdefault("coded", []).append(seen.line)
            elif seen.field and seen.field in out:  # a second column of notes or of diagnoses
                out[seen.field] = _both(out[seen.field], seen.line)
            elif seen.field:
                out[seen.field] = seen.line
        return out

    def to_yaml(self) -> str:
        """The map as a file to edit, with what was seen as comments."""
        out = [
            f"# How to read {self.file}: a first guess from {self.rows:,} rows. Correct it, then",
            "#     whatelse build FILE --map THIS-FILE --conditions CONDITIONS --out COHORT",
            "# Lines are explained in docs/records.md. Columns that are not named here are ignored.",
        ]
        why = {field: "; ".join(s.why for s in self.columns if s.field == field) for field in self.to_map()}
        for field, line in self.to_map().items():
            if field in ("coded", "numbers"):
                out.append(f"{field}:")
                seen = [s for s in self.columns if s.field == field]
                head = "  - {}" if field == "coded" else "  {}: {}"
                for s in seen:
                    parts = (_inline(s.line),) if field == "coded" else (_inline(s.name), _inline(s.line))
                    out.append(head.format(*parts) + f"  # {s.why}")
            else:
                out.append(f"{field}: {_inline(line)}" + (f"  # {why[field]}" if why.get(field) else ""))
        ignored = [s for s in self.columns if not s.field]
        out += ["", "# ignored:"] + [f"#   {_inline(s.name)}: {s.why}" for s in ignored] if ignored else []
        return "\n".join(out) + "\n"


def look_at(path: Path, *, delimiter: str | None = None, encoding: str | None = None) -> Look:
    """Look at the first ROWS rows of a table. O(rows columns)."""
    settings: dict[str, Any] = {}
    if not path.is_file():
        raise InputError("is not a file; 'whatelse inspect' looks at one table", file=path)
    kind = table_format(path)
    if kind == "parquet":
        header, rows = _parquet(path)
    elif kind == "jsonl":
        header, rows = _jsonl(path)
    else:
        header, rows, settings = _csv(path, delimiter, encoding)
    if not rows:
        raise InputError("has no rows to look at", file=path)
    missing = set(_names()["missing"])
    marks: Counter[str] = Counter()
    columns: list[Seen] = []
    taken: set[str] = set()
    for at, name in enumerate(header):
        cells = [row[at] for row in rows if at < len(row)]
        texts = [cell.strip() if isinstance(cell, str) else cell for cell in cells]
        marks.update({str(t) for t in texts if isinstance(t, str) and t.lower() in missing})
        values = [t for t in texts if t not in (None, "") and not (isinstance(t, str) and t.lower() in missing)]
        if not name.strip() or header.count(name) > 1:
            columns.append(Seen(name, len(values), 0, "", "has no name, or one that another column has"))
            continue
        seen = _guess(name, values, len(rows), taken)
        taken |= {seen.field} if seen.field in ("id", "age", "sex", "time", "chief_complaint") else set()
        columns.append(seen)
    if marks:
        settings["missing"] = sorted(marks)
    return Look(path.name, len(rows), columns, settings)


def _guess(name: str, values: list[Any], rows: int, taken: set[str]) -> Seen:
    plain = normal(name)
    texts = [str(value) for value in values]
    different = len(set(texts))
    seen = (name, len(values), different)
    if not values:
        return Seen(*seen, "", "is empty")
    by_name = next((field for field, names in _names()["fields"].items() if plain in names), "")
    if by_name in taken:
        by_name = ""
    numbers = _numbers(values)
    numeric = len(numbers) >= 0.9 * len(values)
    if by_name == "id" or (not by_name and "id" not in taken and re.search(r"(^|_)(id|no|nr|number)$", plain)):
        if different == len(values) == rows:
            return Seen(*seen, "id", "a different value in every row", name)
        if by_name == "id":
            return Seen(
                *seen, "", f"an id must differ in every row, and be there: {different:,} values in {rows:,} rows"
            )
    if by_name == "age" and numeric and min(numbers) >= 0 and max(numbers) <= 130:
        return Seen(*seen, "age", f"{min(numbers):g} to {max(numbers):g}", name)
    if by_name == "sex" or (different <= 4 and "sex" not in taken and {t.lower() for t in texts} <= set(SEXES) - {""}):
        return _sex(seen, texts)
    if by_name == "time" and (form := _time_format(values)) is not None:
        return Seen(*seen, "time", form or "ISO 8601", {"column": name, "format": form} if form else name)
    if by_name in ("billing", "medication_history", "dispensed"):
        return _codes(seen, by_name, texts)
    if by_name == "truth":
        return Seen(*seen, "truth", "conditions known to be true", name)
    if by_name in ("chief_complaint", "triage_note", "md_comments") and not numeric:
        return Seen(*seen, by_name, f"text, {_length(texts)} letters on average", name)
    if (vital := _vital(seen, plain, values, numbers)) is not None:
        return vital
    if plain in _names()["triage"] or (different <= FEW and different < len(values) and max(map(len, texts)) <= 40):
        system = "triage" if plain in _names()["triage"] else re.sub(r"\W+", "_", plain).strip("_") or "coded"
        shown = ", ".join(sorted(set(texts))[:FEW])
        return Seen(*seen, "coded", f"{different} values: {shown}", {"column": name, "system": system})
    if numeric:
        return Seen(*seen, "numbers", f"{min(numbers):g} to {max(numbers):g}; bands are learned", "bands")
    first = [re.split(r"[|;,]", t)[0].strip().upper() for t in texts]
    if sum(bool(_ICD.fullmatch(t)) for t in first) > 0.8 * len(first) and sum(map(len, first)) > 3.2 * len(first):
        return _codes(seen, "billing", texts)  # three characters alone may as well be a bed
    if _time_format(values) is not None:
        return Seen(*seen, "", "dates and times; map it as 'time' if it is the arrival")
    if _length(texts) >= 25 and different > 0.3 * len(texts):
        return Seen(*seen, "triage_note", f"text, {_length(texts)} letters on average", name)
    return Seen(*seen, "", f"{different:,} values; map it if it matters")


def _sex(seen: tuple[str, int, int], texts: list[str]) -> Seen:
    odd = sorted({t for t in texts if t.lower() not in SEXES})
    shown = ", ".join(sorted(set(texts))[:FEW])
    if not odd:
        return Seen(*seen, "sex", shown, seen[0])
    if len(odd) > FEW:
        return Seen(*seen, "", f"{len(odd):,} values that are no sex")
    values = {t: SEXES[t.lower()] for t in sorted(set(texts)) if t.lower() in SEXES} | dict.fromkeys(odd)
    why = f"CHECK: null means unknown; write F or M for {', '.join(odd)}"
    return Seen(*seen, "sex", why, {"column": seen[0], "values": values})


def _codes(seen: tuple[str, int, int], field: str, texts: list[str]) -> Seen:
    separator = max("|;,", key=lambda sign: sum(sign in t for t in texts))
    line: Any = seen[0]
    if any(separator in t for t in texts) and separator != "|":
        line = {"column": seen[0], "separator": separator}
    if field == "billing":
        line = {**(line if isinstance(line, dict) else {"column": seen[0]}), "system": "icd"}
    return Seen(*seen, field, "diagnoses, never findings" if field == "billing" else "drugs by name", line)


def _vital(seen: tuple[str, int, int], plain: str, values: list[Any], numbers: list[float]) -> Seen | None:
    bare = re.sub(r"_?\(.*\)|_(c|f|bpm|mmhg)$", "", plain)  # without its unit
    for known in _names()["vitals"].values():
        if plain not in known["names"] and bare not in known["names"]:
            continue
        pairs = _numbers(values, part=1) if len(numbers) < 0.9 * len(values) else []
        if not pairs and len(numbers) < 0.9 * len(values):
            return None
        middle = sorted(numbers or pairs)[len(numbers or pairs) // 2]
        rules = known["rules"] if "rules" in known else known["celsius" if middle < 60 else "fahrenheit"]
        line = {"part": 1, "rules": rules} if pairs else rules
        low, high = min(numbers or pairs), max(numbers or pairs)
        return Seen(*seen, "numbers", f"{low:g} to {high:g}, {len(numbers or pairs):,} measured", line)
    return None


def _numbers(values: Iterable[Any], part: int = 0) -> list[float]:
    out = []
    for value in values:
        try:
            number = parse_number(value, part)
        except BadValue:
            continue
        if number is not None:
            out.append(number)
    return out


def _time_format(values: Sequence[Any]) -> str | None:
    """ "" for ISO 8601 or real dates, a format, or None if these are no times."""
    some = values[:200]
    if all(isinstance(value, datetime) or hasattr(value, "isoformat") for value in some):
        return ""
    texts = [str(value) for value in some]
    if all(re.match(r"\d{4}-\d\d-\d\d", t) for t in texts):
        return ""
    for form in _names()["time_formats"]:
        try:
            for text in texts:
                datetime.strptime(text, form)
            return str(form)
        except ValueError:
            continue
    return None


def _length(texts: list[str]) -> int:
    return round(sum(map(len, texts)) / len(texts))


def _both(before: Any, line: Any) -> Any:
    if isinstance(before, dict) or isinstance(line, dict):  # coded columns, each with its own way of being written
        return [
            *(before if isinstance(before, list) else [before]),
            line if isinstance(line, dict) else {"column": line},
        ]
    return [*(before if isinstance(before, list) else [before]), line]


def _inline(value: Any) -> str:
    """A value on one line of YAML: JSON is YAML."""
    if isinstance(value, str) and re.fullmatch(r"[^\W\d][\w .-]*(?<! )", value) and yaml.safe_load(value) == value:
        return value
    return json.dumps(value, ensure_ascii=False)


def _csv(path: Path, delimiter: str | None, encoding: str | None) -> tuple[list[str], list[list[str]], dict[str, Any]]:
    text = inspect(path, encoding)
    csv.field_size_limit(max(csv.field_size_limit(), LONGEST))
    wanted = [name for names in _names()["fields"].values() for name in names]
    with damage(path), open_text(path, text, newline="") as stream:
        first = next((line for line in stream if line.strip()), "")
        found = delimiter or find_delimiter(first, path, wanted)
        reader = csv.reader(itertools.chain([first], stream), delimiter=found)
        try:
            header = next(reader)
            rows = [row for row in itertools.islice(reader, ROWS) if row]
        except csv.Error:
            raise InputError("is not a CSV table: quotes do not match, or a cell never ends", file=path) from None
    settings = {"delimiter": "tab" if found == "\t" else found} if found != "," else {}
    if text.encoding not in ("utf-8", "utf-8-sig"):
        settings["encoding"] = text.encoding
    return header, rows, settings


def _jsonl(path: Path) -> tuple[list[str], list[list[Any]]]:
    records = []
    with damage(path), open_text(path, inspect(path), newline="\n") as stream:
        for line in _first(stream):
            try:
                record = json.loads(line)
            except ValueError:
                continue
            if isinstance(record, dict):
                records.append(record)
    header = list(dict.fromkeys(key for record in records for key in record))
    return header, [[_flat(record.get(key)) for key in header] for record in records]


def _parquet(path: Path) -> tuple[list[str], list[list[Any]]]:
    try:
        with pq.ParquetFile(path) as file:
            header = list(file.schema_arrow.names)
            batch = next(file.iter_batches(ROWS), None)
            columns = [[_flat(v) for v in batch.column(i).to_pylist()] for i in range(len(header))] if batch else []
    except (OSError, ValueError):
        raise InputError("cannot be read as a Parquet file: damaged or cut short", file=path) from None
    return header, [list(row) for row in zip(*columns, strict=True)]


def _first(stream: Iterable[str]) -> Iterator[str]:
    return itertools.islice((line for line in stream if line.strip()), ROWS)


def _flat(value: Any) -> Any:
    """Lists and objects as text: what is in them does not matter for a first look."""
    if isinstance(value, list):
        return "|".join(str(v.get("code", v)) if isinstance(v, dict) else str(v) for v in value)
    return str(value) if isinstance(value, dict) else value
