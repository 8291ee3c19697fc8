"""Two models side by side: what each answers about the same visits, and the difference of a measure with its interval.

Two models may differ in findings (words of an anchor are no findings) and in conditions. Each reads the visits with its
own vocabulary; both are asked about the conditions that both know. Intervals resample the differences of visits, so
what the visits have in common drops out.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from whatelse.evaluation.updates import answers_of
from whatelse.noisyor.heldout_metrics import resample_counts
from whatelse.tagger import Tagger
from whatelse.types import Bools, Floats

LEVEL, OTHERS_LEVEL = 0.95, 0.99
RESAMPLES = 2_000


@dataclass(frozen=True, eq=False)
class ModelView:
    """A model, the visits X (V, n) in its own findings, and which of its conditions the m compared ones are, (m,)."""

    tagger: Tagger
    X: sp.csr_matrix
    of: NDArray[np.intp]

    @classmethod
    def about(cls, tagger: Tagger, X: sp.csr_matrix, conditions: Sequence[str]) -> ModelView:
        """The side of a model that knows all these conditions."""
        index = {c: i for i, c in enumerate(tagger.conditions_)}
        return cls(tagger, X, np.array([index[c] for c in conditions], np.intp))

    def rows(self, which: Any) -> ModelView:
        """The same model with some of the visits, or with visits several times."""
        return ModelView(self.tagger, self.X[which], self.of)

    def answer(self, confirmed: Bools | None = None, rejected: Bools | None = None) -> Floats:
        """(V, m) probabilities, given what is confirmed and rejected, each (V, m)."""
        ask = answers_of(self.tagger.model_)
        return ask(self.X, self._own(confirmed), self._own(rejected))[:, self.of]

    def heldout(self, confirmed: Bools) -> Floats:
        """(V, m) which one condition is on besides those confirmed."""
        own = self._own(confirmed)
        assert own is not None
        return self.tagger.heldout_tag(self.X, own)[:, self.of]

    def _own(self, mask: Bools | None) -> Bools | None:
        """(V, m) as (V, number of the model's own conditions)."""
        if mask is None:
            return None
        wide = np.zeros((len(mask), len(self.tagger.conditions_)), bool)
        wide[:, self.of] = mask
        return wide


def shared_conditions(old: Tagger, new: Tagger) -> tuple[str, ...]:
    """The conditions that both know, in the order of the old model."""
    return tuple(c for c in old.conditions_ if c in set(new.conditions_))


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
