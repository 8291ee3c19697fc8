"""Visits as their anchors show them, and the noisy-or that takes anchors for the truth."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import scipy.sparse as sp

from whatelse.noisyor.anchored.excuses import only
from whatelse.noisyor.anchored.hidden import Pairs, noisyor_gains
from whatelse.noisyor.evidence import excused
from whatelse.noisyor.mle import edit_anchors, mle_model
from whatelse.noisyor.params import Bools, Floats, NoisyOr
from whatelse.noisyor.rates import Rates


@dataclass(frozen=True, eq=False)
class AnchorVisits:
    """X whole, its findings without anchors (x, same columns), anchors A that are not excused, their pairs."""

    X: sp.csr_matrix
    x: sp.csr_matrix
    A: Bools
    columns: Any
    pairs: Pairs

    @classmethod
    def of(cls, X: sp.csr_matrix, columns: Any, excuse: Bools) -> AnchorVisits:
        x = only(X, np.isin(np.arange(X.shape[1]), columns, invert=True))
        A = X[:, columns].toarray().astype(bool) & ~excused(X, excuse)
        return cls(sp.csr_matrix(X), x, A, columns, Pairs.of(x, A))

    def rows(self, which: Any) -> AnchorVisits:
        """Some of the visits."""
        A, x = self.A[which], self.x[which]
        return AnchorVisits(self.X[which], x, A, self.columns, Pairs.of(x, A))

    def findings(self, keep: Bools) -> AnchorVisits:
        """As if only these findings (n,), and anchors, had been looked for."""
        x = only(self.x, keep)
        return replace(self, x=x, pairs=Pairs.of(x, self.A))

    @property
    def log_rate(self) -> Floats:
        """(m,) log of how often each anchor fires unexcused; never -inf."""
        rate: Floats = np.log((self.A.sum(0) + 0.5) / (len(self.A) + 1))
        return rate

    def of_conditions(self, bias: Floats, rates: Rates) -> Floats:
        """(m,) biases of conditions from those of their anchors, log(pi / P(A)) higher."""
        return bias - self.log_rate + np.log(rates.prior)


def noisyor_of(visits: AnchorVisits, rates: Rates, excuse: Bools) -> NoisyOr:
    """Anchors taken for conditions; then anchors as the noise rates say, and no edges to what excuses them."""
    model = cut(mle_model(visits.x, visits.A, prior=rates.prior), excuse)
    return edit_anchors(model, visits.columns, rates.sensitivity, rates.false_positive)


def cut(model: NoisyOr, edges: Bools) -> NoisyOr:
    """The model without these edges, (m, n) or all edges to these findings (n,)."""
    return replace(model, fail=np.where(edges, 1.0, model.fail))


@dataclass(frozen=True, eq=False)
class Halves:
    """Two noisy-ors, each learned from one half of the visits, to speak of the other."""

    first: Bools
    of_first: NoisyOr
    of_second: NoisyOr
    columns: Any

    @classmethod
    def of(cls, visits: AnchorVisits, rates: Rates, excuse: Bools, rng: np.random.Generator) -> Halves:
        """A half at random, and the rest."""
        first: Bools = rng.random(len(visits.A)) < 0.5
        one, other = (noisyor_of(visits.rows(half), rates, excuse) for half in (first, ~first))
        return cls(first, one, other, visits.columns)

    def rows(self, which: Any) -> Halves:
        """Of some of the visits."""
        return replace(self, first=self.first[which])

    def cut(self, edges: Bools) -> Halves:
        """Both without these edges."""
        return replace(self, of_first=cut(self.of_first, edges), of_second=cut(self.of_second, edges))

    def gains(self, pairs: Pairs) -> Floats:
        """(P, m) gains of each pair by the noisy-or that did not see its visit."""
        out = np.empty(pairs.confirmed.shape)
        first = self.first[pairs.visit]
        for theirs, model in ((first, self.of_second), (~first, self.of_first)):
            out[theirs] = noisyor_gains(model, pairs.rows(theirs), self.columns)
        return out
