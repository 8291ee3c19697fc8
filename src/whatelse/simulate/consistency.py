"""Makes findings agree with measurements, disposition and drugs, by the rules of `department/consistency.yaml`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from whatelse.simulate.content import SECTIONS, Department
from whatelse.simulate.patients import Patients
from whatelse.simulate.presentation import Presentation
from whatelse.types import Bools, Floats, Ints, Singles

FAST_PULSE = ((1, 160.0), (5, 140.0), (12, 120.0), (200, 100.0))  # under this age, above this pulse
FAST_BREATH = ((1, 55.0), (5, 38.0), (12, 28.0), (200, 22.0))


def enforce_consistency(
    department: Department, patients: Patients, presentation: Presentation, findings: Bools, u: Singles
) -> None:
    """Change findings in place where they contradict the presentation of their visit. O(N n).

    u   (N, at least 20) uniform draws
    """
    column = {name: j for j, name in enumerate(department.names)}
    fits = department.limits.fits(patients.age, patients.male)
    states = _states(department, patients, presentation)
    denials = np.flatnonzero(department.section == SECTIONS.index("negative"))

    def any_of(names: Sequence[str]) -> Bools:
        return np.asarray(np.any([states[n] if n in states else findings[:, column[n]] for n in names], axis=0))

    def apply(rule: Mapping[str, Any]) -> None:
        where = any_of(rule["when"]) if "when" in rule else np.ones(len(findings), dtype=bool)
        where = where & ~any_of(rule["unless"]) if "unless" in rule else where
        for key, (draw, chance) in rule.get("on", {}).items():
            findings[where & (u[:, draw] < chance) & fits[:, column[key]], column[key]] = True
        for key in rule.get("off", ()):
            gone = denials if key == "every denial" else np.array([column[key]])
            findings[np.ix_(np.flatnonzero(where), gone)] = False

    for rule in department.consistency["measures"]:
        apply(rule)
    _drugs(department, presentation, findings, column)
    for group in ("parts", "quadrants"):
        _parts(department, presentation, findings, u, np.array([column[key] for key in department.style[group]]))
    for drugs in department.style["one_of"]:  # one drug of a group with the same effect
        same = np.array([column[f"hx:{d}"] for d in drugs if f"hx:{d}" in column])
        taken = findings[:, same] * (1 + np.argsort(np.argsort(u[:, 8 : 8 + same.size], axis=1), axis=1))
        findings[:, same] = (taken > 0) & (taken == taken.max(axis=1, keepdims=True))
    for rule in department.consistency["stories"]:
        apply(rule)


def _states(department: Department, patients: Patients, presentation: Presentation) -> dict[str, Bools]:
    """The states that rules name, each (N,)."""
    of, sick = presentation.of, presentation.sick
    fever, low_pressure, low_oxygen = of("temperature") >= 1004, of("systolic") < 90, of("saturation") < 90
    admitted = (of("admitted") == 1) | (of("saturation") < 88)
    grave = admitted & (sick > 1.2)
    return {
        "high temperature": fever,
        "fast pulse": of("pulse") > _limit(FAST_PULSE, patients.age),
        "fast breath": of("respirations") > _limit(FAST_BREATH, patients.age),
        "low pressure": low_pressure,
        "low oxygen": low_oxygen,
        "unwell": (low_pressure & fever) | low_oxygen | (sick > 2),
        "well": sick < 0.3,
        "little pain": of("pain") < 5,
        "by ambulance": of("ambulance") == 1,
        "admitted": admitted,
        "grave": grave,
        "ward": admitted & ~grave,
        **{name: patients.on[:, i] for i, name in enumerate(department.profiles)},
    }


def _limit(table: tuple[tuple[int, float], ...], age: Floats) -> Floats:
    return np.select([age < under for under, _ in table], [value for _, value in table])


def _drugs(department: Department, presentation: Presentation, findings: Bools, column: dict[str, int]) -> None:
    """Remove findings that tell of a drug which was not given."""
    given = np.zeros((findings.shape[0], len(department.rates.drugs) + 1), dtype=bool)
    np.put_along_axis(given, presentation.drugs, True, axis=1)  # -1, no more, is the last column
    place = {name: k for k, name in enumerate(department.rates.drugs)}
    for key, drugs in department.style["drugs"].items():
        if known := [place[d] for d in drugs if d in place]:
            findings[:, column[key]] &= given[:, known].any(axis=1)


def _parts(department: Department, presentation: Presentation, findings: Bools, u: Singles, parts: Ints) -> None:
    """Parts of the body in a note: those of the reasons for visit; without such a reason one part, or seldom two."""
    said = np.zeros(findings.shape, dtype=bool)
    for k in range(presentation.reasons.shape[1]):
        rows = np.flatnonzero(presentation.reasons[:, k] >= 0)
        said[rows, department.reason_key[presentation.reasons[rows, k]]] = True
    told = np.asarray(said[:, parts].any(axis=1))
    keep = findings[:, parts] & (said[:, parts] | ~told[:, None])
    first = keep & (np.cumsum(keep, axis=1) <= np.where(u[:, 7] < 0.8, 1, 2)[:, None])
    findings[:, parts] = np.where(told[:, None], keep, first)
