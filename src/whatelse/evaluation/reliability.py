"""Calibration in numbers: predicted beside observed, for all visits and for parts; and scores at a threshold.

A small average hides every wrong answer that matters: most probabilities are near zero and easy. So predictions are
looked at in bins on a linear scale, with their counts, and as the number of conditions expected over those observed:
for each condition, for short and for long records, and where the anchor is silent. `at_threshold` gives sensitivity,
precision, AUROC and average precision of each condition.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from sklearn.metrics import average_precision_score, roc_auc_score

from whatelse.noisyor.heldout_metrics import Interval, resample_counts
from whatelse.types import Bools, Floats

CLIP = 1e-6
THRESHOLDS = (0.02, 0.05, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9)
EDGES = (0.0, 0.02, 0.05, 0.1, 0.2, 0.3, 0.45, 0.6, 0.75, 0.9, 1.0)


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
    out = []
    for k in range(len(EDGES) - 1):
        inside = bin_ == k
        if inside.any():
            out.append(
                {
                    "low": EDGES[k],
                    "high": EDGES[k + 1],
                    "count": int(inside.sum()),
                    "predicted": float(p[inside].mean()),
                    "observed": float(y[inside].mean()),
                }
            )
    return tuple(out)


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


def by_condition(probability: Floats, truth: Bools) -> list[Interval]:
    """Expected over observed of each condition, with intervals over visits."""
    return [ratio(probability[:, i], truth[:, i].astype(float)) for i in range(truth.shape[1])]


def burden(
    probability: Floats, truth: Bools, anchors: Bools, thresholds: tuple[float, ...] = THRESHOLDS
) -> list[dict[str, Any]]:
    """What each threshold costs and brings, by which a department chooses its threshold. Shares of nothing are None.

    A tag is suggested where its probability is at least the threshold. At each threshold: how many suggestions 100
    visits get, how many of them are true, how many of the true tags they reach, and how many of the true tags that the
    record does not name (the anchor is silent). probability, truth and anchors are (V, m).
    """
    visits, silent = len(truth), truth & ~anchors
    out = []
    for threshold in thresholds:
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
