"""Checks of a cohort's anchors: coverage, overlap, precision and recall, and tests of independence.

The model rests on one assumption: given its condition, an anchor is independent of every other finding. Where there
are labels it can be tested. For anchor A, finding X and the two strata Y = 0 and Y = 1 the Mantel-Haenszel test
compares the visits that have both with what independence within strata would give,

    O = sum_y n_y(A, X)        E = sum_y n_y(A) n_y(X) / n_y
    V = sum_y n_y(A) n_y(not A) n_y(X) n_y(not X) / (n_y^2 (n_y - 1))          (O - E)^2 / V ~ chi-squared, 1 d.f.

Where E < 5 that approximation is poor and the upper tail of a Poisson of mean E is used instead, which errs on the side
of not warning. Benjamini and Hochberg's procedure over all anchors and findings keeps the share of false warnings below
`fdr`. In a large cohort even harmless dependence is significant, so a warning also needs a common odds ratio
(Mantel-Haenszel's) of at least `min_odds`, or at most 1 / `min_odds`.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.sparse import csr_matrix
from scipy.stats import chi2, false_discovery_control, poisson

from whatelse.annotators import NoiseRates
from whatelse.cohort import Cohort
from whatelse.errors import CohortError
from whatelse.types import Bools, Floats, Indices


@dataclass(frozen=True)
class Overlap:
    """A condition whose anchor fires in `both` of some visits, `lift` times as often as chance."""

    condition: str
    both: int
    lift: float


def overlaps(cohort: Cohort, rows: Indices, i: int) -> tuple[Overlap, ...]:
    """Conditions other than i whose anchors fire in 5 or more of these visits and twice as often as chance."""
    both = cohort.A[rows].sum(0)
    lift = both * len(cohort) / np.maximum(cohort.A.sum(0) * len(rows), 1)
    worst = sorted((c for c in range(both.size) if c != i and both[c] >= 5 and lift[c] >= 2), key=lambda c: -both[c])
    return tuple(Overlap(cohort.conditions[c], int(both[c]), round(float(lift[c]), 2)) for c in worst)


@dataclass(frozen=True)
class Dependence:
    """A finding that is associated with the anchor given the condition."""

    finding: str
    both: int
    expected: float
    odds_ratio: float
    p: float


@dataclass(frozen=True)
class AnchorCheck:
    """Result of the checks of one anchor.

    Precision and recall are (value, lower, upper); None where there are no labels, or nothing to count: an anchor
    that never fires has no precision, a condition without a case has no recall.
    """

    condition: str
    fires: int
    share: float
    overlaps: tuple[Overlap, ...]
    positives: int | None
    precision: tuple[float, float, float] | None
    recall: tuple[float, float, float] | None
    dependent: tuple[Dependence, ...]
    problems: tuple[str, ...]


def check_anchors(cohort: Cohort, *, fdr: float = 0.01, min_odds: float = 2.0) -> list[AnchorCheck]:
    """Check every anchor, in the order of the conditions. O(m (nnz(X) + n)).

    Overlaps are listed where two anchors fire together in at least 5 visits and twice as often as chance,
    dependent findings from the most to the least certain.
    """
    if not len(cohort):
        raise CohortError("there are no visits to check anchors in")
    fires = cohort.A.sum(0)
    known = cohort.rows(cohort.labelled) if cohort.Y is not None and cohort.labelled.any() else None
    dependent = _dependence(known, fdr, min_odds) if known is not None else [()] * len(fires)
    rates = NoiseRates.from_labels(known.A, known.Y, cohort.conditions) if known is not None else None
    positives = known.Y.sum(0) if known is not None and known.Y is not None else None

    def interval(name: str, i: int) -> tuple[float, float, float] | None:
        if rates is None:
            return None
        low, high = rates.intervals[name][i]
        return float(getattr(rates, name)[i]), float(low), float(high)

    checks = []
    for i, condition in enumerate(cohort.conditions):
        problems = []
        if not fires[i]:
            problems.append(f"never fires in {len(cohort):,} visits: nothing can be learned about it")
        elif rates is not None and condition in rates.uninformative:
            problems.append("fires no more often with the condition than without")
        if positives is not None and not positives[i]:
            problems.append("no visit is labelled with the condition: its recall is not known")
        if dependent[i]:
            problems.append(f"{len(dependent[i])} findings stay associated with it given the label")
        checks.append(
            AnchorCheck(
                condition=condition,
                fires=int(fires[i]),
                share=float(fires[i] / len(cohort)),
                overlaps=overlaps(cohort, np.flatnonzero(cohort.A[:, i]), i),
                positives=None if positives is None else int(positives[i]),
                precision=interval("ppv", i) if known is not None and known.A[:, i].any() else None,
                recall=interval("sensitivity", i) if positives is not None and positives[i] else None,
                dependent=dependent[i],
                problems=tuple(problems),
            )
        )
    return checks


def _dependence(known: Cohort, fdr: float, min_odds: float) -> list[tuple[Dependence, ...]]:
    """Findings associated with each anchor given its condition, most certain first."""
    assert known.Y is not None
    A, Y, X = known.A, known.Y, known.X
    observed, expected, variance, odds = mantel_haenszel(A, Y, X)
    with np.errstate(divide="ignore", invalid="ignore"):
        p = chi2.sf((observed - expected) ** 2 / variance, 1)
    few = expected < 5
    p[few] = poisson.sf(observed[few] - 1, expected[few])
    testable = variance > 0
    testable[np.arange(len(p)), known.anchor_columns] = False  # an anchor goes with itself
    certain = np.zeros_like(testable)
    certain[testable] = false_discovery_control(p[testable]) <= fdr
    warn = certain & ((odds >= min_odds) | (odds <= 1 / min_odds))
    names = known.vocabulary.names

    def dependence(i: int, j: int) -> Dependence:
        return Dependence(names[j], int(observed[i, j]), float(expected[i, j]), float(odds[i, j]), float(p[i, j]))

    order = np.lexsort((-abs(observed - expected), p), axis=1)
    return [tuple(dependence(i, j) for j in order[i] if warn[i, j]) for i in range(len(p))]


def mantel_haenszel(A: Bools, Y: Bools, X: csr_matrix) -> tuple[Floats, Floats, Floats, Floats]:
    """(observed, expected, variance, common odds ratio), each (m, n), of anchor i and finding j given condition i.

    The odds ratio is Mantel and Haenszel's, with 1/4 added above and below: half a visit in each of four cells.
    """
    m, n = A.shape[1], X.shape[1]
    total_x = np.asarray(X.sum(axis=0), dtype=np.float64).ravel()
    x_true = _product(Y, X)
    observed, expected, variance = np.zeros((m, n)), np.zeros((m, n)), np.zeros((m, n))
    top, bottom = np.zeros((m, n)), np.zeros((m, n))
    for inside, x in ((Y, x_true), (~Y, total_x - x_true)):
        size = inside.sum(0, dtype=np.float64)[:, None]
        a = (A & inside).sum(0, dtype=np.float64)[:, None]
        both = _product(A & inside, X)
        some = np.maximum(size, 1)
        observed += both
        expected += a * x / some
        variance += a * (size - a) * x * (size - x) / (some**2 * np.maximum(size - 1, 1))
        top += both * (size - a - x + both) / some
        bottom += (a - both) * (x - both) / some
    return observed, expected, variance, (top + 0.25) / (bottom + 0.25)


def _product(rows: Bools, X: csr_matrix) -> Floats:
    """(m, n) how many of each column's rows have each finding."""
    counts: Floats = (csr_matrix(rows.T.astype(np.float64)) @ X.astype(np.float64)).toarray()
    return counts
