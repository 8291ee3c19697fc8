"""The paper's experiment on any two cohorts: every row of its results table, its figure and its word list.

`reproduce` learns each model from the same visits with the same noise rates, and asks all of them for the same hidden
tags. It returns JSON values: the content of `results.json`, from which the report is made.
"""

from __future__ import annotations

import importlib.util
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Literal

import numpy as np

from whatelse import __version__
from whatelse.annotators import NoiseRates
from whatelse.cohort import Cohort
from whatelse.errors import CohortError, WhatelseError
from whatelse.evaluation.calibration import trust
from whatelse.evaluation.measures import compare, share_closed, top_terms
from whatelse.evaluation.rows import ELKAN_NOTO, FINAL, INIT, NAIVE, ORACLE, OURS, RANDOM, TAUGHT, TOLERANT
from whatelse.learning import learners as learning
from whatelse.learning.baselines import elkan_noto, noise_tolerant
from whatelse.learning.learners import Learned, Progress
from whatelse.learning.paper.nvil_course import (
    L2_CHOICES,
    HeldoutAnchors,
    NvilSettings,
    hold_out,
    run_course,
    run_courses,
)
from whatelse.noisyor.heldout_metrics import (
    RANKING_BUDGET,
    RANKING_TOLERANCE,
    HeldoutDraws,
    Recovery,
    Scorer,
    heldout_tag_draws,
    heldout_tag_scores,
    noisyor_scorer,
)
from whatelse.noisyor.inference.posterior import posterior
from whatelse.noisyor.joint import JointModel
from whatelse.noisyor.mle import edit_anchors
from whatelse.noisyor.params import NoisyOr
from whatelse.text import load_rules
from whatelse.types import Bools

PAIRS = (
    (NAIVE, OURS), (NAIVE, FINAL), (INIT, FINAL), (NAIVE, INIT), (RANDOM, INIT), (FINAL, OURS), (TOLERANT, OURS),
    (ELKAN_NOTO, OURS), (OURS, ORACLE), (FINAL, ORACLE),
)  # fmt: skip
Protocol = Literal["paper", "all-visits"]
TRUSTED = 3_000  # test visits whose answers are compared with the truth
Fitted = tuple[Scorer, Learned | None, list[dict[str, Any]]]
"""A model of one row: its scorer, the joint model (None for separate classifiers), NVIL's training runs."""


@dataclass(frozen=True)
class Plan:
    """How `reproduce` learns the models and asks them.

    protocol    all-visits: learn from every visit; paper: only from those with two or more true conditions
    draws       of the hidden tag
    without     rows to leave out, by name ("nvil": Noisy-or final and Random init)
    nvil        settings of NVIL; l2: the weight decays to choose from; every: epochs between two looks
    keep        folder in which NVIL keeps its training runs (courses/), so that a stopped one continues
    """

    protocol: Protocol = "all-visits"
    seed: int = 0
    draws: int = 3
    without: tuple[str, ...] = ()
    nvil: NvilSettings = field(default_factory=NvilSettings)
    l2: Sequence[float] = L2_CHOICES
    every: int = 5
    keep: Path | None = None


def reproduce(train: Cohort, test: Cohort, plan: Plan, progress: Progress | None = None) -> dict[str, Any]:
    """Learn all models, measure and compare them. Cost: that of the learners, nearly all of it for NVIL."""
    told = progress or (lambda what, done, total: None)
    learn_from, select_by, tested = _visits(train, test, plan)
    A = np.concatenate([learn_from.A, select_by.A])
    Y = np.concatenate([labels_of(learn_from), labels_of(select_by)])
    rates = NoiseRates.from_labels(A, Y, learn_from.conditions)
    draws = heldout_tag_draws(labels_of(tested), seed=plan.seed, draws=plan.draws)
    measured, left_out = Experiment(learn_from, select_by, tested, test, rates, plan, draws, told).run()
    recoveries = {name: row.recovery for name, row in measured.items()}
    rows = []
    for name, row in measured.items():
        scores = row.recovery.to_json()
        by_condition = scores.pop("by_condition")
        rows.append({"model": name, **scores, "seconds": row.seconds, "by_condition": by_condition})
    return {
        "format": "whatelse results",
        "version": 2,
        "whatelse": __version__,
        "default_learner": learning.DEFAULT,
        "data": {
            "train": _about(train, learn_from),
            "test": _about(test, tested),
            "select": len(select_by),
            "papers_negation": load_rules(train.vocabulary.rules) == load_rules("paper"),
        },
        "plan": {name: getattr(plan, name) for name in ("protocol", "seed", "draws")}
        | {"nvil": asdict(plan.nvil) | {"l2": list(plan.l2)}},
        "conditions": list(train.conditions),
        "rows": rows,
        "left_out": left_out,
        "comparisons": compare(recoveries, PAIRS, plan.seed),
        "closed": share_closed(recoveries, NAIVE, ORACLE, plan.seed),
        "terms": {name: row.terms for name, row in measured.items() if row.terms is not None},
        "rates": rates.to_json(),
        "trust": [{"model": name, **row.trust} for name, row in measured.items() if row.trust is not None],
        "courses": [course for row in measured.values() for course in row.courses],
        "seconds": sum(row.seconds for row in measured.values()),
    }


