"""Held-out tag and held-out anchor: how often a model finds a hidden condition; intervals and a paired test.

A *scorer* is anything that answers "what else?" for many visits: scorer(X, confirmed) -> (V, m), larger is likelier.
X is CSR (V, n), confirmed (V, m) bool; the entries of confirmed conditions are ignored. So a joint model, a set of
classifiers and a coin are measured by the same code, on the same draws.

Ties are counted fairly: a tag that shares its score with others gets what it would get on average if ties were
broken at random. A model that gives k candidates the same score is right once in k times.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import ArrayLike

from whatelse.errors import QueryError
from whatelse.noisyor.inference.gibbs import held_out_anchor
from whatelse.noisyor.inference.heldout import heldout_tag
from whatelse.noisyor.inference.posterior import posterior
from whatelse.noisyor.joint import Model, joint
from whatelse.types import Bools, Floats, Ints

Scorer = Callable[[sp.csr_matrix, Bools], Floats]

METRICS = ("accuracy", "top5", "mrr")
RANKING_TOLERANCE, RANKING_BUDGET = 1e-2, 4000  # of the posteriors by which hidden anchors are ranked


@dataclass(frozen=True)
class Interval:
    """An estimate with its bootstrap percentile interval."""

    value: float
    low: float
    high: float


@dataclass(frozen=True, eq=False)
class HeldoutDraws:
    """What is hidden: in visit rows[v] (V of them), draw d hides condition hidden[d, v]. Share one among all models."""

    rows: Ints
    hidden: Ints


@dataclass(frozen=True, eq=False)
class Recovery:
    """How often what was hidden is found again.

    accuracy, top5, mrr   mean over visits and draws, with intervals over visits
    by_visit              metric -> (V,) mean over draws: what `paired_test` compares
    by_condition          metric -> (m,) mean over the times that condition was hidden; NaN where it never was
    times_hidden          (m,)
    """

    accuracy: Interval
    top5: Interval
    mrr: Interval
    visits: int
    draws: int
    by_visit: dict[str, Floats]
    by_condition: dict[str, Floats]
    times_hidden: Ints

    def to_json(self) -> dict[str, Any]:
        """Plain numbers and lists; a mean of nothing is null."""
        out: dict[str, Any] = {"visits": self.visits, "draws": self.draws}
        for metric in METRICS:
            interval: Interval = getattr(self, metric)
            out[metric], out[f"{metric}_interval"] = interval.value, [interval.low, interval.high]
        out["by_condition"] = [
            {"times_hidden": int(times)}
            | {name: None if times == 0 else float(self.by_condition[name][i]) for name in METRICS}
            for i, times in enumerate(self.times_hidden)
        ]
        return out


# ---- held-out tag


def heldout_tag_draws(Y: ArrayLike, *, seed: int = 0, draws: int = 3) -> HeldoutDraws:
    """Hide one true tag at random in every visit with two or more of them, `draws` times over. Y is (N, m) bool."""
    return _hide_one(np.asarray(Y, bool), seed, draws, 2, None, "conditions")


def heldout_tag_scores(
    scorer: Scorer, X: sp.csr_matrix, Y: ArrayLike, draws: HeldoutDraws, *, resamples: int = 2000, seed: int = 0
) -> Recovery:
    """Give a scorer each visit with all true tags but the hidden one, and see where it ranks that one.

    X (N, n) and Y (N, m) are of the visits that `draws` was made from. Costs one call of the scorer per draw.
    """
    truth = np.asarray(Y, bool)[draws.rows]
    x = sp.csr_matrix(X)[draws.rows]
    metrics = []
    for hidden in draws.hidden:
        confirmed = truth.copy()
        confirmed[np.arange(len(hidden)), hidden] = False
        metrics.append(ranking(scorer(x, confirmed), ~confirmed, hidden))
    return _recovery(np.array(metrics), draws.hidden, truth.shape[1], resamples, seed)


def noisyor_scorer(model: Model) -> Scorer:
    """The model's exact answer to the held-out tag."""

    def score(X: sp.csr_matrix, confirmed: Bools) -> Floats:
        return heldout_tag(model, X, confirmed)

    return score


# ---- held-out anchor


