"""Expected information against mutual information by enumeration, and against asking and looking."""

from __future__ import annotations

import numpy as np
import pytest

from tests.support import reference_gibbs as reference
from whatelse.noisyor import NoisyOr
from whatelse.noisyor.inference.information import expected_information


def kl(after: np.ndarray, before: np.ndarray) -> float:
    return float(sum(a * np.log(a / b) for a, b in zip(after, before, strict=True) if a > 0))


def by_asking(model: NoisyOr, query: dict, j: int) -> tuple[float, float]:
    """(information, chance), by adding the finding to the query each way."""
    states, now = reference.posterior(model, **query)
    chance = sum(w * reference.chance(model, tuple(y), j) for y, w in zip(states, now, strict=True))
    rest = tuple(k for k in query["unobserved"] if k != j)
    told = 0.0
    for likely, more in ((chance, (j,)), (1 - chance, ())):
        after = reference.posterior(model, **{**query, "unobserved": rest, "present": (*query["present"], *more)})[1]
        told += likely * kl(after, now) if after.any() else 0.0
    return told, chance


@pytest.mark.parametrize("plain", [True, False])
def test_against_asking(rng: np.random.Generator, plain: bool) -> None:
    model = reference.random_model(rng, 5, 10, plain=plain)
    query = dict(present=(0, 1), unobserved=(2, 3, 4, 8), confirmed=(1,), rejected=(2,), evidence=rng.normal(0, 1, 5))
    chance, information = expected_information(model, *reference.posterior(model, **query), np.array([2, 3, 4, 8]))
    for k, j in enumerate((2, 3, 4, 8)):
        assert (information[k], chance[k]) == pytest.approx(by_asking(model, query, j), abs=1e-10)


def test_all_states_give_the_exact_mutual_information(rng: np.random.Generator) -> None:
    """I(Y; X_j) = H(X_j) - H(X_j | Y), for findings of weight one."""
    model = reference.random_model(rng, 5, 10, plain=True)
    states, weights = reference.posterior(model, present=(0, 1), unobserved=tuple(range(2, 10)))
    _, information = expected_information(model, states, weights, np.arange(2, 10))
    for k, j in enumerate(range(2, 10)):
        p = np.array([reference.chance(model, tuple(y), j) for y in states])

        def entropy(q: np.ndarray) -> np.ndarray:
            return -q * np.log(q) - (1 - q) * np.log(1 - q)

        assert information[k] == pytest.approx(entropy(weights @ p) - weights @ entropy(p), abs=1e-12)


def test_a_finding_that_settles_it_tells_most() -> None:
    """Finding 1 is condition 0; finding 2 is noise; finding 3 has no weight."""
    model = NoisyOr(
        prior=[0.3, 0.2],
        fail=[[0.5, 0.0, 1.0, 0.0], [0.5, 1.0, 1.0, 0.0]],
        leak=[0.1, 0.0, 0.4, 0.0],
        weight=[1.0, 1.0, 1.0, 0.0],
    )
    states, weights = reference.posterior(model, present=(0,), unobserved=(1, 2, 3))
    _, information = expected_information(model, states, weights, np.array([1, 2, 3]))
    assert information[0] > 0.3
    np.testing.assert_allclose(information[1:], 0, atol=1e-12)


def test_extremes_against_asking(rng: np.random.Generator) -> None:
    for _ in range(100):
        model, query = reference.extreme_query(rng)
        states, weights = reference.posterior(model, **query)
        if not weights.any() or not query["unobserved"]:
            continue
        asked = np.array(query["unobserved"])
        chance, information = expected_information(model, states, weights, asked)
        assert np.isfinite(information).all()
        for k, j in enumerate(asked):
            told, likely = by_asking(model, query, int(j))
            assert chance[k] == pytest.approx(likely, abs=1e-9)
            assert information[k] == pytest.approx(told, abs=1e-6)
