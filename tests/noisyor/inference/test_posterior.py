"""The certified posterior and full enumeration against the sum over every state, and what must always hold."""

from __future__ import annotations

from fractions import Fraction
from itertools import combinations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import sparse

from tests.noisyor.test_likelihood import random_model
from tests.support import reference
from whatelse.errors import QueryError
from whatelse.noisyor import NoisyOr
from whatelse.noisyor.inference.enumeration import enumerate_posterior
from whatelse.noisyor.inference.posterior import posterior
from whatelse.noisyor.inference.states import bound_children, bound_coupled
from whatelse.noisyor.likelihood import sample

flags = st.booleans()
seeds = st.integers(0, 2**32 - 1)
many = settings(max_examples=120, deadline=None)
few = settings(max_examples=40, deadline=None)
ROUNDING = 1e-11  # of the reference, which subtracts from one


def random_question(rng, model: NoisyOr, *, evidence=False) -> dict:
    """Any mix of present, unobserved, confirmed, rejected and evidence."""
    role = rng.choice(3, model.n, p=[0.35, 0.2, 0.45])
    part = rng.choice(3, model.m, p=[0.2, 0.2, 0.6])
    question = dict(
        present=np.flatnonzero(role == 0),
        unobserved=np.flatnonzero(role == 1),
        confirmed=np.flatnonzero(part == 0),
        rejected=np.flatnonzero(part == 1),
    )
    if evidence:
        question["evidence"] = rng.normal(0.0, 2.0, model.m)
    return question


@many
@given(seeds, flags, flags, flags, flags)
def test_within_its_certificate_of_the_sum_over_states(seed, weighted, coupled, extreme, evidence):
    rng = np.random.default_rng(seed)
    model = random_model(rng, m=6, n=10, weighted=weighted, coupled=coupled, extreme=extreme)
    question = random_question(rng, model, evidence=evidence)
    want, log_evidence, ranked = reference.posterior(model, **question)
    exact = enumerate_posterior(model, **question)
    for tolerance, budget in ((0.2, 10**6), (1e-6, 10**6), (1e-6, 1)):
        got = posterior(model, **question, tolerance=tolerance, budget=budget)
        assert np.isfinite(got.marginals).all()
        if want is None:
            if budget > 1:
                assert got.impossible != -1
            assert got.log_evidence == -np.inf and not got.certified and got.error_bound == 1.0
            continue
        assert np.abs(got.marginals - want).max() <= got.error_bound + ROUNDING
        assert got.certified == (got.error_bound <= tolerance)
        assert got.certified or budget == 1
        if np.isfinite(got.log_evidence):
            assert (
                log_evidence + np.log1p(-min(got.error_bound, 1 - 1e-12)) - 1e-9
                <= got.log_evidence
                <= log_evidence + 1e-9
            )
            assert (np.diff(got.probabilities) <= 0).all()
    if want is None:
        assert exact.impossible != -1
        return
    np.testing.assert_allclose(exact.marginals, want, atol=1e-11)
    assert exact.log_evidence == pytest.approx(log_evidence, abs=1e-9)
    top = [probability for probability, _ in ranked[:5]]
    np.testing.assert_allclose(exact.probabilities[: len(top)], top, atol=1e-11)
    best = dict((state, probability) for probability, state in ranked)
    for answer in (exact, posterior(model, **question, tolerance=1e-9, budget=10**6)):
        for state, probability in zip(answer.explanations.astype(int), answer.probabilities, strict=True):
            if probability > 0:
                assert best[tuple(state.tolist())] == pytest.approx(probability, abs=1e-8)


