"""The default learner end to end on small networks: what hidden anchors teach, and what it refuses to learn."""

from __future__ import annotations

import functools
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
from scipy.special import expit, logit

from whatelse.annotators import AnchorSet, Condition, NoiseRates
from whatelse.cohort import Cohort
from whatelse.cohort.vocabulary import Vocabulary
from whatelse.errors import ModelError
from whatelse.learning import learners as learning
from whatelse.learning.baselines import naive_labels
from whatelse.learning.learners import learn, learn_anchored
from whatelse.noisyor import JointModel, NoisyOr, posterior, sample
from whatelse.noisyor.anchored import halfway, hidden
from whatelse.noisyor.anchored import learner as anchored
from whatelse.noisyor.anchored.learner import Anchored, fit_anchored
from whatelse.noisyor.heldout_metrics import heldout_tag_draws, heldout_tag_scores, noisyor_scorer
from whatelse.noisyor.mle import edit_anchors
from whatelse.noisyor.rates import Rates
from whatelse.noisyor.recalibration import IDENTITY

M, N = 6, 46
ANCHORS = np.arange(M)
LEARN = 6000


def network(rng: np.random.Generator, coupling: float = 0.0, n: int = N) -> NoisyOr:
    """Anchors are the first M findings; conditions go together, or avoid one another, as strongly as `coupling`."""
    fail = np.where(rng.random((M, n)) < 0.3, rng.uniform(0.4, 0.9, (M, n)), 1.0)
    together = np.triu(rng.normal(0, coupling, (M, M)), 1)
    model = NoisyOr(
        rng.uniform(0.05, 0.2, M), fail, rng.uniform(0.02, 0.15, n), coupling=np.asarray(together + together.T)
    )
    return edit_anchors(model, ANCHORS, rng.uniform(0.4, 0.8, M), rng.uniform(0.01, 0.04, M))


def rates(A: Any, Y: Any) -> tuple[Any, Any, Any]:
    """Prior, sensitivity and false positive rate, counted."""
    return Y.mean(0), (A & Y).sum(0) / Y.sum(0), (A & ~Y).sum(0) / (~Y).sum(0)


def accuracy(model: NoisyOr | JointModel, X: Any, Y: Any) -> float:
    draws = heldout_tag_draws(Y, draws=3)
    return heldout_tag_scores(noisyor_scorer(model), X, Y, draws, resamples=1).accuracy.value


def drawn(repeats: int) -> tuple[Any, Any, Any]:
    """9,000 visits of coupled conditions, each finding but anchors there `repeats` times, Y, and the noise rates."""
    rng = np.random.default_rng(1)
    X, Y = sample(network(rng, coupling=1.2), 9000, rng)
    whole = sp.csr_matrix(sp.hstack([X, *[X[:, M:]] * (repeats - 1)]), dtype=np.uint8)
    return whole, Y, rates(X[:LEARN, :M].toarray().astype(bool), Y[:LEARN])


@pytest.fixture(scope="module")
def once() -> tuple[Any, Any, Any, Anchored]:
    X, Y, noise = drawn(1)
    return X, Y, noise, fit_anchored(X[:LEARN], ANCHORS, Rates(*noise))


@pytest.fixture(scope="module")
def twice() -> tuple[Any, Any, Any, Anchored]:
    X, Y, noise = drawn(2)
    return X, Y, noise, fit_anchored(X[:LEARN], ANCHORS, Rates(*noise))


def test_findings_that_say_everything_twice_count_half(once: Any, twice: Any) -> None:
    one, two = (fit_anchored(X[:LEARN], ANCHORS, Rates(*noise), linear=False).kappa for X, _, noise, _ in (once, twice))
    assert 0.4 * one < two < 0.6 * one
    assert two < 0.5
    assert once[3].converged and twice[3].converged


@pytest.mark.parametrize("linear", [False, True])
def test_calibration_scales_what_anchors_tell_and_beside_linear_evidence_everything(twice: Any, linear: bool) -> None:
    X, _, noise, _ = twice
    fit = fit_anchored(X[:LEARN], ANCHORS, Rates(*noise), linear=linear)
    weight = fit.model.noisyor.weight
    scale = weight[ANCHORS[0]]
    np.testing.assert_array_equal(weight[ANCHORS], scale)
    np.testing.assert_allclose(np.delete(weight, ANCHORS), fit.kappa * (scale if linear else 1.0), rtol=1e-12)
    assert 0.1 <= scale <= 1
    # what a firing anchor tells: the rates' log odds, scaled, and what evidence adds to them
    told, added = np.log(noise[1] / noise[2]), fit.model.evidence.weight[ANCHORS, ANCHORS]
    np.testing.assert_allclose(fit.model.evidence.anchor_log_odds[1], scale * told + added, rtol=1e-9)


