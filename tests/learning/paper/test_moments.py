"""Moments: counts, denoising against a slow optimiser, and consistency on data that obey the model."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp
from scipy.optimize import minimize

from whatelse.annotators import NoiseRates
from whatelse.errors import ModelError
from whatelse.learning.paper.moments import Counts, denoise, moments_model
from whatelse.noisyor.mle import edit_anchors
from whatelse.noisyor.params import NoisyOr

M, N_FINDINGS = 4, 12
COLUMNS = np.array([3, 0, 11, 7])
SENSITIVITY = np.array([0.8, 0.5, 0.6, 0.9])
FALSE_POSITIVE = np.array([0.05, 0.02, 0.1, 0.01])


def truth(rng: np.random.Generator) -> NoisyOr:
    fail = np.where(rng.random((M, N_FINDINGS)) < 0.5, 1.0, rng.uniform(0.3, 0.9, (M, N_FINDINGS)))
    model = NoisyOr(rng.uniform(0.1, 0.3, M), fail, rng.uniform(0.05, 0.2, N_FINDINGS))
    return edit_anchors(model, COLUMNS, SENSITIVITY, FALSE_POSITIVE)


def draw(model: NoisyOr, visits: int, rng: np.random.Generator) -> tuple[sp.csr_matrix, np.ndarray]:
    Y = rng.random((visits, model.m)) < model.prior
    off = (1 - model.leak) * np.exp(Y @ np.log(model.fail))
    return sp.csr_matrix((rng.random((visits, model.n)) > off).astype(np.uint8)), Y


def test_counts_are_exact() -> None:
    X, _ = draw(truth(np.random.default_rng(0)), 1700, np.random.default_rng(1))
    dense = X.toarray().astype(int)
    whole = Counts.of(X, COLUMNS)
    assert whole.visits == 1700
    np.testing.assert_array_equal(whole.findings, dense.sum(0))
    np.testing.assert_array_equal(whole.both, dense[:, COLUMNS].T @ dense)
    assert whole.both.max() > 255 and whole.both.dtype == np.int64  # X is uint8: sums must not wrap
    np.testing.assert_array_equal(whole.anchors, dense.sum(0)[COLUMNS])


def slow_kl(q1: float, q0: float, r1: float, r0: float, w1: float) -> tuple[float, float, float]:
    """The constrained problem of one pair by a general optimiser, from several starts: (KL, u1, u0)."""

    def kl(u: np.ndarray) -> float:
        total = 0.0
        for q, r, w in ((q1, r1, w1), (q0, r0, 1 - w1)):
            p = r * u[0] + (1 - r) * u[1]
            for a, b in ((q, p), (1 - q, 1 - p)):
                total += w * a * np.log(a / max(b, 1e-300)) if a > 0 else 0.0
        return total

    starts = ([0.5, 0.5], [0.1, 0.1], [0.9, 0.1], [q1, q0])
    runs = [minimize(kl, s, bounds=[(0, 1)] * 2, options={"ftol": 1e-15, "gtol": 1e-10}) for s in starts]
    best = min(runs, key=lambda run: run.fun)
    return float(best.fun), *map(float, best.x)


def rates_given_anchor(prior: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """P(Y=1 | A=1) and P(Y=1 | A=0) by writing out the 2 x 2 table."""
    table = np.array([[(1 - prior) * (1 - FALSE_POSITIVE), (1 - prior) * FALSE_POSITIVE],
                      [prior * (1 - SENSITIVITY), prior * SENSITIVITY]])  # fmt: skip
    return table[1, 1] / table[:, 1].sum(0), table[1, 0] / table[:, 0].sum(0)


@pytest.mark.parametrize("visits", [30, 300, 3000])
def test_denoising_reaches_the_minimum_of_a_slow_optimiser(visits: int) -> None:
    model = truth(np.random.default_rng(2))
    X, _ = draw(model, visits, np.random.default_rng(visits))
    counts = Counts.of(X, COLUMNS)
    u1, u0 = denoise(counts, NoiseRates(model.prior, SENSITIVITY, FALSE_POSITIVE))
    q1, q0 = counts.rates
    r1, r0 = rates_given_anchor(model.prior)
    share = counts.anchors / visits
    on_the_edge = 0
    for i in range(M):
        for j in range(N_FINDINGS):
            best, *_ = slow_kl(q1[i, j], q0[i, j], r1[i], r0[i], share[i])
            value = 0.0
            for q, r, w in ((q1[i, j], r1[i], share[i]), (q0[i, j], r0[i], 1 - share[i])):
                p = r * u1[i, j] + (1 - r) * u0[i, j]
                value += sum(w * a * np.log(a / b) for a, b in ((q, p), (1 - q, 1 - p)) if a > 0)
            assert value == pytest.approx(best, abs=1e-7)
            on_the_edge += best > 1e-6
    assert on_the_edge > 0 or visits == 3000  # the constraint did something


def test_denoised_moments_are_those_of_the_true_conditions() -> None:
    """Against simulation, as the paper's printed matrix would fail it."""
    model = truth(np.random.default_rng(3))
    X, Y = draw(model, 400_000, np.random.default_rng(4))
    counts = Counts.of(X, COLUMNS)
    dense = X.toarray()
    others = np.setdiff1d(np.arange(N_FINDINGS), COLUMNS)
    u1, u0 = denoise(counts, NoiseRates(model.prior, SENSITIVITY, FALSE_POSITIVE))
    for i in range(M):
        np.testing.assert_allclose(u1[i, others], dense[Y[:, i]].mean(0)[others], atol=0.015)
        np.testing.assert_allclose(u0[i, others], dense[~Y[:, i]].mean(0)[others], atol=0.01)


