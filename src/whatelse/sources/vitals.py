"""Vital signs and triage as findings: the same thresholds for every source that has numbers.

A value that was not measured gives no code at all, like a normal one: `Visit.coded` lists what was
found. Whether a visit has vital signs is not kept.
"""

from __future__ import annotations

from whatelse.visits import Code

AMBULANCE = Code("arrival", "ambulance", "ambulance")
INJURY = Code("visit", "injury", "injury")
ADMITTED = Code("disposition", "admitted", "admitted")

FEVER = Code("vital", "temperature-high", "temperature >= 100.4 F")
PULSE_HIGH = Code("vital", "pulse-high", "pulse > 100")
PULSE_LOW = Code("vital", "pulse-low", "pulse < 60")
BREATHING_FAST = Code("vital", "respirations-high", "respirations > 22")
PRESSURE_LOW = Code("vital", "systolic-low", "systolic < 90")
PRESSURE_HIGH = Code("vital", "systolic-high", "systolic > 180")
OXYGEN_LOW = Code("vital", "saturation-low", "saturation < 93")
TRIAGE = {level: Code("triage", str(level), f"level {level}") for level in range(1, 6)}
PAIN_HIGH = Code("pain", "high", "8 or more")
PAIN_NONE = Code("pain", "none", "none")


def fahrenheit(value: float | None) -> float | None:
    """Degrees Fahrenheit from what is recorded: tenths of a degree (986), Celsius (37.0), or as it is."""
    if value is None:
        return None
    if value > 200:
        return value / 10
    if 25 <= value <= 45:
        return value * 9 / 5 + 32
    return value


def vital_codes(
    *,
    temperature: float | None = None,
    pulse: float | None = None,
    respirations: float | None = None,
    systolic: float | None = None,
    saturation: float | None = None,
    triage: float | None = None,
    pain: float | None = None,
) -> list[Code]:
    """The codes of the values that are out of range. None is "not measured"."""
    codes = []
    degrees = fahrenheit(temperature)
    # 100.4 is not a binary fraction: 38 C and 1004 tenths must both reach it
    if degrees is not None and degrees > 100.399:
        codes.append(FEVER)
    if pulse is not None and pulse > 100:
        codes.append(PULSE_HIGH)
    if pulse is not None and pulse < 60:
        codes.append(PULSE_LOW)
    if respirations is not None and respirations > 22:
        codes.append(BREATHING_FAST)
    if systolic is not None and systolic < 90:
        codes.append(PRESSURE_LOW)
    if systolic is not None and systolic > 180:
        codes.append(PRESSURE_HIGH)
    if saturation is not None and saturation < 93:
        codes.append(OXYGEN_LOW)
    if triage is not None and triage in TRIAGE:
        codes.append(TRIAGE[int(triage)])
    if pain is not None and pain >= 8:
        codes.append(PAIN_HIGH)
    if pain == 0:
        codes.append(PAIN_NONE)
    return codes
