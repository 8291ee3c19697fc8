"""Branch and bound against enumeration: marginals and certificates."""

from __future__ import annotations

import numpy as np
import pytest

from whatelse.noisyor import NoisyOr, enumerate_posterior, posterior
from whatelse.noisyor.inference import solver as module


@pytest.mark.parametrize("seed", range(40))
def test_marginals_are_within_the_certificate(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MANY", 0)
    monkeypatch.setattr(module, "NODES", 1_000)
    rng = np.random.default_rng(100 + seed)
    m, n = int(rng.integers(2, 9)), 12
    edges = rng.random((m, n)) < 0.4
    model = NoisyOr(
        prior=rng.uniform(0.01, 0.4, m),
        fail=np.where(edges, rng.uniform(0.03, 1, (m, n)), 1.0),
        leak=rng.uniform(1e-5, 0.3, n),
        weight=rng.choice([0.5, 0.85, 1.0], n),
    )
    present = np.flatnonzero(rng.random(n) < 0.5)
    confirmed, rejected = ([0], [1]) if seed % 2 and m > 2 else ([], [])
    evidence = rng.normal(0, 1, m)
    exact = enumerate_posterior(model, present, confirmed=confirmed, rejected=rejected, evidence=evidence)
    for tolerance in (0.2, 0.01, 1e-4):
        found = posterior(model, present, None, confirmed, rejected, evidence=evidence, tolerance=tolerance)
        assert found.error_bound <= tolerance * 1.1
        assert np.abs(found.marginals - exact.marginals).max() <= found.error_bound + 1e-12
        assert abs(found.log_evidence - exact.log_evidence) <= 2.2 * tolerance
        merged = posterior(model, present, None, confirmed, rejected, evidence=evidence, tolerance=tolerance, top=0)
        assert merged.error_bound <= tolerance * 1.1
        assert np.abs(merged.marginals - exact.marginals).max() <= merged.error_bound + 1e-12
        assert abs(merged.log_evidence - exact.log_evidence) <= 2.2 * tolerance
    assert (found.probabilities[0] >= found.probabilities[1:]).all()


@pytest.mark.parametrize("seed", range(10))
def test_conditions_with_one_finding_are_summed_out_exactly(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MANY", 0)
    rng = np.random.default_rng(seed)
    m, n = 10, 3
    fail = np.ones((m, n))
    fail[np.arange(m), rng.integers(n, size=m)] = rng.uniform(0.01, 0.99, m)
    fail[0] = rng.uniform(0.1, 0.9, n)
    weight = np.array([1.0, 1.0, 0.6])
    model = NoisyOr(prior=rng.uniform(0.001, 0.6, m), fail=fail, leak=rng.uniform(1e-6, 0.2, n), weight=weight)
    exact, found = enumerate_posterior(model, np.arange(n)), posterior(model, np.arange(n), tolerance=1e-9, top=0)
    assert np.abs(found.marginals - exact.marginals).max() <= 1e-8
    assert abs(found.log_evidence - exact.log_evidence) <= 1e-8


def test_a_sparse_network_of_300_conditions_is_certified_fast() -> None:
    rng = np.random.default_rng(5)
    m, n = 300, 1500
    fail = np.ones((m, n))
    for i in range(m):
        fail[i, rng.choice(n, 15, replace=False)] = rng.uniform(0.2, 0.95, 15)
    model = NoisyOr(rng.uniform(1e-4, 0.01, m), fail, rng.uniform(0.001, 0.01, n), absence=np.zeros(n))
    visits = [np.flatnonzero(rng.random(n) < 1 - fail[rng.integers(m)])[:12] for _ in range(40)]
    found = posterior(model, visits, tolerance=1e-3)
    assert found.certified.mean() >= 0.9 and np.median(found.states) < 200
