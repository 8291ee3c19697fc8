"""Measure: one row of `measures.yaml`. Measurement: one value."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from math import inf
from typing import Any, NamedTuple

Limits = tuple[tuple[float, float], ...]  # (age in years, limit below that age), ages rising, the last one infinite


class Measurement(NamedTuple):
    """A value of a note, `text[start:end]` with its name: Measurement("systolic_bp", 85, "mmHg", 0, 8) of "BP 85/50".

    A value of a column has start = end = -1.
    """

    name: str
    value: float
    unit: str
    start: int = -1
    end: int = -1


@dataclass(frozen=True)
class Measure:
    """One row of `measures.yaml`; see there."""

    name: str
    unit: str
    possible: tuple[float, float] = (-inf, inf)
    units: Mapping[str, tuple[float, float]] = field(default_factory=dict)
    guess: Mapping[str, tuple[float, float]] = field(default_factory=dict)
    rises: tuple[tuple[str, Limits], ...] = ()
    falls: tuple[tuple[str, Limits], ...] = ()
    grey: Mapping[str, float] = field(default_factory=dict)
    pair: tuple[str, ...] = ()
    of: tuple[float, ...] = ()

    def convert(self, value: float, unit: str) -> float | None:
        """`value` in the measure's own unit; None if no patient can have it."""
        if unit not in self.units:
            unit = next((u for u, (low, high) in self.guess.items() if low <= value <= high), "")
        if unit:
            factor, offset = self.units[unit]
            value = factor * value + offset
        return round(value, 3) if self.possible[0] <= value <= self.possible[1] else None

    def concepts(self, value: float, age: float | None) -> Iterable[tuple[str, bool]]:
        """Concepts and whether they are present; none for a value in the grey zone below a limit."""
        for concept, limits in self.rises:
            holds = value >= _limit(limits, age) - 1e-3
            if holds or value < self.grey.get(concept, inf):
                yield concept, holds
        for concept, limits in self.falls:
            yield concept, value < _limit(limits, age) - 1e-3


def _limit(limits: Limits, age: float | None) -> float:
    return next(limit for below, limit in limits if below == inf or (age is not None and age < below))


def read_measure(name: str, row: Mapping[str, Any]) -> Measure:
    """A measure from its row of the table; KeyError, TypeError or ValueError if the row is not one."""
    low, high = row.get("possible", (-inf, inf))
    measure = Measure(
        name,
        str(row["unit"]),
        (float(low), float(high)),
        {unit: (float(a), float(b)) for unit, (a, b) in row.get("units", {}).items()},
        {unit: (float(a), float(b)) for unit, (a, b) in row.get("guess", {}).items()},
        tuple((concept, _limits(limit)) for concept, limit in row.get("from", {}).items()),
        tuple((concept, _limits(limit)) for concept, limit in row.get("below", {}).items()),
        {concept: float(limit) for concept, limit in row.get("grey", {}).items()},
        tuple(row.get("pair", ())),
        tuple(map(float, row.get("of", ()))),
    )
    if set(measure.guess) - set(measure.units):
        raise ValueError("'guess' names a unit that 'units' does not have")
    return measure


def _limits(value: Any) -> Limits:
    if not isinstance(value, Mapping):
        return ((inf, float(value)),)
    # in any order: a model file sorts its keys as text, "13" before "4"
    limits = sorted((float(age), float(limit)) for age, limit in value.items() if age != "adult")
    return (*limits, (inf, float(value["adult"])))
