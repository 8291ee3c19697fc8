"""Shared-state EM against enumeration, finite differences and the maximum likelihood of observed conditions."""

from __future__ import annotations

import itertools
import math
from dataclasses import replace

import numpy as np
import pytest
import scipy.sparse as sp

from tests.support import reference
from whatelse.errors import ModelError
from whatelse.learning import em
from whatelse.learning.baselines import naive_labels
from whatelse.learning.em import EStatistics, fit_em, maximise
from whatelse.noisyor import NoisyOr, posterior, sample
from whatelse.noisyor.mle import StateCounts, edit_anchors, fit_states
from whatelse.noisyor.rates import Rates


def network(rng: np.random.Generator, m: int, n: int) -> NoisyOr:
    """A random network with anchors in the first m columns, frozen."""
    fail = np.where(rng.random((m, n)) < 0.4, rng.uniform(0.2, 0.9, (m, n)), 1.0)
    model = NoisyOr(rng.uniform(0.05, 0.3, m), fail, rng.uniform(0.01, 0.2, n))
    return edit_anchors(model, np.arange(m), rng.uniform(0.4, 0.8, m), rng.uniform(0.005, 0.03, m))


def enumerated(model: NoisyOr, X: sp.csr_matrix, max_on: int) -> tuple[list[float], list[dict[tuple[int, ...], float]]]:
    """Per visit: log sum of P(x, s) over states with at most max_on on, and the posterior over them."""
    evidence, posteriors = [], []
    for row in X:
        weights = {
            y: reference.log_joint(model, set(row.indices), y)
            for y in itertools.product((0, 1), repeat=model.m)
            if sum(y) <= max_on
        }
        peak = max(weights.values())
        total = sum(math.exp(w - peak) for w in weights.values())
        evidence.append(peak + math.log(total))
        posteriors.append({y: math.exp(w - peak) / total for y, w in weights.items()})
    return evidence, posteriors


@pytest.mark.parametrize("max_on", [1, 2, 3, 5])
def test_expectations_are_those_of_enumeration(rng: np.random.Generator, max_on: int) -> None:
    m, n = 5, 9
    model = network(rng, m, n)
    X, _ = sample(model, 25, rng)
    found = EStatistics.of(model, X, max_on=max_on, negligible=0.0)
    evidence, posteriors = enumerated(model, X, max_on)

    table = [(), *itertools.combinations(range(m), 1), *itertools.combinations(range(m), 2)]
    mass, present = np.zeros(len(table)), np.zeros((len(table), n))
    spread, on = np.zeros((m + 1, n)), np.zeros(m)
    for row, q in zip(X, posteriors, strict=True):
        for y, weight in q.items():
            state = tuple(np.flatnonzero(y))
            on[list(state)] += weight
            if len(state) <= 2:
                mass[table.index(state)] += weight
                present[table.index(state), row.indices] += weight
                continue
            for j in row.indices:
                p = reference.probability_on(model, j, y)
                spread[m, j] += weight * model.leak[j] / p
                for i in state:
                    spread[i, j] += weight * (1 - model.fail[i, j]) / p
    assert found.visits == 25
    assert found.log_likelihood == pytest.approx(sum(evidence), rel=1e-12)
    assert found.weighed == 25 * sum(math.comb(m, k) for k in range(max_on + 1))
    for ours, theirs in ((found.mass, mass), (found.present, present), (found.spread, spread), (found.on, on)):
        np.testing.assert_allclose(ours, theirs, rtol=0, atol=1e-11)


def test_what_is_left_out_is_bounded(rng: np.random.Generator) -> None:
    model = network(rng, 8, 20)
    X, _ = sample(model, 40, rng)
    for max_on, negligible in ((2, 0.0), (3, 1e-7), (8, 1e-3), (4, 0.05)):
        for row in (X[v] for v in range(40)):
            found = EStatistics.of(model, row, max_on=max_on, negligible=negligible)
            exact = posterior(model, row, tolerance=1e-9).log_evidence[0]
            assert -1e-8 <= 1 - math.exp(found.log_likelihood - exact) <= found.outside + 1e-8


