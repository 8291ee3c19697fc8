"""Baselines: what they must recover on data that obey the model, and that the unbiased loss is unbiased."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.linear_model import LogisticRegression

from whatelse.annotators import AnchorSet, NoiseRates
from whatelse.cohort import build_cohort
from whatelse.errors import ModelError
from whatelse.learning.baselines import _logistic, elkan_noto, naive_labels, noise_tolerant, oracle
from whatelse.noisyor.heldout_metrics import heldout_tag_draws, heldout_tag_scores, noisyor_scorer
from whatelse.noisyor.likelihood import sample
from whatelse.noisyor.mle import edit_anchors
from whatelse.noisyor.params import NoisyOr
from whatelse.sources import read_visits
from whatelse.sources.reader import VisitReader

M, N = 5, 45
COLUMNS = np.arange(40, 45)
SENSITIVITY = np.array([0.7, 0.5, 0.6, 0.8, 0.4])
FALSE_POSITIVE = np.array([0.05, 0.02, 0.1, 0.01, 0.03])
RATES = NoiseRates(np.full(5, 0.1), SENSITIVITY, FALSE_POSITIVE)  # for what needs no prior


@pytest.fixture(scope="module")
def data() -> tuple[NoisyOr, sp.csr_matrix, np.ndarray]:
    rng = np.random.default_rng(0)
    fail = np.where(rng.random((M, N)) < 0.3, rng.uniform(0.2, 0.8, (M, N)), 1.0)
    model = NoisyOr(rng.uniform(0.1, 0.3, M), fail, rng.uniform(0.02, 0.1, N))
    model = edit_anchors(model, COLUMNS, SENSITIVITY, FALSE_POSITIVE)
    X, Y = sample(model, 8000, rng)
    return model, sp.csr_matrix(X), Y


def test_naive_and_oracle_have_anchors_edited_and_priors_as_told(
    data: tuple[NoisyOr, sp.csr_matrix, np.ndarray],
) -> None:
    truth, X, Y = data
    naive = naive_labels(X, COLUMNS, NoiseRates(truth.prior, SENSITIVITY, FALSE_POSITIVE))
    best = oracle(X, Y, COLUMNS, RATES)
    np.testing.assert_array_equal(naive.prior, truth.prior)
    np.testing.assert_allclose(best.prior, Y.mean(0), atol=1e-3)
    for model in (naive, best):
        np.testing.assert_allclose(model.fail[:, COLUMNS], truth.fail[:, COLUMNS])
        np.testing.assert_allclose(model.leak[COLUMNS], FALSE_POSITIVE)
    rest = np.arange(40)
    assert np.abs(best.fail - truth.fail)[:, rest].mean() < 0.03
    # anchors miss conditions and fire without them, so edges look weaker than they are
    assert naive.fail[:, rest].mean() > best.fail[:, rest].mean() + 0.01


def test_order_of_the_baselines_on_held_out_tags(data: tuple[NoisyOr, sp.csr_matrix, np.ndarray]) -> None:
    truth, X, Y = data
    rates = (COLUMNS, NoiseRates(truth.prior, SENSITIVITY, FALSE_POSITIVE))
    draws = heldout_tag_draws(Y[6000:], draws=2)
    train, test = (X[:6000], Y[:6000]), (X[6000:], Y[6000:], draws)
    scorers = {
        "truth": noisyor_scorer(truth),
        "oracle": noisyor_scorer(oracle(*train, COLUMNS, RATES)),
        "naive": noisyor_scorer(naive_labels(train[0], *rates)),
        "tolerant": noise_tolerant(train[0], *rates, penalties=(10.0,)),
    }
    mrr = {name: heldout_tag_scores(scorer, *test, resamples=10).mrr.value for name, scorer in scorers.items()}
    assert mrr["truth"] > mrr["oracle"] - 0.02 and mrr["oracle"] > mrr["naive"]
    assert mrr["tolerant"] > 0.65  # chance is about 0.5 with four candidates


def test_unbiased_loss_has_the_clean_loss_as_its_mean() -> None:
    """E over the noise of the log loss with target tau is the log loss of the true label, for both labels."""
    t = np.linspace(-5, 5, 11)
    for sens, fpr in ((0.7, 0.05), (0.3, 0.2)):
        seen, unseen = (1 - fpr) / (sens - fpr), -fpr / (sens - fpr)

        def loss(tau: float) -> np.ndarray:
            return np.logaddexp(0, -t) + (1 - tau) * t

        np.testing.assert_allclose(sens * loss(seen) + (1 - sens) * loss(unseen), np.logaddexp(0, -t))
        np.testing.assert_allclose(fpr * loss(seen) + (1 - fpr) * loss(unseen), np.logaddexp(0, t))
        # and it is the definition of Natarajan et al.
        rho_plus, rho_minus = 1 - sens, fpr
        for a, tau in ((1, seen), (-1, unseen)):
            rho_a, rho_not = (rho_plus, rho_minus) if a == 1 else (rho_minus, rho_plus)
            paper = ((1 - rho_not) * np.logaddexp(0, -a * t) - rho_a * np.logaddexp(0, a * t)) / (
                1 - rho_plus - rho_minus
            )
            np.testing.assert_allclose(loss(tau), paper)


def test_logistic_fit_has_zero_gradient() -> None:
    rng = np.random.default_rng(2)
    X = sp.csr_matrix((rng.random((400, 12)) < rng.uniform(0.01, 0.5, 12)).astype(float))
    target = np.where(rng.random(400) < 0.3, 1.4, -0.1)
    w = _logistic(X, target, 5.0, np.zeros(13))
    residual = 1 / (1 + np.exp(-(X @ w[:-1] + w[-1]))) - target
    np.testing.assert_allclose(X.T @ residual + 5.0 * w[:-1], 0, atol=0.2)
    assert abs(residual.sum()) < 0.5


def test_noise_tolerant_probabilities_are_near_the_true_posterior() -> None:
    """One condition: a logistic regression can be exact, so corrected labels must give nearly the true posterior."""
    rng = np.random.default_rng(3)
    truth = edit_anchors(
        NoisyOr([0.3], np.array([[0.3, 0.5, 0.7, 0.9, 1.0]]), np.full(5, 0.1)), [4], np.array([0.5]), np.array([0.1])
    )
    X, Y = sample(truth, 40_000, rng)
    X = sp.csr_matrix(X)
    found = noise_tolerant(X, [4], NoiseRates([0.3], [0.5], [0.1]), penalties=(30_000.0, 1.0))
    p_on = 1 - (1 - truth.leak) * truth.fail[0] ** np.array([[0], [1]])
    likelihood = np.array([np.where(X[:, :4].toarray(), p[:4], 1 - p[:4]).prod(1) for p in p_on])
    exact = 0.3 * likelihood[1] / (0.7 * likelihood[0] + 0.3 * likelihood[1])
    unseen = X[:, [4]].toarray().ravel() == 0
    estimated = found.probability(X)[:, 0]
    assert np.abs(estimated - exact)[unseen].mean() < 0.03
    assert found.penalty[0] == 1.0
    assert (estimated[~unseen] == found.ppv[0]).all()
    assert found.ppv[0] == pytest.approx(Y[~unseen].mean(), abs=0.02)


def test_elkan_noto_against_the_recipe_written_out(data: tuple[NoisyOr, sp.csr_matrix, np.ndarray]) -> None:
    """Regress the anchor on the rest of the visit and divide by the sensitivity; with scikit-learn."""
    truth, X, _ = data
    X = X[:3000]
    found = elkan_noto(X, COLUMNS, NoiseRates(truth.prior, SENSITIVITY, FALSE_POSITIVE), penalties=(10.0,))
    rest, A = X.toarray().astype(float), X[:, COLUMNS].toarray()
    rest[:, COLUMNS] = 0.0
    estimated = found.probability(X)
    for i in range(M):
        regression = LogisticRegression(C=0.1, tol=1e-8, max_iter=2000).fit(rest, A[:, i])
        expected = np.minimum(regression.predict_proba(rest)[:, 1] / SENSITIVITY[i], 1)
        unseen = A[:, i] == 0
        np.testing.assert_allclose(estimated[unseen, i], expected[unseen], atol=5e-3)
        assert (estimated[~unseen, i] == found.ppv[i]).all()


def test_elkan_noto_finds_the_posterior_where_its_assumptions_hold() -> None:
    """An anchor that is never wrong, and a regression on one finding, which can be exact."""
    truth = edit_anchors(NoisyOr([0.3], [[0.2, 1.0]], [0.1, 0.1]), [1], np.array([0.4]), np.array([0.0]))
    X, _ = sample(truth, 40_000, np.random.default_rng(5))
    found = elkan_noto(X, [1], NoiseRates([0.3], [0.4], [0.0]), penalties=(0.1,))
    assert found.ppv[0] == 1
    seen, anchor = (X[:, [j]].toarray().ravel() == 1 for j in (0, 1))
    p_seen = np.array([0.1, 1 - 0.9 * 0.2])  # without and with the condition
    for x in (True, False):
        joint = (p_seen if x else 1 - p_seen) * [0.7, 0.3]
        rows = (seen == x) & ~anchor
        np.testing.assert_allclose(found.probability(X[rows])[:, 0], joint[1] / joint.sum(), atol=0.03)
    with pytest.raises(ModelError, match="the anchor of '0' fires no more often"):
        elkan_noto(X[:100], [1], NoiseRates([0.3], [0.1], [0.1]))


def test_anchors_are_not_used_by_the_classifiers(data: tuple[NoisyOr, sp.csr_matrix, np.ndarray]) -> None:
    truth, X, _ = data
    found = noise_tolerant(X[:1500], COLUMNS, NoiseRates(truth.prior, SENSITIVITY, FALSE_POSITIVE), penalties=(30.0,))
    assert (found.weight[COLUMNS] == 0).all()
    assert (found.weight[:40] != 0).all()


def test_useless_anchor_is_refused(data: tuple[NoisyOr, sp.csr_matrix, np.ndarray]) -> None:
    truth, X, _ = data
    with pytest.raises(ModelError, match="the anchor of '2' fires no more often"):
        noise_tolerant(X[:100], COLUMNS, NoiseRates(truth.prior, np.array([0.5, 0.5, 0.1, 0.5, 0.5]), np.full(5, 0.1)))


@pytest.mark.slow
@pytest.mark.data
def test_naive_and_oracle_come_out_on_real_visits_as_first_measured(data_folder: Path) -> None:
    """NHAMCS, learned from 2016-2017, tested on 2018: within 0.015 of the figures the project was given."""
    folder = data_folder / "nhamcs"

    def visits(*years: int) -> VisitReader:
        return read_visits([folder / f"ed{year}_sas.zip" for year in years], "nhamcs", labels=folder)

    anchors = AnchorSet.load(folder / "conditions.json")
    train = build_cohort(visits(2016, 2017), anchors, max_terms=None, min_visits=10)
    test = build_cohort(visits(2018), like=train)
    assert train.Y is not None and test.Y is not None
    rates = NoiseRates.from_labels(train.A, train.Y)
    told = NoiseRates(rates.prior, rates.sensitivity, rates.false_positive)
    draws = heldout_tag_draws(test.Y, draws=3)
    assert len(draws.rows) == 1177
    for model, figures in (
        (naive_labels(train.X, train.anchor_columns, told), (0.580, 0.878, 0.707)),
        (oracle(train.X, train.Y, train.anchor_columns, told), (0.636, 0.911, 0.753)),
    ):
        found = heldout_tag_scores(noisyor_scorer(model), test.X, test.Y, draws, resamples=10)
        np.testing.assert_allclose([found.accuracy.value, found.top5.value, found.mrr.value], figures, atol=0.015)
