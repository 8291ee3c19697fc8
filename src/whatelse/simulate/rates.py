"""The tables of rates, counted in the national survey by `scripts/survey_rates.py`, made into arrays.

The shipped tables are the CSV files of `survey/`; `read_rates(folder)` reads others. A rate of few visits is shrunk
toward a coarser rate: that of a cause at an age toward the usual rate at the age times the lift of the cause.
"""

from __future__ import annotations

import csv
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache, partial
from importlib.resources import files
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
from scipy.special import ndtri

from whatelse.types import Bools, Floats, Ints

FINE = (0, 1, 5, 12, 18, 30, 45, 55, 65, 75, 85)  # where age bands begin, for prevalence and vital signs
BANDS = (0, 5, 18, 45, 65)  # wider ones, for what few visits tell
MEASURES = (
    *("temperature", "pulse", "respirations", "systolic", "diastolic", "saturation", "pain", "triage"),
    *("ambulance", "admitted", "drugs", "reasons"),
)
RECORDED = MEASURES[:8]  # those that may not have been recorded
MOST = 4  # conditions at once
LEAN = 12.0  # pseudo-visits of the shrinkage
NEVER = -40.0
CHILD_DRUG = 3  # visits of those under 18 in the survey that a drug must have to be given to them


def fine_band(age: float) -> int:
    """The index into FINE."""
    return bisect_right(FINE, age) - 1


def band(age: float) -> int:
    """The index into BANDS."""
    return bisect_right(BANDS, age) - 1


@lru_cache(maxsize=2)
def condition_states(m: int) -> Bools:
    """(S, m): every set of at most MOST of m conditions, smaller sets first."""
    sets = [s for size in range(MOST + 1) for s in combinations(range(m), size)]
    states = np.zeros((len(sets), m), dtype=bool)
    for row, chosen in enumerate(sets):
        states[row, list(chosen)] = True
    return states


@dataclass(frozen=True, eq=False)
class Rates:
    """Rates of the survey. c causes (the m conditions, then the outside reasons), B bands, F fine bands, sexes F, M."""

    causes: tuple[str, ...]
    reasons: tuple[str, ...]
    drugs: tuple[str, ...]
    flags: tuple[str, ...]  # chronic conditions
    age: Ints  # (A,) ages and sexes of visits
    male: Bools  # (A,)
    people: Floats  # (A,) their cumulative shares
    prevalence: Floats  # (F, 2, m)
    field: Floats  # (F, 2, m) what a condition adds by itself to the log-linear model; NEVER where it was never seen
    coupling: tuple[tuple[tuple[int, ...], ...], Floats]  # sets of conditions, their log-linear weights
    alone: Floats  # (F, 2, c - m) cumulative shares of outside reasons in visits with none of the conditions
    own: Floats  # (m, B) share of a condition's visits that are for the condition
    lead: Floats  # (m, B, 2, c - m) cumulative shares of outside reasons in the other visits of a condition
    beside: Floats  # (c, B, c - m) rates of further outside reasons
    allowed: Bools  # (F, 2, c - m)
    first: Floats  # (c, B, reasons) log shares of the reason said first
    other: Floats  # (c, B, reasons) log shares of the reasons said after
    usual_first: Floats  # (B, reasons) `first` of all visits
    usual_other: Floats  # (B, reasons)
    drug: Floats  # (c, B, drugs) log odds of being given
    usual_drug: Floats  # (B, drugs)
    drug_rate: Floats  # (c + 1, drugs) at any age
    flag_rate: Floats  # (flags,) at any age
    reason_share: Floats  # (c - m,) at any age
    flag: Floats  # (c, B, flags) rates of chronic conditions
    month: Floats  # (c, 12) relative to all visits
    hour: Floats  # (c, 24) cumulative shares
    shift: Floats  # (c, B, measures) in probits
    factor: Floats  # (measures, measures) Cholesky factor of the correlation between measures
    values: tuple[tuple[tuple[Floats, Floats], ...], ...]  # by measure and fine band: values, cumulative shares
    pattern: tuple[tuple[Bools, Floats], ...]  # by fine band: which of RECORDED come together, cumulative shares
    codes: tuple[tuple[tuple[str, ...], tuple[float, ...]], ...]  # by cause: ICD-10 codes, cumulative shares


