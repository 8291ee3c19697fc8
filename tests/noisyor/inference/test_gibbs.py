"""The sampler against full enumeration, its diagnostics against known series, its extremes."""

from __future__ import annotations

import numpy as np
import pytest

from tests.support import reference_gibbs as reference
from whatelse.errors import QueryError
from whatelse.noisyor import NoisyOr
from whatelse.noisyor.inference.gibbs import _diagnose, gibbs, held_out_anchor


@pytest.mark.parametrize("plain", [True, False])
def test_marginals_agree_with_enumeration(rng: np.random.Generator, plain: bool) -> None:
    for _ in range(4):
        model = reference.random_model(rng, 6, 12, plain=plain)
        query = dict(present=(0, 3, 5), unobserved=(1, 7), confirmed=(2,), rejected=(4,), evidence=rng.normal(0, 1, 6))
        states, weights = reference.posterior(model, **query)
        found = gibbs(model, **query, sweeps=4000, rng=rng)
        # five standard errors, and a floor for the error of the standard error itself
        assert (np.abs(found.marginals - weights @ states) < 5 * found.standard_error + 1e-3).all()
        assert (found.rhat < 1.02).all() and (found.ess > 500).all()
        assert found.marginals[2] == 1 and found.marginals[4] == 0


def test_the_standard_error_covers(rng: np.random.Generator) -> None:
    """Over many seeds the errors, in standard errors, have a spread of about one: the sample size is right."""
    model = NoisyOr(rng.uniform(0.1, 0.3, 4), rng.uniform(0.1, 0.9, (4, 8)), rng.uniform(0.05, 0.2, 8))
    states, weights = reference.posterior(model, present=(0, 1, 2))
    runs = [gibbs(model, (0, 1, 2), chains=4, sweeps=400, rng=seed) for seed in range(60)]
    z = np.array([(run.marginals - weights @ states) / run.standard_error for run in runs])
    assert 0.7 < np.sqrt((z**2).mean()) < 1.4


def test_the_same_seed_gives_the_same_numbers(rng: np.random.Generator) -> None:
    model = reference.random_model(rng, 5, 9)
    first, again, other = (gibbs(model, [1, 2], sweeps=50, rng=seed).marginals for seed in (7, 7, 8))
    np.testing.assert_array_equal(first, again)
    assert (first != other).any()


def test_a_visit_does_not_depend_on_the_visits_beside_it(rng: np.random.Generator) -> None:
    model = reference.random_model(rng, 5, 9)
    evidence = rng.normal(0, 1, (3, 5))
    many = gibbs(model, [[0, 1], [], [2, 3, 4]], confirmed=[[0], [], []], evidence=evidence, sweeps=50, rng=3)
    other = gibbs(model, [[5], [1], [2, 3, 4]], confirmed=[[], [2], []], evidence=evidence, sweeps=50, rng=3)
    assert many.marginals.shape == many.ess.shape == many.rhat.shape == many.standard_error.shape == (3, 5)
    np.testing.assert_array_equal(many.marginals[2], other.marginals[2])
    first = gibbs(model, [[0, 1]], confirmed=[[0]], evidence=evidence[:1], sweeps=50, rng=3)
    np.testing.assert_array_equal(many.marginals[0], first.marginals[0])
    single = gibbs(model, [0, 1], confirmed=[0], evidence=evidence[0], sweeps=50, rng=3)
    np.testing.assert_array_equal(many.marginals[0], single.marginals)


def test_certain_causes_and_no_leak() -> None:
    """Finding 0 needs a cause; finding 1 is always caused by condition 1 and is absent, so condition 0 did it."""
    model = NoisyOr(prior=[0.1, 0.1], fail=[[0.5, 1.0], [0.0, 0.0]], leak=[0.0, 0.0])
    found = gibbs(model, [0], sweeps=20)
    np.testing.assert_array_equal(found.marginals, [1.0, 0.0])
    np.testing.assert_array_equal(found.rhat, [1.0, 1.0])

    either = NoisyOr(prior=[0.1, 0.2], fail=[[0.0], [0.0]], leak=[0.0])
    states, weights = reference.posterior(either, (0,))
    found = gibbs(either, [0], sweeps=5000)
    np.testing.assert_allclose(found.marginals, weights @ states, atol=0.03)


