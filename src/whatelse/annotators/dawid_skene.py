"""Error rates of annotators by EM (Dawid and Skene, 1979), with a prior by kind of annotator.

    log odds of y = logit prevalence + sum over annotators of log P(vote | y = 1) / P(vote | y = 0)
    sensitivity    = (sum over votes of q v + K s0) / (sum of q + K)                  q: posterior probability of y
    false_positive = (sum of (1 - q) v + K s0 (1 - r0) / r0) / (sum of 1 - q + N0 - K)         N0 = K s0 / (r0 share)

The prior counts as N0 further visits, K of them cases (`CASES`), on which the annotator has sensitivity s0, precision
r0 and its own share of yes votes: a typical false-positive rate would make a rare condition's yes votes worthless.
(s0, r0) are the annotator's over the other conditions where labels tell them, around `PRIOR` of its kind.

One condition at a time; annotators are taken to err independently given y. Votes with the same annotator name share
their rates. Rates that are given stay as they are; a label never errs. An annotator counts nothing on a condition for
which its votes do not change the odds by a factor of two.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product
from typing import NamedTuple

import numpy as np
from scipy.special import expit, logit

from whatelse.annotators.votes import CERTAIN, Votes
from whatelse.types import Bools, Floats, Ints

PRIOR = {
    "person": (0.9, 0.9),
    "program": (0.8, 0.7),
    "anchor": (0.6, 0.7),
    "name": (0.6, 0.8),
    "drug": (0.4, 0.5),
    "code": (0.55, 0.55),
}
"""Prior means of sensitivity and precision by kind of annotator."""
CASES = 10.0  # cases that the prior of a condition is worth
TYPICAL = 2.0  # labelled cases, over all conditions, that `PRIOR` is worth
WORTH = np.log(2.0)  # log odds below which a vote, yes or no, counts nothing
MOST = 0.5  # prevalence at most, of the visits that stand for the prior
STEPS, MOVED = 200, 1e-6
_ByAnnotator = dict[str, tuple[float, float]]  # annotator -> sensitivity, false-positive rate


class _Prior(NamedTuple):
    """Prior of one annotator and condition, as further visits: yes votes and visits, each of cases and of others."""

    yes: tuple[float, float]
    visits: tuple[float, float]

    @classmethod
    def of(cls, sensitivity: float, precision: float, share: float) -> _Prior:
        """share: of yes among the votes."""
        prevalence = min(precision * share / sensitivity, MOST)
        true_yes, visits = CASES * sensitivity, CASES / prevalence
        return cls((true_yes, true_yes * (1 - precision) / precision), (CASES, visits - CASES))

    @property
    def rates(self) -> tuple[float, float]:
        """Sensitivity and false-positive rate."""
        return self.yes[0] / self.visits[0], min(self.yes[1] / self.visits[1], 0.99)


def estimate_rates(votes: Sequence[Votes]) -> tuple[tuple[Votes, ...], Floats]:
    """The same votes with all error rates filled in, and (N, m) the posterior probability of each condition.

    A probability is 0 where nobody voted. O(annotators N m) time and one step of EM for each pattern of votes.
    """
    N, m = votes[0].value.shape
    rates = {v.annotator: np.empty((2, m)) for v in votes if v.sensitivity is None}
    typical = {name: _elsewhere(name, votes) for name in rates}
    posterior = np.zeros((N, m))
    for i in range(m):
        rows = np.flatnonzero(np.any([v.known[:, i] for v in votes], 0))
        said = np.array([np.where(v.known[rows, i], v.value[rows, i], -1) for v in votes]).T
        patterns, place, count = np.unique(said, axis=0, return_inverse=True, return_counts=True)
        given, unknown = np.zeros(len(patterns)), list[_Column]()
        for v, own in zip(votes, patterns.T, strict=True):
            if v.sensitivity is None:
                unknown.append(_Column(v.annotator, own == 1, own >= 0))
            else:
                yes, no = v.vote_odds()
                given += np.select([own == 1, own == 0], [yes[i], no[i]])
        prior = {}
        for name, (sensitivity, precision) in typical.items():
            columns = [column for column in unknown if column.annotator == name]
            yes_votes = sum(int(count[column.value].sum()) for column in columns)
            cast = sum(int(count[column.known].sum()) for column in columns)
            prior[name] = _Prior.of(float(sensitivity[i]), float(precision[i]), (yes_votes + 0.5) / (cast + 1))
        found, q = _one_condition(given, unknown, prior, count)
        found = {name: _worth(*pair) for name, pair in found.items()}
        posterior[rows, i] = q[place.ravel()]
        for name, pair in found.items():
            rates[name][:, i] = pair
    filled = (v.with_rates(*rates[v.annotator]) if v.sensitivity is None else v for v in votes)
    return tuple(filled), posterior


def _elsewhere(annotator: str, votes: Sequence[Votes]) -> Floats:
    """(2, m) sensitivity and precision of an annotator over all other conditions where labels tell them, around
    `PRIOR`."""
    own = [v for v in votes if v.annotator == annotator]
    m = own[0].value.shape[1]
    true_yes, yes, cases = np.zeros(m), np.zeros(m), np.zeros(m)
    for v, label in product(own, [v for v in votes if v.certain]):
        both = v.known & label.known
        true_yes += (both & v.value & label.value).sum(0)
        yes += (both & v.value).sum(0)
        cases += (both & label.value).sum(0)
    return np.array(
        [
            (true_yes.sum() - true_yes + TYPICAL * mean) / (counted.sum() - counted + TYPICAL)
            for counted, mean in zip((cases, yes), PRIOR[own[0].kind], strict=True)
        ]
    )


class _Column(NamedTuple):
    """Votes of one annotator on one condition; value and known are (V,), V patterns of votes."""

    annotator: str
    value: Bools
    known: Bools


def _one_condition(
    given: Floats, unknown: Sequence[_Column], prior: dict[str, _Prior], count: Ints
) -> tuple[_ByAnnotator, Floats]:
    """Rates by annotator and posterior (V,) of V patterns of votes.

    given (V,): log odds of the votes with known rates; count (V,): visits with each pattern
    """
    rates = {name: each.rates for name, each in prior.items()}
    shares = [each.visits[0] / sum(each.visits) for each in prior.values()] or [0.5]
    prevalence = float(np.clip(np.mean(shares), 1e-4, 0.99))
    q = np.zeros(len(given))
    for _ in range(STEPS):
        odds = logit(prevalence) + given
        for name, value, known in unknown:
            s, f = rates[name]
            odds = odds + known * np.where(value, np.log(s / f), np.log((1 - s) / (1 - f)))
        q = expit(np.clip(odds, -CERTAIN, CERTAIN))
        before, rates = rates, {name: _maximise(name, unknown, prior[name], count * q, count) for name in rates}
        new = float((count @ q + 0.5) / (count.sum() + 1.0))
        changes = [abs(a - b) for name in rates for a, b in zip(rates[name], before[name], strict=True)]
        moved, prevalence = max([abs(new - prevalence), *changes]), new
        if moved < MOVED:
            break
    return rates, q


def _maximise(name: str, unknown: Sequence[_Column], prior: _Prior, cases: Floats, count: Ints) -> tuple[float, float]:
    """Rates of one annotator given the expected cases (V,) among the visits of each pattern; votes under one name go
    together."""
    pair = []
    for weight, yes, visits in zip((cases, count - cases), prior.yes, prior.visits, strict=True):
        for column in unknown:
            if column.annotator == name:
                yes, visits = yes + float(weight[column.value].sum()), visits + float(weight[column.known].sum())
        pair.append(yes / visits)
    return pair[0], pair[1]


def _worth(sensitivity: float, false_positive: float) -> tuple[float, float]:
    """The same rates; equal ones if a yes speaks against the condition, or no vote changes the odds by WORTH."""
    yes, no = np.log(sensitivity / false_positive), np.log((1 - sensitivity) / (1 - false_positive))
    if yes <= 0 or max(yes, -no) < WORTH:
        return ((sensitivity + false_positive) / 2,) * 2
    return sensitivity, false_positive
