"""Columns: which column of a table is which field of a Visit.

A column map is part of the description of a source (`description.py`): a small YAML file, or the same as a dict. Fields
that it does not name are looked for under their own names, in any case:

    id: visit_no                                           {row_number: true} where the table has no id
    sex: {column: gender, values: {1: F, 2: M}}
    triage_note: [nurse_note, nurse_addendum]              several columns are joined by a newline
    dispensed: {column: drugs, separator: "|", system: gsn}
    billing: {column: [dx1, dx2, dx3], system: icd10}
    coded:                                                 several columns, each with its system
      - {column: esi, system: triage}
      - {column: arrival, system: arrival, values: {AMB: ambulance, WALK: null}}
    numbers:                                               see `numbers.py`
      temp: [">= 38 -> vital:fever", "< 35 -> vital:cold"]
      pulse: bands
    time: {column: arrived, format: "%d.%m.%Y %H:%M"}      a list: the first that fits; "" is ISO 8601, excel a number
    shown: [disposition, expert]                           shown on label sheets, never a finding; may be absent
    missing: [NA, "."]                                     cells that mean unknown, in any column
    billing: null                                          not read, though a column has this name
"""

from __future__ import annotations

import difflib
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any

from whatelse.errors import InputError
from whatelse.sources.numbers import Number, read_number
from whatelse.visits import Visit

FIELDS = tuple(field.name for field in fields(Visit) if field.name != "shown")
CODES = ("medication_history", "dispensed", "billing", "coded")
LISTS = (*CODES, "truth")
SINGLE = ("id", "age", "sex", "time")
SYSTEMS = {"medication_history": "name", "dispensed": "name", "billing": "icd", "coded": "coded"}
OPTIONS: dict[str, tuple[str, ...]] = {
    "id": ("row_number",),
    "sex": ("values",),
    "time": ("format",),
    "truth": ("separator",),
    **dict.fromkeys(CODES, ("separator", "system", "values")),
}
Places = dict[str, tuple[tuple[int, ...], ...]]
NEXT = "'whatelse inspect FILE --out map.yaml' writes a first column map to edit"


@dataclass(frozen=True, slots=True)
class Column:
    """Columns that are read alike into one field, and how to read their cells."""

    columns: tuple[str, ...]
    separator: str = "|"
    system: str = ""
    format: tuple[str, ...] = ()  # of times: as in datetime.strptime; the first that fits
    values: Mapping[str, str | None] | None = None
    asked: bool = False  # named in the map: then it is an error if the file does not have it
    row_number: bool = False  # an id made of the file's name and the number of the row: there is no column


@dataclass(frozen=True, slots=True)
class ColumnMap:
    """fields: the groups of columns of each field; numbers: columns of measurements; missing: cells that mean unknown.

    shown: columns that people who label see, and that are never findings; a file may lack them.
    saved: whether the map came with a cohort or a model rather than from whoever reads the file now.
    """

    fields: Mapping[str, tuple[Column, ...]]
    numbers: tuple[Number, ...] = ()
    missing: frozenset[str] = frozenset()
    saved: bool = False
    shown: tuple[str, ...] = ()

    def names(self) -> list[str]:
        """Every column that it looks for, normalised, each once."""
        wanted = [name for groups in self.fields.values() for group in groups for name in group.columns]
        wanted += [*(number.column for number in self.numbers), *self.shown]
        return list(dict.fromkeys(normal(name) for name in wanted))

    def asked(self) -> list[str]:
        """The columns that the map names itself."""
        wanted = [name for groups in self.fields.values() for g in groups if g.asked for name in g.columns]
        return [*wanted, *(number.column for number in self.numbers)]


def column_map(given: Mapping[str, Any], file: object = None, saved: bool = False) -> ColumnMap:
    """A column map from the parsed content of a description; keys that are none of its own are refused before."""
    missing, shown, numbers = given.get("missing") or [], given.get("shown") or [], given.get("numbers") or {}
    if not isinstance(missing, list):
        raise InputError("'missing' in the column map must be a list of cells that mean unknown", file=file)
    if not isinstance(shown, list) or not all(isinstance(name, str | int) for name in shown):
        raise InputError("'shown' in the column map must be a list of columns", file=file)
    if not isinstance(numbers, Mapping):
        raise InputError("'numbers' in the column map must be a mapping of column names", file=file)
    there = [name for name in FIELDS if name != "numbers" and (name == "id" or given.get(name, "") is not None)]
    columns: dict[str, tuple[Column, ...]] = {}
    for name in there:
        groups: Any = given.get(name)
        several = isinstance(groups, list) and any(isinstance(group, Mapping) for group in groups)
        if several and name not in CODES:
            raise InputError(f"the column map gives {name!r} several descriptions; it takes one", file=file)
        columns[name] = tuple(_column(name, group, file) for group in (groups if several else [groups]))
    if not numbers and given.get("numbers", "") is not None:
        columns["numbers"] = (Column(("numbers",)),)
    return ColumnMap(
        columns,
        tuple(read_number(str(column), spec, normal, file) for column, spec in numbers.items()),
        frozenset(str(cell) for cell in missing),
        saved,
        tuple(map(str, shown)),
    )