def read_rates(folder: Path | None, conditions: Sequence[str], outside: Sequence[str], reasons: Sequence[str]) -> Rates:
    """Rates from the tables of `folder`; None: the shipped tables."""
    causes, m, g = (*conditions, *outside), len(conditions), len(outside)
    place = {name: k for k, name in enumerate(causes)}
    tables = partial(read_table, folder=folder)
    fines, bands, sexes = len(FINE), len(BANDS), {"F": 0, "M": 1}

    people = [(int(r["age"]), r["sex"] == "M", int(r["visits"])) for r in tables("people")]
    size = np.zeros((fines, 2))
    for years, is_male, count in people:
        size[fine_band(years), int(is_male)] += count
    prevalence = np.zeros((fines, 2, m))
    for r in tables("conditions"):
        prevalence[int(r["fine_band"]), sexes[r["sex"]], place[r["condition"]]] += int(r["visits"])
    prevalence /= size[:, :, None]
    field = np.full(prevalence.shape, NEVER)
    for r in tables("fields"):
        field[int(r["fine_band"]), sexes[r["sex"]], place[r["condition"]]] = float(r["field"])

    alone, lead, own = np.zeros((fines, 2, g)), np.zeros((m, bands, 2, g)), np.zeros((m, bands, 2))
    for r in tables("leading"):
        count, cause, b = int(r["visits"]), place[r["cause"]], int(r["band"])
        if r["condition"] == "none":
            alone[b, sexes[r["sex"]], cause - m] += count
            continue
        i = place[r["condition"]]
        own[i, b, 0] += count * (cause == i)
        own[i, b, 1] += count * (cause == i or cause >= m)
        if cause >= m:
            lead[i, b, sexes[r["sex"]], cause - m] += count
    nested = np.array([band(low) for low in FINE])
    by_band = np.array([alone[nested == b].sum(axis=0) for b in range(bands)])
    usual = by_band / by_band.sum(axis=-1, keepdims=True)
    overall = own.sum(axis=1, keepdims=True)
    lean_own = (overall[..., 0] + 0.5) / (overall[..., 1] + 1)
    any_age = lead.sum(axis=1, keepdims=True) + 0.5 * usual
    lead = lead + LEAN / 2 * any_age / any_age.sum(axis=-1, keepdims=True) * (usual > 0)

    visits = np.zeros((len(causes) + 1, bands))
    for r in tables("visits"):
        visits[place.get(r["cause"], -1), int(r["band"])] = int(r["visits"])
    said = {name: k for k, name in enumerate(reasons)}
    spoken = np.zeros((2, len(causes) + 1, bands, len(reasons)))
    for r in tables("reasons"):
        row = spoken[int(r["place"] == "other"), place.get(r["cause"], -1), int(r["band"])]
        for reason, count in _split(r["counts"]):
            row[said[reason]] += count
    drugs, given = _counts(tables("drugs"), place, len(causes))
    flags, chronic = _counts(tables("chronic"), place, len(causes))
    extra = np.zeros((len(causes), bands, g))
    for r in tables("beside"):
        for name, count in _split(r["counts"]):
            extra[place[r["cause"]], int(r["band"]), place[name] - m] += count
    mean_extra = extra.sum(axis=0) / visits[-1][:, None]

    def times(table: str, column: str, first: int, count: int, lean: float) -> tuple[Floats, Floats]:
        """(c + 1, count) shares of a cause's visits by month or hour, shrunk toward those of all visits; and these."""
        visits = np.zeros((len(causes) + 1, count))
        for r in tables(table):
            visits[place.get(r["cause"], -1), int(r[column]) - first] += int(r["visits"])
        usual = visits[-1] / visits[-1].sum()
        return (visits + lean * usual) / (visits.sum(axis=1, keepdims=True) + lean), usual

    months, usual_month = times("months", "month", 1, 12, 300)
    hours, _ = times("hours", "hour", 0, 24, 100)

    shift = np.zeros((len(causes), bands, len(MEASURES)))
    for r in tables("shifts"):
        shift[place[r["cause"]], int(r["band"]), MEASURES.index(r["measure"])] = float(r["shift"])
    correlation = np.eye(len(MEASURES))
    for r in tables("residuals"):
        a, b = MEASURES.index(r["measure"]), MEASURES.index(r["with"])
        correlation[a, b] = correlation[b, a] = float(r["correlation"])

    codes = tables("codes")
    odds = _lean(given, visits)
    children = given[-1, :2] < CHILD_DRUG  # one stray prescription is not a custom
    odds[:, :2][:, children] = 0.0
    odds = np.log(np.maximum(odds, 1e-12)) - np.log1p(-np.minimum(odds, 0.98))
    first, other = (_log_shares(_lean(table, visits)) for table in spoken)
    return Rates(
        causes=causes,
        reasons=tuple(reasons),
        drugs=drugs,
        flags=flags,
        age=np.array([p[0] for p in people], dtype=np.int64),
        male=np.array([p[1] for p in people]),
        people=np.cumsum([p[2] for p in people]) / sum(p[2] for p in people),
        prevalence=prevalence,
        field=field,
        coupling=(
            tuple(tuple(place[name] for name in r["conditions"].split("+")) for r in tables("couplings")),
            np.array([float(r["coupling"]) for r in tables("couplings")]),
        ),
        alone=_cumulative(alone + 4 * usual[nested] * (alone > 0)),
        own=(own[..., 0] + LEAN / 4 * lean_own) / (own[..., 1] + LEAN / 4),
        lead=_cumulative(lead),
        beside=(extra + LEAN * mean_extra) / (visits[:-1, :, None] + LEAN),
        allowed=alone > 0,
        first=first[:-1],
        other=other[:-1],
        usual_first=first[-1],
        usual_other=other[-1],
        drug=odds[:-1],
        usual_drug=odds[-1],
        drug_rate=given.sum(axis=1) / np.maximum(visits.sum(axis=1), 1)[:, None],
        flag_rate=chronic[-1].sum(axis=0) / visits[-1].sum(),
        reason_share=alone.sum(axis=(0, 1)) / visits[-1].sum(),
        flag=_lean(chronic, visits)[:-1],
        month=months[:-1] / usual_month,
        hour=np.cumsum(hours[:-1], axis=1),
        shift=shift,
        factor=np.asarray(np.linalg.cholesky(correlation), dtype=np.float64),
        values=_values(tables("measures")),
        pattern=_patterns(tables("patterns")),
        codes=tuple(_codes(codes, name) for name in causes),
    )


