"""The findings of a block of visits: noisy-or by rates, then the departures.

A finding is on if its rate exceeds a standard exponential draw: P(E < z) = 1 - exp(-z), with z = z_0j + sum_i y_i z_ij.
Rates only ever add and multiply, row by row, so the same seed gives the same findings on any machine.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from functools import lru_cache
from typing import Any

import numpy as np

from whatelse.simulate.consistency import enforce_consistency
from whatelse.simulate.content import SECTIONS, SIGNAL, WORD_SIGNAL, Department, spread, word_leak
from whatelse.simulate.departures import Departures
from whatelse.simulate.patients import Patients
from whatelse.simulate.presentation import Presentation
from whatelse.types import Bools, Floats, Ints, Singles

NURSES, DOCTORS = 40, 60
DRAWS = 256  # random numbers a visit's notes may use before they come round again
TIES = 24


@dataclass(frozen=True, eq=False)
class Chances:
    """Everything random about how N visits are seen and written down.

    nurse, doctor (N,) who writes; busy (N,) normal; shows (N, causes), findings (N, n), anchors, mentions (N, m)
    exponential; rules (N, rules), ties (N, TIES), notes (N, DRAWS), billing (N, causes) uniform.
    """

    nurse: Ints
    doctor: Ints
    busy: Floats
    shows: Singles
    findings: Singles
    anchors: Floats
    mentions: Floats
    rules: Singles
    ties: Singles
    notes: Floats
    billing: Singles

    @classmethod
    def draw(cls, department: Department, size: int, rng: np.random.Generator) -> Chances:
        """O(size n)."""
        causes, n = department.rate.shape
        rules = sum(len(group) for group in department.rules.values())
        m = len(department.conditions)
        return cls(
            nurse=rng.integers(NURSES, size=size),
            doctor=rng.integers(DOCTORS, size=size),
            busy=rng.standard_normal(size),
            shows=rng.standard_exponential((size, causes), dtype=np.float32),
            findings=rng.standard_exponential((size, n), dtype=np.float32),
            anchors=rng.standard_exponential((size, m)),
            mentions=rng.standard_exponential((size, m)),
            rules=rng.random((size, rules), dtype=np.float32),
            ties=rng.random((size, TIES), dtype=np.float32),
            notes=rng.random((size, DRAWS)),
            billing=rng.random((size, causes), dtype=np.float32),
        )

    def take(self, rows: Ints) -> Chances:
        """Those of some visits."""
        return Chances(**{field.name: getattr(self, field.name)[rows] for field in fields(self)})


@dataclass(frozen=True, eq=False)
class Seen:
    """Of N visits: findings (N, n); named (N, m) conditions that notes name, mentioned (N, m) those that they name
    without the patient having them; talk (N, 2) how long the nurse's and the physician's notes are, of mean 1."""

    findings: Bools
    named: Bools
    mentioned: Bools
    talk: Floats


def cause_rates(
    department: Department, departures: Departures, patients: Patients, chances: Chances, cause: int
) -> Any:
    """Rows with the cause, and (rows, n) the rates it adds there: lower where it is not the reason for the visit."""
    m, rows = len(department.conditions), np.flatnonzero(patients.on[:, cause])
    scale = (SIGNAL if departures.prose else WORD_SIGNAL) if cause < m else 1.0
    added = (department.rate[cause] * scale).astype(np.float32)
    if departures.prominence == 0 or cause >= m + len(department.reasons):
        return rows, np.broadcast_to(added, (rows.size, added.size))
    leads = (patients.primary[rows] == cause) | (patients.lead[rows] == cause)
    faint = np.minimum(chances.shows[rows, cause] * np.float32(1 - departures.prominence), np.float32(1))
    return rows, np.where(leads, np.float32(1), faint)[:, None] * added


def observe(
    department: Department,
    departures: Departures,
    patients: Patients,
    chances: Chances,
    presentation: Presentation | None,
) -> Seen:
    """The findings of a block of visits. presentation: None when notes are lists of words. O(N n)."""
    z = np.zeros((patients.primary.size, len(department.names)), dtype=np.float32)
    for cause in range(patients.on.shape[1]):  # few causes are on in a visit: add rows, no matrix product
        rows, added = cause_rates(department, departures, patients, chances, cause)
        z[rows] += added
    talk = _talk(departures, chances, presentation)
    if departures.verbosity > 0:  # a long note says more of what there is; it does not make up what there is not
        length = np.ones((z.shape[0], len(SECTIONS)), dtype=np.float32)
        length[:, :4], length[:, 4:6] = talk[:, :1], talk[:, 1:]
        z *= length[:, department.section]
    z += _leak(department, departures.outside, departures.prose)
    findings = z > chances.findings
    if presentation is not None:
        said = presentation.reasons
        for k in range(said.shape[1]):
            rows = np.flatnonzero(said[:, k] >= 0)
            findings[rows, department.reason_key[said[rows, k]]] = True
    if departures.demographics:
        findings &= department.limits.fits(patients.age, patients.male)
    if presentation is not None:
        enforce_consistency(department, patients, presentation, findings, chances.ties)
    _interact(department, departures, findings, chances.rules)
    if presentation is None:
        anchors = _anchors(department, departures, patients, findings, talk[:, 0], chances.anchors)
        return Seen(findings, anchors, np.zeros_like(anchors), talk)
    return Seen(findings, *_names(department, departures, patients, findings, talk, chances), talk)


@lru_cache(maxsize=8)
def _leak(department: Department, outside: bool, prose: bool) -> Singles:
    rate = word_leak(department) if not prose else department.leak_rate if outside else spread(department)
    return rate.astype(np.float32)


def _talk(departures: Departures, chances: Chances, presentation: Presentation | None) -> Floats:
    """(N, 2) factors of mean about 1: the author's habit, the moment, and how sick the patient is."""
    sd = departures.verbosity
    habits = np.random.default_rng(2008)  # the staff is the same in every run
    nurse, doctor = habits.standard_normal(NURSES)[chances.nurse], habits.standard_normal(DOCTORS)[chances.doctor]
    sick = presentation.sick if presentation is not None else np.zeros(nurse.size)
    triage = np.exp(sd * (nurse + 0.6 * chances.busy + 0.4 * sick) - 0.8 * sd**2)
    md = np.exp(sd * (doctor + 0.4 * chances.busy + 0.9 * sick) - sd**2)
    return np.asarray(np.clip(np.stack([triage, md], axis=1), 0.25, 3.0))


