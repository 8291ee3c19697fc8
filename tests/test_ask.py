"""Expected information against mutual information by enumeration, and against asking and looking."""

from __future__ import annotations

import numpy as np
import pytest

import reference_gibbs as reference
from whatelse.errors import QueryError
from whatelse.noisyor import NoisyOr
from whatelse.noisyor.ask import rank_findings, what_would_help


def kl(after: np.ndarray, before: np.ndarray) -> float:
    return float(sum(a * np.log(a / b) for a, b in zip(after, before, strict=True) if a > 0))


def expected(model: NoisyOr, query: dict, j: int, i: int | None) -> tuple[float, float, float, float]:
    """(information, chance, P(i) if present, P(i) if absent), by adding the finding to the query each way."""
    states, now = reference.posterior(model, **query)
    chance = sum(w * reference.chance(model, tuple(y), j) for y, w in zip(states, now, strict=True))
    rest = tuple(k for k in query["unobserved"] if k != j)
    after = []
    for answer in (True, False):
        asked = {**query, "unobserved": rest}
        if answer:
            asked["present"] = (*query["present"], j)
        after.append(reference.posterior(model, **asked)[1])
    if i is None:
        return chance * kl(after[0], now) + (1 - chance) * kl(after[1], now), chance, np.nan, np.nan
    before, yes, no = (np.array([w[~states[:, i]].sum(), w[states[:, i]].sum()]) for w in (now, *after))
    return chance * kl(yes, before) + (1 - chance) * kl(no, before), chance, yes[1], no[1]


@pytest.mark.parametrize("condition", [None, 0, 3])
def test_against_enumeration(rng: np.random.Generator, condition: int | None) -> None:
    for plain in (True, False):
        model = reference.random_model(rng, 5, 10, plain=plain)
        query = dict(
            present=(0, 1), unobserved=(2, 3, 4, 8), confirmed=(1,), rejected=(2,), evidence=rng.normal(0, 1, 5)
        )
        found = what_would_help(model, **query, condition=condition)
        assert sorted(found.findings) == [2, 3, 4, 8]
        assert (np.diff(found.information) <= 0).all()
        for k, j in enumerate(found.findings):
            information, chance, yes, no = expected(model, query, int(j), condition)
            # the posterior leaves out at most 1e-4 of the mass
            assert found.information[k] == pytest.approx(information, abs=2e-4)
            assert found.chance[k] == pytest.approx(chance, abs=2e-4)
            if condition is not None:
                assert found.if_present[k] == pytest.approx(yes, abs=1e-3)
                assert found.if_absent[k] == pytest.approx(no, abs=1e-3)
        assert (found.if_present is None) == (condition is None)


def test_all_states_give_the_exact_mutual_information(rng: np.random.Generator) -> None:
    """I(Y; X_j) = H(X_j) - H(X_j | Y), for findings of weight one."""
    model = reference.random_model(rng, 5, 10, plain=True)
    states, weights = reference.posterior(model, present=(0, 1), unobserved=tuple(range(2, 10)))
    found = rank_findings(model, states, weights, np.arange(2, 10))
    for k, j in enumerate(found.findings):
        p = np.array([reference.chance(model, tuple(y), int(j)) for y in states])

        def entropy(q: np.ndarray) -> np.ndarray:
            return -q * np.log(q) - (1 - q) * np.log(1 - q)

        assert found.information[k] == pytest.approx(entropy(weights @ p) - weights @ entropy(p), abs=1e-12)


def test_a_finding_that_settles_it_comes_first() -> None:
    """Finding 1 is condition 0; finding 2 is noise; finding 3 has no weight."""
    model = NoisyOr(
        prior=[0.3, 0.2],
        fail=[[0.5, 0.0, 1.0, 0.0], [0.5, 1.0, 1.0, 0.0]],
        leak=[0.1, 0.0, 0.4, 0.0],
        weight=[1.0, 1.0, 1.0, 0.0],
    )
    found = what_would_help(model, [0], [1, 2, 3], condition=0)
    assert found.findings[0] == 1 and found.if_present[0] == 1 and found.if_absent[0] == 0
    np.testing.assert_allclose(found.information[1:], 0, atol=1e-12)
    chosen = what_would_help(model, [0], [1, 2, 3], candidates=[2])
    assert chosen.findings.tolist() == [2]
    assert what_would_help(model, [0]).findings.size == 0


def test_extremes_against_enumeration(rng: np.random.Generator) -> None:
    for _ in range(100):
        model, query = reference.extreme_query(rng)
        if not reference.posterior(model, **query)[1].any():
            continue
        found = what_would_help(model, **query, condition=0)
        for k, j in enumerate(found.findings):
            information, chance, yes, no = expected(model, query, int(j), 0)
            assert found.chance[k] == pytest.approx(chance, abs=2e-4)
            assert found.information[k] == pytest.approx(information, abs=2e-3)
            if chance > 0.01:
                assert found.if_present[k] == pytest.approx(yes, abs=0.02)
            if chance < 0.99:
                assert found.if_absent[k] == pytest.approx(no, abs=0.02)
        assert np.isfinite(what_would_help(model, **query).information).all()


def test_questions_that_cannot_be_asked() -> None:
    model = NoisyOr(prior=[0.1], fail=[[0.5, 1.0]], leak=[0.1, 0.0])
    for arguments, message in (
        (dict(present=[0], candidates=[0]), "finding 0 is a candidate but already known"),
        (dict(present=[[0]], unobserved=[1]), "one visit at a time"),
        (dict(present=[1], unobserved=[0]), "finding 1 cannot be as it is"),
        (dict(present=[0], unobserved=[1], condition=4), "condition 4 is not in this model"),
    ):
        with pytest.raises(QueryError, match=message):
            what_would_help(model, **arguments)
