"""The learners by name: from a cohort and its noise rates to a joint model.

Each takes arrays out of the cohort and hands them to `noisyor/`. None but `oracle` looks at labels.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from whatelse.baselines import naive_labels, oracle
from whatelse.cohort import Cohort
from whatelse.errors import CohortError, ModelError
from whatelse.noise import NoiseRates
from whatelse.noisyor.evidence import Evidence
from whatelse.noisyor.moments import Counts, moments_model
from whatelse.noisyor.params import NoisyOr

Progress = Callable[[str, int, int], None]
"""Told (what, steps done, steps in all) while a learner works."""


@dataclass(frozen=True, eq=False)
class Learned:
    """What a learner brings home: the model, evidence to add to it (or None), and how it got there."""

    model: NoisyOr
    evidence: Evidence | None = None
    history: tuple[float, ...] = ()
    converged: bool = True
    notes: dict[str, Any] = field(default_factory=dict)


def learn_moments(cohort: Cohort, rates: NoiseRates, seed: int, progress: Progress, shrink: float = 0.0) -> Learned:
    """The paper's initialisation: moments denoised by the noise rates."""
    counts = Counts.of(cohort.X, cohort.anchor_columns)
    return Learned(
        moments_model(
            counts, rates.prior, rates.sensitivity, rates.false_positive, cohort.anchor_columns, shrink=shrink
        )
    )


def learn_naive(cohort: Cohort, rates: NoiseRates, seed: int, progress: Progress) -> Learned:
    """Anchors taken for the truth."""
    return Learned(naive_labels(cohort.X, cohort.anchor_columns, rates.prior, rates.sensitivity, rates.false_positive))


def learn_oracle(cohort: Cohort, rates: NoiseRates, seed: int, progress: Progress) -> Learned:
    """The truth itself: what learning without labels is measured against."""
    if cohort.Y is None or not cohort.labelled.all():
        raise CohortError("the oracle learns from labels, and some visits of this cohort have none")
    return Learned(oracle(cohort.X, cohort.Y, cohort.anchor_columns, rates.sensitivity, rates.false_positive))


LEARNERS: dict[str, Callable[..., Learned]] = {
    "moments": learn_moments,
    "naive": learn_naive,
    "oracle": learn_oracle,
}


def learn(
    cohort: Cohort, rates: NoiseRates, learner: str, *, seed: int = 0, progress: Progress | None = None, **settings: Any
) -> Learned:
    """Run a learner by name."""
    if learner not in LEARNERS:
        raise ModelError(f"there is no learner {learner!r}; choose one of {', '.join(sorted(LEARNERS))}")
    if rates.conditions != cohort.conditions:
        raise CohortError(
            "the noise rates are of other conditions than the cohort's: estimate them from the same conditions file"
        )
    return LEARNERS[learner](cohort, rates, seed, progress or (lambda what, done, total: None), **settings)
