"""One cell of a record -> one field of a Visit.

Each function raises BadValue with a reason that never quotes the cell. None and blank mean unknown.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import date, datetime
from typing import Any, cast

from whatelse.sources.report import BadValue
from whatelse.visits import OLDEST, Sex

NO_AGE = "age is not a number of years; list cells that mean unknown under 'missing' in the column map"
LONGEST_ID = 1_000
SEXES: dict[str, Sex | None] = {
    **dict.fromkeys(("f", "female", "w", "weiblich", "femme", "femenino", "woman"), "F"),
    **dict.fromkeys(("m", "male", "männlich", "homme", "masculino", "man"), "M"),
    **dict.fromkeys(("", "u", "x", "o", "d", "divers", "unknown", "other", "unspecified", "not specified"), None),
}


def parse_id(cell: Any) -> str:
    """The id of a visit as text; whole numbers lose their '.0'."""
    if cell is None or isinstance(cell, bool | list | dict):
        raise BadValue("id is missing")
    if isinstance(cell, float) and cell.is_integer():
        cell = int(cell)  # a column of whole numbers with a gap in it is read as floats
    text = str(cell).strip()
    if not text:
        raise BadValue("id is missing")
    if "\0" in text or len(text) > LONGEST_ID:
        raise BadValue(f"id holds a NUL character or more than {LONGEST_ID} characters; no database keeps it")
    return text


def parse_age(cell: Any) -> float | None:
    """Years; a decimal comma is accepted."""
    if cell is None or cell == "":
        return None
    try:
        age = float(cell)
    except (TypeError, ValueError, OverflowError):
        if not isinstance(cell, str):
            raise BadValue(NO_AGE) from None
        if not cell.strip():
            return None
        try:
            age = float(cell.replace(",", "."))
        except ValueError:
            raise BadValue(NO_AGE) from None
    if isinstance(cell, bool) or age != age:
        raise BadValue(NO_AGE)
    if age < 0:
        raise BadValue("age is below 0")
    if age > OLDEST:
        raise BadValue(f"age is above {OLDEST}")
    return age


def parse_sex(cell: Any, values: Mapping[str, str | None] | None = None) -> Sex | None:
    """F or M, female or male; U, X, O, unknown and blank are unknown. `values` maps a source's own codes."""
    if cell is None:
        return None
    if values is not None:
        text = str(int(cell)) if isinstance(cell, float) and cell.is_integer() else str(cell).strip()
        if text in values:
            return cast(Sex | None, values[text])  # the map was checked: F, M or None
    try:
        return SEXES[cell.strip().lower()]
    except (AttributeError, KeyError):
        raise BadValue(
            "sex is none of F, M, female, male, U, unknown; map other codes with 'values', as in "
            "sex: {column: gender, values: {1: F, 2: M, 9: null}}"
        ) from None


def parse_time(cell: Any, form: str | None = None) -> datetime | None:
    """A date and time, ISO 8601 unless `form` (as in datetime.strptime) says otherwise."""
    if isinstance(cell, datetime):
        return cell
    if isinstance(cell, date):
        return datetime(cell.year, cell.month, cell.day)
    if cell is None or (isinstance(cell, str) and not cell.strip()):
        return None
    try:
        return datetime.strptime(cell.strip(), form) if form else datetime.fromisoformat(cell.strip())
    except (AttributeError, ValueError):
        raise BadValue(
            f"time is not a date and time written as {form or 'ISO 8601 (2018-03-01 14:05)'}; "
            "a column map can give its 'format'"
        ) from None
