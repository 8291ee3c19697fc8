"""Vital signs, triage level and pain as codes: the same thresholds for every source that has numbers.

A value that was not measured gives no code, like a normal value.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from operator import eq

from whatelse.visits import Code

AMBULANCE = Code("arrival", "ambulance", "ambulance")
INJURY = Code("visit", "injury", "injury")
ADMITTED = Code("disposition", "admitted", "admitted")

# measurement, whether a value is out of range, code. 100.4 is no binary fraction: 38 C and 1004 tenths must reach it.
RULES: tuple[tuple[str, Callable[[float], bool], Code], ...] = (
    ("temperature", lambda v: v > 100.399, Code("vital", "temperature-high", "temperature >= 100.4 F")),
    ("pulse", lambda v: v > 100, Code("vital", "pulse-high", "pulse > 100")),
    ("pulse", lambda v: v < 60, Code("vital", "pulse-low", "pulse < 60")),
    ("respirations", lambda v: v > 22, Code("vital", "respirations-high", "respirations > 22")),
    ("systolic", lambda v: v < 90, Code("vital", "systolic-low", "systolic < 90")),
    ("systolic", lambda v: v > 180, Code("vital", "systolic-high", "systolic > 180")),
    ("saturation", lambda v: v < 93, Code("vital", "saturation-low", "saturation < 93")),
    *(("triage", partial(eq, k), Code("triage", str(k), f"level {k}")) for k in range(1, 6)),
    ("pain", lambda v: v >= 8, Code("pain", "high", "8 or more")),
    ("pain", lambda v: v == 0, Code("pain", "none", "none")),
)


def fahrenheit(value: float | None) -> float | None:
    """Degrees Fahrenheit of a temperature in tenths of a degree (986), Celsius (37.0) or Fahrenheit."""
    if value is None:
        return None
    if value > 200:
        return value / 10
    if 25 <= value <= 45:
        return value * 9 / 5 + 32
    return value


def vital_codes(**measured: float | None) -> list[Code]:
    """The codes of the values that are out of range, by the names of RULES. None is "not measured"."""
    measured["temperature"] = fahrenheit(measured.get("temperature"))
    return [code for name, holds, code in RULES if (value := measured.get(name)) is not None and holds(value)]
