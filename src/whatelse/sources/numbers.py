"""Numbers as findings: columns of measurements, by thresholds or by bands learned from a cohort.

In a column map, under the name of the column:

    temp: [">= 38 -> vital:fever", "< 35 -> vital:cold"]   a code for each rule that holds: findings vital:fever …
    pulse: bands                                           `Visit.numbers`: findings pulse:<72, pulse:72-88 …
    bp: {name: systolic, part: 1, rules: ["< 90 -> vital:shock"], bands: true}

`bands` are quantiles of the cohort that is built, kept with its vocabulary (`cohort/bands.py`). `part` takes the first
or second number of cells such as 120/80. A decimal comma, a unit after the number and < or > before it are accepted; a
cell that is no number is unknown, and counted.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from operator import eq, ge, gt, le, lt
from typing import Any

from whatelse.errors import InputError
from whatelse.sources.report import BadValue
from whatelse.visits import Code

SIGNS: dict[str, Callable[[float, float], bool]] = {">=": ge, "<=": le, ">": gt, "<": lt, "=": eq}
_RULE = re.compile(r"\s*(>=|<=|>|<|=)\s*(-?\d+(?:\.\d+)?)\s*->\s*([^\s:]+)\s*:\s*(\S.*?)\s*")
_CELL = re.compile(r"[<>]?\s*(-?\d+(?:[.,]\d+)?)\s*[%°a-zA-Zµ/]*\.?")


@dataclass(frozen=True, slots=True)
class Rule:
    """`code` is found where the number stands to `limit` as `sign` says."""

    sign: str
    limit: float
    code: Code

    def holds(self, value: float) -> bool:
        return SIGNS[self.sign](value, self.limit)


@dataclass(frozen=True, slots=True)
class Number:
    """A column of measurements: its name among findings, the rules that make codes of it, whether bands are learned."""

    column: str
    name: str
    rules: tuple[Rule, ...] = ()
    bands: bool = False
    part: int = 0


def read_number(column: str, given: Any, normal: Callable[[str], str], file: object) -> Number:
    """One entry of `numbers` in a column map."""
    if given == "bands":
        given = {"bands": True}
    if isinstance(given, list | str):
        given = {"rules": given}
    if not isinstance(given, Mapping) or set(given) - {"name", "rules", "bands", "part"}:
        needs = "'bands', a list of rules such as '>= 38 -> vital:fever', or a mapping with name, rules, bands and part"
        raise InputError(f"numbers, {column!r}: needs {needs}", file=file)
    rules = given.get("rules") or []
    rules = [rules] if isinstance(rules, str) else rules
    name, bands, part = given.get("name", normal(column)), given.get("bands", False), given.get("part", 0)
    if not isinstance(rules, list) or not isinstance(bands, bool) or part not in (0, 1, 2) or not (rules or bands):
        raise InputError(f"numbers, {column!r}: needs a list of 'rules' or 'bands: true'; 'part' is 1 or 2", file=file)
    if not isinstance(name, str) or not name.strip() or ":" in name:
        raise InputError(f"numbers, {column!r}: 'name' must be a word without a colon", file=file)
    return Number(column, name.strip(), tuple(read_rule(column, rule, file) for rule in rules), bands, part)


def read_rule(column: str, text: Any, file: object, name: str | None = None) -> Rule:
    """A rule as it is written; name: of its code."""
    match = _RULE.fullmatch(text) if isinstance(text, str) else None
    if match is None:
        form = '">= 38 -> vital:fever" (>=, >, <=, < or =, a number, ->, a system and a label)'
        raise InputError(f"numbers, {column!r}: a rule is written {form}", file=file)
    sign, limit, system, label = match.groups()
    return Rule(sign, float(limit), Code(system, label, name))


def parse_number(cell: Any, part: int = 0) -> float | None:
    """A measurement; None where there is none. BadValue where a cell is no number."""
    if cell is None or (isinstance(cell, str) and not cell.strip()):
        return None
    if isinstance(cell, str):
        text = cell.strip()
        if part:
            pieces = text.split("/")
            text = pieces[part - 1].strip() if part <= len(pieces) else ""
        match = _CELL.fullmatch(text)
        if match is None:
            raise BadValue("is not a number")
        return float(match[1].replace(",", "."))
    if isinstance(cell, bool) or not isinstance(cell, int | float):
        try:
            cell = float(cell)  # a Decimal of a database
        except (TypeError, ValueError):
            raise BadValue("is not a number") from None
    return float(cell) if abs(cell) < float("inf") else None  # a NaN or an infinity was not measured
