"""NoiseRates: Bayes' rule both ways, counts, small samples, and what is refused."""

from __future__ import annotations

import json

import numpy as np
import pytest
from scipy.sparse import csr_matrix

from tests.support import small_department
from whatelse.annotators.noise_rates import RATES, NoiseRates, effective_counts
from whatelse.errors import CohortError, ModelError
from whatelse.tagger import Tagger

PRIOR, SENS, FALSE = np.array([0.1, 0.02]), np.array([0.6, 0.3]), np.array([0.01, 0.0])


def draw(rng: np.random.Generator, n: int) -> tuple[np.ndarray, np.ndarray]:
    Y = rng.random((n, 2)) < PRIOR
    return rng.random((n, 2)) < np.where(Y, SENS, FALSE), Y


def test_bayes_rule_holds_cell_by_cell() -> None:
    rates = NoiseRates(PRIOR, SENS, FALSE, ("a", "b"))
    both = PRIOR * SENS
    np.testing.assert_allclose(rates.anchor_rate, both + (1 - PRIOR) * FALSE)
    np.testing.assert_allclose(rates.ppv * rates.anchor_rate, both)
    np.testing.assert_allclose(rates.fn * (1 - rates.anchor_rate), PRIOR - both)


def test_whichever_way_they_are_given_it_is_one_object() -> None:
    first = NoiseRates.from_given(["a", "b"], prior=PRIOR, sensitivity=SENS, false_positive=FALSE)
    second = NoiseRates.from_given(["a", "b"], anchor_rate=first.anchor_rate, ppv=first.ppv, fn=first.fn)
    third = NoiseRates.from_given(["a", "b"], anchor_rate=first.anchor_rate, sensitivity=SENS, false_positive=FALSE)
    for name in RATES:
        np.testing.assert_allclose(getattr(second, name), getattr(first, name), atol=1e-12)
        np.testing.assert_allclose(getattr(third, name), getattr(first, name), atol=1e-12)


def test_counting_labels_finds_the_rates(rng: np.random.Generator) -> None:
    A, Y = draw(rng, 200_000)
    rates = NoiseRates.from_labels(csr_matrix(A), Y, ["a", "b"])
    np.testing.assert_allclose(rates.prior, PRIOR, atol=0.003)
    np.testing.assert_allclose(rates.sensitivity, SENS, atol=0.03)
    np.testing.assert_allclose(rates.false_positive, FALSE, atol=0.001)
    np.testing.assert_allclose(rates.anchor_rate, A.mean(0), atol=1e-4)
    for name in RATES:
        limits, value = rates.intervals[name], getattr(rates, name)
        assert (limits[:, 0] <= value).all() and (value <= limits[:, 1]).all()


def test_no_rate_is_zero_or_one_however_few_the_visits() -> None:
    rates = NoiseRates.from_labels(np.array([[True, False]]), np.array([[True, False]]))
    for name in RATES:
        assert ((getattr(rates, name) > 0) & (getattr(rates, name) < 1)).all()


def test_a_sample_rich_in_anchored_visits_is_not_biased(rng: np.random.Generator) -> None:
    A, Y = draw(rng, 100_000)
    anchored = A.any(1)
    rows = np.concatenate([np.flatnonzero(anchored)[:2000], np.flatnonzero(~anchored)[:4000]])
    rates = NoiseRates.from_sample(A[:, :1], Y[rows, :1], rows)
    counted = NoiseRates.from_labels(A[rows, :1], Y[rows, :1])
    assert abs(rates.prior[0] - PRIOR[0]) < 0.01 < abs(counted.prior[0] - PRIOR[0])
    assert abs(rates.sensitivity[0] - SENS[0]) < 0.06