def test_better_than_naive_labels_where_conditions_are_coupled_and_findings_repeated(once: Any, twice: Any) -> None:
    X, Y, noise, fit = twice
    naive = naive_labels(X[:LEARN], ANCHORS, Rates(*noise))
    found = accuracy(fit.model, X[LEARN:], Y[LEARN:])
    assert found > accuracy(naive, X[LEARN:], Y[LEARN:]) + 0.02
    # repeating every finding took nothing away
    assert found == pytest.approx(accuracy(once[3].model, once[0][LEARN:], Y[LEARN:]), abs=0.01)


def test_couplings_have_the_signs_of_the_truth(once: Any) -> None:
    truth = network(np.random.default_rng(1), coupling=1.2).coupling
    strong = np.abs(truth) > 1.0
    assert strong.any() and (np.sign(once[3].model.noisyor.coupling[strong]) == np.sign(truth[strong])).mean() > 0.8


@pytest.mark.parametrize("linear", [False, True])
def test_as_many_conditions_as_the_noise_rates_say(once: Any, linear: bool) -> None:
    """Where anchors fire, and where they do not."""
    X, Y, noise, _ = once
    fit = fit_anchored(X[:LEARN], ANCHORS, Rates(*noise), linear=linear)
    expected = posterior(fit.model, X[:LEARN], top=0).marginals
    fires = X[:LEARN, ANCHORS].toarray() > 0
    for who in (fires, ~fires):
        assert expected[who].sum() == pytest.approx(Y[:LEARN][who].sum(), rel=0.1)
    for i in range(M):
        assert expected[fires[:, i], i].sum() == pytest.approx(Y[:LEARN][fires[:, i], i].sum(), rel=0.1)


def test_halfway_to_the_rates_condition_by_condition(once: Any) -> None:
    """Priors put wrong by up to four times: half of it, in log odds, is put right where the anchor is silent."""
    X, _, noise, fit = once
    off = np.array([1.4, -1.4, 0.7, -0.7, 0.0, 0.0])
    wrong = replace(fit.model, noisyor=replace(fit.model.noisyor, prior=expit(logit(fit.model.noisyor.prior) + off)))
    visits = X[:LEARN]
    whole = halfway.by_condition(fit.model, visits, visits[:0], Rates(*noise))
    half = halfway.by_condition(wrong, visits, visits[:0], Rates(*noise))
    assert (np.sign(logit(whole.noisyor.prior) - logit(half.noisyor.prior))[:4] == -np.sign(off[:4])).all()
    silent = visits[:, ANCHORS].toarray() == 0
    before, after, right = (
        logit((posterior(model, visits, top=0).marginals * silent).sum(0) / silent.sum(0))
        for model in (wrong, half, whole)
    )
    np.testing.assert_allclose((after - before)[:4], (right - before)[:4] / 2, atol=0.3)


def test_company_goes_halfway_to_the_pairs_of_anchors(once: Any) -> None:
    """Couplings all a level too low, which telling hidden anchors apart cannot show: pairs of anchors do."""
    X, Y, noise, fit = once
    low = replace(
        fit.model, noisyor=replace(fit.model.noisyor, coupling=fit.model.noisyor.coupling - 0.5 * (1 - np.eye(M)))
    )
    visits, A = X[:LEARN], X[:LEARN, ANCHORS].toarray() > 0
    raised = halfway.by_pairs(low, visits[:1500], A, Rates(*noise))
    level = (raised.noisyor.coupling - low.noisyor.coupling)[~np.eye(M, dtype=bool)]
    np.testing.assert_allclose(level, level[0])
    assert 0.05 < level[0] <= halfway.HIGHEST
    before, after = (halfway._pairs(model, visits[:1500]) for model in (low, raised))
    truth = (Y[:1500].sum(1) * (Y[:1500].sum(1) - 1)).sum() / 2
    assert abs(np.log(after / truth)) < abs(np.log(before / truth))


def test_length_goes_halfway_to_the_rates() -> None:
    """Short notes lose four findings in five at random, and anchors with them: the model thinks their patients well."""
    rng = np.random.default_rng(5)
    X, Y = sample(network(rng, n=120), 2 * LEARN, rng)
    dense = X.toarray()
    short = rng.random(2 * LEARN) < 0.3
    dense[short] *= rng.random((short.sum(), 120)) < 0.2
    x = sp.csr_matrix(dense)
    noise = Rates(*rates(dense[:, :M] > 0, Y))
    fit = fit_anchored(x, ANCHORS, noise, linear=False)
    blind = replace(fit.model, evidence=replace(fit.model.evidence, curve=IDENTITY))
    now, then = (posterior(model, x, top=0).marginals[short].sum() / Y[short].sum() for model in (fit.model, blind))
    assert fit.model.evidence.curve[-1] < 0 and abs(np.log(now)) < abs(np.log(then))