# ---- what is learned from and what is asked


def _visits(train: Cohort, test: Cohort, plan: Plan) -> tuple[Cohort, Cohort, Cohort]:
    """To learn from, to select by, and to test on: the multi-condition visits of the test cohort."""
    train.vocabulary.check_same(test.vocabulary)
    for name, cohort in (("training", train), ("test", test)):
        if cohort.Y is None or not cohort.labelled.all():
            raise CohortError(f"some visits of the {name} cohort have no labels; all rows are measured against them")
    chosen = train.multi() if plan.protocol == "paper" else train
    kept = hold_out(len(chosen), plan.seed)
    tested = test.multi()
    if not len(tested) or not kept.any():
        problem = f"{len(chosen)} visits to learn from and {len(tested)} to test on are too few"
        raise CohortError(f"{problem}: needs 10, and 1 with two or more conditions")
    return chosen.rows(~kept), chosen.rows(kept), tested


def _about(whole: Cohort, used: Cohort) -> dict[str, Any]:
    files = [Path(file).name for file in whole.about.get("files", ())]
    findings = len(whole.vocabulary.names)
    return {"visits": len(whole), "used": len(used), "findings": findings, "files": files}


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
        ways: dict[str, Callable[[], Fitted]] = {
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
            try:
                if why := self._left_out(name):
                    raise WhatelseError(why)
                measured[name] = self._measure(way)
            except WhatelseError as error:  # the other rows are still worth having
                left_out.append({"model": name, "why": str(error)})
        return measured, left_out

    def _measure(self, way: Callable[[], Fitted]) -> Measured:
        began = time.perf_counter()
        scorer, learned, courses = way()
        seconds = time.perf_counter() - began
        recovery = self._heldout(scorer, self.draws)
        if learned is None:
            return Measured(recovery, seconds, None, None, courses)
        asked = self.tested if self.plan.protocol == "paper" else self.test
        found = trust(learned.model, asked, visits=TRUSTED, seed=self.plan.seed)
        return Measured(recovery, seconds, top_terms(learned, self.visits), found, courses)

    def _heldout(self, scorer: Scorer, draws: HeldoutDraws) -> Recovery:
        return heldout_tag_scores(scorer, self.tested.X, labels_of(self.tested), draws, seed=self.plan.seed)

    def _left_out(self, name: str) -> str:
        without = {w.lower() for w in self.plan.without}
        nvil = name in (FINAL, RANDOM)
        if name.lower() in without or (nvil and "nvil" in without):
            return "left out on request"
        if nvil and importlib.util.find_spec("torch") is None:
            return "needs PyTorch, which is not installed: pip install 'whatelse[nvil]'"
        return ""

    def _by_name(self, learner: str, **settings: Any) -> Fitted:
        learned = learning.learn(self.visits, self.rates, learner, seed=self.plan.seed, progress=self.told, **settings)
        return noisyor_scorer(learned.model), learned, []

    def _separate(self, learn: Callable[..., Scorer]) -> Fitted:
        return learn(self.visits.X, self.visits.anchor_columns, self.rates, seed=self.plan.seed), None, []

    def _final(self) -> Fitted:
        """NVIL from the moments, weight decay and epoch by held-out anchors; and for the figure, without lambda."""
        _, learned, _ = self._by_name("moments")
        assert learned is not None
        given = (self.visits.X, learned.model.noisyor, self.visits.anchor_columns, self._check)
        best, courses = run_courses(*given, self.plan.nvil, self.plan.l2, self.plan.seed, **self._options)
        alone = NvilSettings(**asdict(self.plan.nvil) | {"supervised": 0.0, "l2": best.settings.l2})
        drift = run_course(*given, alone, self.plan.seed, **self._options)
        told = [c.to_json() | {"start": "moments", "selected": c is best} for c in [*courses, drift]]
        self.decay = best.settings.l2
        return noisyor_scorer(best.model), Learned(JointModel.plain(best.model), history=best.bound), told

    def _random(self) -> Fitted:
        """NVIL from random failures, with the weight decay of `_final`; no burn-in, there is nothing to keep."""
        settings = NvilSettings(**asdict(self.plan.nvil) | {"l2": self.decay, "burn_in": 0})
        start = random_start(self.visits, self.rates, self.plan.seed)
        given = (self.visits.X, start, self.visits.anchor_columns, self._check)
        course = run_course(*given, settings, self.plan.seed, **self._options)
        told = [course.to_json() | {"start": "random", "selected": False}]
        return noisyor_scorer(course.model), Learned(JointModel.plain(course.model), history=course.bound), told

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
    start = NoisyOr(rates.prior, fail, leak)
    return edit_anchors(start, cohort.anchor_columns, rates.sensitivity, rates.false_positive)


def labels_of(cohort: Cohort) -> Bools:
    """Y (N, m) of a cohort that has labels."""
    assert cohort.Y is not None, "checked by `_visits`"
    return cohort.Y