def heldout_anchor_draws(A: ArrayLike, *, seed: int = 0, draws: int = 1, visits: int | None = 1000) -> HeldoutDraws:
    """Hide one positive anchor in at most `visits` visits, taken at random from those that have one. A is (N, m)."""
    return _hide_one(np.asarray(A, bool), seed, draws, 1, visits, "anchors")


def heldout_anchor_scores(
    model: Model,
    X: sp.csr_matrix,
    anchor_columns: ArrayLike,
    draws: HeldoutDraws,
    *,
    resamples: int = 2000,
    seed: int = 0,
) -> Recovery:
    """The paper's label-free measure, for choosing among models: which anchor is missing?

    The hidden anchor and all negative anchors become unobserved; they are the candidates, ranked by
    P(A_i=1 | rest) = sum_y P(A_i=1 | y) P(Y_i=y | rest). The marginals are as exact as ranks need. The noise rates are
    those of the model's anchors.
    """
    x = sp.csr_matrix(X)[draws.rows].astype(np.uint8)
    metrics = [ranking(*hidden_anchor(model, x, anchor_columns, hidden), hidden) for hidden in draws.hidden]
    return _recovery(np.array(metrics), draws.hidden, model.m, resamples, seed)


def anchor_rates(model: Model, columns: Ints) -> tuple[Floats, Floats]:
    """(m,) sensitivity s and (m,) false-positive rate f of the anchors, by the noisy-or.

    Where the noisy-or does not speak of an anchor, by the log odds that it adds, firing (log s/f) and silent
    (log (1-s)/(1-f)): f = (1 - e^silent) / (e^firing - e^silent), s = f e^firing.
    """
    both = joint(model)
    fail = both.noisyor.fail[np.arange(model.m), columns]
    false_positive = np.array(both.noisyor.leak[columns])
    sensitivity = 1 - (1 - false_positive) * fail
    silent, firing = np.exp(both.evidence.anchor_log_odds)
    by_odds = (fail == 1) & (firing > silent) & (both.evidence.anchor_columns == columns)
    false_positive[by_odds] = ((1 - silent) / np.where(by_odds, firing - silent, 1.0))[by_odds]
    sensitivity[by_odds] = (false_positive * firing)[by_odds]
    return sensitivity, false_positive


def hidden_anchor(model: Model, X: sp.csr_matrix, anchor_columns: ArrayLike, hidden: Ints) -> tuple[Floats, Bools]:
    """(V, m) P(A_i=1 | rest), and the anchors that are unobserved: the hidden one of each visit and all negative ones.

    hidden  (V,) which anchor of each visit is hidden
    """
    columns = np.asarray(anchor_columns, np.int64)
    sensitivity, false_positive = anchor_rates(model, columns)
    unseen = ~X[:, columns].toarray().astype(bool)
    unseen[np.arange(len(hidden)), hidden] = True
    rows, which = np.nonzero(unseen)
    unobserved = sp.csr_matrix((np.ones(rows.size, np.uint8), (rows, columns[which])), X.shape)
    rest = sp.csr_matrix(X - X.multiply(unobserved))
    rest.eliminate_zeros()
    found = posterior(model, rest, unobserved, tolerance=RANKING_TOLERANCE, budget=RANKING_BUDGET, top=0)
    return held_out_anchor(found.marginals, sensitivity, false_positive), unseen


# ---- ranks and intervals


def ranking(scores: Floats, candidates: Bools, hidden: Ints) -> Floats:
    """Accuracy, top 5 and reciprocal rank (V, 3) of the hidden entry of each row among the candidates.

    With b candidates strictly above and t sharing its score (itself included), its rank is uniform on b+1 … b+t:
    accuracy = [b = 0] / t,  top 5 = clip((5 - b) / t, 0, 1),  reciprocal rank = (H_{b+t} - H_b) / t, H harmonic.
    """
    scores = np.asarray(scores, float)
    if scores.shape != candidates.shape or np.isnan(scores[candidates]).any():
        raise QueryError(
            f"a scorer returned {'NaN' if scores.shape == candidates.shape else scores.shape}; "
            f"it must return {candidates.shape} numbers, one for each visit and condition"
        )
    target = scores[np.arange(len(hidden)), hidden][:, None]
    above = ((scores > target) & candidates).sum(1)
    tied = ((scores == target) & candidates).sum(1)
    harmonic = np.concatenate([[0.0], np.cumsum(1.0 / np.arange(1, candidates.shape[1] + 1))])
    return np.stack(
        [(above == 0) / tied, np.clip((5 - above) / tied, 0, 1), (harmonic[above + tied] - harmonic[above]) / tied], 1
    )


