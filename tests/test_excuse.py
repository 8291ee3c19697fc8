"""Excuses: the bound they rest on, a planted one is found, and data that obeys the model has next to none."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp

import reference
from whatelse.noisyor import NoisyOr, sample
from whatelse.noisyor.excuse import excused, excusing
from whatelse.noisyor.mle import edit_anchors


def network(rng: np.random.Generator, m: int, n: int) -> NoisyOr:
    """Anchors are the first m findings."""
    fail = np.where(rng.random((m, n)) < 0.3, rng.uniform(0.2, 0.9, (m, n)), 1.0)
    model = NoisyOr(rng.uniform(0.05, 0.3, m), fail, rng.uniform(0.001, 0.1, n))
    return edit_anchors(model, np.arange(m), rng.uniform(0.3, 0.8, m), rng.uniform(0.001, 0.05, m))


def sensitivity(model: NoisyOr) -> np.ndarray:
    own = np.arange(model.m)
    return 1 - (1 - model.leak[own]) * model.fail[own, own]


def test_no_finding_takes_an_anchor_past_its_sensitivity(rng: np.random.Generator) -> None:
    """P(A_i=1 | X_j=1) <= s_i by enumeration, also where conditions go together and where j all but proves one."""
    m, n = 4, 10
    plain = network(rng, m, n)
    fail, leak = plain.fail.copy(), plain.leak.copy()
    fail[:, m], leak[m] = 1.0, 1e-9
    fail[0, m] = 0.3  # finding m is seen with condition 0 and hardly without
    coupling = np.triu(rng.normal(0, 2, (m, m)), 1)
    model = NoisyOr(plain.prior, fail, leak, coupling=coupling + coupling.T)
    anchor = np.zeros((m, n))
    finding = np.zeros(n)
    for y in reference.states(m):
        weight = np.prod(np.where(y, model.prior, 1 - model.prior)) * np.exp(0.5 * np.array(y) @ model.coupling @ y)
        on = np.array([reference.probability_on(model, j, y) for j in range(n)])
        finding += weight * on
        anchor += weight * np.outer(on[:m], on)  # given y, an anchor and another finding are independent
    together = anchor / finding
    allowed = ~np.eye(m, n, dtype=bool)  # an anchor beside itself is not the question
    assert (together <= sensitivity(model)[:, None] + 1e-12)[allowed].all()
    assert together[0, m] == pytest.approx(sensitivity(model)[0], abs=1e-6)  # the bound is reached, so it is tight


def test_a_planted_context_excuses_its_anchor_and_no_other(rng: np.random.Generator) -> None:
    model = network(rng, 4, 40)
    X = sample(model, 5000, rng)[0].toarray()
    context = rng.random(5000) < 0.03
    X[:, 30] = context
    X[context, 2] = rng.random(context.sum()) < 0.97  # beside it, anchor 2 is a mere mention
    found = excusing(sp.csr_matrix(X), np.arange(4), sensitivity(model))
    assert found[2, 30]
    assert not found[[0, 1, 3]].any() and found[2].sum() == 1


def test_a_rare_context_is_not_enough(rng: np.random.Generator) -> None:
    """Two visits out of two prove nothing against a sensitivity of 0.6."""
    X = np.zeros((100, 3), np.uint8)
    X[:2] = 1
    assert not excusing(sp.csr_matrix(X), [0], [0.6]).any()
    X[:40] = 1
    assert excusing(sp.csr_matrix(X), [0], [0.6])[0, 1:].all()


def test_data_that_obeys_the_model_has_next_to_no_excuses() -> None:
    flagged = total = 0
    for seed in range(12):
        rng = np.random.default_rng(seed)
        model = network(rng, 5, 80)
        X, _ = sample(model, 4000, rng)
        flagged += int(excusing(X, np.arange(5), sensitivity(model)).sum())
        total += 5 * 75
    assert flagged <= 0.002 * total


def test_anchors_and_findings_never_seen_excuse_nothing(rng: np.random.Generator) -> None:
    X = np.zeros((50, 4), np.uint8)
    X[:, :2] = 1  # two anchors that always fire together
    assert not excusing(sp.csr_matrix(X), [0, 1], [0.5, 0.5]).any()


def test_excused_visits_are_those_with_an_excusing_finding(rng: np.random.Generator) -> None:
    X, excuse = rng.random((20, 6)) < 0.3, rng.random((3, 6)) < 0.3
    found = excused(sp.csr_matrix(X.astype(np.uint8)), excuse)
    for v in range(20):
        for i in range(3):
            assert found[v, i] == any(X[v, j] and excuse[i, j] for j in range(6))
