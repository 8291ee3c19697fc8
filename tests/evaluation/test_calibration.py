"""Updates, reliability and burden against slow, obvious versions, on models that are right and on one that is not."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from whatelse.evaluation.calibration import (
    SHOWN,
    answers_of,
    at_threshold,
    burden,
    by_length,
    log_loss,
    moves,
    ratio,
    reliability,
    update,
)
from whatelse.noisyor import NoisyOr, posterior, sample

M, N = 5, 30


@pytest.fixture(scope="module")
def truth() -> NoisyOr:
    rng = np.random.default_rng(5)
    fail = np.where(rng.random((M, N)) < 0.3, rng.uniform(0.3, 0.8, (M, N)), 1.0)
    return NoisyOr(np.full(M, 0.15), fail, np.full(N, 0.05))


def test_moves_against_one_question_at_a_time(truth: NoisyOr) -> None:
    X, Y = sample(truth, 120, np.random.default_rng(6))
    answer = answers_of(truth)
    before = answer(X, None, None)
    made = moves(answer, X, Y, before)
    confirmed = [(v, i) for v in range(len(Y)) for i in range(M) if Y[v, i]]
    assert list(zip(made["confirmed"].visit, made["confirmed"].subject, strict=True)) == confirmed
    shown = [v for v in range(len(Y)) if before[v].max() >= SHOWN]
    true = [v for v in shown if Y[v, before[v].argmax()]]
    assert made["likeliest confirmed"].visit.tolist() == true
    assert made["likeliest rejected"].visit.tolist() == [v for v in shown if v not in true]
    for name, how in (("confirmed", "confirmed"), ("likeliest rejected", "rejected")):
        move = made[name]
        for k in range(0, len(move), 7):
            v, i = int(move.visit[k]), int(move.subject[k])
            alone = posterior(truth, X[v].indices, **{how: [i]}, tolerance=1e-6).marginals
            np.testing.assert_allclose(move.after[k], alone, atol=2e-4)
            assert not move.others[k, i] and move.others[k].sum() == M - 1


def test_sums_against_loops(truth: NoisyOr) -> None:
    X, Y = sample(truth, 150, np.random.default_rng(7))
    answer = answers_of(truth)
    move = moves(answer, X, Y, answer(X, None, None))["confirmed"]
    loss_before = loss_after = expected = observed = 0.0
    for k in range(len(move)):
        for j in range(M):
            if j != move.subject[k]:
                loss_before += float(log_loss(move.before[k, j], move.truth[k, j]))
                loss_after += float(log_loss(move.after[k, j], move.truth[k, j]))
                expected += move.after[k, j]
                observed += move.truth[k, j]
    found = update(move, resamples=50)
    assert found.loss.value == pytest.approx(loss_after / loss_before)
    assert found.before == pytest.approx(loss_before / (len(move) * (M - 1)))
    assert found.expected.value == pytest.approx(expected / observed)
    assert found.loss.low <= found.loss.value <= found.loss.high
    assert sum(b["count"] for b in found.bins) == len(move) * (M - 1)


def test_a_right_model_gets_better_and_a_wrong_one_is_seen(truth: NoisyOr) -> None:
    X, Y = sample(truth, 3000, np.random.default_rng(8))
    right = answers_of(truth)
    coupling = np.full((M, M), 2.0)
    np.fill_diagonal(coupling, 0.0)
    wrong = answers_of(NoisyOr(truth.prior, truth.fail, truth.leak, coupling=coupling))
    for name in ("confirmed", "likeliest rejected"):
        good = update(moves(right, X, Y, right(X, None, None))[name])
        assert good.loss.low <= 1.0 and good.expected.low < 1.05 and good.expected.high > 0.95
    bad = update(moves(wrong, X, Y, right(X, None, None))["confirmed"])
    assert bad.loss.low > 1.0 and bad.expected.low > 1.2


def test_ratio_of_nothing_and_groups_drawn_together() -> None:
    assert np.isnan(ratio(np.array([]), np.array([])).value) and np.isnan(ratio(np.ones(3), np.zeros(3)).value)
    rng = np.random.default_rng(1)
    top = np.repeat(rng.random(50), 20)
    alone = ratio(top, np.ones(1000))
    together = ratio(top, np.ones(1000), groups=np.repeat(np.arange(50), 20))
    assert together.high - together.low > 2 * (alone.high - alone.low)


def test_reliability_on_a_linear_scale() -> None:
    p = np.array([0.0, 0.01, 0.02, 0.95, 1.0, 0.5])
    y = np.array([False, False, True, True, True, False])
    bins = reliability(p, y)
    assert [(b["low"], b["count"]) for b in bins] == [(0.0, 2), (0.02, 1), (0.45, 1), (0.9, 2)]
    assert bins[-1]["observed"] == 1.0 and bins[0]["predicted"] == pytest.approx(0.005)


def test_parts_of_the_visits() -> None:
    rng = np.random.default_rng(2)
    p = rng.random((400, 3)) * 0.3
    y = rng.random((400, 3)) < p
    length = np.arange(400)
    p[length < 40] /= 2  # short records are underrated by half
    found = by_length(p, y, length)
    assert found["shortest tenth"].high < 1.0 and found["longest tenth"].low < 1.0 < found["longest tenth"].high
    assert all(ratio(p[:, i], y[:, i].astype(float)).low < 1 for i in range(p.shape[1]))


@given(st.integers(0, 10_000))
def test_burden_against_counting(seed: int) -> None:
    rng = np.random.default_rng(seed)
    p, y, a = rng.random((60, 4)), rng.random((60, 4)) < 0.2, rng.random((60, 4)) < 0.3
    entry = next(entry for entry in burden(p, y, a) if entry["threshold"] == 0.7)
    said = [(v, i) for v in range(60) for i in range(4) if p[v, i] >= 0.7]
    right = [s for s in said if y[s]]
    assert entry["per_100_visits"] == pytest.approx(100 * len(said) / 60)
    assert entry["true"] == (len(right) / len(said) if said else None)
    unnamed = [(v, i) for v in range(60) for i in range(4) if y[v, i] and not a[v, i]]
    assert entry["reached_unnamed"] == (len([s for s in right if s in unnamed]) / len(unnamed) if unnamed else None)


def test_scores_at_a_threshold_match_counts_by_hand() -> None:
    rng = np.random.default_rng(3)
    p, y, known = rng.random((60, 3)).round(1), rng.random((60, 3)) < 0.4, rng.random((60, 3)) < 0.8
    y[:, 2] = False
    found = at_threshold(p, y, known, 0.6)
    for i in (0, 1):
        rows = [(a, b) for a, b, k in zip(p[:, i], y[:, i], known[:, i], strict=True) if k]
        true, false = [a for a, b in rows if b], [a for a, b in rows if not b]
        assert (found[i]["labelled"], found[i]["true"]) == (len(rows), len(true))
        right = sum(a >= 0.6 for a in true)
        assert found[i]["sensitivity"] == pytest.approx(right / len(true))
        assert found[i]["precision"] == pytest.approx(right / sum(a >= 0.6 for a, _ in rows))
        wins = np.mean([(a > b) + 0.5 * (a == b) for a in true for b in false])
        assert found[i]["auroc"] == pytest.approx(wins)
        steps = [(sum(a >= t for a in true), sum(a >= t for a, _ in rows)) for t in sorted(set(p[:, i]), reverse=True)]
        gains = np.diff([0, *(hit for hit, _ in steps)]) / len(true)
        assert found[i]["average_precision"] == pytest.approx(sum(gains * [h / max(n, 1) for h, n in steps]))
    assert (found[2]["sensitivity"], found[2]["auroc"], found[2]["average_precision"]) == (None, None, None)
    assert at_threshold(p, y, known, 1.1)[0]["precision"] is None