def test_the_statistics_give_the_gradient_of_the_log_likelihood(rng: np.random.Generator) -> None:
    m, n = 4, 7
    model = network(rng, m, n)
    X, _ = sample(model, 60, rng)
    found = EStatistics.of(model, X, max_on=m, negligible=0.0)
    table = [(), *itertools.combinations(range(m), 1), *itertools.combinations(range(m), 2)]
    for i, j in ((0, 5), (3, 6), (m, 5), (1, 4)):
        slope = -(found.on[i] if i < m else found.visits)
        for s, state in enumerate(table):
            if i == m or i in state:
                slope += found.present[s, j] / reference.probability_on(model, j, [k in state for k in range(m)])
        fires = 1 - model.fail[i, j] if i < m else model.leak[j]
        if fires > 0:
            slope += found.spread[i, j] / fires

        def shifted(step: float, i: int = i, j: int = j) -> float:
            fail, leak = model.fail.copy(), model.leak.copy()
            if i < m:
                fail[i, j] *= math.exp(-step)
            else:
                leak[j] = 1 - (1 - leak[j]) * math.exp(-step)
            return sum(enumerated(replace(model, fail=fail, leak=leak), X, m)[0])

        if fires > 0:
            assert slope == pytest.approx((shifted(1e-5) - shifted(-1e-5)) / 2e-5, rel=1e-5, abs=1e-5)


def test_statistics_of_parts_merge_into_those_of_the_whole(rng: np.random.Generator) -> None:
    model = network(rng, 7, 30)
    X, _ = sample(model, 1000, rng)
    whole = EStatistics.of(model, X)
    parts = (
        EStatistics.of(model, X[:130]).merge(EStatistics.of(model, X[130:131])).merge(EStatistics.of(model, X[131:]))
    )
    for name, value in vars(whole).items():
        np.testing.assert_allclose(getattr(parts, name), value, rtol=1e-9, atol=1e-9)
    again = EStatistics.of(model, X)
    assert all(np.array_equal(getattr(again, name), value) for name, value in vars(whole).items())
    with pytest.raises(ModelError, match="cannot be merged"):
        whole.merge(EStatistics.of(network(rng, 7, 31), sample(network(rng, 7, 31), 5, rng)[0]))


@pytest.mark.parametrize("options", [{}, {"sparsity": 1.0}, {"newton": 1}, {"max_on": 2}, {"max_on": 8}])
def test_the_bound_never_falls(rng: np.random.Generator, options: dict[str, float]) -> None:
    model = network(rng, 8, 40)
    X, _ = sample(model, 600, rng)
    start = NoisyOr(model.prior, rng.uniform(0.3, 1, (8, 40)), rng.uniform(0.01, 0.3, 40), model.frozen)
    result = fit_em(X, start, steps=40, tolerance=0.0, negligible=0.0, **options)
    bounds = np.array([step.bound for step in result.history])
    assert len(bounds) > 30 or result.converged
    assert bounds[-1] > bounds[0] + 100
    assert (np.diff(bounds) >= -1e-12 * np.abs(bounds[:-1])).all()


def test_going_beyond_the_m_step_is_faster_and_too_far_is_taken_back(
    rng: np.random.Generator, monkeypatch: pytest.MonkeyPatch
) -> None:
    truth = network(rng, 6, 60)
    X, _ = sample(truth, 1500, rng)
    start = replace(truth, fail=np.where(truth.frozen[:-1], truth.fail, truth.fail**0.3))

    def bounds(faster: float, fastest: float, steps: int) -> list[float]:
        monkeypatch.setattr(em, "FASTER", faster)
        monkeypatch.setattr(em, "FASTEST", fastest)
        return [step.bound for step in fit_em(X, start, steps=steps, tolerance=0.0, negligible=0.0).history]

    plain, usual, reckless = bounds(1.0, 1.0, 40), bounds(1.3, 8.0, 20), bounds(50.0, 1e6, 20)
    assert usual[-1] > plain[-1]  # in half of the steps
    assert (np.diff(reckless) >= -1e-12 * np.abs(reckless[:-1])).all()


