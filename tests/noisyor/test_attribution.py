"""The lines add up to the model's own log odds, and are plain likelihood ratios where they can be."""

from __future__ import annotations

import sys
import time

import numpy as np
import pytest
from scipy.integrate import quad_vec

from tests.support import reference_gibbs as reference
from whatelse.errors import QueryError
from whatelse.noisyor import NoisyOr
from whatelse.noisyor.attribution import Why, why


def total(found: Why) -> float:
    return found.prior + found.evidence + found.findings.sum() + found.coupling.sum()


def test_one_condition_is_a_sum_of_log_likelihood_ratios(rng: np.random.Generator) -> None:
    model = reference.random_model(rng, 1, 8)
    present, unobserved, evidence = (0, 2, 5), (1,), np.array([0.7])
    found = why(model, 0, present, unobserved, evidence=evidence)
    for j in range(8):
        off, on = (reference.chance(model, (y,), j) for y in (0, 1))
        ratio = np.log(on / off) if j in present else np.log((1 - on) / (1 - off))
        assert found.findings[j] == pytest.approx(0 if j in unobserved else model.weight[j] * ratio, abs=1e-12)
    states, weights = reference.posterior(model, present, unobserved, evidence=evidence)
    assert found.log_odds == pytest.approx(reference.log_odds(states, weights, 0), abs=1e-9)
    assert abs(found.remainder) < 1e-9 and found.evidence == 0.7
    assert found.prior == pytest.approx(np.log(model.prior[0] / (1 - model.prior[0])))


def test_with_all_others_known_there_is_no_remainder(rng: np.random.Generator) -> None:
    for _ in range(10):
        model = reference.random_model(rng, 5, 12)
        y = np.array([False, *(rng.random(4) < 0.5)])
        query = dict(
            present=tuple(np.flatnonzero(rng.random(12) < 0.4)),
            confirmed=tuple(np.flatnonzero(y)),
            rejected=tuple(np.flatnonzero(~y)[1:]),
            evidence=rng.normal(0, 1, 5),
        )
        found = why(model, 0, **query)
        states, weights = reference.posterior(model, **query)
        assert found.log_odds == pytest.approx(reference.log_odds(states, weights, 0), abs=1e-9)
        assert abs(found.remainder) < 1e-9 and found.log_odds == pytest.approx(total(found), abs=1e-9)
        np.testing.assert_allclose(found.coupling, model.coupling[0] * y, atol=1e-12)
        on = y | (np.arange(5) == 0)
        for j in query["present"]:
            ratio = reference.chance(model, tuple(on), j) / reference.chance(model, tuple(y), j)
            assert found.findings[j] == pytest.approx(model.weight[j] * np.log(ratio), abs=1e-9)


