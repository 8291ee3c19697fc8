"""The learners by name: from a cohort and its noise rates to a joint model.

Each takes arrays out of the cohort and hands them to `noisyor/`. Only `oracle` looks at labels, and
`anchored` where it is told to.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

import numpy as np

from whatelse.annotators import NoiseRates
from whatelse.cohort import Cohort
from whatelse.errors import CohortError, ModelError
from whatelse.learning.baselines import naive_labels, oracle
from whatelse.learning.em import fit_em
from whatelse.learning.paper.moments import Counts, moments_model
from whatelse.learning.paper.nvil_course import (
    HELD_OUT,
    L2_CHOICES,
    HeldoutAnchors,
    NvilSettings,
    hold_out,
    run_courses,
)
from whatelse.noisyor.anchored.excuses import refuted
from whatelse.noisyor.anchored.learner import fit_anchored
from whatelse.noisyor.blocks import finding_counts
from whatelse.noisyor.heldout_metrics import PairedTest, heldout_anchor_draws, heldout_anchor_scores, paired_test
from whatelse.noisyor.joint import JointModel, Model
from whatelse.noisyor.rates import Rates
from whatelse.noisyor.taught.learner import fit_labels
from whatelse.types import Bools, Floats

EM_STEPS = 30
EDGE_PRICE = 1.0  # what an edge must be worth, in standard errors
COUNTED = 3_000  # visits whose conditions are counted where people may have erred
TRIAL_VISITS, TRIAL_STEPS, TRIAL_JUDGES = 30_000, 3, 2_000
Progress = Callable[[str, int, int], None]
"""Told (what, steps done, steps in all) while a learner works."""


@dataclass(frozen=True, eq=False)
class Learned:
    """What a learner brings home: the joint model, and how the learner got there."""

    model: JointModel
    history: tuple[float, ...] = ()
    converged: bool = True
    notes: dict[str, Any] = field(default_factory=dict)


def learn_anchored(
    cohort: Cohort,
    rates: NoiseRates,
    seed: int,
    progress: Progress,
    labels: bool = False,
    weights: Any = None,
    belief: Any = None,
    no_excuse: Sequence[tuple[str, str]] = (),
) -> Learned:
    """The default (docs/learning.md): what anchors teach and, with `labels`, what the cohort's labels add to it.

    weights  (N,) or (N, m) how many visits each label stands for (`label-next`), NaN or 0 where there is none; None:
             labelled visits were chosen at random
    belief   (N, m) the chance that each label is true by what was said alone, where those who labelled may have erred,
             as if it were as likely as not before; None: labels are true
    no_excuse  (condition, finding) pairs: the finding may not excuse the condition's anchor
    """
    rows, part = cohort.labelled_part() if labels else (np.zeros(0, np.intp), None)
    taught = part is not None and part.Y is not None and len(rows) > 0
    refused = _refused(cohort, part if taught else None, no_excuse)
    learned = _from_anchors(cohort, rates, seed, progress, refused, assumed=labels and not taught)
    if part is None or part.Y is None or not taught:
        return learned
    progress("learning from labels", 0, 1)
    weight = None if weights is None else np.nan_to_num(np.asarray(weights, float)[rows])
    among = None
    if belief is not None:
        some = np.sort(np.random.default_rng(seed).permutation(len(cohort))[:COUNTED])
        among = cohort.rows(some).X, float(rates.prior.sum())
    lesson = fit_labels(
        learned.model, cohort.anchor_columns, part.X, part.Y if belief is None else belief[rows], part.known,
        weight=weight, centre=finding_counts(cohort.X, cohort.X.shape[1]) / len(cohort), among=among, seed=seed,
    )  # fmt: skip
    told = {
        "labelled_visits": len(rows),
        "precision": lesson.taught.precision,
        "scale_of_anchors_evidence": float(lesson.taught.scale.mean()),
        "weight_of_findings": lesson.taught.kappa,
        "curve": lesson.shape.curve.tolist(),
    }
    return Learned(lesson.model, learned.history, learned.converged, learned.notes | {"labels": told})


def _refused(cohort: Cohort, part: Cohort | None, no_excuse: Sequence[tuple[str, str]]) -> Bools:
    """(m, n) bool: what may not excuse, because a person or, where they may be looked at, the labels say so."""
    refused = np.zeros((len(cohort.conditions), cohort.X.shape[1]), bool)
    if part is not None and part.Y is not None:
        refused |= refuted(part.X, cohort.anchor_columns, part.Y, part.known)
    for condition, finding in no_excuse:
        if condition not in cohort.conditions or finding not in cohort.vocabulary.index:
            raise CohortError(
                f"no_excuse names {condition!r} and {finding!r}: needs a condition and a finding of the cohort"
            )
        refused[cohort.conditions.index(condition), cohort.vocabulary.index[finding]] = True
    return refused


def _from_anchors(
    cohort: Cohort, rates: NoiseRates, seed: int, progress: Progress, refused: Bools, assumed: bool
) -> Learned:
    """Without labels. Where likelihood can be trusted, EM; elsewhere what hidden anchors teach.

    EM climbs the likelihood of the noisy-or. On visits that obey the model this makes it better, and held-out anchors
    show it; on others it drifts, and they show that too: a trial decides, without labels.
    """
    trial = _em_trial(cohort, rates, seed, progress)
    notes: dict[str, Any] = {
        "em_trial": {name: {"held_out_anchors_gain": t.difference, "low": t.low} for name, t in trial.items()}
    }
    if all(test.low > 0 for test in trial.values()):
        progress("learning by EM", 0, EM_STEPS)
        fit = fit_em(
            cohort.X, learn_naive(cohort, rates, seed, progress).model.noisyor, steps=EM_STEPS, sparsity=EDGE_PRICE,
            on_step=lambda step, model: progress("learning by EM", step.step, EM_STEPS),
        )  # fmt: skip
        return Learned(JointModel.plain(fit.model), tuple(step.bound for step in fit.history), fit.converged, notes)
    anchored = fit_anchored(
        cohort.X, cohort.anchor_columns, arrays(rates), refused=refused, assumed=assumed, seed=seed, on_step=progress
    )
    names = cohort.vocabulary.names
    notes |= {
        "weight_of_findings": anchored.kappa,
        "linear_evidence": anchored.linear,
        "gain_on_silent_cases": anchored.silent_gain,
        "excuses": {
            condition: [names[j] for j in np.flatnonzero(row)]
            for condition, row in zip(cohort.conditions, anchored.model.evidence.excuse, strict=True)
            if row.any()
        },
    }
    return Learned(anchored.model, anchored.history, anchored.converged, notes)


def _em_trial(cohort: Cohort, rates: NoiseRates, seed: int, progress: Progress) -> dict[str, PairedTest]:
    """How much better than others a few steps of EM, on part of the visits, find held-out anchors of the rest.

    Better than naive labels, from which it starts, and if so, better than what hidden anchors teach.
    """
    progress("trying EM", 0, 1)
    order = np.random.default_rng(seed).permutation(len(cohort))[:TRIAL_VISITS]
    some = np.sort(order)
    drawn = cohort.rows(some)  # at once: visits may lie far away
    learn, judge = (
        drawn.rows(np.searchsorted(some, np.sort(part))) for part in np.split(order, [len(order) // 3])[::-1]
    )
    draws = heldout_anchor_draws(judge.A, seed=seed, visits=TRIAL_JUDGES)

    def found(model: Model) -> Floats:
        scores = heldout_anchor_scores(model, judge.X, judge.anchor_columns, draws, resamples=1)
        return scores.by_visit["mrr"]

    naive = learn_naive(learn, rates, seed, progress).model.noisyor
    climbed = found(fit_em(learn.X, naive, steps=TRIAL_STEPS, sparsity=EDGE_PRICE).model)
    tests = {"naive labels": paired_test(found(naive), climbed, resamples=1000, seed=seed)}
    if tests["naive labels"].low > 0:
        other = fit_anchored(learn.X, learn.anchor_columns, arrays(rates), linear=False, seed=seed)
        tests["hidden anchors"] = paired_test(found(other.model), climbed, resamples=1000, seed=seed)
    return tests


def learn_moments(cohort: Cohort, rates: NoiseRates, seed: int, progress: Progress, shrink: float = 0.0) -> Learned:
    """The paper's initialisation: moments denoised by the noise rates."""
    counts = Counts.of(cohort.X, cohort.anchor_columns)
    return Learned(JointModel.plain(moments_model(counts, arrays(rates), cohort.anchor_columns, shrink=shrink)))


