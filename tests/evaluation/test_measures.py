"""Evaluation against hand counts, brute force over tie-breaks, and models that know nothing or everything."""

from __future__ import annotations

import itertools
import json
from dataclasses import replace

import numpy as np
import pytest
import scipy.sparse as sp

from whatelse.errors import QueryError
from whatelse.noisyor.evidence import Evidence
from whatelse.noisyor.heldout_metrics import (
    METRICS,
    HeldoutDraws,
    anchor_rates,
    bootstrap,
    heldout_anchor_draws,
    heldout_anchor_scores,
    heldout_tag_draws,
    heldout_tag_scores,
    noisyor_scorer,
    paired_test,
    ranking,
)
from whatelse.noisyor.joint import JointModel
from whatelse.noisyor.likelihood import sample
from whatelse.noisyor.mle import edit_anchors
from whatelse.noisyor.params import NoisyOr


@pytest.fixture(scope="module")
def model() -> NoisyOr:
    rng = np.random.default_rng(0)
    fail = np.where(rng.random((6, 40)) < 0.4, rng.uniform(0.2, 0.8, (6, 40)), 1.0)
    plain = NoisyOr(rng.uniform(0.1, 0.4, 6), fail, rng.uniform(0.02, 0.1, 40))
    return edit_anchors(plain, np.arange(6), rng.uniform(0.5, 0.9, 6), rng.uniform(0.01, 0.05, 6))


def test_ties_get_the_average_over_all_ways_of_breaking_them() -> None:
    rng = np.random.default_rng(1)
    for _ in range(40):
        scores = rng.integers(0, 3, (1, 6)).astype(float)
        candidates = rng.random((1, 6)) < 0.8
        hidden = rng.integers(6)
        candidates[0, hidden] = True
        places = []
        for order in itertools.permutations(np.flatnonzero(candidates)):
            ranked = sorted(order, key=lambda i: -scores[0, i])  # stable: each permutation is a way of breaking ties
            places.append(ranked.index(hidden) + 1)
        rank = np.array(places)
        expected = [(rank == 1).mean(), (rank <= 5).mean(), (1 / rank).mean()]
        np.testing.assert_allclose(ranking(scores, candidates, np.array([hidden]))[0], expected)


def test_draws_hide_one_true_tag_uniformly_and_are_the_same_for_the_same_seed() -> None:
    Y = np.zeros((3000, 5), bool)
    Y[:, [1, 3]] = True
    Y[::3] = False
    draws = heldout_tag_draws(Y, seed=3, draws=4)
    assert draws.hidden.shape == (4, 2000)
    assert Y[draws.rows].all(0)[[1, 3]].all()
    assert set(np.unique(draws.hidden)) == {1, 3}
    assert abs((draws.hidden == 1).mean() - 0.5) < 0.03
    again = heldout_tag_draws(Y, seed=3, draws=4)
    np.testing.assert_array_equal(draws.hidden, again.hidden)
    assert (draws.hidden[0] != draws.hidden[1]).any()


def test_visits_are_drawn_once_and_no_more_than_asked_for() -> None:
    A = np.ones((500, 3), bool)
    draws = heldout_anchor_draws(A, visits=100)
    assert len(np.unique(draws.rows)) == 100
    assert len(heldout_anchor_draws(A, visits=None).rows) == 500


def test_scorer_sees_all_true_tags_but_the_hidden_one() -> None:
    rng = np.random.default_rng(4)
    Y = rng.random((200, 5)) < 0.5
    X = sp.csr_matrix(np.arange(200)[:, None] % 251 + 1)
    draws = heldout_tag_draws(Y, draws=2)
    seen = []

    def scorer(x: sp.csr_matrix, confirmed: np.ndarray) -> np.ndarray:
        np.testing.assert_array_equal(x.toarray(), X[draws.rows].toarray())
        hidden = Y[draws.rows] & ~confirmed
        assert (hidden.sum(1) == 1).all() and not (confirmed & ~Y[draws.rows]).any()
        seen.append(hidden.argmax(1))
        return hidden * 1.0 + confirmed * 9.0  # a score for what is confirmed must not count

    result = heldout_tag_scores(scorer, X, Y, draws, resamples=50)
    np.testing.assert_array_equal(np.array(seen), draws.hidden)
    assert (result.accuracy.value, result.top5.value, result.mrr.value) == (1, 1, 1)