def test_leaving_out_what_is_negligible_costs_at_most_that_much_of_the_bound(rng: np.random.Generator) -> None:
    model = network(rng, 8, 40)
    X, _ = sample(model, 600, rng)
    start = NoisyOr(model.prior, rng.uniform(0.3, 1, (8, 40)), rng.uniform(0.01, 0.3, 40), model.frozen)
    for negligible in (1e-6, 1e-4):
        history = fit_em(X, start, steps=40, tolerance=-1.0, negligible=negligible).history
        assert len(history) == 41
        assert np.diff([step.bound for step in history]).min() > -600 * negligible


def test_frozen_entries_and_priors_stay(rng: np.random.Generator) -> None:
    model = network(rng, 5, 30)
    frozen = model.frozen.copy()
    frozen[2, 20:] = True
    frozen[5, 25] = True
    start = replace(model, frozen=frozen, fail=model.fail**0.5)
    X, _ = sample(model, 400, rng)
    result = fit_em(X, start, steps=3)
    np.testing.assert_array_equal(result.model.prior, start.prior)
    np.testing.assert_array_equal(result.model.frozen, frozen)
    np.testing.assert_array_equal(result.model.fail[frozen[:-1]], start.fail[frozen[:-1]])
    np.testing.assert_array_equal(result.model.leak[frozen[-1]], start.leak[frozen[-1]])
    assert (result.model.fail != start.fail)[~frozen[:-1]].mean() > 0.4


def test_where_evidence_leaves_no_doubt_the_m_step_is_the_maximum_likelihood_of_observed_conditions(
    rng: np.random.Generator,
) -> None:
    X, Y = sample(network(rng, 6, 25), 2000, rng)
    few = Y.sum(1) <= 2  # states that are in the table: with more on, an M-step only goes some of the way
    X, Y = X[few], Y[few]
    start = NoisyOr(np.full(6, 0.1), np.full((6, 25), 0.9), np.full(25, 0.1))
    learned = fit_em(X, start, evidence=np.where(Y, 200.0, -200.0), steps=1, newton=100).model
    theta = fit_states(StateCounts.of(X, Y)).theta
    np.testing.assert_allclose(np.vstack([learned.fail, 1 - learned.leak]), np.exp(-theta), atol=1e-5)


def test_hidden_conditions_are_learned_from_their_anchors(rng: np.random.Generator) -> None:
    truth = network(rng, 6, 60)
    X, Y = sample(truth, 6000, rng)
    columns = np.arange(6)
    false_positive = truth.leak[columns]
    sensitivity = 1 - (1 - false_positive) * truth.fail[columns, columns]
    naive = naive_labels(X, columns, Rates(truth.prior, sensitivity, false_positive))
    result = fit_em(X, naive, steps=60)
    assert result.converged
    errors = [np.abs(model.fail - truth.fail).mean() for model in (naive, result.model)]
    assert errors[1] < 0.5 * errors[0]
    assert result.history[-1].outside < 0.1
    marginals = [np.abs(posterior(m, X[:500]).marginals - Y[:500]).mean() for m in (naive, result.model, truth)]
    assert marginals[1] < 0.3 * marginals[0] + 0.7 * marginals[2]


def test_sparsity_removes_edges(rng: np.random.Generator) -> None:
    truth = network(rng, 5, 30)
    X, _ = sample(truth, 500, rng)
    start = replace(truth, fail=np.where(truth.frozen[:-1], truth.fail, 0.8))
    edges = [(fit_em(X, start, steps=10, sparsity=sparsity).model.fail < 0.999).sum() for sparsity in (0.0, 1.0, 3.0)]
    assert edges[0] > edges[1] > edges[2]


