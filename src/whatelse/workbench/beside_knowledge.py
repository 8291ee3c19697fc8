"""What the knowledge base says about a condition, beside what the records of the cohort say."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from whatelse.cohort import Cohort
from whatelse.learning.prior import Prior
from whatelse.types import Bools, Floats

MOST = 8  # findings of each kind
LEAST = 10  # visits with the finding, before the records are heard


@dataclass(frozen=True)
class Lift:
    """How many times as common a finding is among cases as among all visits.

    knowledge   by the knowledge base; None where it says nothing
    records     among visits in which the anchor fires; None if fewer than LEAST visits have the finding
    """

    finding: str
    knowledge: float | None
    records: float | None


@dataclass(frozen=True)
class BesideKnowledge:
    """A condition by the base and by the records. entries: the entries of the base that the condition stands for.

    share, fires  share of emergency visits by the base (None: not in the base), and of this cohort by the anchor
    """

    entries: tuple[str, ...]
    share: float | None
    fires: float
    lifts: tuple[Lift, ...]


def beside_knowledge(cohort: Cohort, prior: Prior, condition: str) -> BesideKnowledge:
    """The MOST strongest findings by the base, then the MOST strongest of the records that the base does not list."""
    i = cohort.conditions.index(condition)
    have = cohort.X[cohort.A[:, i].astype(bool)]
    every, cases = (np.asarray(x.sum(0), float).ravel() for x in (cohort.X, have))
    times = ((cases + 0.5) / (have.shape[0] + 1)) / ((every + 0.5) / (len(cohort) + 1))
    plain = np.array([":" not in name for name in cohort.vocabulary.names])
    heard = (every >= LEAST) & (have.shape[0] > 0)
    listed, weight = prior.known[i], prior.weight[:2, i].sum(0)  # facts and names
    told, own = listed & plain, heard & plain & ~listed
    order = [*_first(weight, told), *_first(np.log(times), own & (times > 1))]
    lifts = tuple(
        Lift(
            cohort.vocabulary.names[j],
            float(np.exp(weight[j])) if listed[j] else None,
            float(times[j]) if heard[j] else None,
        )
        for j in order
    )
    share = float(prior.share[i])
    return BesideKnowledge(prior.entries[i], None if np.isnan(share) else share, have.shape[0] / len(cohort), lifts)


def _first(weight: Floats, among: Bools) -> list[int]:
    """The MOST largest of some columns."""
    there = np.flatnonzero(among)
    chosen: list[int] = there[np.argsort(-weight[there], kind="stable")[:MOST]].tolist()
    return chosen
