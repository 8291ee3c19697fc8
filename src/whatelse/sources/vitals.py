"""Vital signs, triage level and pain as codes: the same thresholds for every source that has numbers.

A value that was not measured gives no code, like a normal value.
"""

from __future__ import annotations

from whatelse.io.limits import shipped_yaml
from whatelse.sources.numbers import Rule, read_rule
from whatelse.visits import Code

AMBULANCE = Code("arrival", "ambulance", "ambulance")
INJURY = Code("visit", "injury", "injury")
ADMITTED = Code("disposition", "admitted", "admitted")

_RULES = shipped_yaml("whatelse.sources", "vitals.yaml")
RULES: dict[str, list[Rule]] = {  # by measurement, each with the code of values that are out of range
    measured: [read_rule(measured, text, "vitals.yaml", name) for text, name in rules]
    for measured, rules in _RULES.items()
}


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
    known = ((rules, value) for name, rules in RULES.items() if (value := measured.get(name)) is not None)
    return [rule.code for rules, value in known for rule in rules if rule.holds(value)]
