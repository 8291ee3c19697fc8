"""log_joint, sample and finding_marginals against loops, and at the extremes."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import sparse

from tests.support import reference
from whatelse.errors import QueryError
from whatelse.noisyor import NoisyOr
from whatelse.noisyor.likelihood import finding_marginals, log_joint, sample


def random_model(rng, m=5, n=12, *, weighted=False, coupled=False, extreme=False) -> NoisyOr:
    """A small model; `extreme` puts in leaks and fails of 0 and 1."""
    fail, leak = rng.uniform(0.05, 1.0, (m, n)), rng.uniform(0.01, 0.4, n)
    if extreme:
        fail[rng.random((m, n)) < 0.15] = 0.0
        fail[rng.random((m, n)) < 0.3] = 1.0
        leak[rng.random(n) < 0.3] = 0.0
        leak[rng.random(n) < 0.05] = 1.0
    J = np.triu(rng.normal(0.0, 1.0, (m, m)), 1)
    return NoisyOr(
        rng.uniform(0.02, 0.4, m),
        fail,
        leak,
        weight=rng.choice([0.0, 0.35, 0.8, 1.0], n) if weighted else None,
        coupling=J + J.T if coupled else None,
    )


@pytest.mark.parametrize("extreme", [False, True])
@pytest.mark.parametrize("general", [False, True])
def test_log_joint_is_the_loop(rng, extreme, general):
    model = random_model(rng, weighted=general, coupled=general, extreme=extreme)
    X = rng.random((60, model.n)) < 0.4
    Y = rng.random((60, model.m)) < 0.4
    evidence = rng.normal(size=(60, model.m)) if general else None
    got = log_joint(model, sparse.csr_matrix(X, dtype=np.uint8), Y, evidence)
    want = [
        reference.log_joint(model, np.flatnonzero(x), y, evidence=None if evidence is None else evidence[v])
        for v, (x, y) in enumerate(zip(X, Y, strict=True))
    ]
    np.testing.assert_allclose(got, want, rtol=1e-11, atol=1e-12)
    np.testing.assert_array_equal(got, log_joint(model, [np.flatnonzero(x) for x in X], Y, evidence))


def test_probabilities_of_all_records_sum_to_one(rng):
    model = random_model(rng, m=3, n=6, extreme=True)
    X = np.array(np.meshgrid(*[[0, 1]] * 6)).reshape(6, -1).T
    Y = np.array(np.meshgrid(*[[0, 1]] * 3)).reshape(3, -1).T
    total = sum(np.exp(log_joint(model, X, np.tile(y, (len(X), 1)))).sum() for y in Y)
    assert total == pytest.approx(1.0, abs=1e-12)


def test_hundreds_present_and_none():
    n = 900
    model = NoisyOr([0.1], np.full((1, n), 0.9), np.full(n, 1e-5))
    got = log_joint(model, [np.arange(n), np.arange(0)], [[1], [1]])
    each = 1 - (1 - 1e-5) * 0.9
    np.testing.assert_allclose(got, np.log(0.1) + n * np.log([each, 1 - each]), rtol=1e-12)


def test_tiny_leaks_keep_their_precision():
    model = NoisyOr([0.5], [[1.0]], [1e-30])
    assert log_joint(model, [[0]], [[1]])[0] == pytest.approx(np.log(0.5) + np.log(1e-30), rel=1e-14)


def test_sample_follows_the_model(rng):
    model = random_model(rng, m=3, n=8, extreme=True)
    X, Y = sample(model, 40_000, rng)
    assert X.dtype == np.uint8 and X.shape == (40_000, 8) and Y.dtype == bool
    np.testing.assert_allclose(Y.mean(0), model.prior, atol=0.012)
    np.testing.assert_allclose(np.asarray(X.mean(0)).ravel(), finding_marginals(model), atol=0.012)
    both = Y[:, 0] & Y[:, 1] & ~Y[:, 2]
    want = [reference.probability_on(model, j, (1, 1, 0)) for j in range(8)]
    np.testing.assert_allclose(np.asarray(X[both].mean(0)).ravel(), want, atol=0.06)


def test_sample_of_coupled_conditions(rng):
    model = random_model(rng, m=3, n=2, coupled=True)
    weights = np.array([reference.log_joint(model, (), y, unobserved=(0, 1)) for y in reference.states(3)])
    want = (np.exp(weights) / np.exp(weights).sum()) @ np.array(reference.states(3))
    _, Y = sample(model, 5_000, rng)
    np.testing.assert_allclose(Y.mean(0), want, atol=0.03)


def test_sample_of_none(rng):
    X, Y = sample(random_model(rng), 0, rng)
    assert X.shape == (0, 12) and Y.shape == (0, 5)


def test_finding_marginals_are_the_sum_over_states(rng):
    model = random_model(rng, extreme=True)
    np.testing.assert_allclose(finding_marginals(model), reference.finding_marginals(model), rtol=1e-12)


def test_finding_marginals_refuse_coupled_conditions(rng):
    with pytest.raises(QueryError, match="coupling"):
        finding_marginals(random_model(rng, coupled=True))


@pytest.mark.parametrize(
    ("X", "Y", "problem"),
    [
        ([[0, 12]], [[0] * 5], "names index 12"),
        ([[0.5]], [[0] * 5], "integer"),
        ([[[1]]], [[0] * 5], "dimensions"),
        ([[0]], [[0] * 4], "Y has shape"),
        (np.zeros((1, 3)), [[0] * 5], "3 columns"),
    ],
)
def test_what_log_joint_refuses(rng, X, Y, problem):
    with pytest.raises(QueryError, match=problem):
        log_joint(random_model(rng), X, Y)