def test_knowing_nothing_scores_as_chance() -> None:
    Y = np.zeros((50, 8), bool)
    Y[:, :3] = True
    draws = heldout_tag_draws(Y, draws=2)
    result = heldout_tag_scores(lambda X, c: np.zeros(c.shape), sp.csr_matrix((50, 1)), Y, draws, resamples=20)
    assert result.accuracy.value == pytest.approx(1 / 6)
    assert result.top5.value == pytest.approx(5 / 6)
    assert result.mrr.value == pytest.approx(np.mean(1 / np.arange(1, 7)))
    assert result.accuracy.low == pytest.approx(result.accuracy.high)


def test_results_by_condition_add_up_to_the_whole(model: NoisyOr) -> None:
    X, Y = sample(model, 800, np.random.default_rng(5))
    draws = heldout_tag_draws(Y, draws=3)
    result = heldout_tag_scores(noisyor_scorer(model), X, Y, draws, resamples=200)
    assert result.times_hidden.sum() == 3 * result.visits
    for name in METRICS:
        whole = getattr(result, name)
        assert result.times_hidden @ result.by_condition[name] / result.times_hidden.sum() == pytest.approx(whole.value)
        assert result.by_visit[name].mean() == pytest.approx(whole.value)
        assert whole.low <= whole.value <= whole.high
    assert result.accuracy.value <= result.mrr.value <= 1
    assert result.accuracy.value > 0.4  # knows the truth, so far above the 0.2 of chance
    text = json.dumps(result.to_json(), allow_nan=False)
    assert json.loads(text)["accuracy_interval"] == [result.accuracy.low, result.accuracy.high]


def test_condition_never_hidden_is_null_in_json() -> None:
    Y = np.array([[True, True, False]] * 4)
    result = heldout_tag_scores(
        lambda X, c: np.zeros(c.shape), sp.csr_matrix((4, 1)), Y, heldout_tag_draws(Y), resamples=5
    )
    assert result.to_json()["by_condition"][2] == {"times_hidden": 0, "accuracy": None, "top5": None, "mrr": None}


def heldout_anchor_slowly(model: NoisyOr, X: np.ndarray, hidden: np.ndarray) -> np.ndarray:
    """P(A_i=1 | what is left) (V, m), by enumerating all states and leaving the censored anchors out of the product."""
    states = np.array(list(itertools.product([0, 1], repeat=model.m)))
    log_prior = (states * np.log(model.prior) + (1 - states) * np.log1p(-model.prior)).sum(1)
    p_on = 1 - (1 - model.leak) * np.exp(states @ np.log(model.fail))
    out = np.empty((len(X), model.m))
    for v, x in enumerate(X):
        observed = np.ones(model.n, bool)
        observed[: model.m] = x[: model.m] == 1
        observed[hidden[v]] = False
        log_p = log_prior + np.where(x, np.log(p_on), np.log1p(-p_on))[:, observed].sum(1)
        weight = np.exp(log_p - log_p.max())
        out[v] = weight @ p_on[:, : model.m] / weight.sum()
    return out


def test_heldout_anchor_is_that_of_enumeration(model: NoisyOr) -> None:
    X, _ = sample(model, 400, np.random.default_rng(6))
    dense = X.toarray()
    draws = heldout_anchor_draws(dense[:, :6], visits=60)
    result = heldout_anchor_scores(model, X, np.arange(6), draws, resamples=20)
    rows, hidden = dense[draws.rows], draws.hidden[0]
    candidates = rows[:, :6] == 0
    candidates[np.arange(60), hidden] = True
    expected = ranking(heldout_anchor_slowly(model, rows, hidden), candidates, hidden)
    for k, name in enumerate(METRICS):
        np.testing.assert_allclose(result.by_visit[name], expected[:, k])


