"""Conditions that are coupled and have no present finding: the sum over states against enumeration."""

from __future__ import annotations

from itertools import combinations
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from whatelse.noisyor import NoisyOr
from whatelse.noisyor.inference.enumeration import enumerate_posterior
from whatelse.noisyor.inference.pairwise import bound_factors, sum_pairwise
from whatelse.noisyor.inference.posterior import TOLERANCE, posterior
from whatelse.types import Floats

ROUNDING = 1e-12
seeds = st.integers(0, 2**32 - 1)


def pairwise(rng: np.random.Generator, m: int, scale: float, mean: float) -> NoisyOr:
    """Couplings alone, as the default learner gives them: no finding has a cause."""
    J = np.triu(rng.normal(mean, scale, (m, m)), 1)
    return NoisyOr(rng.uniform(0.01, 0.4, m), np.ones((m, 3)), np.full(3, 0.1), weight=np.zeros(3), coupling=J + J.T)


def tree(size: int) -> tuple[np.ndarray, ...]:
    return tuple(np.empty(size, np.int32 if k in (0, 1, 2, 7) else float) for k in range(8))


@settings(max_examples=80, deadline=None)
@given(
    seeds,
    st.integers(2, 9),
    st.sampled_from([0.5, 3.0]),
    st.sampled_from([-2.0, 0.0, 0.7]),
    st.sampled_from([1.0, 9.0]),
)
def test_marginals_are_within_the_certificate(seed: int, m: int, scale: float, mean: float, size: float) -> None:
    rng = np.random.default_rng(seed)
    model, evidence = pairwise(rng, m, scale, mean), rng.normal(0.0, size, m)
    status = rng.choice(3, m, p=[0.7, 0.15, 0.15])
    asked: dict[str, Any] = dict(
        confirmed=np.flatnonzero(status == 1), rejected=np.flatnonzero(status == 2), evidence=evidence
    )
    exact = enumerate_posterior(model, [0], **asked)
    for tolerance, budget in ((0.2, 10**6), (1e-3, 10**6), (1e-9, 10**6), (1e-6, 1), (1e-6, 2 * m)):
        got = posterior(model, [0], **asked, tolerance=tolerance, budget=budget, top=0)
        assert np.abs(got.marginals - exact.marginals).max() <= got.error_bound + ROUNDING
        assert got.certified == (got.error_bound <= tolerance)
        assert got.certified or budget < 10**6
        if got.error_bound < 1 - 1e-9:  # nearer to 1 the bound has no digits left to say how much is missing
            assert exact.log_evidence + np.log1p(-got.error_bound) - 1e-6 <= got.log_evidence
        assert got.log_evidence <= exact.log_evidence + 1e-9


@pytest.mark.parametrize("seed", range(12))
def test_factors_bound_every_set_of_two_and_more(seed: int) -> None:
    rng = np.random.default_rng(seed)
    M = int(rng.integers(2, 8))
    J = np.triu(rng.normal((-1.5, 0.0, 0.8)[seed % 3], 1.5, (M, M)), 1)
    J += J.T
    b, bound = rng.uniform(0.01, 2.0, M), bound_factors(np.exp(J))
    for i in range(M):
        after = range(i + 1, M)
        r = b[i + 1 :] * bound[i, i + 1 :]
        sets = [list(T) for size in range(2, M) for T in combinations(after, size)]
        total = sum(np.prod(b[T]) * np.exp(J[i, T].sum() + J[np.ix_(T, T)].sum() / 2) for T in sets)
        assert total <= (np.prod(1.0 + r) - 1.0 - r.sum()) * (1 + 1e-12) + 1e-12


def test_numbers_out_of_range_go_to_the_search_over_states() -> None:
    J: Floats = np.array([[0.0, -3.0, 1.0], [-3.0, 0.0, 2.0], [1.0, 2.0, 0.0]])
    unary, mass = np.array([400.0, 399.0, -2.0]), np.empty(3)
    assert sum_pairwise(unary, J, np.exp(J), 1e-3, 1000, tree(1000), mass)[3] == 0.0
    prior = np.full(3, 0.5)
    model = NoisyOr(prior, np.ones((3, 1)), np.full(1, 0.1), weight=np.zeros(1), coupling=J)
    exact = enumerate_posterior(model, [0], evidence=unary)
    got = posterior(model, [0], evidence=unary, top=0)
    assert got.certified and np.abs(got.marginals - exact.marginals).max() <= 1e-3


def test_fewer_states_than_the_search_and_the_same_answer() -> None:
    """Thirty conditions that exclude one another, as in notes of injuries."""
    rng = np.random.default_rng(3)
    model, evidence = pairwise(rng, 30, 0.8, -2.0), rng.normal(-1.0, 2.0, (50, 30))
    visits = [np.empty(0, np.int64)] * 50
    fast, slow = posterior(model, visits, evidence=evidence, top=0), posterior(model, visits, evidence=evidence, top=1)
    assert fast.certified.all() and slow.certified.all()
    assert np.abs(fast.marginals - slow.marginals).max() <= 2 * TOLERANCE
    assert 2 * fast.states.sum() < slow.states.sum()
