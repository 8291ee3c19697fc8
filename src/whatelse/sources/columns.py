"""Columns: which column of a table is which field of a Visit.

A column map is a small YAML file (or the same as a dict). Fields that it does not name are looked for
under their own names, in any case:

    id: visit_no
    sex: {column: gender, values: {1: F, 2: M}}
    triage_note: [nurse_note, nurse_addendum]              several columns are joined by a newline
    dispensed: {column: drugs, separator: "|", system: gsn}
    billing: {column: [dx1, dx2, dx3], system: icd10}
    time: {column: arrived, format: "%d.%m.%Y %H:%M"}
    missing: [NA, "."]                                     cells that mean unknown, in any column
"""

from __future__ import annotations

import difflib
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import yaml

from whatelse.errors import InputError
from whatelse.visits import Sex, Visit

FIELDS = tuple(field.name for field in fields(Visit))
CODES = ("medication_history", "dispensed", "billing", "coded")
LISTS = (*CODES, "truth")
SYSTEMS = {"medication_history": "name", "dispensed": "name", "billing": "icd", "coded": "coded"}
OPTIONS: dict[str, tuple[str, ...]] = {
    "sex": ("values",),
    "time": ("format",),
    "truth": ("separator",),
    **dict.fromkeys(CODES, ("separator", "system")),
}


@dataclass(frozen=True, slots=True)
class Column:
    """The columns of one field, and how to read their cells."""

    columns: tuple[str, ...]
    separator: str = "|"
    system: str = ""
    format: str | None = None
    values: Mapping[str, Sex | None] | None = None
    asked: bool = False  # named in the map: then it is an error if the file does not have it


@dataclass(frozen=True, slots=True)
class ColumnMap:
    fields: Mapping[str, Column]
    missing: frozenset[str]


def read_columns(columns: str | Path | Mapping[str, Any] | None) -> ColumnMap:
    """A column map from a YAML file, a mapping, or None for the field names themselves."""
    file = None
    if isinstance(columns, str | Path):
        file = Path(columns)
        try:
            columns = yaml.safe_load(file.read_text(encoding="utf-8"))
        except FileNotFoundError:
            raise InputError("no such column map", file=file) from None
        except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
            raise InputError("the column map cannot be read as YAML in UTF-8", file=file) from error
    columns = {} if columns is None else columns
    if not isinstance(columns, Mapping):
        raise InputError("a column map has lines of the form 'field: column'", file=file)
    if unknown := [str(name) for name in columns if name not in (*FIELDS, "missing")]:
        raise InputError(
            f"the column map names {unknown[0]!r}, which is not a field{_near(unknown[0], FIELDS)}; "
            f"fields: {', '.join(FIELDS)}",
            file=file,
        )
    missing = columns.get("missing", [])
    if not isinstance(missing, list):
        raise InputError("'missing' in the column map must be a list of cells that mean unknown", file=file)
    return ColumnMap(
        {name: _column(name, columns.get(name), file) for name in FIELDS}, frozenset(str(cell) for cell in missing)
    )


def _column(field: str, given: Any, file: Path | None) -> Column:
    system = SYSTEMS.get(field, "")
    if given is None:
        return Column((field,), system=system)
    options = dict(given) if isinstance(given, Mapping) else {"column": given}
    names = options.pop("column", field)
    names = names if isinstance(names, list) else [names]
    allowed = OPTIONS.get(field, ())
    if not names or not all(isinstance(name, str | int) for name in names):
        raise InputError(f"the column map needs a column name or a list of them for {field!r}", file=file)
    if len(names) > 1 and field in ("id", "age", "sex", "time"):
        raise InputError(f"the column map gives {len(names)} columns for {field!r}; it takes one", file=file)
    if wrong := [str(option) for option in options if option not in allowed]:
        raise InputError(
            f"the column map gives {field!r} the option {wrong[0]!r}; it takes {', '.join(sorted(allowed)) or 'none'}",
            file=file,
        )
    if "values" in options:
        options["values"] = _sex_values(options["values"], file)
    for option in options.keys() - {"values"}:
        if not isinstance(options[option], str) or not options[option]:
            raise InputError(f"the column map's {option!r} of {field!r} must be text", file=file)
    return Column(tuple(str(name) for name in names), **{"system": system, **options}, asked=True)


def _sex_values(given: Any, file: Path | None) -> dict[str, Sex | None]:
    if not isinstance(given, Mapping) or not all(sex in ("F", "M", None) for sex in given.values()):
        raise InputError("'values' of sex must map the codes of the file to F, M or null", file=file)
    return {str(code): sex for code, sex in given.items()}


def locate(column_map: ColumnMap, header: Sequence[str], file: Path) -> dict[str, tuple[int, ...]]:
    """{field: positions in the header}. A field that the file does not have is left out; `id` must be there."""
    place = {normal(name): position for position, name in enumerate(header)}
    count = Counter(map(normal, header))
    found = {}
    for field, column in column_map.fields.items():
        lacking = [name for name in column.columns if normal(name) not in place]
        if lacking and (column.asked or field == "id"):
            need_columns(lacking, header, file)
        if twice := [name for name in column.columns if count[normal(name)] > 1]:
            raise InputError("this column is there more than once; rename one of them", file=file, column=twice[0])
        if not lacking:
            found[field] = tuple(place[normal(name)] for name in column.columns)
    if len(found) == 1:
        raise InputError(f"has no column for any field but id; expected some of {', '.join(FIELDS[1:])}", file=file)
    return found


def normal(name: str) -> str:
    """Chief Complaint, chief-complaint and chief_complaint are the same column."""
    return name.strip().lower().replace(" ", "_").replace("-", "_")


def need_columns(needed: Iterable[str], header: Sequence[str], file: Path) -> None:
    """Raise unless every needed column is in the header; names the nearest ones there are."""
    have = {normal(name) for name in header}
    for name in needed:
        if normal(name) not in have:
            raise InputError(
                f"no column {name!r} among its {len(header)} columns{_near(name, header)}; "
                "a column map can give it another name",
                file=file,
            )


def _near(name: str, names: Iterable[str]) -> str:
    close = difflib.get_close_matches(normal(name), [normal(n) for n in names], n=2, cutoff=0.6)
    return f"; did you mean {' or '.join(repr(n) for n in close)}?" if close else ""
