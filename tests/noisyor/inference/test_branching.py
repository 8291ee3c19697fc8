"""Branch and bound against enumeration: sums over couplings, marginals, certificates."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest

from whatelse.noisyor import NoisyOr, enumerate_posterior, posterior
from whatelse.noisyor.inference import posterior as module
from whatelse.noisyor.inference.pairs import elimination_tree, log_sum, marginals, sparse_couplings, width_of
from whatelse.noisyor.inference.query import lay_out


def random_couplings(rng: np.random.Generator, m: int, density: float = 0.4) -> np.ndarray:
    upper = np.triu(rng.normal(0, 1.5, (m, m)) * (rng.random((m, m)) < density), 1)
    return upper + upper.T


@pytest.mark.parametrize("seed", range(20))
def test_sums_over_couplings_match_enumeration(seed: int) -> None:
    rng = np.random.default_rng(seed)
    m = int(rng.integers(1, 9))
    coupling, odds = random_couplings(rng, m), np.exp(rng.normal(0, 3, m)) * (rng.random(m) < 0.9)
    tree = elimination_tree(coupling)
    tables, messages, back = (np.empty_like(tree.pairs) for _ in range(3))
    total = log_sum(odds, tree, tables, messages)
    chance = np.empty(m)
    marginals(odds, tree, tables, messages, back, chance)
    states = np.array(list(product([0, 1], repeat=m)))
    weight = np.prod(np.where(states == 1, odds, 1.0), 1)
    weight = weight * np.exp(0.5 * np.einsum("vi,ik,vk->v", states, coupling, states))
    assert total == pytest.approx(np.log(weight.sum()), abs=1e-9)
    np.testing.assert_allclose(chance, weight @ states / weight.sum(), atol=1e-9)


def test_sparse_couplings_keep_the_most_important_within_the_width() -> None:
    rng = np.random.default_rng(3)
    coupling = random_couplings(rng, 30, 0.5)
    kept = sparse_couplings(coupling, np.abs(coupling), 4)
    assert width_of(kept) <= 4 < width_of(coupling)
    assert np.abs(kept[kept != 0]).min() >= np.abs(coupling[(coupling != 0) & (kept == 0)]).max()


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
        coupling=random_couplings(rng, m),
    )
    present = np.flatnonzero(rng.random(n) < 0.5)
    confirmed, rejected = ([0], [1]) if seed % 2 and m > 2 else ([], [])
    evidence = rng.normal(0, 1, m)
    _, query = lay_out(model, present, None, confirmed, rejected, None, evidence)
    exact = enumerate_posterior(model, query)
    for tolerance in (0.2, 0.01, 1e-4):
        found = posterior(model, present, None, confirmed, rejected, evidence=evidence, tolerance=tolerance)
        assert found.error_bound <= tolerance * 1.1
        assert np.abs(found.marginals - exact.marginals).max() <= found.error_bound + 1e-12
        assert abs(found.log_evidence - exact.log_evidence) <= -np.log1p(-min(2 * found.error_bound, 0.9)) + 1e-9
    assert (found.probabilities[0] >= found.probabilities[1:]).all()


def test_a_sparse_network_of_300_conditions_is_certified_fast() -> None:
    rng = np.random.default_rng(5)
    m, n = 300, 1500
    fail = np.ones((m, n))
    for i in range(m):
        fail[i, rng.choice(n, 15, replace=False)] = rng.uniform(0.2, 0.95, 15)
    coupling = np.zeros((m, m))
    for _ in range(150):
        a, b = rng.choice(m, 2, replace=False)
        coupling[a, b] = coupling[b, a] = rng.uniform(0.5, 2.5)
    coupling = sparse_couplings(coupling, np.abs(coupling), 5)
    model = NoisyOr(
        rng.uniform(1e-4, 0.01, m), fail, rng.uniform(0.001, 0.01, n), absence=np.zeros(n), coupling=coupling
    )
    visits = [np.flatnonzero(rng.random(n) < 1 - fail[rng.integers(m)])[:12] for _ in range(40)]
    found = posterior(model, visits, tolerance=1e-3)
    assert found.certified.mean() >= 0.9 and np.median(found.states) < 200