def test_intervals_of_a_small_sample_hold_the_truth_about_as_often_as_they_say() -> None:
    held = {name: 0 for name in RATES[:3]}
    trials = 200
    for seed in range(trials):
        rng = np.random.default_rng(seed)
        A, Y = draw(rng, 5000)
        rows = rng.choice(5000, 400, replace=False)
        limits = NoiseRates.from_sample(A[:, :1], Y[rows, :1], rows).intervals
        for name, truth in zip(held, (PRIOR[0], SENS[0], FALSE[0]), strict=True):
            held[name] += limits[name][0, 0] <= truth <= limits[name][0, 1]
    assert all(0.90 <= count / trials <= 0.995 for count in held.values()), held


def many(rng: np.random.Generator, n: int) -> tuple[np.ndarray, np.ndarray]:
    """Visits with 20 conditions, most of them rare."""
    prior = np.geomspace(0.06, 0.002, 20)
    Y = rng.random((n, 20)) < prior
    noise = prior * rng.uniform(0.2, 1.5, 20)
    return np.where(Y, rng.random((n, 20)) < rng.uniform(0.2, 0.8, 20), rng.random((n, 20)) < noise), Y


def test_conditions_that_few_labels_show_are_taken_to_be_typical() -> None:
    """Against each condition on its own with half a visit in each cell, which puts floors under rare ones."""
    pooled: list[float] = []
    alone: list[float] = []
    for seed in range(8):
        rng = np.random.default_rng(seed)
        A, Y = many(rng, 20_000)
        true, rows = NoiseRates.from_labels(A, Y), rng.choice(20_000, 200, replace=False)
        a, y = A[rows], Y[rows]
        fn = ((~a & y).sum(0) + 0.5) / ((~a).sum(0) + 1)
        ppv = ((a & y).sum(0) + 0.5) / (a.sum(0) + 1)
        smoothed = NoiseRates.from_given(anchor_rate=A.mean(0), ppv=ppv, fn=fn)
        found = NoiseRates.from_sample(A, y, rows)
        for rates, errors in ((found, pooled), (smoothed, alone)):
            errors.append(np.abs(np.log(rates.prior / true.prior)).mean())
            assert not rates.uninformative or rates is smoothed
    assert np.mean(pooled) < 0.75 * np.mean(alone)


def test_with_many_labels_every_condition_speaks_for_itself(rng: np.random.Generator) -> None:
    A, Y = many(rng, 60_000)
    true, found = NoiseRates.from_labels(A, Y), NoiseRates.from_sample(A, Y, np.arange(60_000))
    np.testing.assert_allclose(found.prior, true.prior, rtol=0.05)
    np.testing.assert_allclose(found.sensitivity, true.sensitivity, rtol=0.1)


def test_intervals_hold_the_truth_when_visits_are_weighted() -> None:
    held: dict[str, list[float]] = {name: [] for name in RATES}
    for seed in range(12):
        rng = np.random.default_rng(seed)
        A, Y = many(rng, 20_000)
        true = NoiseRates.from_labels(A, Y)
        chance = 0.005 + 0.05 * (A.any(1) | (Y.any(1) & (rng.random(20_000) < 0.5)))
        rows = np.flatnonzero(rng.random(20_000) < chance)
        limits = NoiseRates.from_sample(A, Y[rows], rows, weights=1 / chance[rows]).intervals
        for name in RATES:
            truth = getattr(true, name)
            held[name].append(float(((limits[name][:, 0] <= truth) & (truth <= limits[name][:, 1])).mean()))
    assert all(np.mean(shares) > 0.88 for shares in held.values()), {k: np.mean(v) for k, v in held.items()}