def test_lines_are_the_integral_along_the_path_and_add_up(
    rng: np.random.Generator, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Against enumeration: A and B of every state of the others, and a general-purpose integrator."""
    monkeypatch.setattr(sys.modules[Why.__module__], "TOLERANCE", 1e-12)  # leave no state out
    for i in range(4):
        model = reference.random_model(rng, 6, 10)
        query = dict(present=(0, 1, 4, 7), unobserved=(2,), confirmed=(5,), evidence=rng.normal(0, 1, 6))
        states, weights = reference.posterior(model, **query)
        found = why(model, i, **query)
        assert found.log_odds == pytest.approx(reference.log_odds(states, weights, i), abs=1e-6)
        assert abs(found.remainder) < 1e-6
        order = {tuple(s): w for s, w in zip(states.tolist(), weights, strict=True)}
        off = [s for s in order if not s[i]]
        A = np.array([order[s] for s in off])
        B = np.array([order[(*s[:i], True, *s[i + 1 :])] for s in off])

        def weigh(t: float, A: np.ndarray = A, B: np.ndarray = B) -> np.ndarray:
            w = A ** (1 - t) * B**t
            return w / w.sum()

        along = quad_vec(weigh, 0, 1, epsabs=1e-12)[0]
        for j in query["present"]:
            ratios = [
                reference.chance(model, (*s[:i], True, *s[i + 1 :]), j) / reference.chance(model, s, j) for s in off
            ]
            assert found.findings[j] == pytest.approx(model.weight[j] * (along @ np.log(ratios)), abs=1e-6)
        np.testing.assert_allclose(found.coupling, model.coupling[i] * (along @ np.array(off, float)), atol=1e-6)


def test_present_findings_speak_for_and_absent_ones_against(rng: np.random.Generator) -> None:
    model = reference.random_model(rng, 6, 20)
    present = [0, 3, 4, 9]
    for i in range(6):
        found = why(model, i, present, [1, 2])
        assert (found.findings[present] >= 0).all() and (found.findings[[1, 2]] == 0).all()
        assert (np.delete(found.findings, present) <= 0).all()
        assert (found.findings[model.fail[i] == 1] == 0).all()


def test_confirming_a_rival_explains_the_finding_away() -> None:
    model = NoisyOr(prior=[0.1, 0.1, 0.1], fail=[[0.2], [0.2], [1.0]], leak=[0.01])
    alone, rival = why(model, 0, [0]), why(model, 0, [0], confirmed=[1, 2])
    assert rival.findings[0] < alone.findings[0]
    assert rival.confirmed[1] < 0 and rival.confirmed[2] == pytest.approx(0, abs=1e-12) and rival.confirmed[0] == 0
    assert rival.confirmed[1] == pytest.approx(rival.log_odds - alone.log_odds, abs=1e-9)


def test_a_positive_coupling_shows_as_its_own_line() -> None:
    model = NoisyOr(prior=[0.1, 0.1], fail=[[1.0], [1.0]], leak=[0.1], coupling=[[0.0, 0.8], [0.8, 0.0]])
    found = why(model, 0, [], confirmed=[1])
    assert found.coupling[1] == pytest.approx(0.8, abs=1e-12) and abs(found.remainder) < 1e-12
    states, weights = reference.posterior(model)
    free = reference.log_odds(states, weights, 0)
    assert found.confirmed[1] == pytest.approx(found.log_odds - free, abs=1e-9)


def test_certainty_is_shown_as_such() -> None:
    model = NoisyOr(prior=[0.1, 0.1], fail=[[0.5, 0.0], [1.0, 0.5]], leak=[0.0, 0.0], weight=[0.01, 1.0])
    sure = why(model, 0, [0, 1])  # nothing else causes finding 0
    assert sure.log_odds == np.inf and sure.remainder == np.inf and sure.findings[0] > 500
    never = why(model, 0, [], [0])  # finding 1 would be there
    assert never.log_odds == -np.inf and never.remainder == 0 and never.findings[1] == -np.inf
    either = NoisyOr(prior=[0.1, 0.2], fail=[[0.0], [0.3]], leak=[0.0])
    states, weights = reference.posterior(either, (0,))
    found = why(either, 0, [0])
    assert found.log_odds == pytest.approx(reference.log_odds(states, weights, 0), abs=1e-9)
    assert abs(found.remainder) < 1e-8


def test_extremes_against_enumeration(rng: np.random.Generator, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys.modules[Why.__module__], "TOLERANCE", 1e-12)
    for _ in range(150):
        model, query = reference.extreme_query(rng)
        states, weights = reference.posterior(model, **query)
        if not weights.any():
            with pytest.raises(QueryError, match="cannot be as it is"):
                why(model, 0, **query)
            continue
        for i in set(range(model.m)) - set(query["confirmed"]) - set(query["rejected"]):
            found = why(model, i, **query)
            on, off = weights[states[:, i]].sum(), weights[~states[:, i]].sum()
            if on == 0 or off == 0:
                assert found.log_odds == (-np.inf if on == 0 else np.inf)
                assert not np.isnan(found.findings).any() and not np.isnan(found.confirmed).any()
            else:
                assert found.log_odds == pytest.approx(np.log(on / off), abs=1e-8)
                assert abs(found.remainder) < 1e-8


def test_what_is_not_certified_says_so_and_still_adds_up(
    rng: np.random.Generator, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = reference.random_model(rng, 8, 12)
    assert why(model, 0, [0, 1, 2]).certified
    monkeypatch.setattr(sys.modules[Why.__module__], "BUDGET", 10)
    found = why(model, 0, [0, 1, 2])
    assert not found.certified and abs(found.remainder) < 1e-9


def test_questions_that_cannot_be_asked() -> None:
    model = NoisyOr(prior=[0.1, 0.1], fail=[[0.5, 1.0], [0.0, 1.0]], leak=[0.1, 0.0])
    for arguments, message in (
        ((2, [0]), "condition 2 is not in this model"),
        ((-1, [0]), "condition -1 is not in this model"),
        ((0, [[0]]), "one visit at a time"),
        ((0, [0], None, [0]), "condition 0 is confirmed or rejected"),
        ((0, [1]), "finding 1 cannot be as it is"),
    ):
        with pytest.raises(QueryError, match=message):
            why(model, *arguments)


def test_at_the_papers_size_it_is_quick_and_adds_up(rng: np.random.Generator) -> None:
    fail = np.where(rng.random((23, 1003)) < 0.05, rng.uniform(0.3, 0.95, (23, 1003)), 1.0)
    model = NoisyOr(rng.uniform(0.01, 0.12, 23), fail, rng.uniform(0.003, 0.1, 1003))
    y = np.arange(23) < 2
    off = np.exp(np.log1p(-model.leak) + np.log(model.fail[y]).sum(axis=0))
    present = np.flatnonzero(rng.random(1003) > off)
    times = []
    for i in range(23):
        start = time.perf_counter()
        found = why(model, i, present)
        times.append(time.perf_counter() - start)
        assert abs(found.remainder) < 0.01
    assert np.median(times) < 0.1  # about 5 ms on an idle core; this only catches an accident