@settings(max_examples=15, deadline=None)
@given(seeds, flags)
def test_the_certificate_covers_rounding(seed, extreme):
    """In exact rational arithmetic, with nothing added to the bound."""
    rng = np.random.default_rng(seed)
    model = random_model(rng, m=5, n=9, extreme=extreme)
    present = rng.random(model.n) < 0.5
    weights = {}
    for y in reference.states(model.m):
        weight = Fraction(1)
        for i, pi in enumerate(model.prior):
            weight *= Fraction(float(pi)) if y[i] else 1 - Fraction(float(pi))
        for j in range(model.n):
            off = 1 - Fraction(float(model.leak[j]))
            for i in range(model.m):
                off *= Fraction(float(model.fail[i, j])) ** y[i]
            weight *= 1 - off if present[j] else off
        weights[y] = weight
    total = sum(weights.values())
    for tolerance in (0.5, 1e-3, 1e-12) if total else ():
        got = posterior(model, present, tolerance=tolerance)
        for i in range(model.m):
            exact = sum(weight for y, weight in weights.items() if y[i]) / total
            assert abs(Fraction(float(got.marginals[i])) - exact) <= Fraction(float(got.error_bound))


@few
@given(seeds, flags, flags)
def test_parts_that_do_not_touch_are_answered_together(seed, evidence, extreme):
    """Few edges: the visit falls into independent parts, and their joint states and masses must still be right."""
    rng = np.random.default_rng(seed)
    full = random_model(rng, m=7, n=9, weighted=True, extreme=extreme)
    J = np.zeros((7, 7))
    J[0, 6] = J[6, 0] = 1.5
    fail = np.where(rng.random((7, 9)) < 0.2, full.fail, 1.0)
    model = NoisyOr(full.prior, fail, full.leak, weight=full.weight, coupling=J)
    question = random_question(rng, model, evidence=evidence)
    want, log_evidence, ranked = reference.posterior(model, **question)
    got = posterior(model, **question, tolerance=1e-10, budget=10**6, top=8)
    if want is None:
        assert got.impossible != -1
        return
    np.testing.assert_allclose(got.marginals, want, atol=1e-9)
    assert got.log_evidence == pytest.approx(log_evidence, abs=1e-9)
    top = [probability for probability, _ in ranked[:8]]
    np.testing.assert_allclose(got.probabilities[: len(top)], top, atol=1e-9)
    assert ranked[0][0] == pytest.approx(
        dict((y, p) for p, y in ranked)[tuple(got.explanations[0].astype(int).tolist())]
    )


def test_nothing_observed_of_many_conditions_is_still_certified(rng):
    model = random_model(rng, m=200, n=10)
    prior = posterior(model, [], unobserved=np.arange(10))
    assert prior.certified
    np.testing.assert_allclose(prior.marginals, model.prior, atol=1e-12)


@few
@given(seeds, flags)
def test_the_bound_covers_what_a_small_budget_leaves_out(seed, coupled):
    rng = np.random.default_rng(seed)
    model = random_model(rng, m=10, n=30, weighted=True, coupled=coupled)
    X, _ = sample(NoisyOr(model.prior, model.fail, model.leak), 8, rng)
    exact = enumerate_posterior(model, X)
    for budget in (11, 40, 160):
        got = posterior(model, X, tolerance=1e-9, budget=budget)
        assert (got.states <= budget + model.m + 1).all()
        assert (np.abs(got.marginals - exact.marginals).max(1) <= got.error_bound + 1e-12).all()


@few
@given(seeds, flags, flags)
def test_many_visits_are_each_visit(seed, coupled, evidence):
    rng = np.random.default_rng(seed)
    model = random_model(rng, coupled=coupled, extreme=True)
    questions = [random_question(rng, model, evidence=evidence) for _ in range(70)]
    together = posterior(model, **{name: [q[name] for q in questions] for name in questions[0]})
    for v, question in enumerate(questions):
        for name, value in vars(posterior(model, **question)).items():
            np.testing.assert_array_equal(getattr(together, name)[v], value, err_msg=name)


@few
@given(seeds, flags)
def test_order_of_conditions_and_findings_does_not_matter(seed, coupled):
    rng = np.random.default_rng(seed)
    model = random_model(rng, weighted=True, coupled=coupled)
    rows, columns = rng.permutation(model.m), rng.permutation(model.n)
    moved = NoisyOr(
        model.prior[rows], model.fail[np.ix_(rows, columns)], model.leak[columns],
        weight=model.weight[columns], coupling=model.coupling[np.ix_(rows, rows)],
    )  # fmt: skip
    present = rng.random(model.n) < 0.4
    a, b = posterior(model, present, tolerance=1e-9), posterior(moved, present[columns], tolerance=1e-9)
    np.testing.assert_allclose(b.marginals, a.marginals[rows], atol=2e-9)
    assert b.log_evidence == pytest.approx(float(a.log_evidence), abs=1e-8)


