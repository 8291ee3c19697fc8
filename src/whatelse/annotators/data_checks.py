"""Checks of a cohort before learning: problems that the learned probabilities would not show.

Examples: noise rates that do not fit the anchors, an anchor that hardly ever fires, two conditions with one anchor, ten
labels. A problem that makes learning hopeless is refused with the condition's name; any other is printed.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass
from heapq import nsmallest
from typing import Any

import numpy as np

from whatelse.annotators import NoiseRates
from whatelse.cohort import Cohort
from whatelse.cohort.contingency import Tally
from whatelse.errors import CohortError

FEW_ANCHORS = 30
MOST_NAMED = 12  # conditions in one doubt
FEW_VISITS = 1_000
FEW_LABELS = 50
WRONG_RATE = 1.5  # times more or less often than the rates imply, beyond what chance does
SAME = 0.8  # of the visits with either anchor have both
NEAR_PRIOR = 2.0  # times the prior: a precision below that says little
SKETCH = 64  # hashes of visit ids that a model file keeps
MOST_AGAIN = 0.05  # of test visits may have been learned from


@dataclass(frozen=True)
class Doubt:
    """One doubt; `hopeless`: nothing can be learned as it stands."""

    condition: str | None
    says: str
    hopeless: bool = False

    def __str__(self) -> str:
        return f"{self.condition}: {self.says}" if self.condition else self.says


def doubts(cohort: Cohort, rates: NoiseRates | None = None) -> list[Doubt]:
    """All doubts about a cohort before learning. rates: given noise rates; None: counted in the cohort. O(N m^2)."""
    tally = cohort.tally()
    return [*_of_labels(cohort, tally), *_of_conditions(cohort, tally, rates), *_same_anchor(cohort)]


def _of_labels(cohort: Cohort, tally: Tally) -> Iterator[Doubt]:
    """Whether there are enough visits and labels, and both kinds of label."""
    N, m = cohort.A.shape
    several = cohort.Y is not None and ((cohort.Y & cohort.known).sum(1) > 1).any()  # labels on a visit
    if m > 1 and not (cohort.A.sum(1) > 1).any() and not several:
        says = "nothing joint can be learned from anchors alone; label visits, or give conditions further anchors"
        yield Doubt(None, f"no visit has two anchors: {says}")
    if N < FEW_VISITS:
        yield Doubt(None, f"{N:,} visits are few for {m} conditions: expect little; some thousands are needed")
    if 0 < tally.some < FEW_LABELS:
        yield Doubt(None, f"{tally.some:,} labelled visits say next to nothing: label some {4 * FEW_LABELS} or more")
    if tally.some and not tally.true.any():
        says = "conditions will look rarer than they are, unless visits were chosen at random and really have none"
        yield Doubt(None, f"all {int(tally.known.sum()):,} labels are 0: {says}; write 1 where a visit has one")


def _of_conditions(cohort: Cohort, tally: Tally, rates: NoiseRates | None) -> Iterator[Doubt]:
    """Whether there is enough to learn each condition from."""
    N, fires, labels, cases = tally.visits, tally.fires, tally.known, tally.true
    few = (fires > 0) & (fires < FEW_ANCHORS) & (cases < FEW_ANCHORS)
    if few.any():
        names = [f"{cohort.conditions[i]} ({fires[i]:,})" for i in np.flatnonzero(few)]
        more = f" and {len(names) - MOST_NAMED} more" if len(names) > MOST_NAMED else ""
        said = f"{', '.join(names[:MOST_NAMED])}{more}"
        yield Doubt(None, f"anchors that fire in few of {N:,} visits: {said}; too few to learn much from")
    for i, condition in enumerate(cohort.conditions):
        if not fires[i] and not cases[i]:
            says = f"its anchor never fires in {N:,} visits and no visit is labelled with it{_elsewhere(cohort, i)}"
            yield Doubt(condition, says, True)
        if labels[i] and labels[i] == cases[i] and (labels > cases).any():  # all of them: nothing is learned (rates_of)
            said = "its one label is" if labels[i] == 1 else f"all of its {labels[i]:,} labels are"
            says = f"{said} 1: it will look commoner than it is; write 0 where a visit does not have it"
            yield Doubt(condition, says)
        if rates is not None:
            yield from _of_rates(condition, rates, i, int(fires[i]), N)


def _elsewhere(cohort: Cohort, i: int) -> str:
    """Whether a code that condition i's anchor looks for is among the findings under another system."""
    wanted = {a.value: a.system for a in cohort.vocabulary.anchors.conditions[i].anchors if a.fields == ("coded",)}
    for name in cohort.vocabulary.names:
        system, _, label = name.partition(":")
        if label in wanted and system not in (wanted[label], "anchor", "neg"):
            return f" (the records have its code under the system {system!r}, not {wanted[label]!r})"
    return ""