def resample_counts(units: int, resamples: int, seed: int) -> Iterator[Ints]:
    """How often each of `units` is drawn with replacement, (units,) each: the draws of every bootstrap here."""
    rng = np.random.default_rng(seed)
    for _ in range(resamples):  # four times as fast as rng.multinomial
        yield np.bincount(rng.integers(units, size=units), minlength=units)


def bootstrap(values: Floats, *, resamples: int = 2000, seed: int = 0) -> list[Interval]:
    """Means of the columns of values (V, k), with 95% percentile intervals from resampling rows."""
    means = np.array([count @ values for count in resample_counts(len(values), resamples, seed)]) / len(values)
    low, high = np.quantile(means, [0.025, 0.975], axis=0)
    return [Interval(*map(float, triple)) for triple in zip(values.mean(0), low, high, strict=True)]


@dataclass(frozen=True)
class PairedTest:
    """b minus a on the same visits: bootstrap interval, and the p-value of "signs of the differences are random"."""

    difference: float
    low: float
    high: float
    p_value: float
    visits: int


def paired_test(a: Floats, b: Floats, *, resamples: int = 5000, seed: int = 0) -> PairedTest:
    """Compare two models by one metric per visit, each (V,): `Recovery.by_visit[...]` of the same draws.

    The p-value is two-sided, from `resamples` random flips of the signs of the differences.
    """
    if np.shape(a) != np.shape(b) or np.ndim(a) != 1 or not len(a):
        raise QueryError(f"a paired test needs the same visits on both sides; got {np.shape(a)} and {np.shape(b)}")
    difference = np.asarray(b, float) - np.asarray(a, float)
    (interval,) = bootstrap(difference[:, None], resamples=resamples, seed=seed)
    rng = np.random.default_rng(seed + 1)
    moved = difference[difference != 0]
    flips = rng.integers(0, 2, (resamples, len(moved)), np.int8) * 2 - 1
    extreme = (np.abs(flips @ moved) >= np.abs(moved.sum()) - 1e-9).sum()
    p_value = float((extreme + 1) / (resamples + 1))
    return PairedTest(interval.value, interval.low, interval.high, p_value, len(difference))


# ---- shared


def _hide_one(on: Bools, seed: int, draws: int, at_least: int, visits: int | None, what: str) -> HeldoutDraws:
    if draws < 1:
        raise QueryError(f"at least one draw is needed; got {draws}")
    rng = np.random.default_rng(seed)
    rows = np.flatnonzero(on.sum(1) >= at_least)
    if not len(rows):
        raise QueryError(f"none of {len(on)} visits has {at_least} or more {what}: nothing can be hidden")
    if visits is not None and visits < len(rows):
        rows = np.sort(rng.choice(rows, visits, replace=False))
    keys = np.where(on[rows], rng.random((draws, len(rows), on.shape[1])), -1.0)  # the largest of uniform keys
    return HeldoutDraws(rows, keys.argmax(2))


def _recovery(metrics: Floats, hidden: Ints, m: int, resamples: int, seed: int) -> Recovery:
    """Summarise metrics (draws, V, 3)."""
    by_visit = metrics.mean(0)
    times = np.bincount(hidden.ravel(), minlength=m)
    flat = metrics.reshape(-1, len(METRICS))
    by_condition = {}
    for k, name in enumerate(METRICS):
        total = np.bincount(hidden.ravel(), flat[:, k], m)
        by_condition[name] = np.divide(total, times, out=np.full(m, np.nan), where=times > 0)
    accuracy, top5, mrr = bootstrap(by_visit, resamples=resamples, seed=seed)
    return Recovery(
        accuracy, top5, mrr, by_visit.shape[0], metrics.shape[0],
        {name: by_visit[:, k] for k, name in enumerate(METRICS)}, by_condition, times,
    )  # fmt: skip