def _column(field: str, given: Any, file: object) -> Column:
    system = SYSTEMS.get(field, "")
    if given is None:
        return Column((field,), system=system)
    options = dict(given) if isinstance(given, Mapping) else {"column": given}
    if options.pop("row_number", False) is True and field == "id":
        if options:
            raise InputError("the column map's 'id' is a column or the row number, not both", file=file)
        return Column((), row_number=True, asked=True)
    names = options.pop("column", field)
    names = names if isinstance(names, list) else [names]
    allowed = OPTIONS.get(field, ())
    if not names or not all(isinstance(name, str | int) for name in names):
        raise InputError(f"the column map needs a column name or a list of them for {field!r}", file=file)
    if len(names) > 1 and field in SINGLE:
        raise InputError(f"the column map gives {len(names)} columns for {field!r}; it takes one", file=file)
    if wrong := [str(option) for option in options if option not in allowed]:
        takes = ", ".join(sorted(allowed)) or "none"
        raise InputError(f"the column map gives {field!r} the option {wrong[0]!r}; it takes {takes}", file=file)
    if "values" in options:
        options["values"] = _values(field, options["values"], file)
    if isinstance(options.get("format"), str):
        options["format"] = [options["format"]]
    for option in options.keys() - {"values"}:
        texts = options[option] if option == "format" and isinstance(options[option], list) else [options[option]]
        if not texts or not all(isinstance(text, str) and (text or option == "format") for text in texts):
            raise InputError(f"the column map's {option!r} of {field!r} must be text", file=file)
    if "format" in options:
        options["format"] = tuple(options["format"])
    return Column(tuple(str(name) for name in names), **{"system": system, **options}, asked=True)


def _values(field: str, given: Any, file: object) -> dict[str, str | None]:
    if field == "sex":
        if not isinstance(given, Mapping) or not all(sex in ("F", "M", None) for sex in given.values()):
            raise InputError("'values' of sex must map the codes of the file to F, M or null", file=file)
    elif not isinstance(given, Mapping) or not all(isinstance(v, str | int | None) for v in given.values()):
        raise InputError(f"'values' of {field} must map the cells of the file to codes, or to null for none", file=file)
    return {str(code): None if value is None else str(value) for code, value in given.items()}


def locate(columns: ColumnMap, header: Sequence[str], file: object) -> Places:
    """{field: for each group of its columns, their positions in the header}; `numbers` for each number.

    A field that the file does not have is left out; `id` must be there, and so must every column that the map names.
    """
    place = {normal(name): position for position, name in enumerate(header)}
    count = Counter(map(normal, header))
    found: Places = {}

    def positions(names: Iterable[str]) -> tuple[int, ...]:
        if twice := [name for name in names if count[normal(name)] > 1]:
            raise InputError("this column is there more than once; rename one of them", file=file, column=twice[0])
        return tuple(place[normal(name)] for name in names)

    for field, groups in columns.fields.items():
        lacking = [name for group in groups for name in group.columns if normal(name) not in place]
        if lacking and (groups[0].asked or field == "id"):
            need_columns(lacking, header, file, saved=columns.saved and groups[0].asked)
        if not lacking:
            found[field] = tuple(positions(group.columns) for group in groups)
    if columns.numbers:
        need_columns([number.column for number in columns.numbers], header, file, saved=columns.saved)
        found["numbers"] = tuple(positions([number.column]) for number in columns.numbers)
    if len(found) == 1:
        expected = ", ".join(FIELDS[1:])
        raise InputError(f"has no column for any field but id; expected some of {expected}; {NEXT}", file=file)
    if columns.shown:
        found["shown"] = tuple(positions([name]) if normal(name) in place else () for name in columns.shown)
    return found


def normal(name: str) -> str:
    """Chief Complaint, chief-complaint and chief_complaint are the same column."""
    return name.strip().lower().replace(" ", "_").replace("-", "_")


def need_columns(needed: Iterable[str], header: Sequence[str], file: object, saved: bool = False) -> None:
    """Raise unless every needed column is in the header; names the nearest ones there are."""
    have = {normal(name) for name in header}
    for name in needed:
        if normal(name) not in have:
            number = ", or {row_number: true}" if normal(name) == "id" else ""
            advice = f"a column map can give it another name{number}; {NEXT}"
            if saved:
                advice = "the map that came with the cohort or model asks for it: give --map FILE, or --source table"
            missing = f"no column {name!r} among its {len(header)} columns{near(name, header)}"
            raise InputError(f"{missing}; {advice}", file=file)


def near(name: str, names: Iterable[str]) -> str:
    """'; did you mean …?' with the names most like this one, or nothing."""
    close = difflib.get_close_matches(normal(name), [normal(n) for n in names], n=2, cutoff=0.6)
    return f"; did you mean {' or '.join(repr(n) for n in close)}?" if close else ""
