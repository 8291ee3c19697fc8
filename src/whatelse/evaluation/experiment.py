"""Experiment: fits every model of the results table on the same visits and measures its held-out tags."""

from __future__ import annotations

import importlib.util
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Literal

import numpy as np

from whatelse.annotators import NoiseRates
from whatelse.cohort import Cohort
from whatelse.errors import CohortError, WhatelseError
from whatelse.evaluation.calibration import trust
from whatelse.evaluation.measures import top_terms
from whatelse.evaluation.rows import ELKAN_NOTO, FINAL, INIT, NAIVE, ORACLE, OURS, RANDOM, TAUGHT, TOLERANT
from whatelse.learning import learners as learning
from whatelse.learning.baselines import elkan_noto, noise_tolerant
from whatelse.learning.learners import Learned, Progress
from whatelse.learning.paper.nvil_course import L2_CHOICES, HeldoutAnchors, NvilSettings, run_course, run_courses
from whatelse.noisyor.heldout_metrics import (
    RANKING_BUDGET,
    RANKING_TOLERANCE,
    HeldoutDraws,
    Recovery,
    Scorer,
    heldout_tag_scores,
    noisyor_scorer,
)
from whatelse.noisyor.inference.posterior import posterior
from whatelse.noisyor.joint import JointModel
from whatelse.noisyor.mle import edit_anchors
from whatelse.noisyor.params import NoisyOr
from whatelse.types import Bools

Protocol = Literal["paper", "all-visits"]
TRUSTED = 3_000  # test visits whose answers are compared with the truth


@dataclass(frozen=True)
class Plan:
    """How `reproduce` learns the models and asks them.

    protocol    all-visits: learn from every visit; paper: only from those with two or more true conditions
    few_labels  noise rates from so many labelled visits, at random; None: from the labels of all that are learned from
    draws       of the hidden tag
    without     rows to leave out, by name ("nvil": Noisy-or final and Random init)
    nvil        settings of NVIL; l2: the weight decays to choose from; every: epochs between two looks
    keep        folder in which NVIL keeps its training runs (courses/), so that a stopped one continues
    """

    protocol: Protocol = "all-visits"
    few_labels: int | None = None
    seed: int = 0
    draws: int = 3
    without: tuple[str, ...] = ()
    nvil: NvilSettings = field(default_factory=NvilSettings)
    l2: Sequence[float] = L2_CHOICES
    every: int = 5
    keep: Path | None = None


@dataclass(frozen=True, eq=False)
class FittedRow:
    """A fitted model of one row.

    scorer   answers which tag is hidden
    learned  the joint model; None for separate classifiers
    courses  NVIL's training runs, for the figure
    """

    scorer: Scorer
    learned: Learned | None = None
    courses: list[dict[str, Any]] = field(default_factory=list)


@dataclass(frozen=True, eq=False)
class Measured:
    """A row of the results table: how often the model found hidden tags, and in how many seconds it was learned.

    terms    the words with the largest weights; trust: calibration on test visits; None for separate classifiers
    courses  NVIL's training runs
    """

    recovery: Recovery
    seconds: float
    terms: list[dict[str, Any]] | None
    trust: dict[str, Any] | None
    courses: list[dict[str, Any]]


