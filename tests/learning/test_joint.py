"""The default learner on visits that are drawn from a known model."""

from __future__ import annotations

import numpy as np
import scipy.sparse as sp
from scipy.special import expit

from whatelse.learning.joint import fit_joint, typical_rates
from whatelse.learning.objective import Labels
from whatelse.learning.prior import NAME, Prior
from whatelse.noisyor.inference.posterior import posterior

M, N = 3, 23
COLUMNS = np.arange(N - M, N)
NAMES = np.full(M, NAME)


def department(visits: int, seed: int) -> tuple[sp.csr_matrix, np.ndarray, np.ndarray]:
    """Visits with a logistic truth: findings (V, N) with noisy anchors, conditions (V, M), weights."""
    rng = np.random.default_rng(seed)
    W = np.where(np.random.default_rng(1).random((M, N - M)) < 0.3, 2.0, 0.0)
    x = rng.random((visits, N - M)) < 0.15
    Y = rng.random((visits, M)) < expit(-3.5 + x @ W.T)
    A = np.where(Y, rng.random(Y.shape) < 0.5, rng.random(Y.shape) < 0.05)
    return sp.csr_matrix(np.hstack([x, A]).astype(np.uint8)), Y, W


def known(W: np.ndarray) -> Prior:
    weight = np.hstack([W, np.zeros((M, M))])
    return Prior(
        np.array([weight, 0 * weight]), np.zeros((M, M)), np.full(M, 0.1), ((),) * M, NAMES, np.zeros((M, N), bool)
    )


def labels_of(X: sp.csr_matrix, Y: np.ndarray, rows: slice) -> Labels:
    part = Y[rows].astype(float)
    return Labels(sp.csr_matrix(X[rows], dtype=float), part, np.ones(part.shape), part)


def loss(X: sp.csr_matrix, Y: np.ndarray, prior: Prior, labelled: int) -> float:
    """Log loss on other visits of what was learned from these."""
    rates, share = typical_rates(X[:, COLUMNS].toarray().mean(0), NAMES, prior.share)
    lesson = labels_of(X, Y, slice(labelled)) if labelled else None
    fit = fit_joint(X, COLUMNS, prior, rates, share, lesson)
    test, truth, _ = department(2000, 99)
    p = np.clip(posterior(fit.model, test, top=0).marginals, 1e-9, 1 - 1e-9)
    return float(-np.where(truth, np.log(p), np.log1p(-p)).mean())


def test_labels_and_knowledge_each_make_answers_better() -> None:
    X, Y, W = department(3000, 7)
    flat = known(np.zeros((M, N - M)))
    alone, taught, told = loss(X, Y, flat, 0), loss(X, Y, flat, 1500), loss(X, Y, known(W), 0)
    assert taught < alone and told < alone


def test_with_many_labels_wrong_knowledge_does_not_hurt() -> None:
    X, Y, W = department(4000, 8)
    wrong = known(np.roll(W, 1, axis=0))
    assert loss(X, Y, wrong, 4000) < loss(X, Y, known(np.zeros((M, N - M))), 4000) + 0.01


def test_labels_tell_the_rates_of_anchors() -> None:
    X, Y, W = department(4000, 9)
    rates, share = typical_rates(np.full(M, 0.1), NAMES, np.full(M, np.nan))
    fit = fit_joint(X, COLUMNS, known(W), rates, share, labels_of(X, Y, slice(None)))
    ratio = np.log(fit.rates[0] / fit.rates[1])
    assert np.abs(ratio - np.log(0.5 / 0.05)).max() < 0.4


def test_the_same_visits_give_the_same_model() -> None:
    X, Y, W = department(1000, 10)
    rates, share = typical_rates(np.full(M, 0.1), NAMES, np.full(M, np.nan))
    one, two = (fit_joint(X, COLUMNS, known(W), rates, share, labels_of(X, Y, slice(200))) for _ in "ab")
    assert np.array_equal(one.weight, two.weight) and one.history == two.history


def test_typical_rates_follow_shares_that_agree_with_the_anchors() -> None:
    fires, share = np.array([0.02, 0.04, 0.06, 0.08]), np.array([0.03, 0.04, 0.06, 0.06])
    (sensitivity, false_positive), prior = typical_rates(fires, np.full(4, NAME), share)
    assert np.allclose(prior * sensitivity + (1 - prior) * false_positive, fires, rtol=0.05)
    assert prior[0] / fires[0] > prior[3] / fires[3]


def test_a_silent_anchor_says_nothing() -> None:
    X, Y, W = department(1000, 11)
    quiet = sp.csr_matrix(X.toarray() * (np.arange(N) != N - 1))
    rates, share = typical_rates(np.array([0.1, 0.1, 0.0]), NAMES, np.full(M, np.nan))
    fit = fit_joint(quiet, COLUMNS, known(W), rates, share, labels_of(quiet, Y, slice(500)))
    assert fit.model.evidence.weight[M - 1, N - 1] == 0.0


def test_a_stated_condition_is_likely_without_labels() -> None:
    X, _, W = department(100, 9)  # few visits, which would overrule the prior
    prior = known(np.zeros((M, N - M)))
    column = int(np.argmax(W[0]))
    rates, share = typical_rates(X[:, COLUMNS].toarray().mean(0), NAMES, prior.share)
    visit = sp.csr_matrix(np.eye(1, N, column, dtype=np.uint8))
    before = posterior(fit_joint(X, COLUMNS, prior, rates, share).model, visit, top=0).marginals[0, 0]
    prior.own[0, column] = True
    after = posterior(fit_joint(X, COLUMNS, prior, rates, share).model, visit, top=0).marginals[0, 0]
    assert after > max(0.3, 2 * before)  # the anchor is silent, which speaks against it
