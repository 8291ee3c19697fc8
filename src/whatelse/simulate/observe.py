"""Which findings a block of visits shows: noisy-or in the form of rates, then the departures from it.

A finding is on if its rate exceeds a standard exponential draw: P(E < z) = 1 - exp(-z), with z = z_0j + sum_i y_i z_ij.
Rates only ever add and multiply, row by row, so the same seed gives the same findings on any machine.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from whatelse.simulate.content import SECTIONS, SIGNAL, WORD_SIGNAL, Department, spread, word_leak
from whatelse.simulate.departures import Departures
from whatelse.simulate.patients import Patients

Bools = NDArray[np.bool_]
Floats = NDArray[np.float64]
Singles = NDArray[np.float32]
Ints = NDArray[np.int64]

NURSES, DOCTORS = 40, 60
DRAWS = 256  # random numbers a visit's notes may use before they come round again


@dataclass(frozen=True, eq=False)
class Chances:
    """Everything random about how N visits are seen and written down.

    nurse, doctor (N,) who writes; busy, ill (N,) normal; shows (N, causes), findings (N, n), anchors (N, m)
    exponential; rules (N, rules), notes (N, DRAWS), billing (N, causes) uniform.
    """

    nurse: Ints
    doctor: Ints
    busy: Floats
    ill: Floats
    shows: Singles
    findings: Singles
    anchors: Floats
    rules: Singles
    notes: Floats
    billing: Floats

    @classmethod
    def draw(cls, department: Department, size: int, rng: np.random.Generator) -> Chances:
        """O(size n)."""
        causes, n = department.rate.shape
        rules = sum(len(group) for group in department.rules.values())
        return cls(
            nurse=rng.integers(NURSES, size=size),
            doctor=rng.integers(DOCTORS, size=size),
            busy=rng.standard_normal(size),
            ill=rng.standard_normal(size),
            shows=rng.standard_exponential((size, causes), dtype=np.float32),
            findings=rng.standard_exponential((size, n), dtype=np.float32),
            anchors=rng.standard_exponential((size, len(department.conditions))),
            rules=rng.random((size, rules), dtype=np.float32),
            notes=rng.random((size, DRAWS)),
            billing=rng.random((size, causes)),
        )

    def take(self, rows: Ints) -> Chances:
        """Those of some visits."""
        return Chances(**{field.name: getattr(self, field.name)[rows] for field in fields(self)})


def observe(
    department: Department, departures: Departures, patients: Patients, chances: Chances
) -> tuple[Bools, Bools]:
    """Findings (N, n) and anchors (N, m). O(N n)."""
    m = len(department.conditions)
    z = np.tile(_leak(department, departures.outside, departures.prose), (patients.primary.size, 1))
    rate = department.rate.astype(np.float32)
    for cause in range(patients.on.shape[1]):  # few causes are on in a visit: add rows, no matrix product
        rows = np.flatnonzero(patients.on[:, cause])
        added = rate[cause] * np.float32((SIGNAL if departures.prose else WORD_SIGNAL) if cause < m else 1.0)
        if cause < m and departures.prominence > 0:
            faint = chances.shows[rows, cause] * np.float32(1 - departures.prominence)
            z[rows] += np.where(patients.primary[rows] == cause, np.float32(1), faint)[:, None] * added
        else:
            z[rows] += added
    length = _length(departures, chances)
    if departures.verbosity > 0:
        z *= length.astype(np.float32)[:, department.section]
    findings = z > chances.findings
    if departures.demographics:
        _impossible(department, patients, findings)
    _interact(department, departures, findings, chances.rules)
    return findings, _anchors(department, departures, patients, findings, length[:, 0], chances.anchors)


@lru_cache(maxsize=4)
def _leak(department: Department, outside: bool, prose: bool) -> Singles:
    rate = department.leak_rate if outside else spread(department) if prose else word_leak(department)
    return rate.astype(np.float32)


def _length(departures: Departures, chances: Chances) -> Floats:
    """(N, sections) factors of mean 1 on the rates: the author's habit, the visit, how ill the patient looks."""
    sd = departures.verbosity
    habits = np.random.default_rng(2008)  # the staff is the same in every run
    nurse, doctor = habits.standard_normal(NURSES)[chances.nurse], habits.standard_normal(DOCTORS)[chances.doctor]
    triage = np.exp(sd * (nurse + chances.busy) - sd**2)
    md = np.exp(sd * (doctor + 0.5 * chances.busy + 0.8 * chances.ill) - sd**2 * 1.89 / 2)
    home = np.exp(sd * nurse - sd**2 / 2)
    given = np.exp(sd * 0.8 * chances.ill - sd**2 * 0.64 / 2)
    by_section = dict.fromkeys(SECTIONS, triage) | {"exam": md, "course": md, "home": home, "given": given}
    return np.stack([by_section[section] for section in SECTIONS], axis=1)


def _impossible(department: Department, patients: Patients, findings: Bools) -> None:
    """Take away what a patient of that age and sex cannot have, in place."""
    for j, key in enumerate(department.keys):
        if key in department.style["limits"]:
            sex, low, high = department.style["limits"][key]
            findings[:, j] &= (patients.age >= low) & (patients.age <= high)
            if sex != "A":
                findings[:, j] &= patients.male == (sex == "M")


def _interact(department: Department, departures: Departures, findings: Bools, u: Singles) -> None:
    """Apply the rules of interactions.yaml in place; what is present is not denied."""
    if departures.interactions == 0:
        return
    column = {name: j for j, name in enumerate(department.names)}
    symptoms = np.flatnonzero(department.section == SECTIONS.index("symptom"))
    negatives = np.flatnonzero(department.section == SECTIONS.index("negative"))
    order = [(kind, rule) for kind in ("together", "needs", "excludes", "silence") for rule in department.rules[kind]]
    for k, (kind, rule) in enumerate(order):
        applies = u[:, k] < rule["p"] * departures.interactions
        if kind == "together":
            both = findings[:, [column[key] for key in rule["when"]]].all(axis=1)
            findings[:, column[rule["then"]]] |= both & applies
        elif kind == "needs":
            alone = ~findings[:, [column[key] for key in rule["needs"]]].any(axis=1)
            findings[:, column[rule["finding"]]] &= ~(alone & applies)
        else:
            hit = np.flatnonzero(findings[:, column[rule["when"]]] & applies)
            drops: Any = [*symptoms, *negatives] if kind == "silence" else [column[key] for key in rule["drops"]]
            findings[np.ix_(hit, drops)] = False
    findings[:, negatives] &= ~findings[:, [column[department.keys[j]] for j in negatives]]


def _anchors(
    department: Department, departures: Departures, patients: Patients, findings: Bools, length: Floats, draws: Floats
) -> Bools:
    """(N, m): P(A | Y) is sensitivity or false alarm; `anchor_dependence` d makes it lean on more than Y."""
    m, d = len(department.conditions), departures.anchor_dependence
    true = patients.on[:, :m]
    z = -np.log1p(-np.where(true, department.sensitivity, department.false_alarm))
    if d > 0:
        hinted = findings[:, department.hints].any(axis=2)
        main = (patients.primary[:, None] == np.arange(m)) | ~department.acute
        lean = np.where(hinted, 1 + 0.5 * d, 1 - 0.3 * d) * np.where(main, 1 + 0.3 * d, 1 - 0.5 * d)
        z *= np.where(true, lean, np.where(hinted, 1 + 3 * d, 1 - 0.5 * d))
        for i in range(m):
            z[true[:, i]] += d * department.mentions[i]
        z *= 1 + d * (length[:, None] - 1)
    return np.asarray(z > draws)
