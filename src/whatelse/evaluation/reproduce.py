"""The paper's experiment on any two cohorts: every row of its results table, its figure and its word list.

`reproduce` learns each model from the same visits, told the same noise rates, and asks all of them for the same hidden
tags. Its answer is a dictionary of JSON values, which is `results.json` and all that the report is made from.
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
from whatelse.anchors import NoiseRates
from whatelse.cohort import Cohort
from whatelse.errors import CohortError, WhatelseError
from whatelse.evaluation.measures import calibrations, compare, share_closed, top_terms
from whatelse.learning import learners as learning
from whatelse.learning.baselines import noise_tolerant
from whatelse.learning.learners import Learned, Progress
from whatelse.learning.nvil_course import L2_CHOICES, AnchorCheck, NvilSettings, hold_out, run_course, run_courses
from whatelse.noisyor.joint import JointModel
from whatelse.noisyor.mle import edit_anchors
from whatelse.noisyor.params import NoisyOr
from whatelse.noisyor.recovery import Draws, Scorer, heldout_tag_draws, heldout_tag_scores, noisyor_scorer, ranking

Protocol = Literal["paper", "all-visits"]

TOLERANT, NAIVE, INIT, FINAL, ORACLE, RANDOM, OURS = ROWS = (
    "Noise tolerant classifiers",
    "Naive labels",
    "Noisy-or init",
    "Noisy-or final",
    "Noisy-or oracle MLE",
    "Random init",
    "whatelse",
)
PAIRS = (
    (NAIVE, OURS), (NAIVE, FINAL), (INIT, FINAL), (NAIVE, INIT), (RANDOM, INIT), (FINAL, OURS), (TOLERANT, OURS),
    (OURS, ORACLE), (FINAL, ORACLE),
)  # fmt: skip


@dataclass(frozen=True)
class Plan:
    """How to run it.

    protocol    all-visits: learn from every visit; paper: only from those with two or more true conditions
    few_labels  noise rates from so many labelled visits, at random; None: from the labels of all that are learned from
    draws       of the hidden tag
    without     rows to leave out, by name ("nvil": Noisy-or final and Random init)
    nvil        settings of NVIL; l2: the weight decays to choose from; every: epochs between two looks
    checkpoint  folder in which stopped NVIL courses go on
    """

    protocol: Protocol = "all-visits"
    few_labels: int | None = None
    seed: int = 0
    draws: int = 3
    without: tuple[str, ...] = ()
    nvil: NvilSettings = field(default_factory=NvilSettings)
    l2: Sequence[float] = L2_CHOICES
    every: int = 5
    checkpoint: Path | None = None


@dataclass(frozen=True, eq=False)
class Made:
    """A row's model: a scorer, and the joint model where there is one."""

    scorer: Scorer
    learned: Learned | None = None


