"""The learner's objective against sums written out visit by visit, and its gradient against differences."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
import scipy.sparse as sp
from scipy.special import expit, logit

from whatelse.learning.objective import Labels, Objective, Parameters, Strengths
from whatelse.learning.prior import NAME, Prior
from whatelse.noisyor.blocks import as_blocks

M, N, V, L = 3, 8, 40, 12


@pytest.fixture
def objective() -> Objective:
    rng = np.random.default_rng(3)
    X = sp.csr_matrix((rng.random((V, N)) < 0.4).astype(np.uint8))
    columns = np.arange(N - M, N)
    weight = np.where(rng.random((2, M, N)) < 0.5, rng.normal(size=(2, M, N)), 0.0)
    weight[:, :, columns] = 0.0
    pairs = np.triu(rng.normal(size=(M, M)), 1)
    prior = Prior(
        weight, pairs + pairs.T, np.full(M, 0.1), ((),) * M, np.full(M, NAME), np.zeros(weight.shape[1:], bool)
    )
    rates = np.array([[0.6, 0.7, 0.5], [0.1, 0.05, 0.2]])
    start = Parameters(
        logit(np.full(M, 0.2)), np.array([0.4, 0.6]), np.zeros(M), 0.6, -0.3, logit(rates), np.zeros((M, M)),
        np.zeros((M, N)),
    )  # fmt: skip
    belief = rng.choice([0.0, 1.0, 0.3, 0.9], (L, M))
    known = rng.random((L, M)) < 0.8
    labels = Labels(sp.csr_matrix(X[:L], dtype=float), belief, known * rng.uniform(0.5, 2, (L, M)), belief * known)
    strengths = Strengths(np.full((M, N), 0.5))
    return Objective(
        as_blocks(X), columns, np.asarray(X.mean(0)).ravel(), prior, start, strengths, np.array([1.0, 0.5, 0.2]), rates,
        labels,
    )  # fmt: skip


def theta_of(objective: Objective) -> np.ndarray:
    return np.random.default_rng(5).normal(scale=0.3, size=objective.size)


def test_value_matches_a_loop_over_visits_and_values_of_each_condition(objective: Objective) -> None:
    theta = theta_of(objective)
    p = objective.unpack(theta)
    W, J, X = objective.weights(p), objective.coupling(p), np.asarray(objective.X[np.arange(V)].todense(), float)
    total = 0.5 * float(theta @ theta)
    for v, i in itertools.product(range(V), range(M)):
        findings = [j for j in range(N) if j not in objective.columns]
        field = p.b[i] + sum(W[i, j] * X[v, j] for j in findings) - W[i, findings] @ objective.centre[findings]
        fires = X[v, objective.columns[i]] > 0
        likely = 0.0
        for y in (0, 1):
            rate = objective.rates[0, i] if y else objective.rates[1, i]
            likely += (expit(field) if y else 1 - expit(field)) * (rate if fires else 1 - rate)
        total -= objective.omega[i] * np.log(likely)
    labels = objective.labels
    assert labels is not None
    S, F = expit(p.rates)
    for v, i in itertools.product(range(L), range(M)):
        odds = p.b[i] + W[i] @ (X[v] - objective.centre) + labels.company[v] @ J[i]
        fires = X[v, objective.columns[i]] > 0
        odds += np.log(S[i] / F[i]) if fires else np.log((1 - S[i]) / (1 - F[i]))
        likely = expit(odds) * labels.belief[v, i] + (1 - expit(odds)) * (1 - labels.belief[v, i])
        total -= labels.weight[v, i] * np.log(likely)
    assert objective(theta)[0] == pytest.approx(total, rel=1e-9)


def test_gradient_matches_differences(objective: Objective) -> None:
    theta, step = theta_of(objective), 1e-5
    _, gradient = objective(theta)
    for k in range(objective.size):
        shift = np.zeros(objective.size)
        shift[k] = step
        slope = (objective(theta + shift)[0] - objective(theta - shift)[0]) / (2 * step)
        assert gradient[k] == pytest.approx(slope, abs=1e-4)


def test_packing_is_the_inverse_of_unpacking(objective: Objective) -> None:
    theta = theta_of(objective)
    again = objective.pack(objective.unpack(theta))
    own = np.zeros((M, N), bool)
    own[np.arange(M), objective.columns] = True
    fixed = np.concatenate([np.zeros(objective.size - M * N, bool), own.ravel()])  # an anchor is no finding of its own
    assert np.allclose(again[~fixed], theta[~fixed]) and not again[fixed].any()


def test_information_is_the_expected_curvature_of_the_labels(objective: Objective) -> None:
    objective.omega = np.zeros(M)
    p = objective.unpack(theta_of(objective))
    labels = objective.labels
    assert labels is not None
    chance = expit(objective.label_fields(p, objective.weights(p)))
    X = np.asarray(labels.X.todense())
    slow = np.zeros((M, N))
    for v, i, j in itertools.product(range(L), range(M), range(N)):
        slow[i, j] += labels.weight[v, i] * chance[v, i] * (1 - chance[v, i]) * X[v, j] * (1 - objective.centre[j]) ** 2
    assert np.allclose(objective.information(p), slow)


def test_information_of_labels_matches_differences_of_the_gradient(objective: Objective) -> None:
    """With certain labels the curvature does not depend on the labels: it is the expected information."""
    labels = objective.labels
    assert labels is not None
    objective = objective.with_labels(labels._replace(belief=np.round(labels.belief)))
    objective.omega = np.zeros(M)
    theta, step = theta_of(objective), 1e-5
    bias, scale, pairs = objective.label_information(objective.unpack(theta))

    def curvature(k: int) -> float:
        shift = np.zeros(objective.size)
        shift[k] = step
        return float((objective(theta + shift)[1][k] - objective(theta - shift)[1][k]) / (2 * step)) - 1.0

    first_pair = 4 * M + 4
    for i in range(M):
        assert curvature(i) / objective.sd.bias**2 == pytest.approx(bias[i], rel=1e-4)
        assert curvature(M + 2 + i) / objective.sd.own_scale**2 == pytest.approx(scale[i], rel=1e-4)
    for k, (i, j) in enumerate(zip(*objective.upper, strict=True)):
        assert curvature(first_pair + k) / objective.sd.pair**2 == pytest.approx(pairs[i, j], rel=1e-4)
