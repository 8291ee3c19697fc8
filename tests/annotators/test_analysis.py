"""The analysis table of annotators, against a loop over votes."""

from __future__ import annotations

import numpy as np
import pytest

from whatelse.annotators.analysis import analyse_annotators
from whatelse.annotators.votes import Votes


def _votes() -> tuple[np.ndarray, list[Votes]]:
    rng = np.random.default_rng(0)
    truth = rng.random((60, 2)) < 0.4
    labels = Votes("sheet.csv", truth, rng.random(60) < 0.5)
    noisy = [
        Votes(name, truth ^ (rng.random((60, 2)) < error), rng.random((60, 2)) < share, kind="program")
        for name, error, share in (("model A", 0.1, 0.9), ("model B", 0.3, 0.5))
    ]
    return truth, [labels, *noisy]


def test_coverage_overlap_and_conflict_match_a_loop() -> None:
    _, votes = _votes()
    table = analyse_annotators(votes)
    assert [row.annotator for row in table] == ["sheet.csv", "model A", "model B"]
    for row, own in zip(table, votes, strict=True):
        others = [v for v in votes if v is not own]
        cells = [(v, i) for v in range(60) for i in range(2) if own.known[v, i]]
        shared = [c for c in cells if any(o.known[c] for o in others)]
        disputed = [c for c in cells if any(o.known[c] and o.value[c] != own.value[c] for o in others)]
        assert row.votes == len(cells) and row.coverage == pytest.approx(len(cells) / 120)
        assert row.overlap == pytest.approx(len(shared) / len(cells))
        assert row.conflict == pytest.approx(len(disputed) / len(cells))


def test_error_with_a_given_posterior_is_the_share_of_wrong_votes() -> None:
    truth, votes = _votes()
    labels, a, b = analyse_annotators(votes, posterior=truth.astype(float))
    assert labels.error == 0 and labels.sensitivity == 1 and labels.false_positive == 0
    for row, own in ((a, votes[1]), (b, votes[2])):
        assert row.error == pytest.approx((own.value != truth)[own.known].mean())
        assert row.sensitivity == pytest.approx(own.value[own.known & truth].mean())
        assert row.false_positive == pytest.approx(own.value[own.known & ~truth].mean())


def test_decisions_of_several_people_are_one_row_and_no_votes_no_row() -> None:
    _, votes = _votes()
    people = [Votes("people", v.value, v.known, kind="person") for v in votes[1:]]
    (row,) = analyse_annotators(people)
    assert row.votes == sum(int(v.known.sum()) for v in people) and row.coverage <= 1
    assert row.overlap == pytest.approx(2 * (people[0].known & people[1].known).sum() / row.votes)
    assert analyse_annotators([]) == ()
