"""Burden: suggestions per 100 visits and the true tags they reach, for each threshold.

A tag is suggested where its probability is at least the threshold. At each threshold: how many suggestions 100 visits
get, how many of them are true, how many of the true tags they reach, and how many of those true tags that the record
does not name outright (the anchor is silent). It is the curve by which a department chooses its threshold.
"""

from __future__ import annotations

from typing import Any

from whatelse.types import Bools, Floats

THRESHOLDS = (0.02, 0.05, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9)


def burden(
    probability: Floats, truth: Bools, anchors: Bools, thresholds: tuple[float, ...] = THRESHOLDS
) -> list[dict[str, Any]]:
    """One entry a threshold, of V visits: probability, truth and anchors (V, m). Shares of nothing are None."""
    visits, silent = len(truth), truth & ~anchors
    out = []
    for threshold in thresholds:
        said = probability >= threshold
        made, right = int(said.sum()), int((said & truth).sum())
        out.append(
            {
                "threshold": threshold,
                "per_100_visits": 100 * made / visits,
                "true": _share(right, made),
                "reached": _share(right, int(truth.sum())),
                "reached_unnamed": _share(int((said & silent).sum()), int(silent.sum())),
                "unnamed_per_100_visits": 100 * int((said & ~anchors).sum()) / visits,
            }
        )
    return out


def _share(part: int, whole: int) -> float | None:
    return part / whole if whole else None
