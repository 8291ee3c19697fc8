"""Excuses: the identity they rest on, planted ones are found, true mentions and data that obeys the model have none."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import scipy.sparse as sp

from tests.support import reference
from whatelse.noisyor import NoisyOr, sample
from whatelse.noisyor.anchored.excuses import LEAST, excused, find_excuses, refuted
from whatelse.noisyor.mle import edit_anchors


def network(rng: np.random.Generator, m: int, n: int) -> NoisyOr:
    """Anchors are the first m findings."""
    fail = np.where(rng.random((m, n)) < 0.3, rng.uniform(0.2, 0.9, (m, n)), 1.0)
    model = NoisyOr(rng.uniform(0.05, 0.3, m), fail, rng.uniform(0.001, 0.1, n))
    return edit_anchors(model, np.arange(m), rng.uniform(0.3, 0.8, m), rng.uniform(0.001, 0.05, m))


def sensitivity(model: NoisyOr) -> np.ndarray:
    own = np.arange(model.m)
    return 1 - (1 - model.leak[own]) * model.fail[own, own]


def test_cases_split_by_sensitivity_beside_every_finding(rng: np.random.Generator) -> None:
    """P(A=1, Y=1, X_j=1) = s / (1 - s) P(A=0, Y=1, X_j=1) by enumeration, also where conditions go together."""
    m, n = 4, 10
    plain = network(rng, m, n)
    coupling = np.triu(rng.normal(0, 2, (m, m)), 1)
    model = NoisyOr(plain.prior, plain.fail, plain.leak, coupling=coupling + coupling.T)
    firing, silent = np.zeros((m, n)), np.zeros((m, n))
    for y in reference.states(m):
        weight = np.prod(np.where(y, model.prior, 1 - model.prior)) * np.exp(0.5 * np.array(y) @ model.coupling @ y)
        on = np.array([reference.probability_on(model, j, y) for j in range(n)])
        for i in np.flatnonzero(y):
            firing[i] += weight * on[i] * on  # given y, an anchor and another finding are independent
            silent[i] += weight * (1 - on[i]) * on
    s = sensitivity(model)[:, None]
    others = ~np.eye(m, n, dtype=bool)  # an anchor beside itself is not the question
    np.testing.assert_allclose(firing[others], (s / (1 - s) * silent)[others], rtol=1e-12)


def visits(rng: np.random.Generator, count: int = 8000) -> tuple[np.ndarray, np.ndarray, NoisyOr]:
    """Visits of four conditions; finding 30 is put in by the tests."""
    model = network(rng, 4, 60)
    model = replace(model, prior=model.prior / 3)
    X, Y = sample(model, count, rng)
    dense = X.toarray()
    dense[:, 30] = 0
    return dense, Y, model


def excuses(X: np.ndarray, model: NoisyOr) -> list[list[int]]:
    found = find_excuses(sp.csr_matrix(X), np.arange(4), model.prior, sensitivity(model), np.random.default_rng(0))
    return [[int(i), int(j)] for i, j in np.argwhere(found)]


def test_a_context_that_breaks_the_bound_excuses_its_anchor_and_no_other(rng: np.random.Generator) -> None:
    X, _, model = visits(rng)
    context = rng.random(len(X)) < 0.03
    X[:, 30] = context
    X[context, 2] = rng.random(context.sum()) < 0.97  # beside it, anchor 2 is a mere mention
    assert excuses(X, model) == [[2, 30]]


def test_a_context_with_other_uses_is_found_by_counting(rng: np.random.Generator) -> None:
    """Beside it the anchor fires far less often than the condition allows, yet hardly ever with the condition."""
    X, _, model = visits(rng, 20_000)
    mention = rng.random(len(X)) < 0.02
    X[mention, 2] = 1
    X[:, 30] = mention | (rng.random(len(X)) < 0.03)
    beside = X[X[:, 30] == 1, 2].mean()
    assert beside < 0.95 * sensitivity(model)[2]
    assert excuses(X, model) == [[2, 30]]


def test_a_word_seen_only_beside_true_anchors_is_no_excuse(rng: np.random.Generator) -> None:
    """It breaks the bound, but the rest of those visits speaks for the condition as it does beside other anchors."""
    X, Y, model = visits(rng)
    X[:, 30] = (X[:, 2] == 1) & Y[:, 2] & (rng.random(len(X)) < 0.4)
    assert X[:, 30].sum() > 50 and X[X[:, 30] == 1, 2].all()
    assert excuses(X, model) == []


def test_a_rare_context_is_not_enough(rng: np.random.Generator) -> None:
    X, _, model = visits(rng)
    few = rng.permutation(len(X))[: LEAST - 1]
    X[few, 30] = X[few, 2] = 1
    assert excuses(X, model) == []


def test_data_that_obeys_the_model_has_next_to_no_excuses() -> None:
    flagged = total = 0
    for seed in range(12):
        rng = np.random.default_rng(seed)
        X, _, model = visits(rng, 4000)
        flagged += len(excuses(X, model))
        total += 4 * 56
    assert flagged <= 0.002 * total


def test_anchors_excuse_nothing(rng: np.random.Generator) -> None:
    X, _, model = visits(rng)
    X[:, 1] |= X[:, 2]  # anchor 1 fires wherever anchor 2 does
    assert all(j >= 4 for _, j in excuses(X, model))


def test_excused_visits_are_those_with_an_excusing_finding(rng: np.random.Generator) -> None:
    X, excuse = rng.random((20, 6)) < 0.3, rng.random((3, 6)) < 0.3
    found = excused(sp.csr_matrix(X.astype(np.uint8)), excuse)
    for v in range(20):
        for i in range(3):
            assert found[v, i] == any(X[v, j] and excuse[i, j] for j in range(6))


def test_what_is_refused_is_no_excuse_and_labels_refute(rng: np.random.Generator) -> None:
    X, Y, model = visits(rng)
    mention = ~Y[:, 0] & (rng.random(len(X)) < 0.05)
    X[:, 30] = mention
    X[mention, 0] = 1
    args = sp.csr_matrix(X.astype(np.uint8)), np.arange(4), model.prior, sensitivity(model)
    assert find_excuses(*args, np.random.default_rng(0))[0, 30]
    refused = np.zeros((4, X.shape[1]), bool)
    refused[0, 30] = True
    assert not find_excuses(*args, np.random.default_rng(0), refused)[0, 30]

    known = rng.random(Y.shape) < 0.5
    found = refuted(args[0], args[1], Y, known)
    for i in range(4):
        for j in range(X.shape[1]):
            beside = (X[:, i] > 0) & (X[:, j] > 0) & known[:, i]
            true, false = (beside & Y[:, i]).sum(), (beside & ~Y[:, i]).sum()
            assert found[i, j] == (true > 0 and true >= false)
    assert not found[0, 30]
