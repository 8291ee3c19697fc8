"""Row: one measure of two models on the same visits, and the difference with its interval.

The differences of visits are resampled, so that what the visits have in common drops out.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np

from whatelse.noisyor.heldout_metrics import resample_counts
from whatelse.types import Floats

LEVEL, OTHERS_LEVEL = 0.95, 0.99
RESAMPLES = 2_000


@dataclass(frozen=True)
class Row:
    """One measure of both models on the same visits, and new minus old with its interval. good: a rise is good."""

    measure: str
    visits: int
    old: float
    new: float
    difference: float
    low: float
    high: float
    good: bool

    @property
    def says(self) -> Literal["better", "worse", "same"]:
        """What the interval says; "same" where it holds zero."""
        if not self.low > 0 and not self.high < 0:
            return "same"
        return "better" if (self.low > 0) == self.good else "worse"


@dataclass
class Resamples:
    """How often each of V visits is drawn, (resamples, V): the same for all measures of as many visits."""

    seed: int = 0
    resamples: int = RESAMPLES
    _kept: Floats | None = None

    def counts(self, visits: int) -> Floats:
        """(resamples, visits)."""
        if self._kept is None or self._kept.shape[1] != visits:
            self._kept = np.stack(list(resample_counts(visits, self.resamples, self.seed))).astype(float)
        return self._kept


def paired_row(
    measure: str, old: Floats, new: Floats, size: Floats, draw: Resamples, *, good: bool = False, level: float = LEVEL
) -> Row:
    """sum(new - old) / sum(size), each (V,), with an interval over the visits that have any size."""
    there = size > 0
    a, b, n = old[there], new[there], size[there]
    counts = draw.counts(len(n))
    low, high = interval((counts @ (b - a)) / (counts @ n), level)
    total = float(n.sum())
    left, right = float(a.sum()) / total, float(b.sum()) / total
    return Row(measure, len(n), left, right, right - left, low, high, good)


def interval(drawn: Floats, level: float) -> tuple[float, float]:
    """The central `level` of what was drawn."""
    low, high = np.quantile(drawn, [(1 - level) / 2, (1 + level) / 2])
    return float(low), float(high)
