"""Evidence: what m linear classifiers say about the conditions, as log odds that add to those of the prior.

    e_i(x) = sum_j W_ij (x_j - c_j),        summed over the findings that were observed

A noisy-or counts each finding as if it told something new; a classifier knows which findings repeat one another. Added
to the prior's log odds its evidence is modular in y, so the search over states, its certificate and conditioning on
confirmed conditions are those of the plain model. c is the mean of each finding where it was learned: a finding that
nobody looked for counts as average, and brings nothing.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse as sp

from whatelse.errors import ModelError
from whatelse.noisyor.likelihood import as_rows
from whatelse.noisyor.params import Floats


@dataclass(frozen=True, eq=False)
class Evidence:
    """weight (m, n): W; centre (n,): c. Call it with what is present (and unobserved) to get (V, m) log odds."""

    weight: Floats
    centre: Floats

    def __post_init__(self) -> None:
        weight, centre = np.array(self.weight, np.float64), np.array(self.centre, np.float64)
        if weight.ndim != 2 or centre.shape != weight.shape[1:]:
            raise ModelError(f"evidence has weights {weight.shape} and centre {centre.shape}, needs (m, n) and (n,)")
        if not np.isfinite(weight).all() or not np.isfinite(centre).all():
            raise ModelError("evidence must have finite weights and centre")
        for name, value in (("weight", weight), ("centre", centre)):
            value.setflags(write=False)
            object.__setattr__(self, name, value)

    def __call__(self, X: Any, unobserved: Any = None) -> Floats:
        """(V, m) of V visits, each given as indices or as a row of CSR (V, n). Costs O(nnz m)."""
        n = self.centre.size
        total = _matrix(X, n) @ self.weight.T - self.weight @ self.centre
        if unobserved is not None:
            total += _matrix(unobserved, n) @ (self.weight * self.centre).T
        out: Floats = np.asarray(total)
        return out


def _matrix(rows: Any, n: int) -> sp.csr_array:
    start, index = as_rows(rows, n, "X")
    return sp.csr_array((np.ones(index.size), index, start), shape=(start.size - 1, n))
