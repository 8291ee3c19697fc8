"""Draws from a model against loops, and what is refused as rows of findings."""

from __future__ import annotations

import numpy as np
import pytest

from tests.support import reference
from whatelse.errors import QueryError
from whatelse.noisyor import NoisyOr
from whatelse.noisyor.likelihood import as_rows, sample


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


def test_sample_follows_the_model(rng):
    model = random_model(rng, m=3, n=8, extreme=True)
    X, Y = sample(model, 40_000, rng)
    assert X.dtype == np.uint8 and X.shape == (40_000, 8) and Y.dtype == bool
    np.testing.assert_allclose(Y.mean(0), model.prior, atol=0.012)
    np.testing.assert_allclose(np.asarray(X.mean(0)).ravel(), reference.finding_marginals(model), atol=0.012)
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


@pytest.mark.parametrize(
    ("X", "problem"),
    [([[0, 12]], "names index 12"), ([[0.5]], "integer"), ([[[1]]], "dimensions"), (np.zeros((1, 3)), "3 columns")],
)
def test_rows_that_are_refused(X, problem):
    with pytest.raises(QueryError, match=problem):
        as_rows(X, 12, "X")
