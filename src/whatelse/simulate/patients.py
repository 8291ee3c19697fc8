"""Patients: time of arrival, age, sex, conditions, reason for the visit and chronic illnesses."""

from __future__ import annotations

from dataclasses import dataclass, fields
from datetime import datetime

import numpy as np

from whatelse.simulate.content import AGES, Department
from whatelse.simulate.departures import Departures
from whatelse.simulate.rates import BANDS, FINE, condition_states, probit, state_shares
from whatelse.types import Bools, Floats, Ints

START = datetime(2016, 1, 1)
A_DAY = 128  # visits
DAY = 24 * 3600
YEAR = 365.25
FRAIL = 0.25  # share of the variance of chronic illness that a patient's illnesses have in common


@dataclass(frozen=True, eq=False)
class Patients:
    """A block of N visits in the order in which they come.

    on       (N, m + r + i) which causes are present: conditions, outside reasons, illnesses
    primary  (N,) the cause the visit is for, below m + r;  lead (N,) the condition that brought it about, or -1
    seconds  since START;  age (N,), male (N,);  fine, band (N,) the bands of the age
    """

    on: Bools
    primary: Ints
    lead: Ints
    seconds: Floats
    age: Floats
    male: Bools
    fine: Ints
    band: Ints

    def take(self, rows: Ints) -> Patients:
        """Some of the visits."""
        return Patients(*(getattr(self, field.name)[rows] for field in fields(self)))


def draw_patients(
    department: Department, departures: Departures, first: int, size: int, rng: np.random.Generator
) -> Patients:
    """The visits numbered first .. first + size - 1; size a multiple of A_DAY. O(size (m + r + i))."""
    rates, m, r = department.rates, len(department.conditions), len(department.reasons)
    days = (first + np.arange(size)) // A_DAY
    who = np.searchsorted(rates.people, rng.random(size))
    age, male = rates.age[who], rates.male[who]
    fine, band = np.searchsorted(FINE, age, "right") - 1, np.searchsorted(BANDS, age, "right") - 1
    season = _season(department, departures, float(days[0]))
    conditions = _conditions(department, departures, fine, male, age, season[:m], rng)

    on = np.zeros((size, len(department.profiles)), dtype=bool)
    on[:, :m] = conditions
    primary, lead = _primary(department, conditions, fine, band, male, season[m:], rng)
    rows = np.arange(size)
    beside = rng.random((size, r)) < rates.beside[primary, band] * rates.allowed[fine, male.astype(int)]
    ill = _illnesses(department, primary, band, age, male, rng)
    if departures.outside:
        on[:, m : m + r] = beside
        outside = primary >= m
        on[rows[outside], primary[outside]] = True
        on[:, m + r :] = ill
    hour = np.array([np.searchsorted(rates.hour[c], u) for c, u in zip(primary, rng.random(size), strict=True)])
    seconds = days * DAY + (np.minimum(hour, 23) + rng.random(size)) * 3600
    order = np.argsort(seconds, kind="stable")
    return Patients(on, primary, lead, seconds, age.astype(float), male, fine, band).take(order)


def _season(department: Department, departures: Departures, day: float) -> Floats:
    """(m + r,) how much commoner than usual each cause is on that day: the survey's months, and trends."""
    where = day % YEAR / YEAR * 12 - 0.5
    low, part = int(np.floor(where)), where - np.floor(where)
    month = department.rates.month
    factor = (1 - part) * month[:, low % 12] + part * month[:, (low + 1) % 12]
    factor = 1 + departures.drift * (factor - 1)
    years = min(day / YEAR, 5.0)
    for i, name in enumerate(department.conditions):
        factor[i] *= 1 + departures.drift * department.profiles[name].get("trend", 0.0) * years
    return np.asarray(factor)


def _conditions(
    department: Department,
    departures: Departures,
    fine: Ints,
    male: Bools,
    age: Ints,
    season: Floats,
    rng: np.random.Generator,
) -> Bools:
    """(N, m). Sets of conditions by their shares in the survey at the age and sex. Without correlation, competition and
    demographics: each condition by its prior, independently."""
    m, size = len(department.conditions), fine.size
    u = rng.random((size, m))
    if departures.correlation == 0 and departures.competition == 0 and not departures.demographics:
        return u < department.prior * season
    states = condition_states(m)
    p = state_shares(department.rates, departures.correlation, departures.competition)
    p = p * np.exp(states @ np.log(season))
    up = np.cumsum(p, axis=1)
    cell = fine * 2 + male
    state = np.zeros(size, dtype=np.intp)
    for c in np.unique(cell):
        rows = np.flatnonzero(cell == c)
        state[rows] = np.searchsorted(up[c], u[rows, 0] * up[c, -1])
    least = np.array([department.profiles[name].get("from", 0) for name in department.conditions])
    return np.asarray(states[state] & (age[:, None] >= least))


def _primary(
    department: Department,
    conditions: Bools,
    fine: Ints,
    band: Ints,
    male: Bools,
    season: Floats,
    rng: np.random.Generator,
) -> tuple[Ints, Ints]:
    """The cause that each visit is for, and the condition behind it (-1: none).

    A visit with conditions is for one of them, or for an outside reason that the condition brought about (a fall: a
    fracture). A visit without conditions is for an outside reason of the age and sex.
    """
    rates, m = department.rates, len(department.conditions)
    size, sex = fine.size, male.astype(int)
    u, v, w = rng.random((size, m)), rng.random(size), rng.random(size)
    weight = np.where(conditions, (rates.own[:, band].T + 0.02) / -np.log(u), -1.0)  # an exponential race
    lead = np.where(conditions.any(axis=1), weight.argmax(axis=1), -1)
    primary = np.empty(size, dtype=np.int64)
    up = np.cumsum(np.diff(rates.alone, axis=-1, prepend=0.0) * season, axis=-1)
    for k in range(size):
        i = lead[k]
        if i < 0:
            table = up[fine[k], sex[k]]
        elif v[k] < rates.own[i, band[k]]:
            primary[k] = i
            continue
        else:
            table = rates.lead[i, band[k], sex[k]]
        primary[k] = m + np.searchsorted(table, w[k] * table[-1])
    return np.minimum(primary, len(rates.causes) - 1), lead


def _illnesses(
    department: Department, primary: Ints, band: Ints, age: Ints, male: Bools, rng: np.random.Generator
) -> Bools:
    """(N, i): by the survey's chronic conditions where it has them, else by prevalence at the age."""
    rates, size = department.rates, primary.size
    flags = {name: k for k, name in enumerate(rates.flags)}
    frail, own = rng.standard_normal(size), rng.standard_normal((size, len(department.illnesses)))
    on = np.zeros((size, len(department.illnesses)), dtype=bool)
    for k, name in enumerate(department.illnesses):
        profile = department.profiles[f"illness {name}"]
        if "flag" in profile:
            p = rates.flag[primary, band, flags[profile["flag"]]]
        else:
            p = np.interp(age, AGES, profile["at"])
        fits = (age >= profile["from"]) & (age <= profile.get("to", 120))
        if "sex" in profile:
            fits &= male == (profile["sex"] == "M")
        on[:, k] = fits & (np.sqrt(FRAIL) * frail + np.sqrt(1 - FRAIL) * own[:, k] < probit(p))
    return on
