"""Learning from hidden anchors: the gradient, the noisy-or's gains, concavity, one optimum whatever the machine."""

from __future__ import annotations

import os
from dataclasses import astuple, dataclass, replace
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp

from tests.support import reference_hidden as reference
from whatelse.noisyor import NoisyOr, log_joint
from whatelse.noisyor import blocks as sums
from whatelse.noisyor.anchored import hidden
from whatelse.noisyor.anchored.hidden import HiddenFit, Pairs, blocks_of, fit_hidden, noisyor_gains


@dataclass
class Point:
    """Parameters of the softmax."""

    bias: Any
    weight: Any
    coupling: Any
    kappa: float

    @classmethod
    def random(cls, rng: np.random.Generator, m: int, n: int, size: float = 1.0) -> Point:
        coupling = np.triu(rng.normal(0, size, (m, m)), 1)
        return cls(
            rng.normal(0, size, m), rng.normal(0, size, (m, n)), coupling + coupling.T, float(rng.uniform(0.1, 0.9))
        )

    def towards(self, other: Point, share: float) -> Point:
        return Point(*(a + share * (b - a) for a, b in zip(astuple(self), astuple(other), strict=True)))


def blank(pairs: Pairs) -> HiddenFit:
    return HiddenFit.blank(np.zeros(pairs.confirmed.shape[1]), pairs.x.shape[1])


def some_pairs(rng: np.random.Generator, visits: int = 40, m: int = 5, n: int = 7) -> tuple[Pairs, Any]:
    x = sp.csr_matrix((rng.random((visits, n)) < 0.3).astype(float))
    pairs = Pairs.of(x, rng.random((visits, m)) < 0.35)
    return pairs, rng.normal(0, 2, pairs.confirmed.shape)


def loss(pairs: Pairs, gains: Any, point: Point, first: int = 0, end: int | None = None) -> Any:
    """The kernel, with its gradient in the shapes of `reference.gradient`."""
    value, (bias, weight, coupling, kappa) = hidden._loss(
        first, len(pairs) if end is None else end, pairs.x.indptr.astype(np.int64), pairs.x.indices.astype(np.int64),
        pairs.hidden, pairs.confirmed, gains, point.bias, np.ascontiguousarray(point.weight.T), point.coupling,
        point.kappa, True,
    )  # fmt: skip
    return value, (bias, weight.T, coupling, kappa)


def test_pairs_hide_each_anchor_that_fires_once(rng: np.random.Generator) -> None:
    A = rng.random((30, 4)) < 0.4
    x = sp.csr_matrix((rng.random((30, 6)) < 0.3).astype(float))
    pairs = Pairs.of(x, A)
    assert len(pairs) == A.sum()
    assert set(zip(pairs.visit, pairs.hidden, strict=True)) == set(zip(*np.nonzero(A), strict=True))
    for p in range(len(pairs)):
        seen = set(np.flatnonzero(A[pairs.visit[p]])) - {pairs.hidden[p]}
        assert set(np.flatnonzero(pairs.confirmed[p])) == seen
        assert (pairs.x[p] != x[pairs.visit[p]]).nnz == 0
    some = pairs.rows(pairs.hidden == 2)
    assert len(some) == A[:, 2].sum() and (some.hidden == 2).all()


def test_loss_and_gradient_are_the_reference(rng: np.random.Generator) -> None:
    pairs, gains = some_pairs(rng)
    for size in (0.3, 3.0):
        point = Point.random(rng, 5, 7, size)
        value, found = loss(pairs, gains, point)
        assert value == pytest.approx(-reference.objective(pairs, gains, *vars(point).values()), rel=1e-12)
        for ours, theirs in zip(found, reference.gradient(pairs, gains, *vars(point).values()), strict=True):
            np.testing.assert_allclose(ours, -np.asarray(theirs), rtol=0, atol=1e-10)


def test_gradient_is_that_of_finite_differences(rng: np.random.Generator) -> None:
    pairs, gains = some_pairs(rng)
    point, step = Point.random(rng, 5, 7), 1e-5
    _, (bias, weight, coupling, kappa) = loss(pairs, gains, point)

    def slope(**move: Any) -> float:
        sides = [
            loss(pairs, gains, replace(point, **{k: getattr(point, k) + s * step * v for k, v in move.items()}))[0]
            for s in (1, -1)
        ]
        return float((sides[0] - sides[1]) / (2 * step))

    assert slope(kappa=1.0) == pytest.approx(kappa, abs=1e-6)
    for i in range(5):
        assert slope(bias=np.eye(5)[i]) == pytest.approx(bias[i], abs=1e-6)
        for j in range(7):
            one = np.zeros((5, 7))
            one[i, j] = 1.0
            assert slope(weight=one) == pytest.approx(weight[i, j], abs=1e-6)
        for k in range(i):  # a coupling is one parameter, seen from both sides
            both = np.zeros((5, 5))
            both[i, k] = both[k, i] = 1.0
            assert slope(coupling=both) == pytest.approx(coupling[i, k] + coupling[k, i], abs=1e-6)


