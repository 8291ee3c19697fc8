"""The learners by name: from a cohort and its noise rates to a joint model.

Only `oracle` uses labels, and `joint`, the default, with `labels=True`.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

import numpy as np
from scipy.sparse import csr_matrix
from threadpoolctl import threadpool_limits

from whatelse.annotators import NoiseRates
from whatelse.cohort import Cohort
from whatelse.errors import CohortError, ModelError
from whatelse.knowledge import load_knowledge
from whatelse.learning.baselines import naive_labels, oracle
from whatelse.learning.joint import Fit, fit_joint, typical_rates
from whatelse.learning.objective import Labels
from whatelse.learning.paper.moments import Counts, moments_model
from whatelse.learning.paper.nvil_course import (
    HELD_OUT,
    L2_CHOICES,
    HeldoutAnchors,
    NvilSettings,
    hold_out,
    run_courses,
)
from whatelse.learning.prior import Prior, prior_of
from whatelse.noisyor.blocks import finding_counts
from whatelse.noisyor.joint import JointModel

MOVED, MOST_MOVED = 0.3, 30  # log odds from which a weight differs from what is written; how many are kept
Progress = Callable[[str, int, int], None]
"""Told (what, steps done, steps in all) while a learner works."""


@dataclass(frozen=True, eq=False)
class Learned:
    """Result of a learner: the joint model, its objective at each step, whether it converged, notes for the file."""

    model: JointModel
    history: tuple[float, ...] = ()
    converged: bool = True
    notes: dict[str, Any] = field(default_factory=dict)
    rates: NoiseRates | None = None


def learn_joint(
    cohort: Cohort,
    rates: NoiseRates,
    seed: int,
    progress: Progress,
    labels: bool = False,
    weights: Any = None,
    belief: Any = None,
    knowledge: bool = True,
) -> Learned:
    """The default (docs/learning.md): knowledge, anchors and, with `labels`, the cohort's labels in one objective.

    weights    (N,) or (N, m) visits that each label stands for (`label-next`), NaN or 0 where there is none; None:
               labelled visits were chosen at random
    belief     (N, m) likelihood of each label given its annotators, as a probability under a 50/50 prior; None: labels
               are true
    knowledge  whether the knowledge base is the prior; else all prior means are zero
    """
    n, vocabulary = cohort.X.shape[1], cohort.vocabulary
    progress("reading the knowledge base", 0, 1)
    prior = prior_of(vocabulary, load_knowledge()) if knowledge else Prior.flat(vocabulary)
    lesson, known = (_labels(cohort, weights, belief) if labels else None), None
    if lesson is not None:
        known = lesson.weight > 0
    if labels:
        fires = finding_counts(cohort.X, n)[cohort.anchor_columns] / max(len(cohort), 1)
        anchor_rates, share = typical_rates(fires, prior.anchor, prior.share)
    else:
        anchor_rates, share = np.array([rates.sensitivity, rates.false_positive]), rates.prior
    columns = cohort.anchor_columns.astype(np.int64)
    with threadpool_limits(1, "blas"):  # sums by several threads differ in their last bits
        fit = fit_joint(cohort.X, columns, prior, anchor_rates, share, lesson, known, on_step=progress)
    notes: dict[str, Any] = {"knowledge": _kept(cohort, prior, fit)}
    if lesson is not None:
        notes["labels"] = {"labelled_visits": lesson.belief.shape[0]}
    found = NoiseRates(share, fit.rates[0], np.minimum(fit.rates[1], 0.999 * fit.rates[0]), cohort.conditions)
    return Learned(fit.model, fit.history, fit.converged, notes, found)


def _labels(cohort: Cohort, weights: Any, belief: Any) -> Labels | None:
    """The labelled visits of a cohort; weights are scaled to a mean of one."""
    rows, part = cohort.labelled_part()
    if part.Y is None or not len(rows) or not part.known.any():
        return None
    value = part.Y.astype(float) if belief is None else np.asarray(belief, float)[rows]
    weight = np.ones(part.known.shape)
    if weights is not None:
        given = np.nan_to_num(np.asarray(weights, float)[rows])
        weight = np.broadcast_to(given[:, None] if given.ndim == 1 else given, weight.shape)
    weight = np.where(part.known, weight, 0.0)
    if not (weight > 0).any():
        return None
    value, company = (np.where(part.known, each, 0.0) for each in (value, part.Y))
    return Labels(csr_matrix(part.X, dtype=float), value, weight / weight[weight > 0].mean(), company)


def _kept(cohort: Cohort, prior: Prior, fit: Fit) -> dict[str, Any]:
    """How learning changed the knowledge: scale, spread, and the findings whose weights moved most."""
    p = fit.parameters
    written = fit.weight - p.D
    moved = np.where(prior.known, np.abs(p.D), 0.0)
    count = int((moved > MOVED).sum())
    order = np.argsort(-moved, axis=None, kind="stable")[: min(count, MOST_MOVED)]
    names = cohort.vocabulary.names
    cells = [divmod(int(k), moved.shape[1]) for k in order]
    return {
        "conditions": sum(1 for entries in prior.entries if entries),
        "findings": int(prior.known.sum()),
        "pairs": int((np.triu(prior.coupling) != 0).sum()),
        "scale": [round(float(s), 3) for s in p.s],
        "spread": [round(s, 3) for s in fit.spread],
        "moved": count,
        "most_moved": [
            [cohort.conditions[i], names[j], round(float(written[i, j]), 2), round(float(fit.weight[i, j]), 2)]
            for i, j in cells
        ],
    }


def learn_moments(cohort: Cohort, rates: NoiseRates, seed: int, progress: Progress) -> Learned:
    """The paper's initialisation: moments denoised by the noise rates."""
    counts = Counts.of(cohort.X, cohort.anchor_columns)
    return Learned(JointModel.plain(moments_model(counts, rates, cohort.anchor_columns)))


