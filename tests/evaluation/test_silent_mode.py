"""Silent mode against later diagnoses, compared with counting by hand."""

from __future__ import annotations

import numpy as np
import pytest

from whatelse.evaluation.silent_mode import Share, silent_report


def test_precision_recall_and_rate_match_a_loop() -> None:
    rng = np.random.default_rng(5)
    names = ["fall", "uti", "sepsis"]
    likely = {(f"v{v}", c): float(rng.uniform()) for v in range(200) for c in names if rng.uniform() < 0.8}
    truth = {
        (f"v{v}", c): bool(rng.uniform() < likely.get((f"v{v}", c), 0.05))
        for v in range(180)
        for c in names
        if rng.uniform() < 0.9
    }
    truth["never-looked-at", "fall"] = True
    found = silent_report(likely, truth, 0.5)
    visits = {v for v, _ in truth} & {v for v, _ in likely}
    assert found.visits == len(visits)
    for row in found.thresholds:
        alerts = right = judged = had = caught = 0
        for visit in visits:
            for name in names:
                card, true = likely.get((visit, name), 0.0) >= row.threshold, truth.get((visit, name))
                alerts += card
                judged += card and true is not None
                right += bool(card and true)
                had += bool(true)
                caught += bool(true and card)
        assert row.per_100 == pytest.approx(100 * alerts / len(visits))
        assert (row.precision, row.recall) == (Share(right, judged), Share(caught, had))
    by_name = {row.name: row for row in found.conditions}
    whole = next(row for row in found.thresholds if row.threshold == 0.5)
    assert sum(row.precision.part for row in by_name.values()) == whole.precision.part
    for mean, share in found.bands:  # the truth was drawn by the probabilities: they are calibrated
        low, high = share.interval()
        assert low - 0.1 < mean < high + 0.1


def test_wilson_interval_holds_the_share_and_nothing_is_said_of_nothing() -> None:
    low, high = Share(8, 10).interval()
    assert (low, high) == (pytest.approx(0.490, abs=1e-3), pytest.approx(0.943, abs=1e-3))
    assert Share(0, 0).value is None and str(Share(0, 0)) == "none"


def test_page_has_tables_and_plot_and_escapes_names() -> None:
    page = silent_report({("v", "<b>"): 0.9}, {("v", "<b>"): True}, 0.5).page()
    assert "data:image/png;base64," in page and "&lt;b&gt;" in page and "<b>" not in page
