"""Anchor diagnostics: the Mantel-Haenszel sums against loops, and that only broken anchors are warned about."""

from __future__ import annotations

import json
from dataclasses import asdict

import numpy as np
import pytest
from scipy.sparse import csr_matrix

from whatelse.annotators import AnchorSet
from whatelse.annotators.anchor_checks import check_anchors, mantel_haenszel
from whatelse.cohort import Cohort
from whatelse.cohort.vocabulary import Vocabulary
from whatelse.errors import CohortError

ANCHORS = AnchorSet.from_json({"conditions": [{"name": name} for name in ("good", "leaky", "silent")]})


def make(rng: np.random.Generator, N: int = 20_000, n: int = 30, labels: bool = True) -> Cohort:
    """Findings that depend on the conditions only; but finding 0 is written down where anchor `leaky` is."""
    Y = rng.random((N, 3)) < [0.1, 0.1, 0.05]
    A = rng.random((N, 3)) < np.where(Y, [0.7, 0.6, 0.0], [0.02, 0.05, 0.0])
    weight = rng.random((3, n)) * 0.4
    X = rng.random((N, n)) < 1 - 0.95 * np.prod(1 - Y[:, :, None] * weight, axis=1)
    X[:, 0] |= A[:, 1] & (rng.random(N) < 0.5)
    matrix = csr_matrix(np.hstack([X, A]).astype(np.uint8))
    names = tuple(f"word{j}" for j in range(n)) + tuple(f"anchor:{c}" for c in ANCHORS.names)
    vocabulary = Vocabulary(names, np.asarray(matrix.sum(0), dtype=np.int64).ravel(), N, ANCHORS)
    return Cohort(matrix, vocabulary, np.array([str(i) for i in range(N)], dtype=object), Y if labels else None)


def test_only_the_broken_anchor_is_warned_about(rng: np.random.Generator) -> None:
    good, leaky, silent = check_anchors(make(rng))
    assert good.dependent == () and good.problems == ()
    assert [d.finding for d in leaky.dependent] == ["word0"]
    assert leaky.dependent[0].odds_ratio > 4 and leaky.dependent[0].both > leaky.dependent[0].expected
    assert silent.precision is None and silent.recall is not None
    assert silent.fires == 0 and "never fires" in silent.problems[0]
    assert good.precision is not None and good.precision[1] < 0.07 / (0.07 + 0.018) < good.precision[2]
    assert good.recall is not None and good.recall[1] < 0.7 < good.recall[2]


def test_the_share_of_false_warnings_is_kept(rng: np.random.Generator) -> None:
    """With nothing broken and no demand on the odds ratio, 60 x 3 tests at 1% raise next to no warning."""
    warnings = 0
    for _ in range(10):
        cohort = make(rng, N=4000, n=60)
        warnings += sum(len(check.dependent) for check in check_anchors(cohort, min_odds=1.0)) - 1  # leaky, word0
    assert warnings <= 2


def test_without_labels_only_coverage_and_overlap_are_known(rng: np.random.Generator) -> None:
    for check in check_anchors(make(rng, N=500, labels=False)):
        assert check.precision is check.recall is check.positives is None and check.dependent == ()
        json.dumps(asdict(check), allow_nan=False)


def test_few_visits_or_none(rng: np.random.Generator) -> None:
    cohort = make(rng, N=50)
    for rows in ([0], [1, 2]):
        assert len(check_anchors(cohort.rows(rows))) == 3
    with pytest.raises(CohortError, match="no visits"):
        check_anchors(cohort.rows([]))
    nobody = Cohort(cohort.X, cohort.vocabulary, cohort.ids, cohort.Y, np.zeros(50, bool))
    assert all(check.positives is None for check in check_anchors(nobody))


def test_overlap_names_anchors_that_fire_together() -> None:
    A = np.zeros((1000, 3), dtype=np.uint8)
    A[:40, 0] = A[20:60, 1] = 1
    vocabulary = Vocabulary(tuple(f"anchor:{c}" for c in ANCHORS.names), A.sum(0), 1000, ANCHORS)
    cohort = Cohort(csr_matrix(A), vocabulary, np.arange(1000).astype(object))
    overlap = check_anchors(cohort)[0].overlaps
    assert [(o.condition, o.both, o.lift) for o in overlap] == [("leaky", 20, pytest.approx(12.5))]


def test_mantel_haenszel_against_loops(rng: np.random.Generator) -> None:
    cohort = make(rng, N=300, n=8)
    assert cohort.Y is not None
    observed, expected, variance, odds = mantel_haenszel(cohort.A, cohort.Y, cohort.X)
    dense = cohort.X.toarray().astype(bool)
    for i in range(3):
        for j in range(dense.shape[1]):
            both = E = V = top = bottom = 0.0
            for y in (True, False):
                rows = cohort.Y[:, i] == y
                a, x, n = cohort.A[rows, i], dense[rows, j], int(rows.sum())
                both += (a & x).sum()
                E += a.sum() * x.sum() / n
                V += a.sum() * (~a).sum() * x.sum() * (~x).sum() / (n**2 * (n - 1))
                top += (a & x).sum() * (~a & ~x).sum() / n
                bottom += (a & ~x).sum() * (~a & x).sum() / n
            ours = [table[i, j] for table in (observed, expected, variance, odds)]
            np.testing.assert_allclose(ours, [both, E, V, (top + 0.25) / (bottom + 0.25)])