def test_loss_of_parts_adds_up(rng: np.random.Generator) -> None:
    pairs, gains = some_pairs(rng)
    point = Point.random(rng, 5, 7)
    whole, half = loss(pairs, gains, point), len(pairs) // 2
    left, right = loss(pairs, gains, point, 0, half), loss(pairs, gains, point, half)
    assert left[0] + right[0] == pytest.approx(whole[0], rel=1e-12)
    for a, b, both in zip(left[1], right[1], whole[1], strict=True):
        np.testing.assert_allclose(a + b, both, rtol=0, atol=1e-10)


def test_scores_are_log_probabilities_of_the_candidates(rng: np.random.Generator) -> None:
    pairs, gains = some_pairs(rng)
    point = Point.random(rng, 5, 7)
    fit = HiddenFit(*vars(point).values(), (), True)  # type: ignore[arg-type]
    found = fit.scores(pairs, gains)
    assert np.isneginf(found[pairs.confirmed]).all()
    np.testing.assert_allclose(np.exp(found).sum(1), 1.0, rtol=1e-12)
    np.testing.assert_allclose(found, reference.scores(pairs, gains, *vars(point).values()), rtol=0, atol=1e-10)


def test_gains_are_differences_of_the_log_joint(rng: np.random.Generator) -> None:
    """r_i = log P(x | C + i) - log P(x | C), anchors left out: the log joint's difference less the prior's log odds."""
    m, n, visits = 4, 30, 25
    anchors = np.array([3, 0, 17, 29])
    fail = np.where(rng.random((m, n)) < 0.5, rng.uniform(0.05, 0.95, (m, n)), 1.0)
    model = NoisyOr(rng.uniform(0.05, 0.4, m), fail, rng.uniform(1e-4, 0.3, n))
    X = (rng.random((visits, n)) < 0.4).astype(float)
    X[:, anchors] = 0.0
    pairs = Pairs.of(sp.csr_matrix(X), rng.random((visits, m)) < 0.5)
    found = noisyor_gains(model, pairs, anchors)

    others = np.delete(np.arange(n), anchors)
    plain = NoisyOr(model.prior, model.fail[:, others], model.leak[others])
    rows = sp.csr_matrix(X[pairs.visit][:, others], dtype=np.uint8)
    without = log_joint(plain, rows, pairs.confirmed)
    for i in range(m):
        asked = ~pairs.confirmed[:, i]
        more = pairs.confirmed.copy()
        more[:, i] = True
        gain = log_joint(plain, rows, more) - without - np.log(model.prior[i] / (1 - model.prior[i]))
        np.testing.assert_allclose(found[asked, i], gain[asked], rtol=0, atol=1e-9)


def test_gains_stay_finite_where_the_model_is_sure(rng: np.random.Generator) -> None:
    """Hundreds of findings that the leak never shows and the condition always does: products overflow."""
    n = 400
    model = NoisyOr([0.1, 0.1], np.vstack([np.zeros(n), np.full(n, 0.5)]), np.full(n, 1e-9))
    pairs = Pairs.of(sp.csr_matrix(np.vstack([np.ones((1, n)), np.zeros((1, n))])), np.array([[1, 0], [0, 1]], bool))
    found = noisyor_gains(model, pairs, np.empty(0, np.int64))
    assert np.isfinite(found).all()
    assert found[0, 0] > found[0, 1] > 0 > found[1, 1] > found[1, 0]


def test_objective_is_concave(rng: np.random.Generator) -> None:
    """f((a + b) / 2) >= (f(a) + f(b)) / 2 at random points, near and far."""
    pairs, gains = some_pairs(rng, visits=15)
    for size in (0.1, 1.0, 10.0):
        for _ in range(8):
            a, b = Point.random(rng, 5, 7, size), Point.random(rng, 5, 7, size)
            value = [
                reference.objective(pairs, gains, *vars(p).values(), weight_penalty=0.1, coupling_penalty=0.1)
                for p in (a, a.towards(b, 0.5), b)
            ]
            assert value[1] >= 0.5 * (value[0] + value[2]) - 1e-9


