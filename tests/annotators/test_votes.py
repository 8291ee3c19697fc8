"""Votes: shapes, parts, error rates."""

from __future__ import annotations

import numpy as np
import pytest

from tests.support.small_department import cohort
from whatelse.annotators.votes import CERTAIN, KINDS, Votes, check_votes, votes_of_belief
from whatelse.errors import CohortError


def random_votes(seed: int, annotator: str = "a", kind: str = "program") -> Votes:
    draw = np.random.default_rng(seed)
    return Votes(annotator, draw.random((40, 3)) < 0.4, draw.random((40, 3)) < 0.6, kind=kind)  # type: ignore[arg-type]


def test_value_is_false_where_the_annotator_abstained() -> None:
    votes = Votes("a", np.ones((2, 2), bool), np.array([True, False]))
    assert votes.value.tolist() == [[True, True], [False, False]] and votes.visits == 1


def test_weight_of_a_visit_holds_for_all_its_conditions() -> None:
    votes = Votes("a", np.zeros((2, 3), bool), np.ones((2, 3), bool), np.array([1.0, 4.0]))
    assert votes.weight.tolist() == [[1.0] * 3, [4.0] * 3]
    assert (random_votes(1).weight == 1).all()


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"value": np.zeros(3, bool)}, "needs \\(visits, conditions\\)"),
        ({"known": np.ones((2, 2), bool)}, "known has shape"),
        ({"weight": np.ones(3)}, "weight has shape"),
        ({"weight": np.array([1.0, np.nan])}, "finite number"),
        ({"weight": np.array([1.0, -1.0])}, "finite number"),
        ({"kind": "oracle"}, "none of label"),
        ({"kind": "person", "sensitivity": np.ones(3)}, "both sensitivity and false_positive"),
        ({"kind": "person", "sensitivity": np.ones(2), "false_positive": np.zeros(3)}, "3 numbers from 0 to 1"),
        ({"kind": "person", "sensitivity": np.full(3, 2.0), "false_positive": np.zeros(3)}, "3 numbers from 0 to 1"),
        ({"sensitivity": np.full(3, 0.9), "false_positive": np.zeros(3)}, "a label never errs"),
    ],
)
def test_votes_that_cannot_be_used_say_why(given: dict[str, object], message: str) -> None:
    whole = {"annotator": "a", "value": np.zeros((2, 3), bool), "known": np.ones((2, 3), bool)}
    with pytest.raises(CohortError, match=f"votes of 'a': .*{message}"):
        Votes(**(whole | given))  # type: ignore[arg-type]


def test_log_odds_match_the_vote_probabilities() -> None:
    votes = random_votes(3).with_rates([0.9, 0.6, 0.5], [0.1, 0.2, 0.5])
    found = votes.log_odds()
    for v in range(40):
        for i, (s, f) in enumerate([(0.9, 0.1), (0.6, 0.2), (0.5, 0.5)]):
            yes, no = np.log(s / f), np.log((1 - s) / (1 - f))
            expected = 0.0 if not votes.known[v, i] else yes if votes.value[v, i] else no
            assert np.isclose(found[v, i], expected)


def test_labels_are_certain_and_other_votes_need_rates() -> None:
    label = random_votes(4, kind="label")
    assert label.certain and set(np.unique(label.log_odds())) == {-CERTAIN, 0.0, CERTAIN}
    with pytest.raises(CohortError, match="error rates are not known"):
        random_votes(4).log_odds()
    assert not random_votes(4).certain and not random_votes(4).with_rates(1.0, 0.01).certain
    assert "person" in KINDS


def test_rows_keep_the_same_votes() -> None:
    votes = random_votes(5)
    mask = np.arange(40) % 3 == 0
    part = votes.rows(mask)
    assert np.array_equal(part.known, votes.known[mask])
    assert np.array_equal(part.value, votes.rows(np.flatnonzero(mask)).value) and len(part) == mask.sum()


def test_votes_of_a_cohort_are_its_labels_and_anchors() -> None:
    whole = cohort()
    labels, anchors = Votes.of_cohort(whole), Votes.of_anchors(whole)
    assert labels.certain and np.array_equal(labels.value, whole.Y) and np.array_equal(labels.known, whole.known)
    assert anchors.sensitivity is None and np.array_equal(anchors.value, whole.A) and anchors.known.all()
    check_votes([labels, anchors], whole)
    with pytest.raises(CohortError, match=r"are on 2,499 visits and .* the cohort has 2,500"):
        check_votes([labels.rows(np.arange(2499))], whole)


def test_votes_of_a_belief_have_its_log_odds() -> None:
    chance, known = (
        np.array([[0.9, 0.2], [1.0, 0.0], [0.7, 0.5]]),
        np.array([[True, True], [True, True], [True, False]]),
    )
    votes = votes_of_belief(chance, known)
    total = np.sum([v.log_odds() for v in votes], 0)
    assert np.array_equal(np.sum([v.known for v in votes], 0), known)
    assert total[0] == pytest.approx(np.log([9.0, 0.25]), abs=0.05) and total[2, 0] == pytest.approx(0.85, abs=0.05)
    assert total[1].tolist() == [CERTAIN, -CERTAIN] and total[2, 1] == 0
    with pytest.raises(CohortError, match="belief needs probabilities"):
        votes_of_belief(chance * 2, known)