def read_table(name: str, folder: Path | None = None) -> list[dict[str, str]]:
    """The rows of one table of `folder`; None: a shipped table."""
    file = (folder if folder is not None else files("whatelse.simulate") / "survey") / f"{name}.csv"
    lines = file.read_text("utf-8").splitlines()
    return list(csv.DictReader(lines[1:]))  # the first line says where the counts come from


def _split(counts: str) -> list[tuple[str, int]]:
    """ "name:visits;name:visits" as pairs."""
    return [(name, int(n)) for name, _, n in (part.rpartition(":") for part in counts.split(";"))]


def _counts(rows: list[dict[str, str]], place: dict[str, int], causes: int) -> tuple[tuple[str, ...], Floats]:
    """Names, and (causes + 1, B, names) counts; the last row counts all visits."""
    split = [(place.get(r["cause"], -1), int(r["band"]), _split(r["counts"])) for r in rows]
    names = tuple(sorted({name for _, _, counts in split for name, _ in counts}))
    index = {name: k for k, name in enumerate(names)}
    table = np.zeros((causes + 1, len(BANDS), len(names)))
    for cause, b, counts in split:
        for name, n in counts:
            table[cause, b, index[name]] += n
    return names, table


def _lean(counts: Floats, visits: Floats) -> Floats:
    """(c + 1, B, k) rates: counts over visits, shrunk toward the band's usual rate times the cause's own lift."""
    usual = counts[-1] / np.maximum(visits[-1], 1)[:, None]
    expected = np.einsum("cb,bk->ck", visits, usual)
    lift = (counts.sum(axis=1) + 0.5) / (expected + 0.5)
    back = np.minimum(usual[None] * lift[:, None, :], 0.95)
    return np.asarray((counts + LEAN * back) / (visits[:, :, None] + LEAN))