def test_equal_weights_are_no_weights_and_unknown_labels_do_not_count(rng: np.random.Generator) -> None:
    A, Y = many(rng, 5000)
    rows = np.arange(300)
    plain, same = (NoiseRates.from_sample(A, Y[rows], rows, weights=w) for w in (None, np.full(300, 7.0)))
    np.testing.assert_allclose(same.sensitivity, plain.sensitivity)
    y, among = rng.random((40, 3)) < 0.3, rng.random((40, 3)) < 0.5
    yes, no = effective_counts(y, among, np.full(40, 2.5))
    np.testing.assert_allclose(yes, (y & among).sum(0))
    np.testing.assert_allclose(no, (~y & among).sum(0))
    known = np.ones((300, 20), bool)
    known[:, 3] = False
    wrong = Y[rows].copy()
    wrong[:, 3] = True
    told = NoiseRates.from_sample(A, wrong, rows, known=known)
    silent = NoiseRates.from_sample(A, Y[rows], rows, known=known)
    np.testing.assert_allclose(told.prior, silent.prior)


def test_an_anchor_raises_the_chance_of_its_condition_unless_labels_say_that_it_does_not(
    rng: np.random.Generator,
) -> None:
    A = rng.random((4000, 1)) < 0.5
    few = NoiseRates.from_sample(A, np.array([[True], [False]]), [int(np.argmin(A)), int(np.argmax(A))])
    assert few.sensitivity[0] > few.false_positive[0]
    many = NoiseRates.from_sample(A, ~A, np.arange(4000), ["a"])
    assert many.uninformative == ("a",)


def test_json_round_trip_and_rates_written_by_hand(rng: np.random.Generator) -> None:
    rates = NoiseRates.from_labels(*draw(rng, 500), conditions=["a", "b"])
    again = NoiseRates.from_json(json.loads(json.dumps(rates.to_json())))
    assert again.conditions == rates.conditions
    for name in RATES:
        np.testing.assert_allclose(getattr(again, name), getattr(rates, name), rtol=1e-12)
        np.testing.assert_allclose(again.intervals[name], rates.intervals[name])
    hand = NoiseRates.from_json({"uti": {"ppv": 0.8, "fn": 0.01, "anchor_rate": 0.05}})
    assert hand.ppv[0] == pytest.approx(0.8) and hand.prior[0] == pytest.approx(0.8 * 0.05 + 0.01 * 0.95)


def test_an_anchor_that_says_nothing_is_named() -> None:
    rates = NoiseRates.from_given(["a", "b"], prior=[0.1, 0.1], sensitivity=[0.2, 0.5], false_positive=[0.3, 0.1])
    assert rates.uninformative == ("a",)


@pytest.mark.parametrize(
    ("given", "says"),
    [
        (dict(prior=[0.0], sensitivity=[0.5], false_positive=[0.1]), "prior of 'uti' is 0"),
        (dict(prior=[0.1], sensitivity=[1.5], false_positive=[0.1]), "sensitivity of 'uti' is 1.5"),
        (dict(prior=[0.1], sensitivity=[float("nan")], false_positive=[0.1]), "sensitivity of 'uti'"),
        (dict(anchor_rate=[0.7], sensitivity=[0.6], false_positive=[0.1]), "'uti' fires in 0.7 of visits"),
        (dict(prior=[0.1], ppv=[0.9]), r"give \(prior, sensitivity, false_positive\)"),
        (dict(prior=[0.1, 0.2], sensitivity=[0.5], false_positive=[0.1]), "different shapes"),
    ],
)
def test_rates_that_cannot_be_are_refused_by_name(given: dict[str, list[float]], says: str) -> None:
    with pytest.raises(ModelError, match=says):
        NoiseRates.from_given(["uti"], **given)


@pytest.mark.parametrize("value", [[], {}, {"uti": 3}, {"uti": {"prior": "x"}}, {"uti": {"prior": 0.1}}])
def test_json_that_is_not_noise_rates_is_refused(value: object) -> None:
    with pytest.raises(ModelError):
        NoiseRates.from_json(value)


