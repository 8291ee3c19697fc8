"""Error rates of annotators by EM (Dawid and Skene, 1979), with a Beta prior by kind of annotator.

    log odds of y = logit prevalence + sum over annotators of log P(vote | y = 1) / P(vote | y = 0)
    sensitivity   = (sum over votes of q v + S s0) / (sum of q + S)         q: posterior probability of y
    false_positive = (sum of (1 - q) v + S f0) / (sum of 1 - q + S)         S: `STRENGTH`

(s0, f0) are the annotator's rates over the other conditions where labels tell them, around `PRIOR` of its kind.

One condition at a time; annotators are taken to err independently given y. Votes with the same annotator name share
their rates. Rates that are given stay as they are; a label never errs.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product
from typing import NamedTuple

import numpy as np
from scipy.special import expit, logit

from whatelse.annotators.votes import CERTAIN, Votes
from whatelse.types import Bools, Floats

PRIOR = {
    "person": (0.95, 0.05),
    "program": (0.8, 0.05),
    "anchor": (0.5, 0.03),
    "name": (0.5, 0.02),
    "drug": (0.4, 0.05),
    "code": (0.6, 0.02),
}
"""Prior means of sensitivity and false-positive rate by kind of annotator."""
STRENGTH = 20.0  # votes that the prior is worth
STEPS, MOVED = 200, 1e-6
_ByAnnotator = dict[str, tuple[float, float]]  # annotator -> sensitivity, false-positive rate


def estimate_rates(votes: Sequence[Votes]) -> tuple[tuple[Votes, ...], Floats]:
    """The same votes with all error rates filled in, and (N, m) the posterior probability of each condition.

    A probability is 0 where nobody voted. O(steps annotators N m) time, O(N) memory beside the result.
    """
    N, m = votes[0].value.shape
    rates = {v.annotator: np.empty((2, m)) for v in votes if v.sensitivity is None}
    prior = {v.annotator: _elsewhere(v.annotator, votes) for v in votes if v.sensitivity is None}
    posterior = np.zeros((N, m))
    for i in range(m):
        rows = np.flatnonzero(np.any([v.known[:, i] for v in votes], 0))
        given, unknown, shares = np.zeros(len(rows)), list[_Column](), [0.5]
        for v in votes:
            value, known = v.value[rows, i], v.known[rows, i]
            shares += [float(value[known].mean())] if known.any() else []
            if v.sensitivity is None:
                unknown.append(_Column(v.annotator, value, known))
            else:
                yes, no = v.vote_odds()
                given += known * np.where(value, yes[i], no[i])
        here = {name: (float(pair[0, i]), float(pair[1, i])) for name, pair in prior.items()}
        found, posterior[rows, i] = _one_condition(given, unknown, here, float(np.mean(shares[1:] or shares)))
        for name, pair in found.items():
            rates[name][:, i] = pair
    filled = (v.with_rates(*rates[v.annotator]) if v.sensitivity is None else v for v in votes)
    return tuple(filled), posterior


def _elsewhere(annotator: str, votes: Sequence[Votes]) -> Floats:
    """(2, m) rates of an annotator over all other conditions, where labels tell them; `PRIOR` counts as S votes."""
    own = [v for v in votes if v.annotator == annotator]
    labels = [v for v in votes if v.certain]
    rates = []
    for truth, mean in zip((True, False), PRIOR[own[0].kind], strict=True):
        yes, cast = np.zeros(own[0].value.shape[1]), np.zeros(own[0].value.shape[1])
        for v, label in product(own, labels):
            cells = v.known & label.known & (label.value == truth)
            yes, cast = yes + (v.value & cells).sum(0), cast + cells.sum(0)
        rates.append((yes.sum() - yes + STRENGTH * mean) / (cast.sum() - cast + STRENGTH))
    return np.array(rates)


class _Column(NamedTuple):
    """Votes of one annotator on one condition of V visits; value and known are (V,)."""

    annotator: str
    value: Bools
    known: Bools


def _one_condition(
    given: Floats, unknown: Sequence[_Column], prior: _ByAnnotator, share: float
) -> tuple[_ByAnnotator, Floats]:
    """Rates by annotator and posterior (V,). given (V,): log odds of votes with known rates; share: that of votes 1."""
    rates = {column.annotator: prior[column.annotator] for column in unknown}
    prevalence = float(np.clip(share, 0.01, 0.99))
    q = np.zeros(len(given))
    for _ in range(STEPS):
        odds = logit(prevalence) + given
        for name, value, known in unknown:
            s, f = rates[name]
            odds = odds + known * np.where(value, np.log(s / f), np.log((1 - s) / (1 - f)))
        q = expit(np.clip(odds, -CERTAIN, CERTAIN))
        before, rates = rates, _maximise(unknown, prior, q)
        new = float((q.sum() + 0.5) / (len(q) + 1.0))
        changes = [abs(a - b) for name in rates for a, b in zip(rates[name], before[name], strict=True)]
        moved, prevalence = max([abs(new - prevalence), *changes]), new
        if moved < MOVED:
            break
    return rates, q


def _maximise(unknown: Sequence[_Column], prior: _ByAnnotator, q: Floats) -> _ByAnnotator:
    """Rates of each annotator given the posterior q (V,), votes under one name together."""
    out = {}
    for name in dict.fromkeys(column.annotator for column in unknown):
        own = [column for column in unknown if column.annotator == name]
        pair = []
        for weight, mean in zip((q, 1 - q), prior[name], strict=True):
            yes = sum(float(weight[column.value & column.known].sum()) for column in own)
            cast = sum(float(weight[column.known].sum()) for column in own)
            pair.append((yes + STRENGTH * mean) / (cast + STRENGTH))
        out[name] = (pair[0], pair[1])
    return out