def test_evidence_moves_the_posterior(rng: np.random.Generator) -> None:
    model = network(rng, 5, 20)
    X, Y = sample(model, 50, rng)
    added = np.where(Y, 40.0, -40.0)
    found = EStatistics.of(model, X, max_on=5, evidence=added)
    np.testing.assert_allclose(found.on, Y.sum(0), atol=1e-6)


def test_certain_and_impossible_entries_are_survived(rng: np.random.Generator) -> None:
    model = network(rng, 4, 12)
    fail, leak = model.fail.copy(), model.leak.copy()
    fail[1, 5], leak[6], leak[7] = 0.0, 0.0, 1.0
    X, _ = sample(model, 200, rng)
    result = fit_em(X, replace(model, fail=fail, leak=leak), steps=3, tolerance=0.0)
    bounds = [step.bound for step in result.history]
    assert np.isfinite(bounds).all()
    assert np.diff(bounds).min() > 0


def test_a_hundred_conditions(rng: np.random.Generator) -> None:
    m, n = 100, 300
    fail = np.where(rng.random((m, n)) < 0.03, rng.uniform(0.3, 0.9, (m, n)), 1.0)
    model = edit_anchors(
        NoisyOr(rng.uniform(0.005, 0.03, m), fail, rng.uniform(0.01, 0.05, n)),
        np.arange(m), np.full(m, 0.6), np.full(m, 0.005),
    )  # fmt: skip
    X, _ = sample(model, 500, rng)
    result = fit_em(X, model, steps=2, tolerance=0.0)
    assert np.diff([step.bound for step in result.history]).min() > 0


def test_steps_convergence_and_the_callback(rng: np.random.Generator) -> None:
    model = network(rng, 4, 20)
    X, _ = sample(model, 300, rng)
    nothing = fit_em(X, model, steps=0)
    assert nothing.model is model and len(nothing.history) == 1 and not nothing.converged
    assert fit_em(X[:0], model, steps=0).history[0].bound == 0.0
    seen: list[int] = []
    stopped = fit_em(X, model, steps=9, tolerance=0.0, on_step=lambda step, _: seen.append(step.step) or step.step == 2)
    assert seen == [0, 1, 2] and len(stopped.history) == 3 and not stopped.converged
    done = fit_em(X, model, steps=500, tolerance=1e-4)
    assert done.converged and done.history[-1].bound - done.history[-2].bound < 1e-4 * 300
    last = EStatistics.of(done.model, X)
    assert last.log_likelihood == done.history[-1].log_likelihood


def test_one_newton_step_raises_the_m_step(rng: np.random.Generator) -> None:
    model = network(rng, 5, 15)
    X, _ = sample(model, 300, rng)
    found = EStatistics.of(model, X)
    theta = -np.log(np.vstack([model.fail, 1 - model.leak]))
    nothing = np.zeros((5, 15))
    near, far = (maximise(found, theta, model.frozen, nothing, newton=k) for k in (1, 50))
    best = maximise(found, far, model.frozen, nothing, newton=50)
    np.testing.assert_allclose(best, far, atol=1e-6)
    assert np.abs(near - far).sum() < 0.5 * np.abs(theta - far).sum()


def test_what_cannot_be_learned_from_is_refused(rng: np.random.Generator) -> None:
    model = network(rng, 4, 10)
    X, _ = sample(model, 20, rng)
    with pytest.raises(ModelError, match="11 findings but the model has 10"):
        fit_em(sp.csr_matrix((20, 11), dtype=np.uint8), model)
    with pytest.raises(ModelError, match="canonical form"):
        fit_em(X * 2, model)
    with pytest.raises(ModelError, match="without coupling and weights"):
        fit_em(X, replace(model, weight=np.full(10, 0.5)))
    with pytest.raises(ModelError, match="max_on is 0"):
        fit_em(X, model, max_on=0)
    with pytest.raises(ModelError, match="steps -1"):
        fit_em(X, model, steps=-1)