def learn_naive(cohort: Cohort, rates: NoiseRates, seed: int, progress: Progress) -> Learned:
    """Anchors taken for the truth."""
    return Learned(JointModel.plain(naive_labels(cohort.X, cohort.anchor_columns, arrays(rates))))


def learn_oracle(cohort: Cohort, rates: NoiseRates, seed: int, progress: Progress) -> Learned:
    """The truth itself: what learning without labels is measured against."""
    if not cohort.fully_labelled:
        raise CohortError("the oracle learns from labels, and some visits of this cohort have none")
    return Learned(JointModel.plain(oracle(cohort.X, cohort.Y, cohort.anchor_columns, arrays(rates))))


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


def arrays(rates: NoiseRates) -> Rates:
    """Noise rates without the conditions' names."""
    return Rates(rates.prior, rates.sensitivity, rates.false_positive)


LEARNERS: dict[str, Callable[..., Learned]] = {
    "anchored": learn_anchored,
    "moments": learn_moments,
    "naive": learn_naive,
    "oracle": learn_oracle,
    "nvil": learn_nvil,
}
DEFAULT = "anchored"


def learn(
    cohort: Cohort, rates: NoiseRates, learner: str, *, seed: int = 0, progress: Progress | None = None, **settings: Any
) -> Learned:
    """Run a learner by name."""
    if learner not in LEARNERS:
        raise ModelError(f"there is no learner {learner!r}; choose one of {', '.join(sorted(LEARNERS))}")
    rates = rates.named(cohort.conditions)
    if rates.conditions != cohort.conditions:
        raise CohortError(
            "the noise rates are of other conditions than the cohort's: estimate them from the same conditions file"
        )
    if learner != "oracle" and rates.uninformative:
        raise ModelError(
            f"the anchor of {rates.uninformative[0]!r} fires no more often with the condition than without: nothing "
            "can be learned from it; choose another anchor ('whatelse anchors check' shows what it does), or see "
            "whether its labels are upside down"
        )
    takes = inspect.signature(LEARNERS[learner]).parameters
    own = [name for name in takes if name not in ("cohort", "rates", "seed", "progress", "settings")]
    if "settings" not in takes and (unknown := sorted(set(settings) - set(own))):
        raise ModelError(f"learner {learner!r} has no setting {unknown[0]!r}; it has {', '.join(own) or 'none'}")
    return LEARNERS[learner](cohort, rates, seed, progress or (lambda what, done, total: None), **settings)
