"""One cell of a record -> one field of a Visit.

Each function raises BadValue with a reason that never quotes the cell. None and blank mean unknown.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from datetime import date, datetime, timedelta
from typing import Any, cast

from whatelse.io.limits import shipped_yaml
from whatelse.sources.report import BadValue
from whatelse.visits import OLDEST, Sex

NO_AGE = "age is not a number of years; list cells that mean unknown under 'missing' in the column map"
LONGEST_ID = 1_000
_WORDS = shipped_yaml("whatelse.sources", "cell_words.yaml")
SEXES: dict[str, Sex | None] = {
    word: None if sex == "unknown" else sex for sex, words in _WORDS["sex"].items() for word in words
}
YEARS = {"years": 1.0, "months": 1 / 12, "weeks": 7 / 365.25, "days": 1 / 365.25}
_UNITS = {word: YEARS[unit] for unit, words in _WORDS["age"].items() for word in words}
_AGE = re.compile(r"(\d+(?:[.,]\d+)?)\s*([^\W\d]*)\.?(?:[ /-]*old)?", re.IGNORECASE)
_EXCEL = datetime(1899, 12, 30)  # day 0 of a spreadsheet


def cell_text(cell: Any) -> str:
    """A cell as the keys of 'values' are written. A column of whole numbers with gaps is read as floats: 1.0 is "1"."""
    return str(int(cell)) if isinstance(cell, float) and cell.is_integer() else str(cell).strip()


def parse_id(cell: Any) -> str:
    """The id of a visit as text; whole numbers lose their '.0'."""
    if cell is None or isinstance(cell, bool | list | dict):
        raise BadValue("id is missing")
    text = cell_text(cell)
    if text.startswith('="') and text.endswith('"'):
        text = text[2:-1]  # so spreadsheets keep the zeros in front of a number
    if not text:
        raise BadValue("id is missing")
    if "\0" in text or len(text) > LONGEST_ID:
        raise BadValue(f"id holds a NUL character or more than {LONGEST_ID} characters; no database keeps it")
    return text


def parse_age(cell: Any) -> float | None:
    """Years. A decimal comma and a unit are accepted: "54y", "18 mo", "3 weeks", "5 Tage"."""
    if isinstance(cell, str):
        cell = _age_of_text(cell.strip())
    if cell is None:
        return None
    try:
        age = float(cell)
    except (TypeError, ValueError, OverflowError):
        raise BadValue(NO_AGE) from None
    if isinstance(cell, bool) or age != age:
        raise BadValue(NO_AGE)
    if age < 0:
        raise BadValue("age is below 0")
    if age > OLDEST:
        raise BadValue(f"age is above {OLDEST}")
    return age


def _age_of_text(text: str) -> float | str | None:
    """Years of a number with a unit; other text as it is."""
    found = _AGE.fullmatch(text)
    if found is None:
        return text or None
    years = _UNITS.get(found[2].lower() or "y")
    return text if years is None else float(found[1].replace(",", ".")) * years


def parse_sex(cell: Any, values: Mapping[str, str | None] | None = None) -> Sex | None:
    """F or M, female or male; U, X, O, unknown and blank are unknown. `values` maps a source's own codes."""
    if cell is None:
        return None
    if values is not None:
        text = cell_text(cell)
        if text in values:
            return cast(Sex | None, values[text])  # the map was checked: F, M or None
    try:
        return SEXES[cell.strip().lower().rstrip(".")]
    except (AttributeError, KeyError):
        advice = "map other codes with 'values', as in sex: {column: gender, values: {1: F, 2: M, 9: null}}"
        raise BadValue(f"sex is none of F, M, female, male, U, unknown; {advice}") from None


def parse_time(cell: Any, forms: Sequence[str] = ()) -> datetime | None:
    """A date and time: ISO 8601, or the first of `forms` that fits.

    forms   as in datetime.strptime; "excel": days since 1899-12-30, as spreadsheets keep dates
    """
    if isinstance(cell, datetime):
        return cell
    if isinstance(cell, date):
        return datetime(cell.year, cell.month, cell.day)
    if cell is None or (isinstance(cell, str) and not cell.strip()):
        return None
    for form in forms or ("",):
        try:
            if form == "excel":
                return (_EXCEL + timedelta(days=float(cell))).replace(microsecond=0)
            text = cell.strip()
            return datetime.strptime(text, form) if form else datetime.fromisoformat(text)
        except (AttributeError, ValueError, TypeError, OverflowError):
            continue
    written = " or ".join(form or "ISO 8601" for form in forms) or "ISO 8601 (2018-03-01 14:05)"
    raise BadValue(f"time is not a date and time written as {written}; a column map can give its 'format'")
