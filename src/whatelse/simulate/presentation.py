"""The presentation of a visit: vital signs, triage, arrival, admission, reasons for visit, drugs given.

Every measure is its age band's distribution in the survey, moved by what the visit is for (probits), with the survey's
correlations between measures. Reasons and drugs are drawn by the survey's shares among visits for the same thing at the
same age; a further condition of the patient moves them by how much it does so itself.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.special import ndtr

from whatelse.simulate.content import Department
from whatelse.simulate.patients import Patients
from whatelse.simulate.rates import FINE, MEASURES, RECORDED
from whatelse.types import Floats, Ints

BESIDE, MOVED = 0.5, 0.7  # weight of further conditions in measures, and in reasons and drugs
MOST_REASONS, MOST_DRUGS = 5, 14


@dataclass(frozen=True, eq=False)
class Presentation:
    """Of N visits: measure (N, measures), NaN where not recorded; reasons (N, 5) and drugs (N, 14), columns of the
    rates' tables in the order said or given, -1 for no more; sick (N,) about normal, what note length follows."""

    measure: Floats
    reasons: Ints
    drugs: Ints
    sick: Floats

    def of(self, name: str) -> Floats:
        """One measure of all visits."""
        return np.asarray(self.measure[:, MEASURES.index(name)])


def draw_presentation(department: Department, everyone: Patients, keep: Ints, rng: np.random.Generator) -> Presentation:
    """Presentation of the visits `keep` of a block; the draws do not depend on `keep`.

    O(N (reasons + drugs)).
    """
    rates, m, size = department.rates, len(department.conditions), everyone.primary.size
    noise = (rng.standard_normal((size, len(MEASURES))) @ rates.factor.T)[keep]
    missing = rng.random(size)[keep]
    gumbel_first, gumbel_other = rng.gumbel(size=(2, size, len(rates.reasons)))[:, keep]
    gumbel_drug = rng.gumbel(size=(size, len(rates.drugs)))[keep]
    patients = everyone.take(keep)
    base = np.where(patients.lead >= 0, patients.lead, patients.primary)
    who = base, patients.band
    moved = rates.shift[who].copy()
    first, other, drug = rates.first[who].copy(), rates.other[who].copy(), rates.drug[who].copy()
    for cause in range(len(rates.causes)):  # further conditions of the patient
        there = patients.on[:, cause] if cause < m else patients.primary == cause
        rows = np.flatnonzero(there & (base != cause))
        b = patients.band[rows]
        moved[rows] += BESIDE * rates.shift[cause, b]
        first[rows] += _lift(rates.first[cause, b], rates.usual_first[b])
        other[rows] += _lift(rates.other[cause, b], rates.usual_other[b])
        drug[rows] += _lift(rates.drug[cause, b], rates.usual_drug[b])
    measure = _measures(department, patients, noise + moved, missing)
    fits = department.reason_limits.fits(patients.age, patients.male)
    first[~fits] = other[~fits] = -np.inf
    drug[~department.drug_limits.fits(patients.age, patients.male)] = -np.inf
    reasons = _reasons(department, first + gumbel_first, other + gumbel_other, measure)
    painful = np.array([any("pain" in way for way in (*e["says"], *e.get("named", ()))) for e in department.said])
    pain = measure[:, MEASURES.index("pain")]
    pain[painful[reasons[:, 0]] & (pain == 0)] = np.nan  # who comes for a pain does not call it none
    count = np.nan_to_num(measure[:, MEASURES.index("drugs")]).astype(int)
    drugs = _most(drug + gumbel_drug, count, MOST_DRUGS)
    severe, triage = [MEASURES.index(name) for name in ("admitted", "ambulance", "drugs")], MEASURES.index("triage")
    sick = (noise[:, severe].sum(axis=1) + moved[:, severe].sum(axis=1) - noise[:, triage] - moved[:, triage]) / 2.5
    return Presentation(measure, reasons, drugs, sick)


def _lift(found: Floats, usual: Floats) -> Floats:
    """Change of log shares by a further cause: MOVED times its own change, between -0.5 and 3."""
    with np.errstate(invalid="ignore"):
        return np.asarray(MOVED * np.nan_to_num(np.clip(found - usual, -0.5, 3.0), nan=0.0))


def _measures(department: Department, patients: Patients, z: Floats, missing: Floats) -> Floats:
    """(N, measures): the quantile of each age band's values at Phi(z)."""
    u = ndtr(z)
    result = np.full(z.shape, np.nan)
    for f in range(len(FINE)):
        rows = np.flatnonzero(patients.fine == f)
        for v in range(len(MEASURES)):
            values, shares = department.rates.values[v][f]
            result[rows, v] = values[np.minimum(np.searchsorted(shares, u[rows, v]), shares.size - 1)]
        known, shares = department.rates.pattern[f]
        recorded = known[np.minimum(np.searchsorted(shares, missing[rows]), shares.size - 1)]
        result[rows, : len(RECORDED)] = np.where(recorded, result[rows, : len(RECORDED)], np.nan)
    top, low = MEASURES.index("systolic"), MEASURES.index("diastolic")
    close = result[:, low] > result[:, top] - 15  # a pressure's two numbers are drawn one by one
    result[close, low] = np.maximum(result[close, top] - 15 - 25 * missing[close], 25).round()
    result[patients.age < 3, MEASURES.index("pain")] = np.nan  # infants state no number
    return result


def _reasons(department: Department, first: Floats, other: Floats, measure: Floats) -> Ints:
    """(N, 5): the first reason, then others. No two reasons have the same words in a note."""
    chief = first.argmax(axis=1)
    other[np.arange(chief.size), chief] = -np.inf
    other[:, department.rates.reasons.index("other")] -= 1.0
    same = department.reason_key[None, :] == department.reason_key[chief][:, None]
    other[same] = -np.inf
    count = np.nan_to_num(measure[:, MEASURES.index("reasons")], nan=1.0).astype(int) - 1
    return np.column_stack([chief, _most(other, count, MOST_REASONS - 1)])


def _most(score: Floats, count: Ints, width: int) -> Ints:
    """(N, width): the columns of each row's `count` highest scores, highest first, then -1."""
    top = np.argpartition(-score, width, axis=1)[:, :width]
    value = np.take_along_axis(score, top, axis=1)
    order = np.argsort(-value, axis=1, kind="stable")
    top, value = np.take_along_axis(top, order, axis=1), np.take_along_axis(value, order, axis=1)
    keep = (np.arange(width) < count[:, None]) & np.isfinite(value) & (value > -25)
    return np.where(keep, top, -1)