def reproduce(train: Cohort, test: Cohort, plan: Plan, progress: Progress | None = None) -> dict[str, Any]:
    """Learn, ask, compare. Cost: that of the learners; NVIL takes all but a few seconds of it."""
    began = time.perf_counter()
    told = progress or (lambda what, done, total: None)
    learn_from, select_by, tested = _visits(train, test, plan)
    rates = _rates(learn_from, select_by, plan)
    draws = heldout_tag_draws(_labels(tested), seed=plan.seed, draws=plan.draws)
    bench = _Bench(learn_from, select_by, tested, rates, plan, draws, told)
    made, seconds, left_out = bench.make()

    recoveries = {}
    for done, (name, model) in enumerate(made.items()):
        told("asking for hidden tags", done, len(made))
        recoveries[name] = heldout_tag_scores(model.scorer, tested.X, _labels(tested), draws, seed=plan.seed)
    joint = {name: model.learned for name, model in made.items() if model.learned is not None}
    rows = []
    for name, recovery in recoveries.items():
        measured = recovery.to_json()
        by_condition = measured.pop("by_condition")
        rows.append({"model": name, **measured, "seconds": seconds[name], "by_condition": by_condition})
    return {
        "format": "whatelse results",
        "version": 1,
        "whatelse": __version__,
        "default_learner": learning.DEFAULT,
        "data": {"train": _about(train, learn_from), "test": _about(test, tested), "select": len(select_by)},
        "plan": {
            "protocol": plan.protocol,
            "few_labels": plan.few_labels,
            "seed": plan.seed,
            "draws": plan.draws,
            "nvil": asdict(plan.nvil) | {"l2": list(plan.l2)},
        },
        "conditions": list(train.conditions),
        "rows": rows,
        "left_out": left_out,
        "comparisons": compare(recoveries, PAIRS, plan.seed),
        "closed": share_closed(recoveries, NAIVE, ORACLE, plan.seed),
        "terms": {name: top_terms(learned, train) for name, learned in joint.items()},
        "rates": rates.to_json(),
        "calibration": calibrations(joint, tested if plan.protocol == "paper" else test, plan.seed),
        "courses": bench.courses,
        "seconds": time.perf_counter() - began,
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
        raise CohortError(
            f"{len(chosen)} visits to learn from and {len(tested)} to test on are too few: "
            "at least 10 and 1 are needed, the latter with two or more conditions"
        )
    return chosen.rows(~kept), chosen.rows(kept), tested


def _rates(learn_from: Cohort, select_by: Cohort, plan: Plan) -> NoiseRates:
    """From the labels of the training visits used, or from a few of them."""
    A = np.concatenate([learn_from.A, select_by.A])
    Y = np.concatenate([_labels(learn_from), _labels(select_by)])
    if plan.few_labels is None:
        return NoiseRates.from_labels(A, Y, learn_from.conditions)
    if not 0 < plan.few_labels <= len(Y):
        raise CohortError(f"--few-labels {plan.few_labels}: there are {len(Y)} visits that could be labelled")
    rows = np.random.default_rng(plan.seed).choice(len(Y), plan.few_labels, replace=False)
    return NoiseRates.from_sample(A, Y[rows], rows, learn_from.conditions)


def _labels(cohort: Cohort) -> Any:
    if cohort.Y is None:
        raise CohortError("this cohort has no labels")
    return cohort.Y


def _about(whole: Cohort, used: Cohort) -> dict[str, Any]:
    files = [Path(file).name for file in whole.about.get("files", ())]
    findings = len(whole.vocabulary.names)
    return {"visits": len(whole), "used": len(used), "findings": findings, "files": files}


# ---- the rows


@dataclass(eq=False)
class _Bench:
    """Learns the models one after the other. `courses` are those of NVIL, for the figure."""

    visits: Cohort
    select_by: Cohort
    tested: Cohort
    rates: NoiseRates
    plan: Plan
    draws: Draws
    told: Progress
    courses: list[dict[str, Any]] = field(default_factory=list)

    def make(self) -> tuple[dict[str, Made], dict[str, float], list[dict[str, str]]]:
        """Models and seconds by row, and the rows that could not be had, with the reason."""
        ways: dict[str, Callable[[], Made]] = {
            TOLERANT: self._tolerant,
            NAIVE: lambda: self._by_name("naive"),
            INIT: lambda: self._by_name("moments"),
            FINAL: self._final,
            RANDOM: self._random,
            OURS: lambda: self._by_name(learning.DEFAULT),
            ORACLE: lambda: self._by_name("oracle"),
        }
        made: dict[str, Made] = {}
        seconds: dict[str, float] = {}
        left_out = []
        for done, (name, way) in enumerate(ways.items()):
            self.told(f"learning: {name}", done, len(ways))
            if why := self._left_out(name):
                left_out.append({"model": name, "why": why})
                continue
            began = time.perf_counter()
            try:
                made[name] = way()
            except WhatelseError as error:  # the other rows are still worth having
                left_out.append({"model": name, "why": str(error)})
            seconds[name] = time.perf_counter() - began
        return made, seconds, left_out

    def _left_out(self, name: str) -> str:
        without = {w.lower() for w in self.plan.without}
        nvil = name in (FINAL, RANDOM)
        if name.lower() in without or (nvil and "nvil" in without):
            return "left out on request"
        if nvil and importlib.util.find_spec("torch") is None:
            return "needs PyTorch, which is not installed: pip install 'whatelse[nvil]'"
        return ""

    def _by_name(self, learner: str) -> Made:
        learned = learning.learn(self.visits, self.rates, learner, seed=self.plan.seed, progress=self.told)
        return Made(noisyor_scorer(learned.model), learned)

    def _tolerant(self) -> Made:
        rates = learning.arrays(self.rates)
        return Made(noise_tolerant(self.visits.X, self.visits.anchor_columns, rates, seed=self.plan.seed))

    def _final(self) -> Made:
        """NVIL from the moments, weight decay and epoch by held-out anchors; and for the figure, without lambda."""
        start = self._by_name("moments").learned
        assert start is not None
        best, courses = run_courses(
            self.visits.X, start.model.noisyor, self.visits.anchor_columns, self._check, self.plan.nvil, self.plan.l2,
            self.plan.seed, **self._options,
        )  # fmt: skip
        alone = NvilSettings(**asdict(self.plan.nvil) | {"supervised": 0.0, "l2": best.settings.l2})
        drift = run_course(
            self.visits.X,
            start.model.noisyor,
            self.visits.anchor_columns,
            self._check,
            alone,
            self.plan.seed,
            **self._options,
        )
        self.courses += [c.to_json() | {"start": "moments", "selected": c is best} for c in [*courses, drift]]
        return Made(noisyor_scorer(best.model), Learned(JointModel.plain(best.model), history=best.bound))

    def _random(self) -> Made:
        """The same from random failures, with the weight decay chosen above; no burn-in, there is nothing to keep."""
        chosen = [c["l2"] for c in self.courses if c["selected"]] or [0.0]
        settings = NvilSettings(**asdict(self.plan.nvil) | {"l2": chosen[0], "burn_in": 0})
        start = random_start(self.visits, self.rates, self.plan.seed)
        course = run_course(
            self.visits.X, start, self.visits.anchor_columns, self._check, settings, self.plan.seed, **self._options
        )
        self.courses.append(course.to_json() | {"start": "random", "selected": False})
        return Made(noisyor_scorer(course.model), Learned(JointModel.plain(course.model), history=course.bound))

    @property
    def _check(self) -> AnchorCheck:
        return AnchorCheck(self.select_by.X, self.visits.anchor_columns.astype(np.int64), self.plan.seed)

    @property
    def _options(self) -> dict[str, Any]:
        return {
            "every": self.plan.every,
            "watch": self._accuracy,
            "checkpoint": self.plan.checkpoint,
            "told": self.told,
        }

    def _accuracy(self, model: NoisyOr) -> float:
        """Held-out tag by one draw, for the figure; selection never sees it."""
        truth, hidden = _labels(self.tested)[self.draws.rows], self.draws.hidden[0]
        confirmed = truth.copy()
        confirmed[np.arange(len(hidden)), hidden] = False
        scores = noisyor_scorer(model)(self.tested.X[self.draws.rows], confirmed)
        return float(ranking(scores, ~confirmed, hidden)[:, 0].mean())


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