def test_evidence_reaches_both_tasks(model: NoisyOr) -> None:
    """Evidence that shouts one condition makes it the answer everywhere."""
    X, Y = sample(model, 300, np.random.default_rng(8))
    shout = np.zeros((6, model.n))
    shout[2] = -50.0  # of findings more common than ever: that they are not speaks for condition 2 in every visit
    shouting = JointModel(model, replace(Evidence.none(6, model.n), weight=shout, centre=np.full(model.n, 2.0)))
    tags = heldout_tag_scores(noisyor_scorer(shouting), X, Y, heldout_tag_draws(Y), resamples=5)
    assert tags.by_condition["accuracy"][2] == 1
    draws = heldout_anchor_draws(X[:, :6].toarray())
    anchors = heldout_anchor_scores(shouting, X, np.arange(6), draws, resamples=5)
    assert anchors.by_condition["accuracy"][2] > 0.9


def test_rates_of_anchors_that_only_the_evidence_knows_come_from_their_log_odds(model: NoisyOr) -> None:
    """The default learner keeps anchors in the evidence: by the noisy-or alone all visits would rank them alike."""
    own = np.arange(model.m)
    s, f = anchor_rates(model, own)
    fail = np.array(model.fail)
    fail[own, own] = 1.0
    odds = np.log([(1 - s) / (1 - f), s / f])
    evidence = replace(Evidence.none(*fail.shape), anchor_columns=own, anchor_log_odds=odds)
    known = JointModel(NoisyOr(model.prior, fail, model.leak), evidence)
    np.testing.assert_allclose(anchor_rates(known, own), (s, f))


def test_bootstrap_interval_covers_as_often_as_it_says() -> None:
    rng = np.random.default_rng(9)
    covered = 0
    for seed in range(200):
        (interval,) = bootstrap(rng.random((100, 1)) ** 2, resamples=300, seed=seed)
        covered += interval.low <= 1 / 3 <= interval.high
    assert 0.88 <= covered / 200 <= 0.99


def test_paired_test_sees_a_difference_and_does_not_invent_one() -> None:
    rng = np.random.default_rng(10)
    a = (rng.random(500) < 0.6).astype(float)
    better = np.where(rng.random(500) < 0.15, 1.0, a)
    found = paired_test(a, better)
    assert found.low > 0 and found.p_value < 0.01 and found.difference == pytest.approx((better - a).mean())
    same = paired_test(a, a)
    assert (same.difference, same.low, same.high, same.p_value) == (0, 0, 0, 1)
    p_values = [paired_test(rng.random(60), rng.random(60), resamples=200).p_value for _ in range(150)]
    assert 0.01 <= np.mean(np.array(p_values) < 0.05) <= 0.11


def test_what_is_refused() -> None:
    Y = np.array([[True, False], [False, False]])
    with pytest.raises(QueryError, match="none of 2 visits has 2 or more conditions"):
        heldout_tag_draws(Y)
    with pytest.raises(QueryError, match="at least one draw is needed"):
        heldout_tag_draws(Y, draws=0)
    draws = HeldoutDraws(np.array([0]), np.array([[0]]))
    with pytest.raises(QueryError, match="NaN"):
        heldout_tag_scores(lambda X, c: np.full(c.shape, np.nan), sp.csr_matrix((2, 1)), Y, draws)
    with pytest.raises(QueryError, match=r"it must return \(1, 2\)"):
        heldout_tag_scores(lambda X, c: np.zeros((1, 3)), sp.csr_matrix((2, 1)), Y, draws)
    with pytest.raises(QueryError, match="same visits"):
        paired_test(np.zeros(3), np.zeros(4))
