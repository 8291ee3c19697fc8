"""The held-out tag: which one condition, besides those confirmed, is also on? (The paper's last-tag task.)

    P(U_i = 1 | x, confirmed, exactly one more) = P(x, confirmed + i) / sum_k P(x, confirmed + k)

Exact: the states are the m - k one-condition extensions of what is confirmed.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from scipy import sparse

from whatelse.errors import QueryError
from whatelse.noisyor.inference.posterior import TOLERANCE, lay_out
from whatelse.noisyor.inference.query import POSSIBLE
from whatelse.noisyor.inference.solver import solve
from whatelse.noisyor.joint import Model
from whatelse.noisyor.likelihood import as_rows
from whatelse.types import Floats


def heldout_tag(
    model: Model, X: Any, confirmed: ArrayLike, evidence: ArrayLike | None = None, unobserved: Any = None
) -> Floats:
    """Probabilities (V, m) of the one condition that is on besides those confirmed; 0 for the confirmed ones.

    X is CSR (V, n) or a list of V index arrays; confirmed (V, m) of bool; evidence and unobserved as in `posterior`.
    Rows sum to one, save where everything is confirmed (all zero). A visit that no such state can produce gets the
    priors, scaled to sum to one. Cost O(nnz(X) m), on all cores.
    """
    known = np.asarray(confirmed, dtype=bool)
    start, index = as_rows(X, model.n, "X")
    present = sparse.csr_array((np.ones(index.size, np.uint8), index, start), shape=(start.size - 1, model.n))
    if known.shape != (start.size - 1, model.m):
        raise QueryError(f"confirmed has shape {known.shape}, needs {(start.size - 1, model.m)}")
    count = np.minimum(known.sum(1) + 1, model.m)
    noisyor, query = lay_out(model, present, unobserved, known, count=count, evidence=evidence)
    answer = solve(noisyor, query, TOLERANCE, budget=model.m + 1, top=0)
    tags: Floats = np.where(known, 0.0, answer.marginals)
    lost = answer.impossible != POSSIBLE
    tags[lost] /= np.maximum(tags[lost].sum(1, keepdims=True), np.finfo(float).tiny)
    return tags
