"""Which findings a block of visits shows: noisy-or in the form of rates, then the departures from it.

A finding is on if its rate exceeds a standard exponential draw: P(E < z) = 1 - exp(-z), with z = z_0j + sum_i y_i z_ij.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from whatelse.simulate.content import SECTIONS, Department, spread
from whatelse.simulate.departures import Departures
from whatelse.simulate.patients import Patients

Bools = NDArray[np.bool_]
Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

NURSES, DOCTORS = 40, 60


@dataclass(frozen=True, eq=False)
class Observed:
    """`findings` (N, n), `anchors` (N, m), and who wrote the notes: `nurse`, `doctor` (N,)."""

    findings: Bools
    anchors: Bools
    nurse: Ints
    doctor: Ints


def observe(department: Department, departures: Departures, patients: Patients, rng: np.random.Generator) -> Observed:
    """Draw findings and anchors. O(N n)."""
    size = patients.primary.size
    nurse, doctor = rng.integers(NURSES, size=size), rng.integers(DOCTORS, size=size)
    leak = department.leak_rate if departures.outside else _spread(department)
    z = np.tile(leak, (size, 1))
    for cause in range(patients.on.shape[1]):  # few causes are on in a visit: add rows, no matrix product
        rows = np.flatnonzero(patients.on[:, cause])
        z[rows] += department.rate[cause]
    length = _length(departures, nurse, doctor, rng)
    z *= length[:, department.section]
    findings = z > rng.standard_exponential(z.shape)
    if departures.demographics:
        findings &= _possible(department, patients)
    _interact(department, departures, findings, rng)
    anchors = _anchors(department, departures, patients, findings, length[:, 0], rng)
    return Observed(findings, anchors, nurse, doctor)


@lru_cache(maxsize=1)
def _spread(department: Department) -> Floats:
    return spread(department)


def _length(departures: Departures, nurse: Ints, doctor: Ints, rng: np.random.Generator) -> Floats:
    """(N, sections) factors of mean 1 on the rates: the habit of the author, the visit, and how ill the patient looks."""
    sd = departures.verbosity
    habits = np.random.default_rng(2008)  # the staff is the same in every run
    nurses, doctors = habits.standard_normal(NURSES)[nurse], habits.standard_normal(DOCTORS)[doctor]
    busy, ill = rng.standard_normal((2, nurse.size))
    triage = np.exp(sd * (nurses + busy) - sd**2)
    md = np.exp(sd * (doctors + 0.5 * busy + 0.8 * ill) - sd**2 * 1.89 / 2)
    drugs = np.exp(sd * 0.8 * ill - 0.32 * sd**2)
    home = np.exp(sd * nurses - sd**2 / 2)
    by_section = {"symptom": triage, "negative": triage, "story": triage, "history": triage, "exam": md, "course": md}
    by_section |= {"home": home, "given": drugs}
    return np.stack([by_section[s] for s in SECTIONS], axis=1)


def _possible(department: Department, patients: Patients) -> Bools:
    """(N, n) whether a patient of that age and sex can have the finding."""
    possible = np.ones((patients.age.size, len(department.names)), dtype=bool)
    for j, key in enumerate(department.keys):
        if key in department.style["limits"]:
            sex, low, high = department.style["limits"][key]
            possible[:, j] = (patients.age >= low) & (patients.age <= high)
            if sex != "A":
                possible[:, j] &= patients.male == (sex == "M")
    return possible


def _interact(department: Department, departures: Departures, findings: Bools, rng: np.random.Generator) -> None:
    """Apply the rules of interactions.yaml in place; what is present is not denied."""
    column = {name: j for j, name in enumerate(department.names)}
    rules = department.rules
    symptoms = np.flatnonzero(department.section == SECTIONS.index("symptom"))
    negatives = np.flatnonzero(department.section == SECTIONS.index("negative"))

    def applies(rule: object, p: float) -> Bools:
        return np.asarray(rng.random(findings.shape[0]) < p * departures.interactions)

    for rule in rules["together"]:
        findings[:, column[rule["then"]]] |= findings[:, [column[k] for k in rule["when"]]].all(axis=1) & applies(
            rule, rule["p"]
        )
    for rule in rules["needs"]:
        alone = ~findings[:, [column[k] for k in rule["needs"]]].any(axis=1)
        findings[:, column[rule["finding"]]] &= ~(alone & applies(rule, rule["p"]))
    for rule in rules["excludes"]:
        hit = findings[:, column[rule["when"]]] & applies(rule, rule["p"])
        for key in rule["drops"]:
            findings[hit, column[key]] = False
    for rule in rules["silence"]:
        hit = np.flatnonzero(findings[:, column[rule["when"]]] & applies(rule, rule["p"]))
        findings[np.ix_(hit, np.concatenate([symptoms, negatives]))] = False
    if departures.interactions > 0 or departures.prose:
        same = [column[department.keys[j]] for j in negatives]
        findings[:, negatives] &= ~findings[:, same]


def _anchors(
    department: Department,
    departures: Departures,
    patients: Patients,
    findings: Bools,
    length: Floats,
    rng: np.random.Generator,
) -> Bools:
    """(N, m): P(A | Y) is sensitivity or false alarm; `anchor_dependence` makes it lean on more than Y."""
    m, d = len(department.conditions), departures.anchor_dependence
    true = patients.on[:, :m]
    z = -np.log1p(-np.where(true, department.sensitivity, department.false_alarm))
    if d > 0:
        hinted = findings[:, department.hints].any(axis=2)  # (N, m)
        here = patients.primary[:, None] == np.arange(m)
        lean = np.where(hinted, 1 + 0.5 * d, 1 - 0.3 * d) * np.where(here | ~department.acute, 1 + 0.3 * d, 1 - 0.5 * d)
        z *= np.where(true, lean, np.where(hinted, 1 + 3 * d, 1.0))
        z *= 1 + d * (length[:, None] - 1)
    return np.asarray(z > rng.standard_exponential(z.shape))
