"""Two models on the same visits: paired differences and one verdict."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from tests.support.small_department import cohort
from whatelse.annotators.label_set import LabelSet
from whatelse.cli import app
from whatelse.cohort import Cohort
from whatelse.errors import CohortError
from whatelse.lifecycle.compare import Comparison, Row, compare_models, judge
from whatelse.tagger import Tagger


@pytest.fixture(scope="module")
def models() -> tuple[Tagger, Tagger]:
    return Tagger("naive").fit(cohort()), Tagger("oracle").fit(cohort())


@pytest.fixture(scope="module")
def found(models: tuple[Tagger, Tagger]) -> Comparison:
    return compare_models(*models, cohort("test"), resamples=400)


def test_the_model_that_saw_the_truth_is_better(found: Comparison, models: tuple[Tagger, Tagger]) -> None:
    assert found.verdict == "better" and "log loss" in found.because
    back = compare_models(*models[::-1], cohort("test"), resamples=400)
    assert back.verdict == "worse"
    for row, other in zip(found.rows, back.rows, strict=True):
        assert row.difference == pytest.approx(-other.difference) and row.low <= row.difference <= row.high
    assert len(found.by_condition) == 23
    json.dumps(asdict(found), allow_nan=False)


def test_a_model_is_not_worse_than_itself(models: tuple[Tagger, Tagger]) -> None:
    same = compare_models(models[1], models[1], cohort("test"), visits=300, resamples=200)
    assert same.verdict == "not worse" and all(row.difference == 0 for row in same.rows)


def test_log_loss_and_calibration_by_loops(found: Comparison, models: tuple[Tagger, Tagger]) -> None:
    test = cohort("test")
    assert test.Y is not None
    rows = {row.measure: row for row in found.rows}
    for which, tagger in (("old", models[0]), ("new", models[1])):
        tagger.tolerance = 1e-4
        p = np.clip(tagger.predict_proba(test), 1e-6, 1 - 1e-6)
        total = 0.0
        for v in range(len(test)):
            for i in range(23):
                total -= np.log(p[v, i] if test.Y[v, i] else 1 - p[v, i])
        assert getattr(rows["log loss"], which) == pytest.approx(total / (23 * len(test)), rel=2e-3)


def test_only_known_labels_count(models: tuple[Tagger, Tagger]) -> None:
    """Labels of one condition, weighted: the row of that condition is the log loss."""
    test, i = cohort("test"), 4
    said = LabelSet.of_cohort(test)
    only = said.known & (np.arange(23) == i)
    weight = np.where(only, 1.0 + np.arange(len(test))[:, None] % 3, 0.0)
    one = compare_models(*models, test, LabelSet(np.where(only, said.probability, 0.0), only, weight), resamples=200)
    assert one.labels == len(test) and len(one.by_condition) == 1
    rows = {row.measure: row for row in one.rows}
    assert "held-out tag: accuracy" not in rows  # no visit has two known tags
    assert rows["log loss"].difference == pytest.approx(one.by_condition[0].difference)
    bare = Cohort(test.X, test.vocabulary, test.ids)
    with pytest.raises(CohortError, match="no visit is labelled"):
        compare_models(*models, bare)


def _row(measure: str, low: float, high: float, good: bool = False) -> Row:
    return Row(measure, 200, 0.1, 0.1, (low + high) / 2, low, high, good)


def test_verdicts() -> None:
    loss, rank = "log loss", "held-out tag: reciprocal rank"
    assert judge([_row(loss, -0.02, -0.01), _row(rank, -0.05, 0.05, True)])[0] == "better"
    assert judge([_row(loss, -0.02, -0.01), _row("reliability: calibration error", 0.01, 0.02)])[0] == "worse"
    assert judge([_row(loss, 0.001, 0.02)])[0] == "worse"
    assert judge([_row(rank, -0.03, -0.01, True)])[0] == "worse"
    assert judge([_row(loss, 0.0002, 0.0014)])[0] == "not worse"  # it shows, but it is less than 1% of the log loss
    assert judge([_row(loss, -0.002, 0.004), _row(rank, -0.01, 0.03, True)])[0] == "not worse"
    verdict, why = judge([_row(loss, -0.02, 0.01), _row(rank, -0.01, 0.03, True)])
    assert verdict == "not known" and "some 600 more" in why  # twice the margin: four times the visits


def test_on_the_command_line(tmp_path: Path, models: tuple[Tagger, Tagger]) -> None:
    for name, tagger in zip(("naive", "oracle"), models, strict=True):
        tagger.save(tmp_path / name)
    cohort("test").save(tmp_path / "test")
    here = [str(tmp_path / name) for name in ("naive", "oracle", "test")]
    out = CliRunner().invoke(app, ["evaluate", here[1], here[2], "--against", here[0], "--require", "not-worse"])
    assert out.exit_code == 0 and "verdict: better" in out.output and "log loss, pneumonia" in out.output
    out = CliRunner().invoke(
        app, ["evaluate", here[0], here[2], "--against", here[1], "--require", "not-worse", "--json"]
    )
    assert out.exit_code == 1 and json.loads(out.output)["verdict"] == "worse"
