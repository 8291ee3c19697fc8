"""Cells of one row -> Visit, by a column map. Shared by CSV, JSON Lines, Parquet and data frames."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from whatelse.sources.columns import CODES, Column, ColumnMap, Places
from whatelse.sources.fields import cell_text, parse_age, parse_id, parse_sex, parse_time
from whatelse.sources.numbers import parse_number
from whatelse.sources.report import BadValue, Report
from whatelse.visits import TEXT_FIELDS, Code, Visit

REMEMBERED = 200_000  # codes shared between visits: drug names repeat
NO_CODE = "holds a code object without 'system' and 'code'"


class Converter:
    """make(cells, row) -> Visit. `places` gives the positions of the cells of each field that the table has."""

    def __init__(self, columns: ColumnMap, places: Places, report: Report, file: str) -> None:
        self._missing = columns.missing
        self._known: dict[Any, Code] = {}
        self._file, self._report = file, report
        numbers = places["numbers"] if columns.numbers else ()
        self._numbers = [(number, at[0]) for number, at in zip(columns.numbers, numbers, strict=True)]
        self._shown = [(name, at[0]) for name, at in zip(columns.shown, places.get("shown", ()), strict=False) if at]
        plain = {field: at for field, at in places.items() if field != "shown" and not (field == "numbers" and numbers)}
        self._steps = [(field, *self._step(field, columns.fields[field], at)) for field, at in plain.items()]

    def __call__(self, cells: Sequence[Any], row: int) -> Visit:
        """BadValue with the column that holds the problem."""
        if self._missing:
            cells = [None if isinstance(cell, str) and cell.strip() in self._missing else cell for cell in cells]
        found: dict[str, Any] = {}
        for field, convert, column in self._steps:
            try:
                found[field] = convert(cells, row)
            except BadValue as bad:
                raise BadValue(bad.problem, column) from None
        shown = [(name, cell_text(cells[at])) for name, at in self._shown if cells[at] not in (None, "")]
        if self._numbers:
            shown += self._measure(cells, found)
        return Visit(**found, shown=tuple(shown))

    def _measure(self, cells: Sequence[Any], found: dict[str, Any]) -> list[tuple[str, str]]:
        """Add the codes of the rules that hold, and the numbers for bands.

        Returns the measurements that only rules use, for people who label.
        """
        codes: list[Code] = []
        shown: list[tuple[str, str]] = []
        numbers: dict[str, float] = {}
        for number, at in self._numbers:
            try:
                value = parse_number(cells[at], number.part)
            except BadValue:
                self._report.unread[number.column] += 1
                continue
            if value is None:
                continue
            codes += [rule.code for rule in number.rules if rule.holds(value)]
            if number.bands:
                numbers[number.name] = value
            else:
                shown.append((number.name, f"{value:g}"))
        if any(number.rules for number, _ in self._numbers):
            found["coded"] = tuple(dict.fromkeys((*(found.get("coded") or ()), *codes)))
        found["numbers"] = numbers
        return shown

    def _step(
        self, field: str, groups: tuple[Column, ...], places: tuple[tuple[int, ...], ...]
    ) -> tuple[Callable[[Sequence[Any], int], Any], str]:
        """The function from cells to the field's value, and the column to name when it fails."""
        column, at = groups[0], places[0]
        if column.row_number:
            return lambda _, row: f"{self._file}-{row}", "id"
        name, first = column.columns[0], at[0]
        single: dict[str, Callable[[Any], Any]] = {
            "id": parse_id,
            "age": parse_age,
            "sex": lambda cell: parse_sex(cell, column.values),
            "time": lambda cell: parse_time(cell, column.format),
            "numbers": _number_object,
            **(dict.fromkeys(TEXT_FIELDS, _text) if len(at) == 1 else {}),
        }
        if (parse := single.get(field)) is not None:
            return lambda cells, _: parse(cells[first]), name
        if field in TEXT_FIELDS:
            return lambda cells, _: _joined([_text(cells[i]) for i in at]), name
        if field in CODES:
            several = list(zip(groups, places, strict=True))
            return lambda cells, _: self._codes([([cells[i] for i in at], c) for c, at in several]), name
        return lambda cells, _: _names(_items([cells[i] for i in at], column.separator)), name

    def _codes(self, groups: Iterable[tuple[list[Any], Column]]) -> tuple[Code, ...] | None:
        """() if a cell is there and empty, None if none is there. The same code twice is one code."""
        known = self._known
        found: dict[Any, Code] | None = None
        for cells, column in groups:
            items = _items(cells, column.separator)
            if items is None:
                continue
            found, system = {} if found is None else found, column.system
            if (values := column.values) is not None:  # to another text, "" where the cell stands for nothing
                items = [(values[text] or "") if (text := cell_text(item)) in values else item for item in items]
            for item in items:
                # Hashing the text is much cheaper than hashing a Code, and texts repeat from visit to visit.
                if type(item) is str:
                    key: Any = (system, item)
                elif type(item) is dict:
                    key = (system, item.get("system"), item.get("code"), item.get("name"))
                else:
                    key = (system, type(item), str(item))
                try:
                    code = known.get(key)
                except TypeError:  # a code object that holds lists
                    raise BadValue(NO_CODE) from None
                if code is None:
                    code = _code(item, system)
                    if code is None:
                        continue  # nothing between two separators
                    if len(known) >= REMEMBERED:
                        known.clear()
                    known[key] = code
                found[key] = code
        return None if found is None else tuple(found.values() if len(found) < 2 else dict.fromkeys(found.values()))


