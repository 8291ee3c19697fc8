"""Error rates of annotators: against enumeration, against the truth they were drawn from, and with rates given."""

from __future__ import annotations

import numpy as np
import pytest

from whatelse.annotators.dawid_skene import CASES, PRIOR, estimate_rates
from whatelse.annotators.votes import Votes
from whatelse.types import Bools


def drawn(truth: Bools, sensitivity: float, false_positive: float, seed: int, name: str, share: float = 1.0) -> Votes:
    rng = np.random.default_rng(seed)
    value = rng.random(truth.shape) < np.where(truth, sensitivity, false_positive)
    return Votes(name, value, rng.random(truth.shape) < share, kind="program")


def test_rates_of_three_annotators_are_recovered() -> None:
    truth = np.random.default_rng(0).random((8000, 2)) < [0.3, 0.1]
    rates = [(0.9, 0.05), (0.7, 0.1), (0.8, 0.02)]
    votes = [drawn(truth, s, f, 10 + k, f"a{k}", share=0.8) for k, (s, f) in enumerate(rates)]
    filled, posterior = estimate_rates(votes)
    for found, (s, f) in zip(filled, rates, strict=True):
        assert found.sensitivity == pytest.approx(np.full(2, s), abs=0.05)
        assert found.false_positive == pytest.approx(np.full(2, f), abs=0.03)
    voted = np.any([v.known for v in votes], 0)
    assert (posterior[~voted] == 0).all()
    assert posterior[voted].sum() == pytest.approx(truth[voted].sum(), rel=0.05)


def test_labels_are_the_posterior_and_rates_are_then_counted() -> None:
    truth = np.random.default_rng(1).random((500, 1)) < 0.4
    label = Votes("labels", truth, np.ones_like(truth))
    program = drawn(truth, 0.8, 0.1, 2, "program")
    (_, found), posterior = estimate_rates([label, program])
    assert np.allclose(posterior, truth)
    (s0, r0), share = PRIOR["program"], (program.value.sum() + 0.5) / 501
    false_yes, visits = CASES * s0 * (1 - r0) / r0, CASES * s0 / (r0 * share)  # what the prior counts as
    for rate, cases, yes, of in (
        (found.sensitivity, truth, CASES * s0, CASES),
        (found.false_positive, ~truth, false_yes, visits - CASES),
    ):
        counted = ((program.value & cases).sum() + yes) / (cases.sum() + of)
        assert rate is not None and rate[0] == pytest.approx(counted)


def test_a_yes_about_a_rare_condition_keeps_its_worth_without_labels() -> None:
    """One annotator alone cannot tell its rates: they are typical ones, whatever the share of the condition."""
    truth = np.random.default_rng(5).random((4000, 3)) < [0.3, 0.05, 0.01]
    share = truth.mean(0)
    value = np.random.default_rng(6).random(truth.shape) < np.where(truth, 0.85, 0.85 * share * 0.25 / (1 - share))
    program = Votes("program", value, np.ones_like(truth), kind="program")
    (found,), posterior = estimate_rates([program])
    assert found.sensitivity == pytest.approx(np.full(3, 0.8), abs=0.05)
    assert posterior[value].min() > 0.6  # precision 0.8
    assert posterior.sum(0) == pytest.approx(truth.sum(0), rel=0.2)


def test_yes_where_the_condition_is_not_counts_nothing() -> None:
    truth = np.random.default_rng(7).random((2000, 1)) < 0.3
    labels = Votes("labels", truth, np.arange(2000) < 1000)
    (_, found), _ = estimate_rates([labels, drawn(truth, 0.1, 0.6, 8, "upside down")])
    assert [odds[0] for odds in found.vote_odds()] == [0, 0]


def test_posterior_is_a_fixed_point_of_bayes_rule() -> None:
    truth = np.random.default_rng(3).random((300, 1)) < 0.3
    given = drawn(truth, 0.9, 0.1, 4, "given").with_rates(0.9, 0.1)
    free = drawn(truth, 0.7, 0.2, 5, "free")
    (kept, found), posterior = estimate_rates([given, free])
    assert kept is given and found.sensitivity is not None and found.false_positive is not None
    prevalence = (posterior.sum() + 0.5) / 301
    for v in range(300):
        chance = [1 - prevalence, prevalence]
        for votes in (kept, found):
            assert votes.sensitivity is not None and votes.false_positive is not None
            for y, rate in ((0, votes.false_positive[0]), (1, votes.sensitivity[0])):
                if votes.known[v, 0]:
                    chance[y] *= rate if votes.value[v, 0] else 1 - rate
        assert posterior[v, 0] == pytest.approx(chance[1] / sum(chance), abs=1e-4)


def test_votes_with_one_name_share_their_rates() -> None:
    truth = np.random.default_rng(6).random((400, 1)) < 0.5
    filled, _ = estimate_rates([drawn(truth, 0.9, 0.1, 7, "people"), drawn(truth, 0.6, 0.3, 8, "people")])
    assert filled[0].sensitivity == pytest.approx(filled[1].sensitivity)


def test_an_annotator_by_chance_counts_next_to_nothing_where_labels_show_it() -> None:
    rng = np.random.default_rng(3)
    truth = rng.random((2000, 20)) < 0.03  # few cases of each condition: the other conditions tell what it is worth
    labels = Votes("labels", truth, np.arange(2000) < 200)
    coin = Votes("coin", rng.random(truth.shape) < 0.3, np.ones_like(truth), kind="program")
    (_, found), _ = estimate_rates([labels, coin])
    yes, no = found.vote_odds()
    assert np.abs(yes).mean() < 0.3 and np.abs(no).mean() < 0.15