def _log_shares(rate: Floats) -> Floats:
    with np.errstate(divide="ignore"):
        return np.asarray(np.log(rate / np.maximum(rate.sum(axis=-1, keepdims=True), 1e-300)))


def _cumulative(weight: Floats) -> Floats:
    total = np.cumsum(weight, axis=-1)
    return np.asarray(total / np.maximum(total[..., -1:], 1e-300))


def _values(rows: list[dict[str, str]]) -> tuple[tuple[tuple[Floats, Floats], ...], ...]:
    tables: dict[tuple[str, int], list[tuple[float, int]]] = {}
    for r in rows:
        tables.setdefault((r["measure"], int(r["fine_band"])), []).append((float(r["value"]), int(r["visits"])))
    result = []
    for name in MEASURES:
        found = [sorted(tables[name, f]) for f in range(len(FINE))]
        result.append(tuple((np.array([v for v, _ in t]), _cumulative(np.array([n for _, n in t]))) for t in found))
    return tuple(result)


def _patterns(rows: list[dict[str, str]]) -> tuple[tuple[Bools, Floats], ...]:
    here = [[r for r in rows if int(r["fine_band"]) == f] for f in range(len(FINE))]
    known = [np.array([[letter == "1" for letter in r["recorded"]] for r in some]) for some in here]
    shares = [_cumulative(np.array([int(r["visits"]) for r in some])) for some in here]
    return tuple(zip(known, shares, strict=True))


def _codes(rows: list[dict[str, str]], cause: str) -> tuple[tuple[str, ...], tuple[float, ...]]:
    """The cause's codes and their cumulative shares, the last left out: a search gives a code's place."""
    found = [(r["icd10"], int(r["visits"])) for r in rows if r["cause"] == cause]
    shares = np.cumsum([n for _, n in found]) / max(sum(n for _, n in found), 1)
    return tuple(code for code, _ in found), tuple(shares[:-1].tolist())


@lru_cache(maxsize=8)
def state_shares(rates: Rates, correlation: float, competition: float) -> Floats:
    """(F * 2, S) P(set of conditions | age band, sex), with the couplings scaled; prevalences stay the survey's."""
    sets, weight = rates.coupling
    fines, _, m = rates.prevalence.shape
    states = condition_states(m)
    scaled = np.where(weight > 0, weight * correlation, weight * competition)
    together = np.zeros(len(states))
    for chosen, w in zip(sets, scaled, strict=True):
        together += w * states[:, chosen].all(axis=1)
    h = rates.field.reshape(fines * 2, m).copy()
    usual = correlation == 1 and competition == 1
    wanted, never = rates.prevalence.reshape(fines * 2, m), h == NEVER
    on = states.astype(float)
    p = np.empty((fines * 2, len(states)))
    for _ in range(1 if usual else 40):  # iterative proportional fitting: h moves until prevalences are the survey's
        z = h @ on.T + together
        p = np.exp(z - z.max(axis=1, keepdims=True))
        p /= p.sum(axis=1, keepdims=True)
        h += np.where(never, 0.0, 0.8 * np.log(np.maximum(wanted, 1e-9) / np.maximum(p @ on, 1e-9)))
    return p


def probit(p: Any) -> Floats:
    """The normal quantile, kept finite."""
    return np.asarray(ndtri(np.clip(p, 1e-6, 1 - 1e-6)))
