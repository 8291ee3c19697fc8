"""Guesses the field of one column of a table, from its name (`column_names.yaml`) and its values."""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from difflib import SequenceMatcher
from functools import cache, cached_property, partial
from typing import Any, TypeVar

from whatelse.io.limits import shipped_yaml
from whatelse.sources.columns import normal
from whatelse.sources.fields import SEXES, cell_text, parse_age, parse_time
from whatelse.sources.numbers import parse_number
from whatelse.sources.report import BadValue
from whatelse.visits import Sex

T = TypeVar("T")

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
def known_names() -> Any:
    """The tables of `column_names.yaml`."""
    return shipped_yaml("whatelse.sources", "column_names.yaml")


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


class Cells:
    """The cells of one column. values: cells that are neither empty nor mean unknown; texts: the values as text."""

    def __init__(self, name: str, cells: list[Any], rows: int) -> None:
        self.name, self.plain, self.rows = name, normal(name), rows
        self.words = re.findall(r"[^\W_]+", re.sub(r"(?<=[a-z])(?=[A-Z])", "_", name).lower())
        stripped = [cell.strip() if isinstance(cell, str) else cell for cell in cells]
        unknown, texts = set(known_names()["missing"]), {c for c in stripped if isinstance(c, str) and c}
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
        known, whole = known_names()["fields"], known_names()["whole"]
        exact = [field for field, names in known.items() if self.plain in (*names, *whole.get(field, ()))]
        alike = [field for field, names in known.items() if field != "id" and any(map(self.called, names))]
        return str((*exact, *alike, "")[0])


def guess_field(column: Cells, taken: set[str], claimed: set[str]) -> ColumnGuess:
    """The field of a column. taken: fields that earlier columns have; claimed: fields that names of columns say."""
    plain, values, different = column.plain, column.values, len(column.distinct)
    if not values:
        return column.guess("", "is empty")
    by_name = "" if column.by_name in taken else column.by_name
    unique = different == len(values) == column.rows
    icd = _is_icd(column.texts) and not (unique and column.rows > FEW)
    if by_name == "billing" or (icd and not by_name):
        return _codes(column, "billing", "diagnoses, never findings") if icd else column.guess("", AFTER)
    if plain not in itertools.chain(*known_names()["fields"].values()):
        for names, why in ((known_names()["after"], AFTER), (known_names()["unrelated"], UNRELATED)):
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
        triage = any(map(column.called, known_names()["triage"]))
        system = "triage" if triage else re.sub(r"\W+", "_", plain).strip("_") or "coded"
        line: dict[str, Any] = {"column": column.name, "system": system}
        if sorted(text.lower() for text in column.distinct) in known_names()["no_yes"]:
            yes = max(column.distinct, key=str.lower)
            line["values"] = {text: "yes" if text == yes else None for text in sorted(column.distinct)}
        return column.guess("coded", f"{different} values: {', '.join(sorted(column.distinct)[:FEW])}", line)
    if column.numeric:
        return column.guess("numbers", f"{_range(column.numbers)}; bands are learned", "bands")
    words = set(known_names()["complaint_words"])
    fits = sum(not words.isdisjoint(text.lower().split()) for text in column.texts)
    if "chief_complaint" not in claimed | taken and column.length <= 60 and fits >= 0.15 * len(values):
        return column.guess("chief_complaint", f"words of complaints, {column.length} letters on average")
    if column.length >= 25 and (different > 0.3 * len(values) or column.length >= 50):
        return column.guess("triage_note", f"text, {column.length} letters on average")
    return column.guess("", f"{different:,} values; map it if it matters")


def _odd_sexes(column: Cells) -> list[str]:
    """Values that are no word for a sex."""
    return sorted(text for text in column.distinct if text.lower().rstrip(".") not in SEXES)


def _sex(column: Cells) -> ColumnGuess:
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


def _codes(column: Cells, field: str, why: str) -> ColumnGuess:
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


def _vital(column: Cells) -> ColumnGuess | None:
    """A vital sign, if name and values agree: a column of 0 and 1 is no pain score."""
    part = 0 if column.numeric else 1  # 120/80, 5/10: the first number
    numbers = sorted(_parsed(partial(parse_number, part=part), column.values))
    if len(numbers) < (0.7 if part else 0.9) * len(column.values) or len(set(numbers)) < 3:
        return None
    low, high = numbers[len(numbers) // 20], numbers[-1 - len(numbers) // 20]
    for vital in known_names()["vitals"]:
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
    most, forms = len(rest), ["", *known_names()["time_formats"]]
    while rest and len(found) < 4:
        count, form = max(((len(_parsed(partial(parse_time, forms=[f]), rest)), f) for f in forms), key=lambda c: c[0])
        if not count:
            break
        found.append(form)
        rest = [value for value in rest if not _parsed(partial(parse_time, forms=[form]), [value])]
    if found and rest and all(re.fullmatch(r"[2-6]\d{4}(\.\d+)?", str(value)) for value in rest):
        found, rest = [*found, "excel"], []
    return found if found and len(rest) <= 0.1 * most else []
