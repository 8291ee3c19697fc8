"""Maximum likelihood with observed conditions, against SciPy and against what must hold."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp
from scipy.optimize import minimize

from whatelse.errors import ModelError
from whatelse.noisyor import mle
from whatelse.noisyor.mle import StateCounts, edit_anchors, fit_states, model_of_counts
from whatelse.noisyor.params import NoisyOr


def draw(rng: np.random.Generator, visits: int, m: int = 4, n: int = 9) -> tuple[sp.csr_matrix, np.ndarray, NoisyOr]:
    model = NoisyOr(rng.uniform(0.1, 0.4, m), rng.uniform(0.2, 1, (m, n)), rng.uniform(0.02, 0.2, n))
    Y = rng.random((visits, m)) < model.prior
    off = (1 - model.leak) * np.exp(Y @ np.log(model.fail))
    return sp.csr_matrix((rng.random((visits, n)) > off).astype(np.uint8)), Y, model


def negative_log_likelihood(theta: np.ndarray, counts: StateCounts, j: int) -> float:
    """The slow, obvious version: a loop over states."""
    total = 0.0
    for y, visits, present in zip(counts.states, counts.visits, counts.present[:, j], strict=True):
        z = theta[-1] + y @ theta[:-1]
        total += (visits - present) * z - (present * np.log(-np.expm1(-z)) if present else 0.0)
    return total


def test_counts_are_those_of_a_loop() -> None:
    X, Y, _ = draw(np.random.default_rng(0), 200)
    counts = StateCounts.of(X, Y)
    dense = X.toarray()
    assert counts.visits.sum() == 200
    for y, visits, present in zip(counts.states, counts.visits, counts.present, strict=True):
        same = (y == Y).all(1)
        assert visits == same.sum()
        np.testing.assert_array_equal(present, dense[same].sum(0))


@pytest.mark.parametrize("m", [3, 70])
def test_parts_merge_into_the_whole(m: int) -> None:
    X, Y, _ = draw(np.random.default_rng(1), 300, m=m)
    whole = StateCounts.of(X, Y)
    merged = StateCounts.of(X[:100], Y[:100]).merge(StateCounts.of(X[100:], Y[100:]))
    np.testing.assert_array_equal(whole.states, merged.states)
    np.testing.assert_array_equal(whole.visits, merged.visits)
    np.testing.assert_array_equal(whole.present, merged.present)


@pytest.mark.parametrize("visits", [40, 400])
def test_maximum_is_that_of_a_general_optimiser(visits: int) -> None:
    X, Y, _ = draw(np.random.default_rng(visits), visits)
    counts = StateCounts.of(X, Y)
    theta = fit_states(counts)
    for j in range(X.shape[1]):

        def loss(theta: np.ndarray, j: int = j) -> float:
            return negative_log_likelihood(theta, counts, j)

        bounds = [(0, 40)] * 4 + [(1e-7, 40)]
        slow = minimize(loss, np.full(5, 0.1), method="L-BFGS-B", bounds=bounds, options={"ftol": 1e-14, "gtol": 1e-8})
        assert loss(theta[:, j]) <= slow.fun + 1e-6
        np.testing.assert_allclose(loss(theta[:, j]), slow.fun, rtol=1e-6)


def test_optimality_conditions_hold() -> None:
    """Zero gradient inside, non-negative gradient on the boundary: sum_g y_gi (N_g - C_g / p_g)."""
    X, Y, _ = draw(np.random.default_rng(3), 500, m=6, n=30)
    counts = StateCounts.of(X, Y)
    theta = fit_states(counts)
    on = np.hstack([counts.states, np.ones((len(counts.states), 1))])
    p = -np.expm1(-(on @ theta))
    gradient = on.T @ (counts.visits[:, None] - counts.present / p)
    inside = theta > np.array([0] * 6 + [1e-6])[:, None]
    np.testing.assert_allclose(gradient[inside], 0, atol=1e-3)  # of 500 visits
    assert (gradient[~inside] > -1e-3).all()
    assert (~inside).any()


def test_parameters_are_recovered() -> None:
    X, Y, truth = draw(np.random.default_rng(4), 200_000)
    model = model_of_counts(StateCounts.of(X, Y))
    np.testing.assert_allclose(model.fail, truth.fail, atol=0.02)
    np.testing.assert_allclose(model.leak, truth.leak, atol=0.01)
    np.testing.assert_allclose(model.prior, truth.prior, atol=0.005)


def test_repeating_every_visit_changes_nothing() -> None:
    X, Y, _ = draw(np.random.default_rng(5), 300)
    counts = StateCounts.of(X, Y)
    half = StateCounts(counts.states, counts.visits / 2, counts.present / 2)
    np.testing.assert_allclose(np.exp(-fit_states(counts)), np.exp(-fit_states(half)), atol=1e-5)


@pytest.mark.parametrize("smoothed", [False, True])
def test_findings_never_seen_and_always_seen_stay_possible(smoothed: bool) -> None:
    X, Y, _ = draw(np.random.default_rng(8), 100)
    dense = X.toarray()
    dense[:, 0], dense[:, 1], dense[:, 2] = 0, 1, Y[:, 0]
    counts = StateCounts.of(sp.csr_matrix(dense), Y)
    theta = fit_states(counts.smoothed() if smoothed else counts)
    fail, leak = np.exp(-theta[:-1]), -np.expm1(-theta[-1])
    assert (leak > 0).all()
    assert leak[0] < 0.02 and (fail[:, 0] > 0.98).all()
    assert leak[1] > 0.9
    assert fail[0, 2] < 0.1 < 0.9 < fail[1:, 2].min()


def test_smoothing_pulls_rare_conditions_toward_no_edge() -> None:
    X = sp.csr_matrix(np.array([[1], [0], [0], [0]], np.uint8))
    Y = np.array([[1], [0], [0], [0]], bool)
    counts = StateCounts.of(X, Y)
    repeated = [StateCounts(counts.states, k * counts.visits, k * counts.present) for k in (1e6, 10, 1, 0.1)]
    fails = [model_of_counts(some).fail[0, 0] for some in repeated]
    assert fails[0] < 1e-5 and sorted(fails) == fails and fails[-1] > 0.7


def test_steps_running_out_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    X, Y, _ = draw(np.random.default_rng(9), 200)
    monkeypatch.setattr(mle, "STEPS", 1)
    with pytest.warns(RuntimeWarning, match="had not converged after 1 steps"):
        fit_states(StateCounts.of(X, Y))


def test_edited_anchors_have_their_noise_rates_and_one_parent() -> None:
    rng = np.random.default_rng(10)
    model = NoisyOr(rng.uniform(0.1, 0.3, 3), rng.uniform(0.2, 1, (3, 7)), rng.uniform(0, 0.2, 7))
    sensitivity, false_positive, columns = np.array([0.8, 0.5, 1.0]), np.array([0.1, 0.0, 0.2]), np.array([6, 0, 2])
    edited = edit_anchors(model, columns, sensitivity, false_positive)
    for i, column in enumerate(columns):
        on = 1 - (1 - edited.leak[column]) * edited.fail[:, column]
        np.testing.assert_allclose(on, np.where(np.arange(3) == i, sensitivity[i], false_positive[i]))
    rest = np.setdiff1d(np.arange(7), columns)
    np.testing.assert_array_equal(edited.fail[:, rest], model.fail[:, rest])


def test_what_is_refused() -> None:
    X, Y, model = draw(np.random.default_rng(11), 20)
    with pytest.raises(ModelError, match="one row per visit"):
        StateCounts.of(X, Y[:-1])
    with pytest.raises(ModelError, match="cannot be merged"):
        StateCounts.of(X, Y).merge(StateCounts.of(X[:, 1:], Y))
    with pytest.raises(ModelError, match="condition 1 fires more often without it"):
        edit_anchors(model, range(4), np.array([0.9, 0.1, 0.9, 0.9]), np.full(4, 0.2))
