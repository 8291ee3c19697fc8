"""The paper's experiment on any two cohorts: every row of its results table, its figure and its word list.

`reproduce` learns each model from the same visits, told the same noise rates, and asks all of them for the same hidden
tags. Its answer is a dictionary of JSON values, which is `results.json` and all that the report is made from.
"""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from whatelse import __version__
from whatelse.annotators import NoiseRates
from whatelse.cohort import Cohort
from whatelse.errors import CohortError
from whatelse.evaluation.experiment import Experiment, Plan, labels_of
from whatelse.evaluation.measures import compare, share_closed
from whatelse.evaluation.rows import ELKAN_NOTO, FINAL, INIT, NAIVE, ORACLE, OURS, RANDOM, TOLERANT
from whatelse.learning import learners as learning
from whatelse.learning.learners import Progress
from whatelse.learning.paper.nvil_course import hold_out
from whatelse.noisyor.heldout_metrics import heldout_tag_draws
from whatelse.text import load_rules

__all__ = ["Plan", "reproduce"]

PAIRS = (
    (NAIVE, OURS), (NAIVE, FINAL), (INIT, FINAL), (NAIVE, INIT), (RANDOM, INIT), (FINAL, OURS), (TOLERANT, OURS),
    (ELKAN_NOTO, OURS), (OURS, ORACLE), (FINAL, ORACLE),
)  # fmt: skip


def reproduce(train: Cohort, test: Cohort, plan: Plan, progress: Progress | None = None) -> dict[str, Any]:
    """Learn, ask, compare. Cost: that of the learners; NVIL takes all but a few seconds of it."""
    told = progress or (lambda what, done, total: None)
    learn_from, select_by, tested = _visits(train, test, plan)
    rates = _rates(learn_from, select_by, plan)
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
        raise CohortError(
            f"{len(chosen)} visits to learn from and {len(tested)} to test on are too few: "
            "at least 10 and 1 are needed, the latter with two or more conditions"
        )
    return chosen.rows(~kept), chosen.rows(kept), tested


def _rates(learn_from: Cohort, select_by: Cohort, plan: Plan) -> NoiseRates:
    """From the labels of the training visits used, or from a few of them."""
    A = np.concatenate([learn_from.A, select_by.A])
    Y = np.concatenate([labels_of(learn_from), labels_of(select_by)])
    if plan.few_labels is None:
        return NoiseRates.from_labels(A, Y, learn_from.conditions)
    if not 0 < plan.few_labels <= len(Y):
        raise CohortError(f"--few-labels {plan.few_labels}: there are {len(Y)} visits that could be labelled")
    rows = np.random.default_rng(plan.seed).choice(len(Y), plan.few_labels, replace=False)
    return NoiseRates.from_sample(A, Y[rows], rows, learn_from.conditions)


def _about(whole: Cohort, used: Cohort) -> dict[str, Any]:
    files = [Path(file).name for file in whole.about.get("files", ())]
    findings = len(whole.vocabulary.names)
    return {"visits": len(whole), "used": len(used), "findings": findings, "files": files}
