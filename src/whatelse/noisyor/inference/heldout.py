"""The held-out tag: which one condition, besides those confirmed, is also on? (The paper's last-tag task.)

    P(U_i = 1 | x, confirmed, exactly one more) = P(x, confirmed + i) / sum_k P(x, confirmed + k)

Exact: the states are the m - k one-condition extensions of what is confirmed.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit
from numpy.typing import ArrayLike, NDArray
from scipy import sparse

from whatelse.errors import QueryError
from whatelse.noisyor.inference.posterior import lay_out
from whatelse.noisyor.inference.query import POSSIBLE, reduce_visit
from whatelse.noisyor.inference.solver import by_threads
from whatelse.noisyor.inference.states import log_on, split_products
from whatelse.noisyor.joint import Model
from whatelse.noisyor.likelihood import Rows, Tables, as_rows, tables
from whatelse.types import Floats


def heldout_tag(model: Model, X: Any, confirmed: ArrayLike, evidence: ArrayLike | None = None) -> Floats:
    """Probabilities (V, m) of the one condition that is on besides those confirmed; 0 for the confirmed ones.

    X is CSR (V, n) or a list of V index arrays; confirmed (V, m) of bool; evidence as in `posterior`. Rows sum to one,
    save where everything is confirmed (all zero). A visit that no such state can produce gets the priors, scaled to sum
    to one. Cost O(nnz(X) m), on all cores.
    """
    known = np.asarray(confirmed, dtype=bool)
    start, index = as_rows(X, model.n, "X")
    present = sparse.csr_array((np.ones(index.size, np.uint8), index, start), shape=(start.size - 1, model.n))
    if known.shape != (start.size - 1, model.m):
        raise QueryError(f"confirmed has shape {known.shape}, needs {(start.size - 1, model.m)}")
    noisyor, query = lay_out(model, present, confirmed=known, evidence=evidence)
    t, log_weights = tables(noisyor), np.full(known.shape, -np.inf)

    def run(first: int, end: int) -> None:
        asked = query.present, query.unobserved, query.status, query.evidence
        _weigh_extensions(first, end, *asked, t, log_weights)

    by_threads(run, query.size)
    peak = log_weights.max(1, keepdims=True, initial=-np.inf)
    possible = np.isfinite(peak)
    tags: Floats = np.where(possible, np.exp(log_weights - np.where(possible, peak, 0.0)), noisyor.prior * ~known)
    tags /= np.maximum(tags.sum(1, keepdims=True), np.finfo(float).tiny)
    return tags


@njit(cache=True, nogil=True)
def _weigh_extensions(
    first: int, end: int, present: Rows, unobserved: Rows, status: NDArray[np.int8], evidence: Floats,
    t: Tables, log_weights: Floats,
) -> None:  # fmt: skip
    """log P(x, confirmed + i) up to a constant of visits first .. end - 1 into log_weights (V, m); -inf: impossible."""
    for v in range(first, end):
        verdict, _, _, free, unary, on, w, rows = reduce_visit(v, present, unobserved, status, evidence, t)
        if verdict != POSSIBLE:
            continue
        ends = np.empty(on.size + 1, np.int64)
        runs = split_products(on, w, ends)
        for k in range(free.size):
            total, alive = log_on(rows[k], on, w, ends, runs)
            if alive:
                log_weights[v, free[k]] = unary[k] + total