def _of_rates(condition: str, rates: NoiseRates, i: int, fires: int, N: int) -> Iterator[Doubt]:
    """Whether the rates of one condition fit how often its anchor fires, and whether they say anything."""
    implied, seen = float(rates.anchor_rate[i]), fires / N
    error = np.sqrt(max(implied * (1 - implied), 1e-12) / N)
    if abs(seen - implied) > 4 * error and not implied / WRONG_RATE <= seen <= implied * WRONG_RATE:
        says = f"the rates imply that its anchor fires in {implied:.2%} of visits, and it fires in {seen:.2%}"
        yield Doubt(condition, f"{says}: prior, sensitivity or false positive rate is wrong")
    if rates.ppv[i] < NEAR_PRIOR * rates.prior[i]:
        says = f"where its anchor fires {rates.ppv[i]:.1%} have it, {rates.prior[i]:.1%} of all visits do"
        yield Doubt(condition, f"{says}: the anchor says next to nothing")


def _same_anchor(cohort: Cohort) -> Iterator[Doubt]:
    """Pairs of conditions whose anchors fire in the same visits."""
    A = cohort.A.astype(np.int64)
    both, fires = A.T @ A, A.sum(0)
    for i, k in zip(*np.tril_indices(len(fires), -1), strict=True):
        either = fires[i] + fires[k] - both[i, k]
        if both[i, k] >= max(10, SAME * either):
            one, other = bool(both[i, k] == either), cohort.conditions[k]
            said = f"shares {both[i, k]:,} of {either:,} visits with the anchor of {other!r}"
            said = f"has the same anchor as {other!r}" if one else said
            yield Doubt(cohort.conditions[i], f"{said}: nothing tells the two apart; give each its own", one)


def refuse_hopeless(found: list[Doubt]) -> None:
    """CohortError that names what nothing can be learned about."""
    if hopeless := [doubt for doubt in found if doubt.hopeless]:
        others = ", ".join(str(doubt.condition) for doubt in hopeless[1:])
        more = f" (likewise hopeless: {others})" if others else ""
        advice = "change its anchors ('anchors check' shows them), or leave the condition out of the conditions file"
        raise CohortError(f"{hopeless[0]}{more}; {advice}")


# ---- whether test visits were learned from


def sketch(cohort: Cohort) -> list[str]:
    """The SKETCH smallest hashes of the cohort's visit ids: they tell whether another cohort has the same visits.

    40 bits of each hash are kept, of 64 visits: they say nothing about the others, and little about those.
    """
    return nsmallest(SKETCH, {hashed(visit) for visit in cohort.ids})


def seen_before(kept: Any, cohort: Cohort) -> str | None:
    """A warning if test visits were learned from, else None. kept: the sketch of the visits learned from."""
    if not isinstance(kept, list) or not kept:
        return None
    share = len(set(kept) & {hashed(visit) for visit in cohort.ids}) / len(kept)
    if share <= MOST_AGAIN:
        return None
    return f"some {share:.0%} of the visits that the model learned from are among these: what is measured flatters it"


def hashed(visit: Any) -> str:
    """40 bits of a hash of a visit's id."""
    return hashlib.blake2b(str(visit).encode("utf-8", "surrogatepass"), digest_size=5, person=b"whatelse").hexdigest()
