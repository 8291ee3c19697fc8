"""What looks like a condition need not be it: every answer against all states of looks, and of which looks are real."""

from __future__ import annotations

import itertools
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
from scipy.special import expit, logit

from tests.support import reference
from whatelse.errors import ModelError, QueryError
from whatelse.noisyor import NoisyOr, enumerate_posterior, posterior
from whatelse.noisyor.attribution import why
from whatelse.noisyor.evidence import Evidence
from whatelse.noisyor.inference.gibbs import gibbs
from whatelse.noisyor.inference.heldout import heldout_tag
from whatelse.noisyor.joint import JointModel
from whatelse.noisyor.recalibration import IDENTITY
from whatelse.noisyor.taught.nearby import Nearby
from whatelse.noisyor.taught.said import believed, log_odds, of_looks
from whatelse.noisyor.taught.shape import Shape, fit_shape

M, N = 4, 9
REAL = np.array([0.7, 0.9, 1.0, 0.5])


def department(rng: np.random.Generator, real: Any = REAL) -> JointModel:
    coupling = rng.normal(0, 0.6, (M, M))
    coupling = (coupling + coupling.T) * (1 - np.eye(M))
    noisyor = NoisyOr(
        rng.uniform(0.1, 0.4, M), rng.uniform(0.2, 1.0, (M, N)), rng.uniform(0.02, 0.3, N),
        weight=rng.uniform(0.3, 1.0, N), coupling=coupling,
    )  # fmt: skip
    weight = rng.normal(0, 0.3, (M, N))
    nothing = np.zeros((M, N), bool)
    return JointModel(
        noisyor, Evidence(weight, np.full(N, 0.2), nothing, np.arange(M), np.zeros((2, M)), real=np.array(real))
    )


def by_all_states(model: JointModel, present: Any, confirmed: Any, rejected: Any) -> tuple[Any, float]:
    """P(Y_i = 1 | question) and log P(question), from every state of looks and of which of them are real."""
    real = model.evidence.real
    evidence = model.evidence([present])[0]
    total, on = 0.0, np.zeros(M)
    for looks in reference.states(M):
        weight = np.exp(reference.log_joint(model.noisyor, set(present), looks, (), evidence))
        for is_real in itertools.product((0, 1), repeat=M):
            y = np.array(looks) * np.array(is_real)
            if all(y[i] for i in confirmed) and not any(y[i] for i in rejected):
                chance = weight * np.prod(np.where(is_real, real, 1 - real))
                total, on = total + chance, on + chance * y
    return on / total, float(np.log(total))


QUESTIONS = [((), ()), ((1,), ()), ((), (0,)), ((3,), (0, 1)), ((0, 2), (3,)), ((), (2,)), ((), (0, 1, 2, 3))]


@pytest.mark.parametrize(("confirmed", "rejected"), QUESTIONS)
def test_answers_are_those_of_all_states(rng: np.random.Generator, confirmed: Any, rejected: Any) -> None:
    model = department(rng)
    for _ in range(5):
        present = np.flatnonzero(rng.random(N) < 0.5).tolist()
        wanted, log_total = by_all_states(model, present, confirmed, rejected)
        question: dict[str, Any] = {"confirmed": list(confirmed), "rejected": list(rejected)}
        for found in (
            posterior(model, present, tolerance=1e-9, **question),
            enumerate_posterior(model, present, **question),
        ):
            np.testing.assert_allclose(found.marginals, wanted, atol=1e-9)
            log_looks = log_total - np.log(REAL[list(confirmed)]).sum()
            assert found.log_evidence == pytest.approx(log_looks, abs=1e-9)
        many = posterior(model, [present, present], confirmed=[list(confirmed)] * 2, rejected=[list(rejected)] * 2)
        np.testing.assert_allclose(many.marginals, np.stack([wanted, wanted]), atol=1e-3)
    drawn = gibbs(model, present, confirmed=list(confirmed), rejected=list(rejected), sweeps=4000)
    np.testing.assert_allclose(drawn.marginals, wanted, atol=0.02)


def test_a_rejected_condition_goes_on_accounting_for_its_findings(rng: np.random.Generator) -> None:
    """Two conditions bring one finding on. The likelier one rejected, the other may have done it, or its look."""
    noisyor = NoisyOr(np.array([0.3, 0.1]), np.array([[0.1], [0.1]]), np.array([0.01]))
    shares = [1.0, 0.9, 0.6]
    none = Evidence.none(2, 1)
    after = [
        posterior(JointModel(noisyor, replace(none, real=np.full(2, r))), [0], rejected=[0]).marginals for r in shares
    ]
    look = [p[1] / r for p, r in zip(after, shares, strict=True)]
    assert look[0] > look[1] > look[2]
    assert all(p[0] == 0.0 for p in after)


