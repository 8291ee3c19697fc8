"""The paper's experiment, small: every row is there, fair, and the same when run again."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.support.small_department import cohort, visits
from whatelse.annotators import NoiseRates
from whatelse.cohort import Cohort
from whatelse.errors import CohortError, ModelError
from whatelse.evaluation.measures import compare, measure, share_closed, top_terms
from whatelse.evaluation.reproduce import Plan, random_start, reproduce
from whatelse.evaluation.rows import ELKAN_NOTO, FINAL, INIT, NAIVE, ORACLE, OURS, RANDOM, ROWS, TAUGHT, TOLERANT
from whatelse.learning import learners as learning
from whatelse.learning.paper.nvil_course import HeldoutAnchors, NvilSettings, hold_out, run_course
from whatelse.noisyor.heldout_metrics import heldout_tag_draws, heldout_tag_scores, noisyor_scorer
from whatelse.sources import read_visits
from whatelse.tagger import Tagger

QUICK = Plan(without=("nvil",), draws=1)
TINY = NvilSettings(epochs=3, burn_in=1, minibatch=250, learning_rate=1e-2)


@pytest.fixture(scope="module")
def results() -> dict[str, Any]:
    return reproduce(cohort(), cohort("test"), QUICK)


def test_rows_and_what_was_left_out(results: dict[str, Any]) -> None:
    assert {row["model"] for row in results["rows"]} == {TOLERANT, ELKAN_NOTO, NAIVE, INIT, ORACLE, OURS, TAUGHT}
    assert [(e["model"], e["why"]) for e in results["left_out"]] == [(FINAL, "left out on request"), (RANDOM, "left out on request")]  # noqa: E501  # fmt: skip
    for row in results["rows"]:
        assert set(row) >= {"accuracy", "top5", "mrr", "accuracy_interval", "top5_interval", "mrr_interval", "seconds"}
        assert row["accuracy_interval"][0] <= row["accuracy"] <= row["accuracy_interval"][1]
        assert row["accuracy"] <= row["top5"] and row["seconds"] > 0
    assert json.dumps(results, allow_nan=False)
    assert results["data"]["train"]["used"] == 2250 and results["data"]["select"] == 250


def test_the_rows_are_those_of_the_parts(results: dict[str, Any]) -> None:
    """Naive labels by hand: the same visits, rates and draws give the same figures."""
    train, test = cohort(), cohort("test").multi()
    assert train.Y is not None and test.Y is not None
    rates = NoiseRates.from_labels(train.A, train.Y, train.conditions)
    learned = learning.learn(train.rows(~hold_out(len(train), 0)), rates, "naive")
    draws = heldout_tag_draws(test.Y, seed=0, draws=1)
    expected = heldout_tag_scores(noisyor_scorer(learned.model), test.X, test.Y, draws)
    row = next(row for row in results["rows"] if row["model"] == NAIVE)
    assert row["accuracy"] == expected.accuracy.value and row["mrr"] == expected.mrr.value
    assert row["visits"] == len(test)


def test_comparisons_and_distance_closed(results: dict[str, Any]) -> None:
    by_name = {row["model"]: row for row in results["rows"]}
    pairs = {(c["from"], c["to"]) for c in results["comparisons"]}
    assert (NAIVE, OURS) in pairs and not any(FINAL in pair for pair in pairs)
    for c in results["comparisons"]:
        difference = by_name[c["to"]][c["metric"]] - by_name[c["from"]][c["metric"]]
        assert c["difference"] == pytest.approx(difference) and 0 < c["p_value"] <= 1
    for c in results["closed"]:
        naive, oracle = by_name[NAIVE][c["metric"]], by_name[ORACLE][c["metric"]]
        assert c["share"] == pytest.approx((by_name[c["model"]][c["metric"]] - naive) / (oracle - naive))
        assert c["interval"][0] <= c["share"] <= c["interval"][1]


def test_terms_rates_and_trust(results: dict[str, Any]) -> None:
    for terms in results["terms"].values():
        assert [entry["condition"] for entry in terms] == list(cohort().conditions)
        for entry in terms:
            fails = [term["fail"] for term in entry["terms"]]
            assert fails == sorted(fails) and not any(t["finding"].startswith("anchor:") for t in entry["terms"])
    assert set(results["rates"]) == set(cohort().conditions)
    assert {found["model"] for found in results["trust"]} == {NAIVE, INIT, ORACLE, OURS, TAUGHT}
    assert all(0 < found["log_loss"] < 0.5 and found["updates"]["confirmed"]["times"] for found in results["trust"])


def test_the_papers_protocol_learns_from_multi_condition_visits() -> None:
    plan = replace(QUICK, protocol="paper", without=("nvil", TOLERANT, ELKAN_NOTO, OURS, TAUGHT))
    found = reproduce(cohort(), cohort("test"), plan)
    used = len(cohort().multi())
    assert found["data"]["train"]["used"] == used - used // 10 and found["data"]["select"] == used // 10
    assert found["data"]["test"]["used"] == len(cohort("test").multi())


def test_cohorts_that_cannot_be_used() -> None:
    whole = cohort()
    with pytest.raises(CohortError, match="no labels"):
        reproduce(Cohort(whole.X, whole.vocabulary, whole.ids), cohort("test"), QUICK)
    from whatelse.cohort import build_cohort

    other = build_cohort(visits("test"), max_terms=20)
    with pytest.raises(CohortError, match="--vocabulary-from"):
        reproduce(whole, other, QUICK)


@pytest.mark.slow
def test_nvil_rows_and_courses(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    plan = Plan(protocol="paper", draws=1, nvil=TINY, l2=(0.0, 0.1), every=1, keep=tmp_path,
                without=(TOLERANT, ELKAN_NOTO, OURS, TAUGHT))  # fmt: skip
    found = reproduce(cohort(), cohort("test"), plan)
    assert {row["model"] for row in found["rows"]} == {NAIVE, INIT, FINAL, RANDOM, ORACLE}
    assert {row.name for row in ROWS} >= {row["model"] for row in found["rows"]}
    kinds = [(c["start"], c["l2"], c["supervised"]) for c in found["courses"]]
    best = next(c for c in found["courses"] if c["selected"])
    assert kinds == [("moments", 0, 10), ("moments", 0.1, 10), ("moments", best["l2"], 0), ("random", best["l2"], 10)]
    for course in found["courses"]:
        assert len(course["bound"]) == 3 and course["checked"] == ([0, 2, 3] if course["burn_in"] else [0, 1, 2, 3])
        k = course["checked"].index(course["best_epoch"])
        assert course["heldout_anchor"][k] == max(course["heldout_anchor"])
        assert {name: len(values) for name, values in course["watched"].items()} == dict.fromkeys(
            ("likelihood", "tag"), len(course["checked"])
        )
    again = reproduce(cohort(), cohort("test"), plan)  # from the finished courses
    assert again["courses"] == found["courses"]
    assert [(r["model"], r["mrr"]) for r in again["rows"]] == [(r["model"], r["mrr"]) for r in found["rows"]]


@pytest.mark.slow
def test_a_stopped_course_goes_on_to_the_same_model(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    train = cohort().multi()
    assert train.Y is not None
    rates = NoiseRates.from_labels(train.A, train.Y, train.conditions)
    start, columns = random_start(train, rates, 0), train.anchor_columns
    check = HeldoutAnchors(train.X[:60], columns)
    settings = replace(TINY, burn_in=0)
    whole = run_course(train.X[60:], start, columns, check, settings, every=1)

    class Stop(Exception):
        pass

    def stop_after_two(what: str, done: int, total: int) -> None:
        if done == 3:
            raise Stop

    with pytest.raises(Stop):
        run_course(train.X[60:], start, columns, check, settings, every=1, checkpoint=tmp_path, told=stop_after_two)
    resumed = run_course(train.X[60:], start, columns, check, settings, every=1, checkpoint=tmp_path)
    assert (resumed.best, resumed.anchor, resumed.bound) == (whole.best, whole.anchor, whole.bound)
    assert np.array_equal(resumed.model.fail, whole.model.fail)


def test_nvil_by_name() -> None:
    pytest.importorskip("torch")
    settings = {"epochs": 2, "burn_in": 1, "minibatch": 500, "l2": 0.1, "every": 1}
    tagger = Tagger("nvil", settings=settings).fit(cohort().multi())
    assert tagger.notes_["l2"] == 0.1 and tagger.notes_["epoch"] in (0, 2) and len(tagger.history_) == 2
    with pytest.raises(ModelError, match="NVIL has no setting 'eopchs'"):
        Tagger("nvil", settings={"eopchs": 2}).fit(cohort())


def test_without_torch_the_rows_are_left_out_and_it_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    import importlib.util

    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    found = reproduce(cohort(), cohort("test"), replace(QUICK, without=(TOLERANT, ELKAN_NOTO, OURS, TAUGHT)))
    assert {e["model"] for e in found["left_out"] if "pip install 'whatelse[nvil]'" in e["why"]} == {FINAL, RANDOM}
    monkeypatch.setitem(__import__("sys").modules, "whatelse.learning.paper.nvil", None)
    with pytest.raises(ModelError, match=r"pip install 'whatelse\[nvil\]'"):
        Tagger("nvil").fit(cohort())


def test_a_random_start_has_the_right_marginals() -> None:
    train = cohort()
    assert train.Y is not None
    rates = NoiseRates.from_labels(train.A, train.Y, train.conditions)
    model = random_start(train, rates, 1)
    quiet = (1 - model.leak) * np.prod(1 - model.prior[:, None] * (1 - model.fail), axis=0)
    ordinary = np.setdiff1d(np.arange(model.n), train.anchor_columns)
    assert np.allclose((1 - quiet)[ordinary], np.asarray(train.X.mean(0)).ravel()[ordinary], atol=1e-3)


def test_measure_a_model() -> None:
    tagger, test = Tagger("naive").fit(cohort()), cohort("test")
    measured = measure(tagger, test, draws=1)
    assert 0 < measured["heldout_tag"]["accuracy"] < 1 and 0 < measured["heldout_anchor"]["mrr"] < 1
    assert measured["trust"]["visits"] == len(test)
    bare = measure(tagger, Cohort(test.X, test.vocabulary, test.ids), draws=1)
    assert bare["heldout_tag"] is None and bare["trust"] is None
    assert bare["heldout_anchor"] == measured["heldout_anchor"]


def test_outcomes_of_rows_that_are_missing() -> None:
    assert compare({}, [(NAIVE, OURS)]) == [] and share_closed({}, NAIVE, ORACLE) == []
    terms = top_terms(learning.Learned(Tagger("naive").fit(cohort()).model_), cohort(), most=3)
    assert all(len(entry["terms"]) <= 3 and "evidence" not in entry for entry in terms)


# ---- real visits


@pytest.mark.slow
@pytest.mark.data
def test_nhamcs_naive_and_oracle_are_where_they_should_be(data_folder: Path) -> None:
    """Learned from 2016 and 2017, tested on 2018, against the figures of a rough trial on the same files."""
    from whatelse.annotators import AnchorSet
    from whatelse.cohort import build_cohort

    folder = data_folder / "nhamcs"
    if not folder.is_dir():
        pytest.skip("the NHAMCS files are not here")
    anchors = AnchorSet.load(folder / "conditions.json").anchored()
    years = [read_visits([folder / f"ed{y}_sas.zip" for y in chosen], "nhamcs", labels=folder) for chosen in ((2016, 2017), (2018,))]  # noqa: E501  # fmt: skip
    train = build_cohort(years[0], anchors, max_terms=None, min_visits=10)
    test = build_cohort(years[1], like=train)
    found = reproduce(train, test, Plan(without=("nvil", TOLERANT, ELKAN_NOTO, OURS, TAUGHT, INIT)))
    rows = {row["model"]: [row[k] for k in ("accuracy", "top5", "mrr")] for row in found["rows"]}
    assert np.allclose(rows[NAIVE], [0.580, 0.878, 0.707], atol=0.015)
    assert np.allclose(rows[ORACLE], [0.636, 0.911, 0.753], atol=0.015)
