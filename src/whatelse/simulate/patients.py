"""Who comes, when, and with what: conditions, reasons, illnesses, age and sex of a block of visits."""

from __future__ import annotations

from dataclasses import dataclass, fields
from datetime import datetime

import numpy as np
from numpy.typing import NDArray

from whatelse.simulate.content import AGES, Department
from whatelse.simulate.departures import Departures

Bools = NDArray[np.bool_]
Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

START = datetime(2008, 1, 1)
SECONDS_APART = 573  # 55,000 visits a year
YEAR = 365.25 * 24 * 3600
TWO_REASONS = 0.12  # share of visits for one of the 23 that have a reason beside it


@dataclass(frozen=True, eq=False)
class Patients:
    """A block of N visits: `on` (N, m + r + i) which causes are present, `primary` (N,) the one the visit is for,
    `seconds` since START, `age` (N,) and `male` (N,)."""

    on: Bools
    primary: Ints
    seconds: Floats
    age: Floats
    male: Bools

    def take(self, rows: Ints) -> Patients:
        """Some of the visits."""
        return Patients(*(getattr(self, field.name)[rows] for field in fields(self)))


def draw_patients(
    department: Department, departures: Departures, first: int, size: int, rng: np.random.Generator
) -> Patients:
    """The visits numbered first .. first + size - 1. O(size (m + r + i))."""
    m, r = len(department.conditions), len(department.reasons)
    seconds = (first + np.arange(size) + rng.random(size)) * SECONDS_APART
    conditions = _conditions(department, departures, seconds / YEAR, rng)
    acute = conditions & department.acute
    has_acute = acute.any(axis=1)

    on = np.zeros((size, len(department.profiles)), dtype=bool)
    on[:, :m] = conditions
    reason = np.searchsorted(np.cumsum(department.reason_weight) / department.reason_weight.sum(), rng.random(size))
    one_sex = np.array([department.profiles[f"reason {name}"]["male"] in (0, 1) for name in department.reasons])
    beside = (rng.random(size) < TWO_REASONS) & ~one_sex[reason]
    if departures.outside:
        on[np.arange(size), m + reason] = ~has_acute | beside
    which = np.where(acute, rng.random((size, m)), -1.0).argmax(axis=1)
    primary = np.where(has_acute, which, m + reason)
    age, male = _people(department, conditions, primary, rng)
    chance = rng.random((size, len(department.illnesses)))
    if departures.outside:
        prevalence = np.stack([np.interp(age, AGES, at) for at in department.illness_at], axis=1)
        on[:, m + r :] = chance < prevalence
    return Patients(on, primary, seconds, age, male)


def _conditions(department: Department, departures: Departures, years: Floats, rng: np.random.Generator) -> Bools:
    """(N, m): each condition by itself, or brought on by one before it, so that its share stays near its prior.

    P(Y_i = 0 | earlier) = (1 - own_i) prod_k (1 - w_ki)^{y_k},   own_i = 1 - (1 - prior_i) / prod_k (1 - prior_k w_ki)
    """
    m, prior = len(department.conditions), department.prior
    position = {name: i for i, name in enumerate(department.conditions)}
    u = rng.random((years.size, m))
    on = np.zeros((years.size, m), dtype=bool)
    busy = np.zeros(years.size, dtype=bool)  # has an acute condition already
    idle = 1.0  # P(not busy), were the conditions independent
    for i in department.order:
        profile = department.profiles[department.conditions[i]]
        causes = {position[k]: w * departures.correlation for k, w in profile.get("causes", {}).items()}
        own = 1 - (1 - prior[i]) / np.prod([1 - prior[k] * w for k, w in causes.items()])
        p = np.full(years.size, max(own, 0.2 * prior[i]))
        month, height = profile.get("season", (1, 0.0))
        season = height * np.cos(2 * np.pi * (years - (month - 0.5) / 12))
        p *= 1 + departures.drift * (season + profile.get("trend", 0.0) * np.minimum(years, 5.0))
        if department.acute[i]:
            p *= np.where(busy, 1 - departures.competition, 1.0) / (1 - departures.competition * (1 - idle))
        quiet = 1 - p
        for k, w in causes.items():
            quiet *= np.where(on[:, k], 1 - w, 1.0)
        on[:, i] = u[:, i] < 1 - quiet
        if department.acute[i]:
            busy |= on[:, i]
            idle *= 1 - prior[i]
    return on


def _people(department: Department, conditions: Bools, primary: Ints, rng: np.random.Generator) -> tuple[Floats, Bools]:
    """Age and sex as they fit: those of a history condition where there is one, else of what the visit is for."""
    size = primary.size
    names = list(department.profiles)
    source = primary.copy()
    share = np.array([department.profiles[name].get("male", 0.5) for name in names])
    one_sex = ((share == 0) | (share == 1))[primary]
    for i in np.flatnonzero(~department.acute):
        source[conditions[:, i] & ~one_sex] = i
    u, spread, v = rng.random(size), rng.standard_normal(size), rng.random(size)
    age = np.empty(size)
    male = np.empty(size, dtype=bool)
    for cause in np.unique(source):
        rows = np.flatnonzero(source == cause)
        profile = department.profiles[names[cause]]
        weight, mean, sd = np.array(profile["age"], dtype=float).T
        part = np.minimum(np.searchsorted(np.cumsum(weight), u[rows]), weight.size - 1)
        age[rows] = mean[part] + sd[part] * spread[rows]
        male[rows] = v[rows] < profile["male"]
    return np.clip(np.round(age), 1, 98), male
