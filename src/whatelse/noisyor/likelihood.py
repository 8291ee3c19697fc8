"""The joint probability of a noisy-or network, draws from it, and the marginal of each finding.

For one visit with findings x and conditions y, p_j(y) = P(X_j = 1 | y), and powers w_j and a_j (`absence`):

    log P(x, y) = log P(y) + sum_{j absent} a_j log(1 - p_j(y)) + sum_{j present} w_j log p_j(y)

The absent part is linear in y: log(1 - l_j) + sum_i y_i log f_ij. Summed once over all findings it leaves a
correction for the few that are present, so a visit costs its present findings, not n.

p_j is built up one condition at a time as p <- p f + (1 - f), which starts at the leak and never subtracts:
it keeps full relative precision however small the leak, and is zero exactly when nothing can cause the finding.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple
from weakref import WeakKeyDictionary

import numpy as np
from numba import njit
from numpy.typing import ArrayLike
from scipy import sparse

from whatelse.errors import QueryError
from whatelse.noisyor.params import NoisyOr
from whatelse.types import Bools, Floats, Ints

Rows = tuple[Ints, Ints]  # (start (V + 1,), index): row v is index[start[v]:start[v + 1]]

PRIOR_SWEEPS = 200  # Gibbs sweeps over a coupled prior before a draw is used


class Tables(NamedTuple):
    """What every query needs of a model: its own arrays, and what is computed of them once, O(m n)."""

    fail: Floats  # (m, n)
    leak: Floats  # (n,)
    weight: Floats  # (n,)
    coupling: Floats  # (m, m)
    log_odds: Floats  # (m,) of the prior
    log_none: float  # log P(y = 0)
    log_fail: Floats  # (n, m) a_j log f_ij, with 0 where f_ij = 0
    log_fail_sum: Floats  # (m,) its sum over all findings
    log_quiet: Floats  # (n,) a_j log(1 - l_j), with 0 where l_j = 1
    log_quiet_sum: float
    sure: Bools  # (n, m) f_ij = 0 and a_j > 0: the condition makes an absent finding impossible
    sure_sum: Ints  # (m,) how many of them
    always: Bools  # (n,) l_j = 1 and a_j > 0: the finding can never be absent
    always_sum: int
    counts: Bools  # (n,) a_j > 0: the finding says something where it is absent
    edge_start: Ints  # (n + 1,) edges of finding j: edge_start[j] to edge_start[j + 1]
    edge_cause: Ints  # the condition of each edge: f_ij < 1
    edge_fail: Floats  # f_ij of each edge
    coupled: bool  # whether there is any coupling
    least_leak: float  # of findings that say something where they are present


_TABLES: WeakKeyDictionary[NoisyOr, Tables] = WeakKeyDictionary()


def tables(model: NoisyOr) -> Tables:
    """The tables of a model; kept for as long as the model lives."""
    found = _TABLES.get(model)
    if found is None:
        used = model.absence > 0
        log_fail = np.log(model.fail, where=model.fail > 0, out=np.zeros_like(model.fail)) * model.absence
        log_quiet = np.log1p(-model.leak, where=model.leak < 1, out=np.zeros_like(model.leak)) * model.absence
        sure = (model.fail == 0) & used
        always = (model.leak == 1) & used
        finding, cause = np.nonzero(model.fail.T < 1)
        found = _TABLES[model] = Tables(
            fail=model.fail,
            leak=model.leak,
            weight=model.weight,
            coupling=model.coupling,
            log_odds=np.log(model.prior) - np.log1p(-model.prior),
            log_none=float(np.log1p(-model.prior).sum()),
            log_fail=np.ascontiguousarray(log_fail.T),
            log_fail_sum=log_fail.sum(1),
            log_quiet=log_quiet,
            log_quiet_sum=float(log_quiet.sum()),
            sure=np.ascontiguousarray(sure.T),
            sure_sum=sure.sum(1),
            always=always,
            always_sum=int(always.sum()),
            counts=used,
            edge_start=np.searchsorted(finding, np.arange(model.n + 1)),
            edge_cause=np.ascontiguousarray(cause),
            edge_fail=model.fail[cause, finding],
            coupled=bool(model.coupling.any()),
            least_leak=float(model.leak[model.weight > 0].min(initial=1.0)),
        )
    return found


def as_rows(X: Any, n: int, what: str) -> Rows:
    """Many visits' indices as (start, index), checked; X is CSR (V, n), a 0/1 array (V, n) or a list of index arrays.

    Indices come out sorted within a visit and without repeats. Cost: the number of indices.
    """
    if sparse.issparse(X) or (isinstance(X, np.ndarray) and X.ndim == 2):
        if X.shape[1] != n:
            raise QueryError(f"{what} has {X.shape[1]} columns but the model has {n}")
        matrix = sparse.csr_array(X)
        if not (matrix.has_canonical_format and matrix.data.all()):
            matrix = matrix.copy()
            matrix.sum_duplicates()
            matrix.eliminate_zeros()
        return matrix.indptr.astype(np.int64), matrix.indices.astype(np.int64)
    rows = [as_indices(row, n, what) for row in X]
    start = np.zeros(len(rows) + 1, np.int64)
    np.cumsum([row.size for row in rows], out=start[1:])
    return start, np.concatenate([*rows, np.empty(0, np.int64)])


def as_indices(row: ArrayLike | Sequence[int], n: int, what: str) -> Ints:
    """One visit's indices, sorted and without repeats, from indices or a mask (n,) of bool."""
    given = np.asarray(row)
    if given.ndim != 1:
        raise QueryError(f"{what} of one visit has {given.ndim} dimensions, needs 1: the indices")
    if given.dtype == bool:
        if given.size != n:
            raise QueryError(f"{what} is a mask of {given.size} but the model has {n}")
        return np.flatnonzero(given)
    if given.size == 0:
        return np.empty(0, np.int64)
    if not np.issubdtype(given.dtype, np.integer):
        raise QueryError(f"{what} has type {given.dtype}, needs integer indices or a mask of bool")
    index = np.unique(given.astype(np.int64))
    if index[0] < 0 or index[-1] >= n:
        bad = index[0] if index[0] < 0 else index[-1]
        raise QueryError(f"{what} names index {bad}, but the model has {n}: 0 to {n - 1}")
    return index


