"""Anchors of other conditions that fire in the same visits."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from whatelse.cohort import Cohort
from whatelse.types import Indices


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