def test_extremes_against_enumeration(rng: np.random.Generator) -> None:
    for _ in range(150):
        model, query = reference.extreme_query(rng)
        states, weights = reference.posterior(model, **query)
        found = gibbs(model, **query, sweeps=1000)
        assert (found.impossible == -1) == weights.any()
        if weights.any():
            assert (np.abs(found.marginals - weights @ states) < 6 * found.standard_error + 5e-3).all()


def test_a_visit_that_no_state_can_produce_is_said_to_be_impossible() -> None:
    model = NoisyOr(prior=[0.1, 0.1], fail=[[0.5, 1.0, 1.0], [0.0, 0.0, 1.0]], leak=[0.0, 0.0, 1.0])
    uncaused = gibbs(model, [1, 2], rejected=[1])  # nothing left to cause finding 1
    assert uncaused.impossible == 1
    np.testing.assert_array_equal(uncaused.marginals, [0.1, 0.0])
    assert uncaused.rhat[0] == np.inf and uncaused.ess[0] == 0
    always = gibbs(model, [[2], [0]], sweeps=10)  # finding 2 is always there, but not in the second visit
    np.testing.assert_array_equal(always.impossible, [-1, 2])
    assert gibbs(model, [2], confirmed=[1]).impossible == 0  # condition 1 always causes finding 0
    assert gibbs(model, [0, 1], unobserved=[2], sweeps=10).marginals[1] == 1


def test_diagnostics_need_chains() -> None:
    model = NoisyOr(prior=[0.1, 0.2], fail=np.full((2, 3), 0.5), leak=np.full(3, 0.1))
    with pytest.raises(QueryError, match="at least 2 chains"):
        gibbs(model, [0], chains=1)


def test_diagnostics_of_known_series(rng: np.random.Generator) -> None:
    chains, length, phi = 8, 4000, 0.8
    white = rng.normal(size=(chains, length))
    slow = np.empty_like(white)
    slow[:, 0] = white[:, 0] / np.sqrt(1 - phi**2)
    for t in range(1, length):
        slow[:, t] = phi * slow[:, t - 1] + white[:, t]
    apart = white + np.arange(chains)[:, None]
    stuck = np.repeat(np.arange(chains) % 2.0, length).reshape(chains, length)
    ess, rhat, variance = _diagnose(np.stack([white, slow, apart, stuck, np.ones_like(white)]))
    total = chains * length
    assert ess[0] == pytest.approx(total, rel=0.1)
    assert ess[1] == pytest.approx(total * (1 - phi) / (1 + phi), rel=0.2)  # the ratio known for AR(1)
    assert rhat[0] == pytest.approx(1, abs=0.002) and rhat[2] > 2 and rhat[3] == np.inf
    assert ess[2] < 50
    assert (ess[4], rhat[4], variance[4]) == (total, 1.0, 0.0)


def test_held_out_anchor() -> None:
    found = held_out_anchor(np.array([[0.0, 0.5, 1.0]]), np.array([0.8, 0.6, 0.7]), np.array([0.1, 0.2, 0.05]))
    np.testing.assert_allclose(found, [[0.1, 0.4, 0.7]])


def test_held_out_anchor_is_the_anchors_own_marginal(rng: np.random.Generator) -> None:
    """An anchor has one parent: going through the parent equals the joint probability of the anchor itself."""
    base = reference.random_model(rng, 3, 6, plain=True)
    fail = np.concatenate([base.fail, [[0.25], [1.0], [1.0]]], axis=1)
    model = NoisyOr(base.prior, fail, np.append(base.leak, 0.05))
    states, weights = reference.posterior(model, present=(0, 2), unobserved=(6,))
    joint = sum(w * reference.chance(model, tuple(y), 6) for y, w in zip(states, weights, strict=True))
    through = held_out_anchor((weights @ states)[0], 1 - 0.95 * 0.25, 0.05)
    assert through == pytest.approx(joint, abs=1e-12)
