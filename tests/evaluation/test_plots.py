"""Plots: each on the axis that it is given, with what was measured, and on no other."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
import pytest
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from tests.support.small_department import cohort
from whatelse.evaluation.calibration import trust
from whatelse.evaluation.measures import top_terms
from whatelse.evaluation.plots import plot_burden, plot_heldout, plot_reliability, plot_top_findings, plot_updates
from whatelse.evaluation.rows import NAIVE, OURS
from whatelse.learning import learners
from whatelse.tagger import Tagger


@cache
def measured() -> dict[str, Any]:
    found = trust(Tagger("naive").fit(cohort()).model_, cohort("test")[:600])
    assert found is not None
    return found


@pytest.fixture
def axes() -> Axes:
    return Figure().subplots()  # not of pyplot: nothing may ask for the current axis


def labels(axes: Axes) -> list[str]:
    return [text.get_text() for text in axes.get_legend().get_texts()]


def ticks(axes: Axes) -> list[str]:
    return [label.get_text() for label in axes.get_yticklabels()]


def test_reliability(axes: Axes) -> None:
    plot_reliability(measured(), axes)
    diagonal, nothing_known, *others = axes.get_lines()
    np.testing.assert_array_equal(diagonal.get_xydata(), [[0, 0], [1, 1]])
    shown = [(b["predicted"], b["observed"]) for b in measured()["reliability"] if b["count"] >= 20]
    np.testing.assert_allclose(nothing_known.get_xydata(), shown)
    assert labels(axes)[0] == "nothing known" and len(others) == 4


def test_updates(axes: Axes) -> None:
    plot_updates({"one": measured(), "two": measured()}, axes)
    assert labels(axes) == ["one", "two"] and len(ticks(axes)) == 3
    loss = measured()["updates"]["confirmed"]["loss"]["value"]
    assert any(np.allclose(line.get_xdata(), loss) for line in axes.get_lines())


def test_burden(axes: Axes) -> None:
    plot_burden(measured(), axes)
    reached = axes.get_lines()[0].get_xydata()
    np.testing.assert_allclose(reached, [(b["per_100_visits"], b["reached"]) for b in measured()["burden"]])


def test_heldout(axes: Axes) -> None:
    rows = [
        {"model": OURS, "accuracy": 0.6, "accuracy_interval": [0.5, 0.7]},
        {"model": NAIVE, "accuracy": 0.4, "accuracy_interval": [0.3, 0.5]},
    ]
    plot_heldout(rows, axes)
    assert set(ticks(axes)) == {OURS, NAIVE}
    points = {ticks(axes)[round(line.get_ydata()[0])]: line.get_xdata()[0] for line in axes.get_lines()[1::2]}
    assert points == {OURS: 0.6, NAIVE: 0.4}


def test_top_findings(axes: Axes) -> None:
    learned = learners.Learned(Tagger("naive").fit(cohort()).model_)
    entry = top_terms(learned, cohort(), most=4)[cohort().conditions.index("uti")]
    plot_top_findings(entry, axes)
    assert ticks(axes) == [term["finding"] for term in entry["terms"]] and axes.get_title() == "uti"
    assert [bar.get_width() for bar in axes.patches] == [1 - term["fail"] for term in entry["terms"]]
    weighted = {"condition": "x", "terms": [], "evidence": [{"finding": "word", "weight": 1.5}]}
    other = Figure().subplots()
    plot_top_findings(weighted, other)
    assert [bar.get_width() for bar in other.patches] == [1.5]
