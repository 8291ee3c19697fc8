"""trust: calibration of a model on labelled visits, as JSON values for the report, `evaluate` and the plots.

Reliability before and after a tag is known, by condition, by length of the record and where the anchor is silent; what
confirming and rejecting do to the other tags; and what each threshold costs and brings.
"""

from __future__ import annotations

import math
from dataclasses import asdict
from typing import Any

import numpy as np

from whatelse.cohort import Cohort
from whatelse.evaluation.reliability import burden, by_condition, by_length, expected_over_observed, reliability
from whatelse.evaluation.updates import answers_of, log_loss, moves, update
from whatelse.noisyor.joint import Model

VISITS = 5_000  # labelled visits that are looked at, at most


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
            {"condition": c, "observed": int(n), **asdict(r), "log_loss": float(loss)}
            for c, n, r, loss in zip(
                cohort.conditions, Y.sum(0), by_condition(before, Y), log_loss(before, Y).mean(0), strict=True
            )
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
