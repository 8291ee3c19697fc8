"""What labels teach: sums against enumeration or loops, the assembled model against its fields, labels against none."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from itertools import product

import numpy as np
import pytest
import scipy.sparse as sp
from scipy.special import expit, logsumexp

from tests.support.small_department import cohort
from whatelse.cohort import Cohort
from whatelse.errors import ModelError
from whatelse.noisyor import NoisyOr, posterior
from whatelse.noisyor.evidence import Evidence
from whatelse.noisyor.joint import JointModel
from whatelse.noisyor.likelihood import log_joint
from whatelse.noisyor.recalibration import IDENTITY, KNOTS, bend, length_of
from whatelse.noisyor.taught.alone import Alone
from whatelse.noisyor.taught.learner import assembled, fit_labels
from whatelse.noisyor.taught.nearby import Nearby
from whatelse.noisyor.taught.pseudo import Lesson, Taught, _Problem, teach, unlike
from whatelse.noisyor.taught.said import SURE, believed, is_sure, log_odds
from whatelse.noisyor.taught.shape import Shape, fit_shape
from whatelse.tagger import Tagger

M, N, KAPPA = 4, 12, 0.6
ANCHORS = np.arange(N - M, N)


def small(rng: np.random.Generator, *, coupled: bool = True) -> JointModel:
    """A joint model with anchors, linear evidence and excuses; ordinary findings count KAPPA."""
    fail = rng.uniform(0.2, 1.0, (M, N))
    leak = rng.uniform(0.02, 0.3, N)
    fail[:, ANCHORS] = 1.0
    fail[np.arange(M), ANCHORS] = rng.uniform(0.3, 0.6, M)
    weight = np.where(np.isin(np.arange(N), ANCHORS), 0.8, KAPPA)
    J = rng.normal(0, 0.5, (M, M)) * coupled
    J = np.triu(J, 1) + np.triu(J, 1).T
    excuse = np.zeros((M, N), bool)
    excuse[0, 1] = excuse[2, 3] = True
    own = np.arange(M), ANCHORS
    told = 0.8 * np.stack([np.log(fail[own]), np.log((1 - (1 - leak[ANCHORS]) * fail[own]) / leak[ANCHORS])])
    linear = rng.normal(0, 0.5, (M, N))
    linear[:, ANCHORS] = 0.0
    noisyor = NoisyOr(rng.uniform(0.1, 0.4, M), fail, leak, weight=weight, coupling=J)
    return JointModel(noisyor, Evidence(linear, rng.uniform(0.1, 0.5, N), excuse, ANCHORS, told))


def visits(rng: np.random.Generator, count: int) -> sp.csr_matrix:
    return sp.csr_matrix((rng.random((count, N)) < 0.4).astype(float))


def states() -> list[tuple[int, ...]]:
    return list(product((0, 1), repeat=M))


def log_p(model: JointModel, x: sp.csr_matrix, y: tuple[int, ...]) -> float:
    """log P(x, y) + y . e(x) of one visit, up to a constant of the visit."""
    on = np.array(y, bool)
    return float(log_joint(model.noisyor, x, on[None])[0] + model.evidence(x)[0] @ on)


def test_alone_and_taken_are_differences_of_the_joint(rng: np.random.Generator) -> None:
    model = small(rng)
    alone = Alone.of(model, ANCHORS)
    X = visits(rng, 20)
    fields = alone(X)
    on = rng.random((20, M)) < 0.5
    taken = alone.taken(X, on)
    J = model.noisyor.coupling
    for v in range(20):
        x, none = X[v], (0,) * M
        for i in range(M):
            only = tuple(int(k == i) for k in range(M))
            assert fields[v, i] == pytest.approx(log_p(model, x, only) - log_p(model, x, none), abs=1e-9)
            others = on[v].copy()
            others[i] = False
            with_i = others.copy()
            with_i[i] = True
            gain = log_p(model, x, tuple(with_i.astype(int))) - log_p(model, x, tuple(others.astype(int)))
            assert fields[v, i] + KAPPA * taken[v, i] + others @ J[i] == pytest.approx(gain, abs=1e-9)


def test_nearby_states_are_all_states_of_few_conditions(rng: np.random.Generator) -> None:
    model = small(rng)
    alone = Alone.of(model, ANCHORS)
    X = visits(rng, 15)
    fields = alone(X)
    near = Nearby.of(X, model.noisyor, alone.ordinary, fields)
    found = near.expected(fields, model.noisyor.coupling, KAPPA)
    pairs = np.zeros((M, M))
    for v in range(15):
        logs = np.array([log_p(model, X[v], y) - log_p(model, X[v], (0,) * M) for y in states()])
        assert found.log_sum[v] == pytest.approx(logsumexp(logs), abs=1e-5)
        p, s = np.exp(logs - logsumexp(logs)), np.array(states(), float)
        np.testing.assert_allclose(found.singles[v], p @ s, atol=1e-5)
        pairs += s.T @ (p[:, None] * s)
    np.fill_diagonal(pairs, 0.0)
    np.testing.assert_allclose(found.pairs, pairs, atol=1e-4)


def test_what_is_believed_is_bayes_over_all_states(rng: np.random.Generator) -> None:
    """Some labels are sure, some come from people who err, of some nobody spoke."""
    model = small(rng)
    alone = Alone.of(model, ANCHORS)
    X = visits(rng, 12)
    chance = rng.choice([0.0, 0.05, 0.95, 1.0], (12, M))
    known = rng.random((12, M)) < 0.6
    told = log_odds(chance, known)
    assert is_sure(told).any() and (np.abs(told[~known]) == 0).all() and told.max() == SURE
    J = model.noisyor.coupling
    found = believed(X, model.noisyor, alone.ordinary, alone(X), told, J, KAPPA, np.ones(M))
    for v in range(12):
        weights = []
        for y in states():
            likelihood = np.where(np.array(y, bool), chance[v], 1 - chance[v])[known[v]].prod()
            weights.append(likelihood * np.exp(log_p(model, X[v], y) - log_p(model, X[v], (0,) * M)))
        wanted = np.array(weights) @ np.array(states(), float) / sum(weights)
        np.testing.assert_allclose(found[v], wanted, atol=1e-5)


def lesson(rng: np.random.Generator, count: int = 60) -> tuple[Lesson, JointModel]:
    model = small(rng)
    alone = Alone.of(model, ANCHORS)
    X, Y = visits(rng, count), rng.random((count, M)) < 0.3
    y = np.where(rng.random((count, M)) < 0.2, np.nan, Y.astype(float))
    belief = np.where(np.isnan(y), rng.random((count, M)), y)
    return Lesson(X, y, alone(X), alone.taken(X, belief > 0.5), belief, rng.uniform(0.5, 2, y.shape)), model


def test_pseudo_likelihood_is_that_of_loops_and_its_gradient_of_differences(rng: np.random.Generator) -> None:
    given, model = lesson(rng)
    problem = _Problem(given, model.noisyor.coupling)
    flat = rng.normal(0, 0.3, problem.cut[-1])
    head, bias, scale, J, weight = problem.unpack(flat)
    slow = 0.0
    for v in range(len(given.y)):
        for i in range(M):
            if np.isnan(given.y[v, i]):
                continue
            u = bias[i] + (head[0] + scale[i]) * given.alone[v, i] + head[3] * given.taken[v, i]
            u += sum(given.belief[v, k] * J[k, i] for k in range(M) if k != i and given.belief[v, k] > 0.001)
            u += sum(weight[j, i] for j in given.x[v].indices)
            slow += given.weight[v, i] * (np.logaddexp(0, u) - u * given.y[v, i])
    with ThreadPoolExecutor(2) as pool:
        loss, gradient, curvature = problem.value(flat, pool, True)
        assert loss == pytest.approx(slow, rel=1e-9)
        bent = np.concatenate(curvature)
        for k in [*range(4), *rng.permutation(np.arange(4, flat.size))[:25].tolist()]:
            step = np.zeros(flat.size)
            step[k] = 1e-5
            up, down = problem.value(flat + step, pool), problem.value(flat - step, pool)
            assert gradient[k] == pytest.approx((up[0] - down[0]) / 2e-5, abs=1e-4)
            if k >= 4:
                assert bent[k - 4] == pytest.approx((up[1][k] - down[1][k]) / 2e-5, abs=1e-4)


def test_the_assembled_model_has_the_taught_fields_and_couplings(rng: np.random.Generator) -> None:
    model = small(rng)
    alone = Alone.of(model, ANCHORS)
    J = rng.normal(0, 0.4, (M, M))
    taught = Taught(
        rng.normal(0, 1, M), rng.uniform(0.5, 1.5, M), (J + J.T) * (1 - np.eye(M)), 0.3, rng.normal(0, 0.3, (M, N)), {}
    )
    curve = np.array([1.1, 0.1, -0.5, -0.2, -0.6])
    shape = Shape(curve, rng.normal(0, 0.3, M), np.full(M, 0.9))
    centre = rng.uniform(0.1, 0.5, N)
    new = assembled(alone, taught, shape, centre)
    X = visits(rng, 25)
    assert model.evidence.excuse[0, 1] and X[:, 1].nnz  # some anchors are excused
    wanted = shape(taught.fields(X, alone(X)), length_of(np.diff(X.indptr), np.full(25, centre.sum())))
    np.testing.assert_allclose(replace(Alone.of(new, ANCHORS), model=new)(X), wanted, atol=1e-9)
    np.testing.assert_allclose(new.noisyor.coupling, taught.coupling)
    for v in range(5):  # one visit and many are the same
        one = posterior(new, X[v].indices, tolerance=1e-9).marginals
        np.testing.assert_allclose(one, posterior(new, X, tolerance=1e-9).marginals[v], atol=1e-9)


def test_a_finding_nobody_looked_for_is_as_common_as_usual(rng: np.random.Generator) -> None:
    model = small(rng)
    taught = Taught(np.zeros(M), np.ones(M), np.zeros((M, M)), KAPPA, np.zeros((M, N)), {})
    centre = rng.uniform(0.1, 0.5, N)
    curve = np.array([1.1, 0.1, -0.5, -0.2, -0.6])
    new = assembled(Alone.of(model, ANCHORS), taught, Shape(curve, np.zeros(M), np.ones(M)), centre).evidence
    present, hidden = np.array([0, 5]), np.array([2, 4, 6, 7])
    x = np.zeros(N)
    x[present] = 1.0
    x[hidden] = centre[hidden]
    fields = new.field_centre + new.field_weight @ (x - centre)
    length = length_of(np.array([2.0]), np.array([centre.sum() - centre[hidden].sum()]))
    wanted = new.weight @ (x - centre) + bend(curve, fields[None], length)[0] - fields
    np.testing.assert_allclose(new.of_one(present, hidden), wanted, atol=1e-9)
    np.testing.assert_allclose(new([present], [hidden])[0], wanted, atol=1e-9)


def test_a_curve_is_found_again(rng: np.random.Generator) -> None:
    """Fields that are twice too sure and forget length: the fitted curve halves them and brings length back."""
    V, m = 6000, 3
    true, length = rng.normal(-1.5, 1.5, (V, m)), rng.normal(0, 0.5, V)
    Y = rng.random((V, m)) < expit(true - 0.8 * length[:, None])
    noisyor = NoisyOr(np.full(m, 0.5), np.ones((m, 1)), np.array([0.5]))
    near = Nearby.of(sp.csr_matrix((V, 1)), noisyor, np.ones(1, bool), true)
    start, none = Shape(IDENTITY, np.zeros(m), np.full(m, 0.98)), np.zeros((m, m))
    told = log_odds(Y, np.ones_like(Y))
    shape = fit_shape(2 * true, length, told, np.ones(V), near, none, 0.0, start)
    found = expit(shape(2 * true, length))
    assert np.abs(found - expit(true - 0.8 * length[:, None])).mean() < 0.02
    assert shape.curve[-1] == pytest.approx(-0.8, abs=0.1)
    # only what is likeliest in each visit is looked at, by people who err once in ten times
    looked = true == true.max(1, keepdims=True)
    said = np.where(Y ^ (rng.random(Y.shape) < 0.1), 0.9, 0.1)
    shape = fit_shape(2 * true, length, log_odds(said, looked), np.ones(V), near, none, 0.0, start)
    found = expit(shape(2 * true, length))
    assert np.abs(found - expit(true - 0.8 * length[:, None])).mean() < 0.03
    assert shape.curve[-1] == pytest.approx(-0.8, abs=0.2)


def department(rng: np.random.Generator, count: int) -> tuple[sp.csr_matrix, np.ndarray]:
    """Visits whose finding 0 speaks for condition 0 and 1 for 1, which anchors never taught; 2 and 3 go together."""
    Y = rng.random((count, M)) < 0.2
    Y[:, 3] |= Y[:, 2] & (rng.random(count) < 0.6)
    X = rng.random((count, N)) < 0.1
    for j, i in ((0, 0), (1, 1), (2, 2), (3, 3)):
        X[:, j] |= Y[:, i] & (rng.random(count) < 0.7)
    X[:, ANCHORS] |= Y & (rng.random((count, M)) < 0.3)
    return sp.csr_matrix(X.astype(float)), Y


def log_loss(model: JointModel, X: sp.csr_matrix, Y: np.ndarray) -> float:
    p = np.clip(posterior(model, X, top=0).marginals, 1e-6, 1 - 1e-6)
    return float(-np.where(Y, np.log(p), np.log1p(-p)).mean())


def test_labels_teach_what_anchors_did_not(rng: np.random.Generator) -> None:
    X, Y = department(rng, 4000)
    X2, Y2 = department(rng, 2000)
    start = small(rng, coupled=False)
    losses = [log_loss(start, X2, Y2)]
    for count in (150, 1000, 4000):
        taught = fit_labels(start, ANCHORS, X[:count], Y[:count], np.ones((count, M), bool))
        losses.append(log_loss(taught.model, X2, Y2))
    assert losses[1] < losses[0] and losses[2] < losses[1] and losses[3] < losses[2] + 0.002
    assert taught.model.noisyor.coupling[2, 3] > 0.5
    marginals = posterior(taught.model, X2, top=0).marginals
    assert marginals.sum() / Y2.sum() == pytest.approx(1, abs=0.05)
    again = fit_labels(start, ANCHORS, X, Y, np.ones_like(Y))
    assert again.model.evidence.weight.tobytes() == taught.model.evidence.weight.tobytes()


def test_labels_that_are_not_known_are_not_looked_at(rng: np.random.Generator) -> None:
    X, Y = department(rng, 600)
    start = small(rng, coupled=False)
    known = rng.random(Y.shape) < 0.6
    one = fit_labels(start, ANCHORS, X, Y & known, known)
    other = fit_labels(start, ANCHORS, X, Y | ~known, known)
    np.testing.assert_array_equal(one.model.noisyor.prior, other.model.noisyor.prior)
    with pytest.raises(ModelError, match="no label is known"):
        fit_labels(start, ANCHORS, X, Y, np.zeros_like(Y))


def test_what_people_who_err_say_of_the_top_of_a_list_teaches(rng: np.random.Generator) -> None:
    """The two likeliest conditions of each visit are decided on, one time in ten wrongly: better than nothing, not too
    many conditions, and better than taking every decision for the truth."""
    X, Y = department(rng, 4000)
    X2, Y2 = department(rng, 2000)
    start = small(rng, coupled=False)
    p = posterior(start, X, top=0).marginals
    known = p >= np.sort(p, 1)[:, -2:-1]
    wrong = rng.random(Y.shape) < 0.1
    weight = rng.uniform(0.5, 9.0, Y.shape)
    said = fit_labels(start, ANCHORS, X, np.where(Y ^ wrong, 0.9, 0.1), known, weight=weight)
    at_their_word = fit_labels(start, ANCHORS, X, Y ^ wrong, known)
    loss = log_loss(said.model, X2, Y2)
    assert loss < log_loss(start, X2, Y2) - 0.02 and loss < log_loss(at_their_word.model, X2, Y2) - 0.02
    assert posterior(said.model, X2, top=0).marginals.sum() / Y2.sum() == pytest.approx(1, abs=0.15)
    assert said.shape.curve.tolist() != IDENTITY.tolist()  # and how sure answers are, though no visit is labelled whole
    unweighted = fit_labels(start, ANCHORS, X, np.where(Y ^ wrong, 0.9, 0.1), known)
    np.testing.assert_array_equal(said.model.noisyor.prior, unweighted.model.noisyor.prior)


def test_what_is_unlikely_is_set_by_how_many_there_are_in_all(rng: np.random.Generator) -> None:
    X, Y = department(rng, 1500)
    X2, _ = department(rng, 1000)
    start = small(rng, coupled=False)
    shape = Shape(np.array([1.2, 0.1, -0.4, -0.2, -0.6]), np.array([0.3, 0.0, -0.2, 0.1]), np.ones(M))
    fields, length = rng.normal(-2, 2, (200, M)), rng.normal(0, 0.4, 200)
    moved = shape.below(0.5)(fields, length) - shape(fields, length)
    np.testing.assert_allclose(moved, 0.5 * np.minimum(fields - KNOTS[0], 0.0), atol=1e-12)
    said, known = np.where(Y, 0.9, 0.1), np.ones_like(Y)
    free = fit_labels(start, ANCHORS, X, said, known)
    expected = posterior(free.model, X2, top=0).marginals
    for factor in (0.985, 1.02):
        total = factor * expected.sum(1).mean()
        held = fit_labels(start, ANCHORS, X, said, known, among=(X2, total))
        marginals = posterior(held.model, X2, top=0).marginals
        assert marginals.sum(1).mean() == pytest.approx(total, rel=0.01)
        assert np.abs(marginals - expected)[expected > 0.4].mean() < 0.02
    sure = fit_labels(start, ANCHORS, X, Y, known, among=(X2, 0.1))
    np.testing.assert_array_equal(sure.shape.curve, fit_labels(start, ANCHORS, X, Y, known).shape.curve)


def test_few_labels_move_few_numbers(rng: np.random.Generator) -> None:
    given, model = lesson(rng, 30)
    taught = teach(given, model.noisyor.coupling, KAPPA)
    assert np.abs(taught.weight).max() < 0.7 and np.abs(taught.scale - 1).max() < 1.5


def test_labels_of_one_condition_tell_little_of_the_others() -> None:
    """Ten labels of UTI, half of them of cases because somebody looked for cases, tell how common UTI is at most."""
    train = cohort()
    assert train.Y is not None
    uti, rng = train.conditions.index("uti"), np.random.default_rng(3)
    known = np.zeros(train.Y.shape, bool)
    for case in (True, False):
        known[rng.choice(np.flatnonzero(train.Y[:, uti] == case), 5, replace=False), uti] = True
    plain = Cohort(train.X, train.vocabulary, train.ids)
    few = Cohort(train.X, train.vocabulary, train.ids, train.Y & known, known)
    before, after = (np.delete(Tagger().fit(c).predict_proba(train.X[:800]).sum(0), uti) for c in (plain, few))
    assert (after < 3 * before).all() and (after > before / 3).all()
    assert unlike(np.ones((200, 23), bool)) == 1.0 and unlike(known) == 23.0**2


def test_the_identity_bends_nothing() -> None:
    fields = np.linspace(-4, 4, 9)[:, None]
    np.testing.assert_array_equal(bend(IDENTITY, fields, np.ones(9)), fields)
    bent = bend(np.array([1.0, 0.0, -0.5, 0.0, 0.0]), fields, np.ones(9))
    np.testing.assert_allclose(bent, np.where(fields > KNOTS[1], 0.5 * fields, fields))


def test_one_word_is_no_longer_evidence_for_everything() -> None:
    """Beyond a third of the typical length nothing is gained by having written less."""
    few, typical = np.array([0.0, 1.0, 5.0, 40.0, 400.0]), np.full(5, 40.0)
    np.testing.assert_allclose(length_of(few, typical), [-1.0, -1.0, -1.0, 0.0, 1.0])


def test_couplings_never_make_all_conditions_the_likeliest(rng: np.random.Generator) -> None:
    """Twelve conditions that all go together, in pairs: an all-on state would beat what any visit has."""
    m, count = 12, 3000
    frail = rng.random(count) < 0.3
    Y = rng.random((count, m)) < np.where(frail, 0.2, 0.02)[:, None]
    Y[Y.sum(1) > 4] = False
    X = sp.csr_matrix(np.hstack([rng.random((count, 6)) < 0.3, Y & (rng.random((count, m)) < 0.3)]).astype(float))
    columns = np.arange(6, 6 + m)
    fail = np.ones((m, 6 + m))
    fail[np.arange(m), columns] = 0.7
    start = JointModel(
        NoisyOr(np.full(m, 0.06), fail, np.full(6 + m, 0.01), coupling=1.5 * (1 - np.eye(m))), Evidence.none(m, 6 + m)
    )
    assert posterior(start, X[:200], top=0).marginals.sum(1).mean() > m / 2  # what it starts from runs away
    taught = fit_labels(start, columns, X, Y, np.ones_like(Y))
    assert posterior(taught.model, X[:500], top=0).marginals.sum(1).max() <= 8