def test_error_falls_like_one_over_root_n() -> None:
    model = truth(np.random.default_rng(7))
    rng = np.random.default_rng(8)
    others = np.setdiff1d(np.arange(N_FINDINGS), COLUMNS)
    errors = []
    for visits in (4_000, 400_000):
        squares = []
        for _ in range(4):
            counts = Counts.of(draw(model, visits, rng)[0], COLUMNS)
            found = moments_model(counts, NoiseRates(model.prior, SENSITIVITY, FALSE_POSITIVE), COLUMNS)
            squares.append(np.mean((found.fail - model.fail)[:, others] ** 2) + np.mean((found.leak - model.leak) ** 2))
        errors.append(np.sqrt(np.mean(squares)))
    assert 6 < errors[0] / errors[1] < 17  # a hundred times the visits, a tenth of the error


def test_the_model_has_its_anchors_and_priors_from_the_noise_rates() -> None:
    model = truth(np.random.default_rng(11))
    counts = Counts.of(draw(model, 500, np.random.default_rng(12))[0], COLUMNS)
    found = moments_model(counts, NoiseRates(model.prior, SENSITIVITY, FALSE_POSITIVE), COLUMNS)
    np.testing.assert_array_equal(found.prior, model.prior)
    np.testing.assert_allclose(found.fail[:, COLUMNS], model.fail[:, COLUMNS])
    np.testing.assert_allclose(found.leak[COLUMNS], FALSE_POSITIVE)


def test_no_edge_is_surer_than_its_visits_can_show() -> None:
    """A finding in all ten anchored visits: f is 1 / (10 + 2), not 0."""
    X = np.zeros((200, 3), np.uint8)
    X[:10, [0, 1]] = 1
    model = moments_model(Counts.of(sp.csr_matrix(X), [0]), NoiseRates([0.05], [0.9], [0.001]), [0])
    assert model.fail[0, 1] == pytest.approx(1 / 12)


def test_leaks_make_the_model_agree_with_the_overall_rates() -> None:
    """Quickscore: P(X_j=0) = (1 - l_j) prod_i (1 - pi_i + pi_i f_ij)."""
    model = truth(np.random.default_rng(13))
    counts = Counts.of(draw(model, 5000, np.random.default_rng(14))[0], COLUMNS)
    found = moments_model(counts, NoiseRates(model.prior, SENSITIVITY, FALSE_POSITIVE), COLUMNS)
    predicted = (1 - found.leak) * np.prod(1 - found.prior[:, None] * (1 - found.fail), axis=0)
    others = np.setdiff1d(np.flatnonzero(found.leak > 1e-6), COLUMNS)
    assert len(others) >= 6
    np.testing.assert_allclose(predicted[others], 1 - counts.findings[others] / 5000, rtol=1e-10)


def test_empty_groups_and_constant_findings_give_a_valid_model() -> None:
    X = np.zeros((40, 6), np.uint8)
    X[:, 2] = 1  # always seen; finding 3 never is; anchor 0 never fires, anchor 1 always
    X[:, 1] = 1
    X[:20, 4] = 1
    counts = Counts.of(sp.csr_matrix(X), [0, 1])
    model = moments_model(counts, NoiseRates([0.1, 0.5], [0.9, 0.9], [0.0, 0.1]), [0, 1])
    assert (model.fail > 0).all() and (model.leak[2:] > 0).all() and (model.leak[2:] < 1).all()


def test_what_is_refused() -> None:
    counts = Counts.of(sp.csr_matrix(np.eye(4, dtype=np.uint8)), [0, 1])
    with pytest.raises(ModelError, match="the anchor of '1' fires no more often"):
        denoise(counts, NoiseRates([0.1, 0.1], [0.5, 0.1], [0.1, 0.1]))
    with pytest.raises(ModelError, match="counts have 2 conditions"):
        denoise(counts, NoiseRates([0.1], [0.5], [0.1]))
    with pytest.raises(ModelError, match="numbers from 0 to 3"):
        Counts.of(sp.csr_matrix(np.eye(4, dtype=np.uint8)), [0, 4])
