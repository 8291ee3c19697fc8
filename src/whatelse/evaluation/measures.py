"""Measurements of fitted models on a cohort.

measure       everything that `whatelse evaluate` prints about one model
compare       paired differences between models on the same visits
share_closed  how much of the distance between two models the others cover
top_terms     the findings that say most for each condition
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from whatelse.cohort import Cohort
from whatelse.evaluation.calibration import VISITS, answers_of, at_threshold, trust
from whatelse.learning.learners import Learned
from whatelse.noisyor.heldout_metrics import (
    METRICS,
    Recovery,
    heldout_anchor_draws,
    heldout_anchor_scores,
    heldout_tag_draws,
    heldout_tag_scores,
    paired_test,
    resample_counts,
)
from whatelse.tagger import Tagger
from whatelse.types import Bools, Floats

TERMS = 8
RESAMPLES = 2000


def compare(
    recoveries: Mapping[str, Recovery], pairs: Sequence[tuple[str, str]], seed: int = 0
) -> list[dict[str, Any]]:
    """For each pair (a, b) that was measured: b minus a on the same visits and draws, by every metric."""
    out = []
    for a, b in pairs:
        if a not in recoveries or b not in recoveries:
            continue
        for metric in METRICS:
            left, right = recoveries[a].by_visit[metric], recoveries[b].by_visit[metric]
            found = paired_test(left, right, resamples=RESAMPLES, seed=seed)
            entry = {"from": a, "to": b, "metric": metric, "difference": found.difference}
            out.append(entry | {"interval": [found.low, found.high], "p_value": found.p_value})
    return out


def share_closed(recoveries: Mapping[str, Recovery], low: str, high: str, seed: int = 0) -> list[dict[str, Any]]:
    """How much of the distance from `low` to `high` each other model covers, with bootstrap intervals over visits.

    A ratio of two differences: where low and high are close its interval is wide, and where they are the other way
    round it means nothing and is left out.
    """
    if low not in recoveries or high not in recoveries:
        return []
    counts = np.stack(list(resample_counts(recoveries[low].visits, RESAMPLES, seed)))
    out = []
    for metric in METRICS:
        floor, ceiling = recoveries[low].by_visit[metric], recoveries[high].by_visit[metric]
        if ceiling.mean() <= floor.mean():
            continue
        spans = counts @ (ceiling - floor)
        for name, recovery in recoveries.items():
            if name in (low, high):
                continue
            gain = recovery.by_visit[metric] - floor
            drawn = (counts @ gain)[spans > 0] / spans[spans > 0]
            limits = np.quantile(drawn, [0.025, 0.975])
            share = float(gain.mean() / (ceiling - floor).mean())
            out.append({"model": name, "metric": metric, "share": share, "interval": limits.tolist()})
    return out


def top_terms(learned: Learned, cohort: Cohort, most: int = TERMS) -> list[dict[str, Any]]:
    """For each condition the findings with the lowest failure probability, anchors apart, and those with the largest
    weight in the evidence where there is any. (A rare word can have a low failure by chance: counts are given.)"""
    ordinary = np.setdiff1d(np.arange(len(cohort.vocabulary.names)), cohort.anchor_columns)
    names, counts = cohort.vocabulary.names, cohort.vocabulary.counts

    def terms(name: str, value: Floats, rank: Floats, stays: Bools) -> list[dict[str, Any]]:
        """The findings of the `most` lowest ranks, those of them that stay; each (n,) over the ordinary findings."""
        chosen = [j for j in np.argsort(rank, kind="stable")[:most] if stays[j]]
        return [
            {"finding": names[ordinary[j]], name: float(value[j]), "visits": int(counts[ordinary[j]])} for j in chosen
        ]

    out = []
    for i, condition in enumerate(cohort.conditions):
        fail, weight = learned.model.noisyor.fail[i, ordinary], learned.model.evidence.weight[i, ordinary]
        entry: dict[str, Any] = {"condition": condition, "terms": terms("fail", fail, fail, fail < 1)}
        if weight.any():
            entry["evidence"] = terms("weight", weight, -weight, weight > 0)
        out.append(entry)
    return out


def measure(tagger: Tagger, cohort: Cohort, *, draws: int = 3, seed: int = 0, threshold: float = 0.5) -> dict[str, Any]:
    """All measurements of a learned model on a cohort.

    Held-out tag, calibration and the scores of each condition at a threshold need labels; held-out anchor does not.
    Cost: a posterior for each hidden anchor and some for each of 5,000 visits.
    """
    tagger.vocabulary_.check_same(cohort.vocabulary)
    out: dict[str, Any] = {"visits": len(cohort), "conditions": list(tagger.conditions_), "heldout_tag": None}
    if cohort.Y is not None and (cohort.Y.sum(1) >= 2).any():
        hidden = heldout_tag_draws(cohort.Y, seed=seed, draws=draws)
        out["heldout_tag"] = heldout_tag_scores(tagger.heldout_tag, cohort.X, cohort.Y, hidden, seed=seed).to_json()
    anchors = heldout_anchor_draws(cohort.A, seed=seed, draws=draws)
    scores = heldout_anchor_scores(tagger.model_, cohort.X, cohort.anchor_columns, anchors, seed=seed)
    out["heldout_anchor"] = scores.to_json()
    out["trust"] = trust(tagger.model_, cohort, seed=seed)
    out |= {"threshold": threshold, "by_condition": None}
    if cohort.Y is not None and cohort.known.any():
        some = np.sort(np.random.default_rng(seed).permutation(np.flatnonzero(cohort.known.any(1)))[:VISITS])
        probability = answers_of(tagger.model_)(cohort.X[some], None, None)
        out["by_condition"] = at_threshold(probability, cohort.Y[some], cohort.known[some], threshold)
    return out