@few
@given(seeds)
def test_unobserved_is_marginalised(seed):
    """P(x, x_j = 1) + P(x, x_j = 0) = P(x): the odds of the two mix into the posterior with j unobserved."""
    rng = np.random.default_rng(seed)
    model = random_model(rng)
    present = np.flatnonzero(rng.random(model.n) < 0.4)
    j = int(rng.integers(model.n))
    rest = present[present != j]
    left_out = posterior(model, rest, unobserved=[j], tolerance=1e-9)
    on, off = (posterior(model, x, tolerance=1e-9) for x in (np.append(rest, j), rest))
    share = np.exp(on.log_evidence - left_out.log_evidence)
    assert share + np.exp(off.log_evidence - left_out.log_evidence) == pytest.approx(1.0, abs=1e-8)
    np.testing.assert_allclose(left_out.marginals, share * on.marginals + (1 - share) * off.marginals, atol=1e-7)


@few
@given(seeds)
def test_explaining_away(seed):
    """Two causes of one present finding: confirming one lowers the other, rejecting it raises the other."""
    rng = np.random.default_rng(seed)
    model = NoisyOr(rng.uniform(0.05, 0.5, 2), rng.uniform(0.05, 0.9, (2, 1)), rng.uniform(0.0, 0.3, 1))
    free = posterior(model, [0], tolerance=1e-9).marginals[1]
    assert posterior(model, [0], confirmed=[0], tolerance=1e-9).marginals[1] < free
    assert posterior(model, [0], rejected=[0], tolerance=1e-9).marginals[1] > free


def test_all_forms_of_many_visits_agree(rng):
    model = random_model(rng)
    dense = rng.random((6, model.n)) < 0.3
    known = rng.random((6, model.m)) < 0.2
    a = posterior(model, sparse.csr_matrix(dense, dtype=np.uint8), confirmed=known)
    b = posterior(model, [np.flatnonzero(x) for x in dense], confirmed=[np.flatnonzero(y).tolist() for y in known])
    c = posterior(model, dense.astype(int), confirmed=sparse.csr_array(known))
    np.testing.assert_array_equal(a.marginals, b.marginals)
    np.testing.assert_array_equal(a.marginals, c.marginals)
    np.testing.assert_array_equal(a.marginals[0], posterior(model, dense[0], confirmed=known[0]).marginals)
    everywhere = posterior(model, dense.astype(int), rejected=[1, 2])
    assert not everywhere.marginals[:, [1, 2]].any()


def test_no_visits_and_no_findings(rng):
    model = random_model(rng)
    assert posterior(model, np.zeros((0, model.n))).marginals.shape == (0, model.m)
    nothing = posterior(model, [], unobserved=np.arange(model.n), tolerance=1e-6)
    np.testing.assert_allclose(nothing.marginals, model.prior, atol=1e-6)
    assert nothing.log_evidence == pytest.approx(0.0, abs=1e-5)


def test_hundreds_of_findings_present(rng):
    model = random_model(rng, m=8, n=600)
    every = posterior(model, np.arange(600), tolerance=1e-6)
    np.testing.assert_allclose(every.marginals, enumerate_posterior(model, np.arange(600)).marginals, atol=1e-6)
    tiny = NoisyOr(model.prior, model.fail, np.full(600, 1e-30))
    every = posterior(tiny, np.arange(600), tolerance=1e-6)
    np.testing.assert_allclose(every.marginals, enumerate_posterior(tiny, np.arange(600)).marginals, atol=1e-6)


IMPOSSIBLE = NoisyOr([0.1, 0.2], [[0.5, 1.0, 0.0], [0.5, 0.3, 1.0]], [0.1, 0.0, 0.0])
NEVER_ABSENT = NoisyOr([0.1], [[0.5, 0.5]], [0.1, 1.0])