def test_why_adds_up_to_the_log_odds_that_are_shown(rng: np.random.Generator) -> None:
    model = department(rng)
    present = [0, 3, 5]
    for condition, confirmed, rejected in ((0, [], []), (1, [3], [0]), (2, [0], []), (3, [], [1])):
        told = why(model, condition, present, confirmed=confirmed, rejected=rejected)
        wanted = posterior(model, present, confirmed=confirmed, rejected=rejected, tolerance=1e-9).marginals[condition]
        assert told.log_odds == pytest.approx(logit(wanted), abs=1e-4)
        total = told.prior + told.evidence + told.findings.sum() + told.coupling.sum() + told.remainder
        assert total == pytest.approx(told.log_odds, abs=1e-9)
        for k in confirmed:
            rest = [c for c in confirmed if c != k]
            before = posterior(model, present, confirmed=rest, rejected=rejected, tolerance=1e-9).marginals[condition]
            assert told.confirmed[k] == pytest.approx(logit(wanted) - logit(before), abs=1e-4)
    with pytest.raises(QueryError, match="confirmed or rejected"):
        why(model, 0, present, rejected=[0])


def test_which_one_else_is_asked_of_looks(rng: np.random.Generator) -> None:
    model = department(rng)
    X = sp.csr_matrix((rng.random((6, N)) < 0.4).astype(float))
    known = rng.random((6, M)) < 0.3
    plain = replace(model, evidence=replace(model.evidence, real=np.ones(M)))
    np.testing.assert_array_equal(heldout_tag(model, X, known), heldout_tag(plain, X, known))


def test_a_share_that_cannot_be_is_refused(rng: np.random.Generator) -> None:
    for wrong in (0.0, 1.1, np.nan):
        with pytest.raises(ModelError, match="real of the evidence"):
            department(rng, [0.9, wrong, 1.0, 1.0])
    with pytest.raises(ModelError, match="real of the evidence has shape"):
        department(rng, [0.9])


def test_what_is_said_of_conditions_tells_of_looks() -> None:
    told = np.array([[0.0, 40.0, -40.0, np.log(19.0)]])
    of_look, share = of_looks(told, np.array([0.8, 0.8, 0.8, 0.8]))
    np.testing.assert_allclose(of_look, [[0.0, 40 + np.log(0.8), np.log(0.2), np.log(0.8 * 19 + 0.2)]], atol=1e-12)
    np.testing.assert_allclose(share, [[0.8, 1.0, 0.0, 0.8 * 19 / (0.8 * 19 + 0.2)]], atol=1e-12)


def test_belief_is_that_of_all_states(rng: np.random.Generator) -> None:
    """One condition unsaid, one denied by somebody who errs: as likely as all states make them."""
    model = department(rng)
    plain = replace(model.noisyor, weight=np.ones(N))
    fields, J = rng.normal(-1, 1, (1, M)), np.zeros((M, M))
    x = sp.csr_matrix((1, N))  # nothing present: no explaining away
    told = log_odds(np.array([[0.5, 0.1, 1.0, 0.0]]), np.array([[False, True, True, True]]))
    found = believed(x, plain, np.ones(N, bool), fields, told, J, 1.0, np.minimum(REAL, 0.98))[0]
    look = expit(fields[0])
    assert found[0] == pytest.approx(REAL[0] * look[0], abs=1e-9)
    yes, no = 0.1 * REAL[1] * look[1], 0.9 * (1 - REAL[1] * look[1])
    assert found[1] == pytest.approx(yes / (yes + no), abs=1e-9)
    assert found[2] == 1.0 and found[3] == 0.0


def test_labels_tell_how_many_looks_are_real(rng: np.random.Generator, monkeypatch: pytest.MonkeyPatch) -> None:
    """With the curve held straight: bent at the top it would say nearly the same of conditions that share nothing."""
    monkeypatch.setattr("whatelse.noisyor.taught.shape.BENT_PRECISION", 1e6)
    V, m, true = 8000, 3, 0.75
    fields = rng.normal(-1, 3, (V, m))
    Y = (rng.random((V, m)) < expit(fields)) & (rng.random((V, m)) < true)
    noisyor = NoisyOr(np.full(m, 0.5), np.ones((m, 1)), np.array([0.5]))
    near = Nearby.of(sp.csr_matrix((V, 1)), noisyor, np.ones(1, bool), fields)
    start = Shape(IDENTITY, np.zeros(m), np.full(m, 0.95))
    told = log_odds(Y, np.ones_like(Y))
    shape = fit_shape(fields, np.zeros(V), told, np.ones(V), near, np.zeros((m, m)), 0.0, start)
    np.testing.assert_allclose(shape.real, true, atol=0.04)
    found = shape.real * expit(shape(fields, np.zeros(V)))
    assert np.abs(found - true * expit(fields)).mean() < 0.015