def test_samples_that_do_not_fit_are_refused() -> None:
    A = np.zeros((4, 1), bool)
    for rows, Y in (([0, 9], [[1], [0]]), ([0, 0], [[1], [0]]), ([0], [[1], [0]]), ([], np.zeros((0, 1)))):
        with pytest.raises(ModelError):
            NoiseRates.from_sample(A, np.array(Y), np.array(rows, dtype=int))
    for weights in ([1.0], [1.0, 0.0], [1.0, float("nan")]):
        with pytest.raises(ModelError, match="needs one above 0 for each"):
            NoiseRates.from_sample(A, np.zeros((2, 1)), [0, 1], weights=weights)
    with pytest.raises(ModelError, match="known has shape"):
        NoiseRates.from_sample(A, np.zeros((2, 1)), [0, 1], known=np.ones((3, 1)))
    with pytest.raises(ModelError, match="shape"):
        NoiseRates.from_labels(A, np.zeros((3, 1)))


def test_the_documented_calls_work_as_written_and_name_their_conditions() -> None:
    """docs/anchors.md: from a cohort, from arrays, from numbers; and a learner takes all of them."""
    cohort = small_department.cohort()
    A, Y, rows = cohort.A, cohort.Y, np.arange(200)
    assert Y is not None
    named = [
        NoiseRates.from_labels(cohort),
        NoiseRates.from_sample(cohort, Y[rows], rows),
        NoiseRates.from_given(cohort.conditions, prior=Y.mean(0), sensitivity=[0.5] * 23, false_positive=[0.001] * 23),
    ]
    assert all(rates.conditions == cohort.conditions for rates in named)
    for rates, bare in zip(
        named, [NoiseRates.from_labels(A, Y), NoiseRates.from_sample(A, Y[rows], rows)], strict=False
    ):
        np.testing.assert_array_equal(rates.prior, bare.prior)
        learned = Tagger("naive").fit(cohort, rates=bare)
        assert bare.conditions == tuple(map(str, range(23))) and learned.conditions_ == cohort.conditions
    other = NoiseRates(*(np.full(23, r) for r in (0.1, 0.5, 0.01)), tuple(f"x{i}" for i in range(23)))
    with pytest.raises(CohortError, match="other conditions"):
        Tagger("naive").fit(cohort, rates=other)


def test_each_condition_is_counted_where_it_is_known(rng: np.random.Generator) -> None:
    A, Y, known = (rng.random((400, 3)) < share for share in (0.3, 0.4, 0.6))
    some = NoiseRates.from_labels(A, Y, known=known)
    for i in range(3):
        alone = NoiseRates.from_labels(A[known[:, i], i : i + 1], Y[known[:, i], i : i + 1])
        assert some.sensitivity[i] == alone.sensitivity[0] and some.prior[i] == alone.prior[0]
    known[:, 1] = False
    with pytest.raises(ModelError, match="no visit is labelled for 'b'"):
        NoiseRates.from_labels(A, Y, ("a", "b", "c"), known=known)
    with pytest.raises(ModelError, match="known has shape"):
        NoiseRates.from_labels(A, Y, known=known[:5])
    with pytest.raises(ModelError, match="there are no labels"):
        NoiseRates.from_labels(A)


def test_a_condition_that_nobody_labelled_is_taken_to_be_typical() -> None:
    """Whatever two labels of another condition say."""
    rng = np.random.default_rng(5)
    A = rng.random((5_000, 3)) < 0.05
    rows = np.array([np.flatnonzero(~A[:, 0])[0], np.flatnonzero(A[:, 0])[0]])
    known, Y = np.zeros((2, 3), bool), np.zeros((2, 3), bool)
    known[:, 0] = Y[:, 0] = True
    found, typical = (
        NoiseRates.from_sample(A[rows], Y, np.arange(2), known=known, fired=(A.sum(0), (~A).sum(0))),
        NoiseRates.assumed_of(A.sum(0), len(A)),
    )
    assert (found.prior[1:] < 3 * typical.prior[1:]).all() and (abs(found.ppv[1:] - 0.5) < 0.1).all()