@dataclass(eq=False)
class Experiment:
    """Learns every model from `visits` with the noise rates `rates`, and asks it for the hidden tags of `tested`.

    select_by  visits by which NVIL's epoch and weight decay are chosen
    test       the whole test cohort, to measure calibration under the protocol of all visits
    draws      the hidden tags, the same for all models
    """

    visits: Cohort
    select_by: Cohort
    tested: Cohort
    test: Cohort
    rates: NoiseRates
    plan: Plan
    draws: HeldoutDraws
    told: Progress
    decay: float = 0.0  # NVIL's weight decay as chosen for Noisy-or final

    def run(self) -> tuple[dict[str, Measured], list[dict[str, str]]]:
        """The rows by name; and those that are left out or failed, with the reason."""
        ways: dict[str, Callable[[], FittedRow]] = {
            TOLERANT: lambda: self._separate(noise_tolerant),
            ELKAN_NOTO: lambda: self._separate(elkan_noto),
            NAIVE: lambda: self._by_name("naive"),
            INIT: lambda: self._by_name("moments"),
            FINAL: self._final,
            RANDOM: self._random,  # after the other, whose weight decay it takes
            OURS: lambda: self._by_name(learning.DEFAULT),
            TAUGHT: lambda: self._by_name(learning.DEFAULT, labels=True),
            ORACLE: lambda: self._by_name("oracle"),
        }
        measured, left_out = {}, []
        for done, (name, way) in enumerate(ways.items()):
            self.told(name, done, len(ways))
            why = self._left_out(name)
            if not why:
                try:
                    measured[name] = self._measure(way)
                except WhatelseError as error:  # the other rows are still worth having
                    why = str(error)
            if why:
                left_out.append({"model": name, "why": why})
        return measured, left_out

    def _measure(self, way: Callable[[], FittedRow]) -> Measured:
        began = time.perf_counter()
        made = way()
        seconds = time.perf_counter() - began
        recovery = self._heldout(made.scorer, self.draws)
        if made.learned is None:
            return Measured(recovery, seconds, None, None, made.courses)
        asked = self.tested if self.plan.protocol == "paper" else self.test
        found = trust(made.learned.model, asked, visits=TRUSTED, seed=self.plan.seed)
        return Measured(recovery, seconds, top_terms(made.learned, self.visits), found, made.courses)

    def _heldout(self, scorer: Scorer, draws: HeldoutDraws) -> Recovery:
        return heldout_tag_scores(scorer, self.tested.X, labels_of(self.tested), draws, seed=self.plan.seed)

    def _left_out(self, name: str) -> str:
        without = {w.lower() for w in self.plan.without}
        nvil = name in (FINAL, RANDOM)
        if name.lower() in without or (nvil and "nvil" in without):
            return "left out on request"
        if name == TAUGHT and self.plan.few_labels:
            return "it learns from every label of the training visits, and few were asked for"
        if nvil and importlib.util.find_spec("torch") is None:
            return "needs PyTorch, which is not installed: pip install 'whatelse[nvil]'"
        return ""

    def _by_name(self, learner: str, **settings: Any) -> FittedRow:
        learned = learning.learn(self.visits, self.rates, learner, seed=self.plan.seed, progress=self.told, **settings)
        return FittedRow(noisyor_scorer(learned.model), learned)

    def _separate(self, learn: Callable[..., Scorer]) -> FittedRow:
        return FittedRow(learn(self.visits.X, self.visits.anchor_columns, self.rates, seed=self.plan.seed))

    def _final(self) -> FittedRow:
        """NVIL from the moments, weight decay and epoch by held-out anchors; and for the figure, without lambda."""
        learned = self._by_name("moments").learned
        assert learned is not None
        given = (self.visits.X, learned.model.noisyor, self.visits.anchor_columns, self._check)
        best, courses = run_courses(*given, self.plan.nvil, self.plan.l2, self.plan.seed, **self._options)
        alone = NvilSettings(**asdict(self.plan.nvil) | {"supervised": 0.0, "l2": best.settings.l2})
        drift = run_course(*given, alone, self.plan.seed, **self._options)
        told = [c.to_json() | {"start": "moments", "selected": c is best} for c in [*courses, drift]]
        self.decay = best.settings.l2
        return FittedRow(noisyor_scorer(best.model), Learned(JointModel.plain(best.model), history=best.bound), told)

    def _random(self) -> FittedRow:
        """NVIL from random failures, with the weight decay of `_final`; no burn-in, there is nothing to keep."""
        settings = NvilSettings(**asdict(self.plan.nvil) | {"l2": self.decay, "burn_in": 0})
        start = random_start(self.visits, self.rates, self.plan.seed)
        course = run_course(
            self.visits.X, start, self.visits.anchor_columns, self._check, settings, self.plan.seed, **self._options
        )
        told = [course.to_json() | {"start": "random", "selected": False}]
        return FittedRow(
            noisyor_scorer(course.model), Learned(JointModel.plain(course.model), history=course.bound), told
        )

    @property
    def _check(self) -> HeldoutAnchors:
        return HeldoutAnchors(self.select_by.X, self.visits.anchor_columns.astype(np.int64), self.plan.seed)

    @property
    def _options(self) -> dict[str, Any]:
        folder = self.plan.keep / "courses" if self.plan.keep else None
        return {"every": self.plan.every, "watch": self._watch, "checkpoint": folder, "told": self.told}

    def _watch(self, model: NoisyOr) -> dict[str, float]:
        """For the figure; selection never sees it. The likelihood is of visits that were not learned from.

        tag         accuracy of the held-out tag, by one draw
        likelihood  mean of log P(x) over the visits kept apart to select by
        """
        first = HeldoutDraws(self.draws.rows, self.draws.hidden[:1])
        found = posterior(model, self.select_by.X, tolerance=RANKING_TOLERANCE, budget=RANKING_BUDGET, top=0)
        return {
            "tag": self._heldout(noisyor_scorer(model), first).accuracy.value,
            "likelihood": float(found.log_evidence.mean()),
        }


def random_start(cohort: Cohort, rates: NoiseRates, seed: int) -> NoisyOr:
    """A model that knows how common each finding is and nothing of its causes; anchors as the noise rates say.

    1 - f_ij is a uniform random share of the finding's own rate q_j, and leaks make the rates come out:
    1 - l_j = (1 - q_j) / prod_i (1 - pi_i + pi_i f_ij).
    """
    rng = np.random.default_rng(seed)
    q = np.clip(cohort.X.getnnz(axis=0) / len(cohort), 1e-4, 1 - 1e-4)
    fail = 1 - rng.random((len(cohort.conditions), len(q))) * q
    quiet = np.prod(1 - rates.prior[:, None] * (1 - fail), axis=0)
    leak = np.clip(1 - (1 - q) / quiet, 1e-7, 1.0)
    return edit_anchors(
        NoisyOr(rates.prior, fail, leak), cohort.anchor_columns, rates.sensitivity, rates.false_positive
    )


def labels_of(cohort: Cohort) -> Bools:
    """Y (N, m) of a cohort that has labels."""
    if cohort.Y is None:
        raise CohortError("this cohort has no labels")
    return cohort.Y