@pytest.mark.parametrize(
    ("model", "question", "finding"),
    [
        (IMPOSSIBLE, dict(present=[1], rejected=[1]), 1),  # its only cause is rejected
        (IMPOSSIBLE, dict(present=[], confirmed=[0]), 2),  # absent, though a confirmed condition always makes it
        (NEVER_ABSENT, dict(present=[0]), 1),
    ],
)
def test_an_impossible_visit_is_said_to_be_so(model, question, finding):
    for answer in (posterior(model, **question), enumerate_posterior(model, **question)):
        assert answer.impossible == finding
        assert answer.log_evidence == -np.inf and answer.error_bound == 1.0 and not answer.certified
        assert np.isfinite(answer.marginals).all()
        assert not answer.probabilities.any() and not answer.explanations.any()


def test_it_says_when_the_budget_is_spent(rng):
    model = random_model(rng, m=12, n=40)
    spent = posterior(model, np.arange(20), tolerance=1e-9, budget=30)
    assert not spent.certified and 1e-9 < spent.error_bound <= 1.0 and spent.states <= 30 + model.m
    assert posterior(model, np.arange(20), tolerance=1e-9, budget=10**6).certified


@pytest.mark.parametrize(
    ("question", "problem"),
    [
        (dict(present=[12]), "present names index 12"),
        (dict(present=[-1]), "present names index -1"),
        (dict(present=[0], confirmed=[5]), "confirmed names index 5"),
        (dict(present=[0], confirmed=[1], rejected=[1]), "condition 1 of visit 0 is both confirmed and rejected"),
        (dict(present=[3], unobserved=[3]), "finding 3 of visit 0 is both present and unobserved"),
        (dict(present=[0], confirmed=[[0]]), "confirmed is a list of visits"),
        (dict(present=[[0], [1]], confirmed=[[0]]), "confirmed has 1 visits but present has 2"),
        (dict(present=[0], evidence=[1.0]), "evidence has shape"),
        (dict(present=[0], evidence=[np.nan] * 5), "evidence has entries that are not finite"),
        (dict(present=np.ones(3, bool)), "mask of 3"),
        (dict(present=[0], tolerance=0.0), "tolerance is 0.0"),
        (dict(present=[0], budget=0), "budget is 0"),
    ],
)
def test_questions_that_are_refused(rng, question, problem):
    with pytest.raises(QueryError, match=problem):
        posterior(random_model(rng), **question)


def test_enumeration_refuses_too_many_conditions(rng):
    with pytest.raises(QueryError, match="use posterior"):
        enumerate_posterior(random_model(rng, m=26), [0])


def test_the_bound_with_couplings_is_one() -> None:
    """No less than the sum over all sets of what may follow, no more than the bound without its refinement."""
    rng = np.random.default_rng(5)
    declined = 0
    for scale, above in ((1.0, 0.0), (1.0, -9.0), (6.0, -8.0), (20.0, -30.0), (300.0, 0.0)):
        for _ in range(10):
            M = int(rng.integers(1, 7))
            pair = np.triu(rng.normal(0, 1, (M, M)), 1)
            pair += pair.T
            gain, cond = rng.normal(above, scale, M), rng.permutation(M).astype(np.int32)
            wide, found = np.empty(M), np.empty(M)
            bound_children(0, M, True, pair, cond, gain, np.empty(M), np.empty(2), wide)
            shared = np.exp(np.maximum(pair, 0.0) / 2)
            if not bound_coupled(0, M, np.exp(pair), shared, cond, gain, np.empty(M), np.empty(M), found):
                declined += 1
                continue
            assert (found <= wide + 1e-3).all()
            for q in range(M):
                after = cond[q + 1 :]
                sets = (list(T) for size in range(1, after.size + 1) for T in combinations(after, size))
                sums = [gain[T].sum() + pair[cond[q], T].sum() + pair[np.ix_(T, T)].sum() / 2 for T in sets]
                assert found[q] >= np.logaddexp.reduce([-np.inf, *sums]) - 1e-12
    assert 0 < declined <= 10