def _interact(department: Department, departures: Departures, findings: Bools, u: Singles) -> None:
    """Apply the rules of interactions.yaml in place. A finding that is present is not denied."""
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


def _names(
    department: Department, departures: Departures, patients: Patients, findings: Bools, talk: Floats, chances: Chances
) -> tuple[Bools, Bools]:
    """Conditions that the notes name beside complaint and drugs, and those mentioned without being there, each (N, m).

    `anchor_dependence` d makes both lean on note length, on being why the patient came, on the condition's commonest
    symptoms, and on other conditions whose notes mention it.
    """
    m, d = len(department.conditions), departures.anchor_dependence
    true = patients.on[:, :m]
    z = np.tile(department.named, (true.shape[0], 1))
    false = np.where(patients.age[:, None] >= department.mention_from, department.mention, 0.0)
    if d > 0:
        hinted = findings[:, department.hints].any(axis=2)
        columns = np.arange(m)
        main = (patients.primary[:, None] == columns) | (patients.lead[:, None] == columns) | ~department.acute
        z *= np.where(hinted, 1 + 0.5 * d, 1 - 0.3 * d) * np.where(main, 1 + 0.3 * d, 1 - 0.5 * d)
        old = patients.age[:, None] >= department.mention_from
        false *= np.where(hinted, 1 + 3 * d, 1 - 0.3 * d)
        for i in range(m):
            false[true[:, i]] += d * department.mentioned[i] * old[true[:, i]]
        z *= 1 + d * (talk.mean(axis=1, keepdims=True) - 1)
        false *= 1 + d * (talk.mean(axis=1, keepdims=True) - 1)
    return true & (z > chances.anchors), ~true & (false > chances.mentions)


def _anchors(
    department: Department, departures: Departures, patients: Patients, findings: Bools, length: Floats, draws: Floats
) -> Bools:
    """(N, m), for lists of words: P(A | Y) is sensitivity or false alarm; `anchor_dependence` makes it lean on more."""
    m, d = len(department.conditions), departures.anchor_dependence
    true = patients.on[:, :m]
    z = -np.log1p(-np.where(true, department.sensitivity, department.false_alarm))
    if d > 0:
        hinted = findings[:, department.hints].any(axis=2)
        main = (patients.primary[:, None] == np.arange(m)) | ~department.acute
        lean = np.where(hinted, 1 + 0.5 * d, 1 - 0.3 * d) * np.where(main, 1 + 0.3 * d, 1 - 0.5 * d)
        z *= np.where(true, lean, np.where(hinted, 1 + 3 * d, 1 - 0.5 * d))
        for i in range(m):
            z[true[:, i]] += d * department.mentioned[i]
        z *= 1 + d * (length[:, None] - 1)
    return np.asarray(z > draws)