@pytest.fixture
def problem(rng: np.random.Generator) -> tuple[Pairs, Any]:
    """Enough pairs to learn from; the truth is in the gains, the findings and the couplings."""
    x = sp.csr_matrix((rng.random((1500, 12)) < 0.3).astype(float))
    truth = Point.random(rng, 4, 12)
    A = rng.random((1500, 4)) < 1 / (1 + np.exp(1 - x @ truth.weight.T))
    pairs = Pairs.of(x, A)
    return pairs, 0.5 * np.eye(4)[pairs.hidden] + rng.normal(0, 1, pairs.confirmed.shape)


@pytest.mark.parametrize("penalty", [None, 5.0])
def test_optimum_is_the_same_from_any_start(
    problem: tuple[Pairs, Any], rng: np.random.Generator, penalty: float | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(hidden, "TOLERANCE", 1e-8)
    monkeypatch.setattr(hidden, "FLAT", 0.0)
    pairs, gains = problem
    one = fit_hidden(blocks_of(pairs, gains), blank(pairs), weight_penalty=penalty, max_steps=1000)
    elsewhere = HiddenFit(*astuple(Point.random(rng, 4, pairs.x.shape[1], 3.0)))
    two = fit_hidden(blocks_of(pairs, gains), elsewhere, weight_penalty=penalty, max_steps=1000)
    for name in ("weight", "coupling", "kappa"):
        np.testing.assert_allclose(getattr(one, name), getattr(two, name), rtol=0, atol=1e-4)
    np.testing.assert_allclose(one.bias - one.bias.mean(), two.bias - two.bias.mean(), rtol=0, atol=1e-4)


@pytest.mark.parametrize("penalty", [None, 5.0])
def test_fit_is_a_maximum_of_the_reference(
    problem: tuple[Pairs, Any], rng: np.random.Generator, penalty: float | None
) -> None:
    pairs, gains = problem
    fit = fit_hidden(blocks_of(pairs, gains), blank(pairs), weight_penalty=penalty, coupling_penalty=3.0)
    assert fit.converged and 0 < fit.kappa < 1
    np.testing.assert_array_equal(fit.coupling, fit.coupling.T)
    assert not fit.coupling.diagonal().any() and (penalty is not None or not fit.weight.any())
    at = Point(fit.bias, fit.weight, fit.coupling, fit.kappa)

    def value(point: Point) -> float:
        return reference.objective(pairs, gains, *vars(point).values(), penalty or 0.0, 3.0)

    best = value(at)
    assert fit.history[-1] == pytest.approx(best / len(pairs), abs=1e-9)
    assert all(later >= earlier - 1e-9 for earlier, later in zip(fit.history, fit.history[1:], strict=False))
    for _ in range(5):
        other = Point.random(rng, 4, 12, 0.1)
        moved = Point(
            at.bias + other.bias, at.weight + other.weight * (penalty is not None), at.coupling + other.coupling,
            at.kappa + 0.1 * (other.kappa - 0.5),
        )  # fmt: skip
        assert value(moved) < best


def test_same_bits_on_any_number_of_cores(problem: tuple[Pairs, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    fits = []
    for cores in (1, 2, 16, None):
        monkeypatch.setattr(os, "cpu_count", lambda cores=cores: cores)
        fits.append(fit_hidden(blocks_of(*problem), blank(problem[0]), weight_penalty=5.0))
    for fit in fits[1:]:
        for name in ("bias", "weight", "coupling"):
            np.testing.assert_array_equal(getattr(fit, name), getattr(fits[0], name))
        assert (fit.kappa, fit.history) == (fits[0].kappa, fits[0].history)


def test_the_cut_into_parts_changes_nothing_but_rounding(
    problem: tuple[Pairs, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = fit_hidden(blocks_of(*problem), blank(problem[0]), weight_penalty=5.0)
    monkeypatch.setattr(sums, "BLOCK", 64)
    one = fit_hidden(blocks_of(*problem), blank(problem[0]), weight_penalty=5.0)
    np.testing.assert_allclose(one.weight, whole.weight, rtol=0, atol=1e-3)
    assert one.kappa == pytest.approx(whole.kappa, abs=1e-3)
    assert one.history[-1] == pytest.approx(whole.history[-1], abs=1e-7)


def test_too_few_steps_are_said(problem: tuple[Pairs, Any]) -> None:
    assert not fit_hidden(blocks_of(*problem), blank(problem[0]), weight_penalty=1.0, max_steps=2).converged


def test_no_pairs_leave_the_start(rng: np.random.Generator) -> None:
    pairs = Pairs.of(sp.csr_matrix((3, 6)), np.zeros((3, 4), bool))
    fit = fit_hidden(
        blocks_of(pairs, np.zeros((0, 4))), HiddenFit.blank(np.arange(4.0), pairs.x.shape[1]), weight_penalty=1.0
    )
    np.testing.assert_array_equal(fit.bias, np.arange(4.0))
    assert not fit.weight.any() and not fit.coupling.any()