def test_same_seed_same_bits(once: Any) -> None:
    X, _, noise, fit = once
    again = fit_anchored(X[:LEARN], ANCHORS, Rates(*noise))
    for name in ("prior", "fail", "leak", "weight", "coupling"):
        np.testing.assert_array_equal(getattr(again.model.noisyor, name), getattr(fit.model.noisyor, name))
    np.testing.assert_array_equal(again.model.evidence.weight, fit.model.evidence.weight)
    assert (again.silent_gain, again.history) == (fit.silent_gain, fit.history)


def test_going_on_changes_nothing(once: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Twice the steps, with nothing to stop them: the held-out tag stays where it was. No drift."""
    X, Y, noise, fit = once
    monkeypatch.setattr(hidden, "TOLERANCE", 0.0)
    monkeypatch.setattr(hidden, "FLAT", 0.0)
    longer = functools.partial(hidden.fit_hidden, max_steps=2 * hidden.MAX_STEPS)
    monkeypatch.setattr(anchored, "fit_hidden", longer)
    more = fit_anchored(X[:LEARN], ANCHORS, Rates(*noise), linear=fit.linear)
    assert len(more.history) > len(fit.history)
    now, then = (accuracy(f.model, X[LEARN:], Y[LEARN:]) for f in (more, fit))
    assert now == pytest.approx(then, abs=0.01)


def absent_beside(rng: np.random.Generator, what: str) -> tuple[Any, Any]:
    """Visits with four common findings a condition that are absent beside `what`: a mere mention, or the condition.

    A noisy-or cannot say that something takes a finding away, so only linear evidence can learn it.
    """
    X, Y = sample(network(rng), 2 * LEARN, rng)
    A = X[:, :M].toarray().astype(bool)
    if what == "mention":
        A |= ~Y & (rng.random(Y.shape) < 0.1)
    gone = np.tile(A & ~Y if what == "mention" else Y, 4)
    usual = (rng.random(gone.shape) < 0.6) & ~gone
    return sp.csr_matrix(np.hstack([A, X[:, M:].toarray(), usual]).astype(np.uint8)), Y


def test_evidence_that_learns_mentions_is_refused() -> None:
    X, Y = absent_beside(np.random.default_rng(3), "mention")
    fit = fit_anchored(X, ANCHORS, Rates(*rates(X[:, :M].toarray().astype(bool), Y)))
    assert fit.silent_gain < 0 and not fit.linear and not fit.model.evidence.weight[:, M:].any()


def test_evidence_that_learns_the_condition_is_used() -> None:
    X, Y = absent_beside(np.random.default_rng(3), "condition")
    learn, test = X[:LEARN], X[LEARN:]
    noise = rates(learn[:, :M].toarray().astype(bool), Y[:LEARN])
    fit = fit_anchored(learn, ANCHORS, Rates(*noise))
    plain = fit_anchored(learn, ANCHORS, Rates(*noise), linear=False)
    assert fit.silent_gain > 0 and fit.linear and fit.model.evidence.weight[:, M:].any()
    assert not plain.model.evidence.weight[:, M:].any() and np.isnan(plain.silent_gain)
    gain = accuracy(fit.model, test, Y[LEARN:]) - accuracy(plain.model, test, Y[LEARN:])
    assert gain > 0.005


def test_a_mention_with_its_context_is_excused() -> None:
    """A context beside which an anchor nearly always fires: its edge is cut, and the anchor says nothing beside it."""
    rng = np.random.default_rng(4)
    X, Y = sample(network(rng), LEARN, rng)
    noise = rates(X[:, :M].toarray().astype(bool), Y)
    dense = X.toarray()
    context = rng.random(LEARN) < 0.04
    dense[:, 20] = context
    dense[context, 1] = rng.random(context.sum()) < 0.98
    fit = fit_anchored(sp.csr_matrix(dense), ANCHORS, Rates(*noise), linear=False)
    assert np.argwhere(fit.model.evidence.excuse).tolist() == [[1, 20]]
    assert fit.model.noisyor.fail[1, 20] == 1.0
    model = replace(fit.model, evidence=replace(fit.model.evidence, curve=IDENTITY))  # whatever the length
    with_anchor, without = (posterior(model, present).marginals[1] for present in ([1, 20], [20]))
    assert with_anchor == pytest.approx(without, abs=2e-3)
    alone = posterior(model, [1]).marginals[1]
    assert alone > 3 * without


def test_an_anchor_that_tells_nothing_is_refused(once: Any) -> None:
    X, _, (prior, sensitivity, _), _ = once
    with pytest.raises(ModelError, match=r"anchor of condition 2 fires no more often .* choose another anchor"):
        fit_anchored(X[:100], ANCHORS, Rates(prior, sensitivity, np.where(ANCHORS == 2, sensitivity, 0.01)))


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize(
    ("visits", "m", "n", "fires"), [(1, 2, 8, 0.5), (50, 1, 5, 0.3), (30, 4, 4, 0.5), (200, 5, 40, 0.0)]
)
@pytest.mark.parametrize("linear", [None, True])
def test_next_to_nothing_to_learn_from(
    rng: np.random.Generator, visits: int, m: int, n: int, fires: float, linear: bool | None
) -> None:
    """One visit, one condition, nothing but anchors, anchors that never fire: a model all the same."""
    chance = np.where(np.arange(n) < m, fires, 0.2)
    X = sp.csr_matrix((rng.random((visits, n)) < chance).astype(np.uint8))
    fit = fit_anchored(X, np.arange(m), Rates(np.full(m, 0.1), np.full(m, 0.5), np.full(m, 0.05)), linear=linear)
    found = posterior(fit.model, X).marginals
    assert np.isfinite(found).all() and ((found >= 0) & (found <= 1)).all()


def cohort_of(X: Any, Y: Any) -> Cohort:
    """A cohort of findings w0, w1 … with anchors moved to the end, where a vocabulary has them."""
    conditions = AnchorSet(tuple(Condition(f"c{i}", f"C{i}", "acute", {}, ()) for i in range(M)))
    names = (*(f"w{j}" for j in range(X.shape[1] - M)), *(f"anchor:c{i}" for i in range(M)))
    moved = sp.csr_matrix(sp.hstack([X[:, M:], X[:, :M]]), dtype=np.uint8)
    moved.sort_indices()
    counts = np.asarray(moved.sum(0)).ravel().astype(np.int64)
    ids = np.array([str(v) for v in range(len(Y))], object)
    return Cohort(moved, Vocabulary(names, counts, len(Y), conditions), ids, Y)


def test_em_is_used_where_visits_obey_the_model(monkeypatch: pytest.MonkeyPatch) -> None:
    """Many weak edges and insensitive anchors: naive labels are far from the truth, and likelihood knows better."""
    rng = np.random.default_rng(8)
    fail = np.where(rng.random((M, 200)) < 0.15, rng.uniform(0.7, 0.97, (M, 200)), 1.0)
    truth = NoisyOr(rng.uniform(0.05, 0.2, M), fail, rng.uniform(0.02, 0.15, 200))
    truth = edit_anchors(truth, ANCHORS, rng.uniform(0.2, 0.5, M), rng.uniform(0.01, 0.04, M))
    X, Y = sample(truth, 12_000, rng)
    cohort, test = cohort_of(X[:9000], Y[:9000]), cohort_of(X[9000:], Y[9000:])
    noise = NoiseRates(*rates(cohort.A, Y[:9000]), cohort.conditions)
    monkeypatch.setattr(learning, "EM_STEPS", 10)
    told: list[str] = []
    found = learn_anchored(cohort, noise, 0, lambda what, done, total: told.append(what))
    assert found.model.evidence.says_nothing and not found.model.noisyor.coupling.any()
    assert (found.model.noisyor.weight == 1).all()
    assert all(test["low"] > 0 for test in found.notes["em_trial"].values()) and len(found.notes["em_trial"]) == 2
    assert "weight_of_findings" not in found.notes
    assert "learning by EM" in told and "learning from hidden anchors" not in told
    assert all(later > earlier for earlier, later in zip(found.history, found.history[1:], strict=False))
    naive = learn(cohort, noise, "naive").model
    now = accuracy(found.model, test.X, test.Y)
    assert now > accuracy(naive, test.X, test.Y) + 0.02

    monkeypatch.setattr(learning, "EM_STEPS", 20)  # and going on changes nothing here either
    longer = learn_anchored(cohort, noise, 0, lambda what, done, total: None)
    assert accuracy(longer.model, test.X, test.Y) == pytest.approx(now, abs=0.01)


def test_hidden_anchors_teach_where_em_brings_nothing(once: Any) -> None:
    X, Y, noise, _ = once
    cohort = cohort_of(X[:LEARN], Y[:LEARN])
    found = learn_anchored(cohort, NoiseRates(*noise, cohort.conditions), 0, lambda what, done, total: None)
    assert found.notes["em_trial"]["naive labels"]["low"] <= 0
    same = fit_anchored(cohort.X, cohort.anchor_columns, Rates(*noise), linear=found.notes["linear_evidence"])
    assert found.notes["weight_of_findings"] == pytest.approx(same.kappa, abs=0.05)
    assert found.notes["excuses"] == {}