def make_code(system: str, text: str) -> Code:
    """A code from its text: ICD in upper case, GSN with its leading zeros, names in lower case.

    "icd" tells ICD-9 from ICD-10 by the first character; the E and V codes of ICD-9 need "icd9".
    """
    if system == "icd":
        system = "icd9" if text[0].isdigit() else "icd10"
    if system in ("icd9", "icd10", "cause"):
        return Code(system, text.upper())
    if system == "gsn" and text.isdigit():
        return Code(system, text.zfill(6))
    if system == "name":
        return Code(system, text.lower(), text)
    return Code(system, text)


def _number_object(cell: Any) -> dict[str, float] | None:
    """Numbers as `write_visits` writes them: {"pulse": 88}, in Parquet a list of pairs."""
    if cell is None or cell == "":
        return None
    try:
        return {str(name): float(value) for name, value in dict(cell).items()}
    except (TypeError, ValueError):
        raise BadValue("is not an object of numbers by name; map columns of numbers with 'numbers'") from None


def _code(item: Any, system: str) -> Code | None:
    """A code from an item of a list: its text, a whole number, or an object {system, code, name}."""
    if isinstance(item, dict):
        code, name, own = item.get("code"), item.get("name"), item.get("system") or system
        if not isinstance(code, str | int) or code == "" or not isinstance(own, str):
            raise BadValue(NO_CODE)
        return Code(own, str(code), str(name) if name is not None else None)
    if isinstance(item, bool) or not (isinstance(item, str | int) or (isinstance(item, float) and item.is_integer())):
        raise BadValue("is not a list of codes")
    text = cell_text(item)
    return make_code(system, text) if text else None


def _items(cells: list[Any], separator: str) -> list[Any] | None:
    """The items of the cells; None if every cell is None."""
    items: list[Any] = []
    for cell in cells:
        if isinstance(cell, str):
            items += cell.split(separator) if cell else ()
        elif isinstance(cell, list | tuple):
            items += cell
        elif cell is not None:
            items.append(cell)
    return items if any(cell is not None for cell in cells) else None


def _names(items: list[Any] | None) -> tuple[str, ...] | None:
    if items is None:
        return None
    if not all(isinstance(item, str) for item in items):
        raise BadValue("is not a list of condition names")
    return tuple(name for item in items if (name := item.strip()))


def _text(cell: Any) -> str | None:
    if cell is None or isinstance(cell, str):
        return cell
    if isinstance(cell, int | float) and not isinstance(cell, bool):
        return str(cell)
    raise BadValue("is not text")


def _joined(texts: list[str | None]) -> str | None:
    there = [text for text in texts if text is not None]
    return "\n".join(text for text in there if text) if there else None