def log_joint(model: NoisyOr, X: Any, Y: ArrayLike, evidence: ArrayLike | None = None) -> Floats:
    """log P(x_v, y_v) of each visit, (V,); -inf where it is impossible.

    X is CSR (V, n) or a list of V index arrays; Y (V, m) of 0/1; `evidence` (V, m) or (m,) is added to the log odds of
    the conditions that are on. With a coupling or evidence the prior is not normalised. Cost: nnz(X) times the
    conditions on.
    """
    rows = as_rows(X, model.n, "X")
    V = rows[0].size - 1
    on = np.ascontiguousarray(Y, dtype=bool)
    if on.shape != (V, model.m):
        raise QueryError(f"Y has shape {on.shape}, needs {(V, model.m)}: a row per visit, a column per condition")
    t = tables(model)
    unary = t.log_odds if evidence is None else t.log_odds + as_evidence(evidence, V, model.m)
    out: Floats = np.where(on, unary, 0.0).sum(1) + t.log_none
    if t.coupled:
        out += 0.5 * np.einsum("vi,ik,vk->v", on, model.coupling, on)
    _add_findings(*rows, on, model.fail, model.leak, model.weight, t, out)
    return out


def as_evidence(evidence: ArrayLike, V: int, m: int) -> Floats:
    """Log odds to add, (V, m), from (m,) or (V, m); finite."""
    given = np.asarray(evidence, dtype=np.float64)
    if given.shape not in ((m,), (V, m)):
        raise QueryError(f"evidence has shape {given.shape}, needs {(m,)} or {(V, m)}: log odds per condition")
    if not np.isfinite(given).all():
        raise QueryError("evidence has entries that are not finite; use confirmed or rejected for what is certain")
    return np.array(np.broadcast_to(given, (V, m)))


@njit(cache=True, nogil=True)
def _add_findings(
    start: Ints, index: Ints, on: Bools, fail: Floats, leak: Floats, weight: Floats, t: Tables, out: Floats
) -> None:
    """Add each visit's sum of w_j log P(x_j | y) to `out` (V,)."""
    for v in range(out.size):
        active = np.flatnonzero(on[v])
        blocked = t.always_sum  # certain findings that are absent; the present ones are taken off below
        total = t.log_quiet_sum
        for i in active:
            blocked += t.sure_sum[i]
            total += t.log_fail_sum[i]
        for j in index[start[v] : start[v + 1]]:
            blocked -= t.always[j]
            total -= t.log_quiet[j]
            p = leak[j]
            for i in active:
                blocked -= t.sure[j, i]
                total -= t.log_fail[j, i]
                p = p * fail[i, j] + (1.0 - fail[i, j])
            if weight[j] > 0.0:
                total += weight[j] * np.log(p) if p > 0.0 else -np.inf
        out[v] += total if blocked == 0 else -np.inf


def sample(model: NoisyOr, size: int, rng: np.random.Generator) -> tuple[Any, Bools]:
    """Draw visits: X as CSR (size, n) of uint8 and Y (size, m) of bool.

    `weight` tempers inference and has no part in the draw. With a coupling, the conditions come from
    PRIOR_SWEEPS Gibbs sweeps over their prior, one chain per visit. Cost: O(size n), a block of visits in memory.
    """
    Y = rng.random((size, model.m)) < model.prior
    if model.coupling.any():
        log_odds = tables(model).log_odds
        for _ in range(PRIOR_SWEEPS):
            for i in range(model.m):
                Y[:, i] = rng.logistic(size=size) < log_odds[i] + Y @ model.coupling[i]
    log_quiet = np.log1p(-model.leak, where=model.leak < 1, out=np.full(model.n, -np.inf))
    log_fail = np.log(model.fail, where=model.fail > 0, out=np.full(model.fail.shape, -np.inf))
    blocks = []
    for first in range(0, size, 256):
        on = Y[first : first + 256]
        off = np.array([np.exp(log_quiet + log_fail[y].sum(0)) for y in on])  # not Y @ log_fail: 0 * -inf
        blocks.append(sparse.csr_matrix(rng.random((len(on), model.n)) >= off, dtype=np.uint8))
    X = sparse.vstack(blocks, format="csr") if blocks else sparse.csr_matrix((0, model.n), dtype=np.uint8)
    return X, Y


def finding_marginals(model: NoisyOr) -> Floats:
    """P(X_j = 1), (n,), by Quickscore's product: 1 - (1 - l_j) prod_i (1 - pi_i (1 - f_ij)). Cost O(m n).

    The conditions must be independent: a model with a coupling is refused.
    """
    if model.coupling.any():
        raise QueryError("the marginal of a finding is a product only without coupling; estimate it with sample()")
    on = model.leak
    for pi, fail in zip(model.prior, model.fail, strict=True):
        caused = pi * (1.0 - fail)
        on = on * (1.0 - caused) + caused
    return np.array(on)
