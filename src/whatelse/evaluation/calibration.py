"""Calibration in numbers: `trust` measures a model on labelled visits, as JSON values for report, `evaluate` and plots.

A small average hides every wrong answer that matters: most probabilities are near zero and easy. So predictions are
looked at in bins on a linear scale, with their counts, and as the number of conditions expected over those observed:
for each condition, for short and for long records, and where the anchor is silent. `at_threshold` gives sensitivity,
precision, AUROC and average precision of each condition, `burden` what each threshold costs and brings.

Then one tag of a visit is confirmed or rejected, and every *other* tag is looked at before and after. Three moves:

    confirmed           every true tag of a visit confirmed, one at a time
    likeliest confirmed the likeliest tag, where it is true and at least `SHOWN`
    likeliest rejected  the likeliest tag, where it is false and at least `SHOWN`

All true tags of a visit are confirmed, not one drawn at random: else visits with many tags would count once, and the
other tags would look rarer than they are. Log loss is per tag; a ratio below one says that the move made the others
better. Expected over observed is the number of other conditions that the probabilities add up to, over those there
were.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import asdict, dataclass
from functools import partial
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import ArrayLike
from sklearn.metrics import average_precision_score, roc_auc_score

from whatelse.cohort import Cohort
from whatelse.noisyor.heldout_metrics import Interval, resample_counts
from whatelse.noisyor.inference.posterior import posterior
from whatelse.noisyor.joint import Model
from whatelse.types import Bools, Floats

VISITS = 5_000  # labelled visits that are looked at, at most
CLIP = 1e-6
THRESHOLDS = (0.02, 0.05, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9)
EDGES = (0.0, 0.02, 0.05, 0.1, 0.2, 0.3, 0.45, 0.6, 0.75, 0.9, 1.0)
SHOWN = 0.2  # the probability from which on a tag is taken to be looked at
TOLERANCE, BUDGET = 1e-4, 20_000  # of the posteriors that are measured
Answer = Callable[[sp.csr_matrix, Bools | None, Bools | None], Floats]
"""What is measured: (visits X (V, n), confirmed (V, m), rejected (V, m)) -> probabilities (V, m)."""


def trust(model: Model, cohort: Cohort, *, visits: int = VISITS, seed: int = 0) -> dict[str, Any] | None:
    """How far a model can be trusted, on at most `visits` labelled visits, at random; None if no visit is labelled.

    Cost: one posterior for each visit, each true tag and each likeliest tag that is shown.
    """
    answer = answers_of(model)
    labelled = np.flatnonzero(cohort.labelled)
    if cohort.Y is None or not labelled.size:
        return None
    rows = np.sort(np.random.default_rng(seed).permutation(labelled)[:visits])
    X, Y, A = cohort.X[rows], cohort.Y[rows], cohort.A[rows]
    before = answer(X, None, None)
    made = {name: update(move, seed=seed) for name, move in moves(answer, X, Y, before).items()}
    found: dict[str, Any] = {
        "visits": len(rows),
        "log_loss": float(log_loss(before, Y).mean()),
        "brier": float(np.mean((before - Y) ** 2)),
        "expected": asdict(expected_over_observed(before, Y)),
        "reliability": reliability(before, Y),
        "reliability_silent": reliability(before[~A], Y[~A]),
        "by_length": {name: asdict(r) for name, r in by_length(before, Y, np.diff(X.indptr)).items()},
        "by_condition": [
            {"condition": c, "observed": int(y.sum()), **asdict(ratio(p, y.astype(float))), "log_loss": float(loss)}
            for c, p, y, loss in zip(cohort.conditions, before.T, Y.T, log_loss(before, Y).mean(0), strict=True)
        ],
        "updates": {name: asdict(u) for name, u in made.items()},
        "burden": burden(before, Y, A),
    }
    plain: dict[str, Any] = _without_nan(found)
    return plain


def _without_nan(value: Any) -> Any:
    """JSON has no NaN: a ratio to nothing is null."""
    if isinstance(value, dict):
        return {key: _without_nan(entry) for key, entry in value.items()}
    if isinstance(value, list | tuple):
        return [_without_nan(entry) for entry in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def ratio(
    top: Floats, bottom: Floats, *, groups: ArrayLike | None = None, resamples: int = 1000, seed: int = 0
) -> Interval:
    """sum(top) / sum(bottom), both (K,); NaN if sum(bottom) is 0.

    groups  (K,) which entries belong together, and are drawn together
    """
    if not len(top) or not bottom.sum() > 0:
        return Interval(float("nan"), float("nan"), float("nan"))
    _, which = np.unique(np.arange(len(top)) if groups is None else np.asarray(groups), return_inverse=True)
    count = int(which.max()) + 1
    parts = np.stack([np.bincount(which, top, count), np.bincount(which, bottom, count)], 1)
    drawn = np.stack([times @ parts for times in resample_counts(count, resamples, seed)])
    with np.errstate(divide="ignore", invalid="ignore"):
        low, high = np.nanquantile(drawn[:, 0] / drawn[:, 1], [0.025, 0.975])
    return Interval(float(top.sum() / bottom.sum()), float(low), float(high))


def reliability(probability: ArrayLike, truth: ArrayLike) -> tuple[dict[str, Any], ...]:
    """One entry for each bin that holds something: low, high, count, predicted and observed share."""
    p, y = np.asarray(probability, float).ravel(), np.asarray(truth, bool).ravel()
    bin_ = np.clip(np.searchsorted(EDGES, p, side="right") - 1, -1, len(EDGES) - 2)
    inside = {k: bin_ == k for k in np.unique(bin_[bin_ >= 0]).tolist()}
    return tuple(
        {"low": EDGES[k], "high": EDGES[k + 1], "count": int(here.sum())}
        | {"predicted": float(p[here].mean()), "observed": float(y[here].mean())}
        for k, here in inside.items()
    )


def expected_over_observed(probability: Floats, truth: Bools, rows: Any = slice(None)) -> Interval:
    """Over all conditions of some visits, with an interval over visits."""
    return ratio(probability[rows].sum(1), truth[rows].sum(1).astype(float))


def by_length(probability: Floats, truth: Bools, length: ArrayLike) -> dict[str, Interval]:
    """Expected over observed in the shortest and in the longest tenth of records; length (V,) of whatever measure."""
    size = np.asarray(length)
    low, high = np.quantile(size, [0.1, 0.9])
    return {
        "shortest tenth": expected_over_observed(probability, truth, size <= low),
        "longest tenth": expected_over_observed(probability, truth, size >= high),
    }


def at_threshold(probability: Floats, truth: Bools, known: Bools, threshold: float) -> list[dict[str, Any]]:
    """Sensitivity, precision, AUROC and average precision of each condition over the visits where it is known.

    All are (V, m). Positive: probability >= threshold. None where a measure has no meaning: without a true visit,
    without a positive one, for AUROC without both kinds of visits.
    """
    out = []
    for p, y in ((probability[known[:, i], i], truth[known[:, i], i]) for i in range(truth.shape[1])):
        said, true = p >= threshold, int(y.sum())
        right = int((said & y).sum())
        out.append(
            {
                "labelled": len(y),
                "true": true,
                "sensitivity": right / true if true else None,
                "precision": right / int(said.sum()) if said.any() else None,
                "auroc": float(roc_auc_score(y, p)) if 0 < true < len(y) else None,
                "average_precision": float(average_precision_score(y, p)) if true else None,
            }
        )
    return out


def burden(probability: Floats, truth: Bools, anchors: Bools) -> list[dict[str, Any]]:
    """What each threshold costs and brings, by which a department chooses its threshold. Shares of nothing are None.

    A tag is suggested where its probability is at least the threshold. At each threshold: how many suggestions 100
    visits get, how many of them are true, how many of the true tags they reach, and how many of the true tags that the
    record does not name (the anchor is silent). probability, truth and anchors are (V, m).
    """
    visits, silent = len(truth), truth & ~anchors
    out = []
    for threshold in THRESHOLDS:
        said = probability >= threshold
        made, right = int(said.sum()), int((said & truth).sum())
        out.append(
            {
                "threshold": threshold,
                "per_100_visits": 100 * made / visits,
                "true": right / made if made else None,
                "reached": right / int(truth.sum()) if truth.any() else None,
                "reached_unnamed": float((said & silent).sum() / silent.sum()) if silent.any() else None,
                "unnamed_per_100_visits": 100 * int((said & ~anchors).sum()) / visits,
            }
        )
    return out


def answers_of(model: Model) -> Answer:
    """The answers of a model, to a tolerance that log losses need."""
    ask = partial(posterior, model, tolerance=TOLERANCE, budget=BUDGET, top=0)
    return lambda X, confirmed, rejected: ask(X, confirmed=confirmed, rejected=rejected).marginals


@dataclass(frozen=True, eq=False)
class Move:
    """One kind of move, made K times.

    visit          (K,) which of the visits;  subject (K,) the condition that was decided
    before, after  (K, m) probabilities;  truth (K, m)
    """

    visit: Any
    subject: Any
    before: Floats
    after: Floats
    truth: Bools

    def __len__(self) -> int:
        return len(self.subject)

    @property
    def others(self) -> Bools:
        """(K, m) every condition but the one that was decided."""
        return ~one_of(self.subject, self.truth.shape[1])


def moves(answer: Answer, X: sp.csr_matrix, Y: Bools, before: Floats) -> dict[str, Move]:
    """All three kinds on visits X (V, n) with truth Y (V, m) and probabilities before (V, m). One posterior a move."""
    likeliest = before.argmax(1)
    rows = np.arange(len(Y))
    shown, true = before[rows, likeliest] >= SHOWN, Y[rows, likeliest]

    def made(visit: Any, subject: Any, yes: bool) -> Move:
        decided = one_of(subject, Y.shape[1])
        after: Floats = np.zeros(decided.shape)
        if len(visit):
            after = answer(X[visit], decided if yes else None, None if yes else decided)
        return Move(visit, subject, before[visit], after, Y[visit])

    visit_of, true_tag = np.nonzero(Y)
    return {
        "confirmed": made(visit_of, true_tag, yes=True),
        "likeliest confirmed": made(rows[shown & true], likeliest[shown & true], yes=True),
        "likeliest rejected": made(rows[shown & ~true], likeliest[shown & ~true], yes=False),
    }


@dataclass(frozen=True)
class Update:
    """What a kind of move does to the other tags, with bootstrap intervals over visits.

    loss        log loss per tag after over before;  before, after: the two
    expected    expected over observed number of other conditions, after the move
    reliability (bins) of the others' probabilities after the move
    """

    times: int
    visits: int
    loss: Interval
    before: float
    after: float
    expected: Interval
    bins: tuple[dict[str, Any], ...]


def update(move: Move, *, resamples: int = 1000, seed: int = 0) -> Update:
    """Sum a kind of move up."""
    others = move.others
    losses = [np.where(others, log_loss(p, move.truth), 0.0).sum(1) for p in (move.before, move.after)]
    expected = np.where(others, move.after, 0.0).sum(1)
    observed = (move.truth & others).sum(1).astype(float)
    options: dict[str, Any] = {"groups": move.visit, "resamples": resamples, "seed": seed}
    count = max(int(others.sum()), 1)
    return Update(
        len(move),
        len(np.unique(move.visit)),
        ratio(losses[1], losses[0], **options),
        float(losses[0].sum() / count),
        float(losses[1].sum() / count),
        ratio(expected, observed, **options),
        reliability(move.after[others], move.truth[others]),
    )


def log_loss(probability: Floats, truth: Bools | Floats) -> Floats:
    """-log P(truth), of the same shape. truth: 0 or 1, or the probability that a label is true (cross entropy).

    Probabilities are kept `CLIP` away from 0 and 1.
    """
    p = np.clip(probability, CLIP, 1 - CLIP)
    loss: Floats = -(truth * np.log(p) + (1 - truth.astype(float)) * np.log1p(-p))
    return loss


def one_of(subject: Any, m: int) -> Bools:
    """(K, m): True at condition subject[k] of row k."""
    marked: Bools = np.asarray(subject)[:, None] == np.arange(m)
    return marked