def learn_naive(cohort: Cohort, rates: NoiseRates, seed: int, progress: Progress) -> Learned:
    """Maximum likelihood with anchors used as labels."""
    return Learned(JointModel.plain(naive_labels(cohort.X, cohort.anchor_columns, rates)))


def learn_oracle(cohort: Cohort, rates: NoiseRates, seed: int, progress: Progress) -> Learned:
    """Maximum likelihood from complete labels: the upper bound for learning without labels."""
    if not cohort.fully_labelled:
        raise CohortError("the oracle learns from labels, and some visits of this cohort have none")
    return Learned(JointModel.plain(oracle(cohort.X, cohort.Y, cohort.anchor_columns, rates)))


def learn_nvil(
    cohort: Cohort,
    rates: NoiseRates,
    seed: int,
    progress: Progress,
    l2: float | Sequence[float] = L2_CHOICES,
    held_out: int = HELD_OUT,
    every: int = 5,
    checkpoint: str | None = None,
    **settings: Any,
) -> Learned:
    """The paper's learner, from the moments; epoch and weight decay by held-out anchors. Needs the extra `nvil`.

    Further settings are those of `NvilSettings`. In the folder `checkpoint` a stopped run goes on where it was.
    """
    known = [f.name for f in fields(NvilSettings) if f.name != "l2"]
    if unknown := sorted(set(settings) - set(known)):
        raise ModelError(f"NVIL has no setting {unknown[0]!r}; it has {', '.join(known)}")
    kept = hold_out(len(cohort), seed, held_out)
    visits, columns = cohort.rows(~kept), cohort.anchor_columns
    start = learn_moments(visits, rates, seed, progress).model.noisyor
    best, _ = run_courses(
        visits.X,
        start,
        columns,
        HeldoutAnchors(cohort.X[kept], columns, seed),
        NvilSettings(**settings),
        [l2] if isinstance(l2, int | float) else l2,
        seed,
        every=every,
        checkpoint=Path(checkpoint) if checkpoint is not None else None,
        told=progress,
    )
    notes = {"l2": best.settings.l2, "epoch": best.best, "heldout_anchor_mrr": best.score}
    # the paper stops by held-out anchors; still rising at the last look means that more epochs would go on helping
    return Learned(
        JointModel.plain(best.model), history=best.bound, converged=best.best < best.checked[-1], notes=notes
    )


LEARNERS: dict[str, Callable[..., Learned]] = {
    "joint": learn_joint,
    "moments": learn_moments,
    "naive": learn_naive,
    "oracle": learn_oracle,
    "nvil": learn_nvil,
}
DEFAULT = "joint"
RENAMED = {"anchored": DEFAULT}  # names of 0.2


def learn(
    cohort: Cohort, rates: NoiseRates, learner: str, *, seed: int = 0, progress: Progress | None = None, **settings: Any
) -> Learned:
    """Run a learner by name."""
    learner = RENAMED.get(learner, learner)
    if learner not in LEARNERS:
        raise ModelError(f"there is no learner {learner!r}; choose one of {', '.join(sorted(LEARNERS))}")
    rates = rates.named(cohort.conditions)
    if rates.conditions != cohort.conditions:
        raise CohortError(
            "the noise rates are of other conditions than the cohort's: estimate them from the same conditions file"
        )
    if learner != "oracle":
        rates.informative()
    takes = inspect.signature(LEARNERS[learner]).parameters
    own = [name for name in takes if name not in ("cohort", "rates", "seed", "progress", "settings")]
    if "settings" not in takes and (unknown := sorted(set(settings) - set(own))):
        raise ModelError(f"learner {learner!r} has no setting {unknown[0]!r}; it has {', '.join(own) or 'none'}")
    return LEARNERS[learner](cohort, rates, seed, progress or (lambda what, done, total: None), **settings)
