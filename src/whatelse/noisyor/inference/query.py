"""Query: a question as arrays: what is present, not observed, confirmed, rejected, for one visit or many.

`reduce_visit` shrinks one visit to the problem that inference works on: the M conditions still free and
the P findings present. Whatever is certain (confirmed, rejected, absent findings) has become a constant or a
unary term by then.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numba import njit
from numpy.typing import ArrayLike, NDArray
from scipy import sparse

from whatelse.errors import QueryError
from whatelse.noisyor.likelihood import Rows, Tables, as_evidence, as_indices, as_rows
from whatelse.noisyor.params import NoisyOr
from whatelse.types import Floats, Ints

FREE, CONFIRMED, REJECTED = 0, 1, 2
POSSIBLE = -1  # otherwise: the index of the finding that cannot be as it is
TINY_LEAK = 1e-280  # stands for a leak of zero in bounds; log(0) has no gain to bound with


@dataclass(frozen=True, eq=False)
class Query:
    """V visits asked about at once; `single` says that one visit was given, not a list of one."""

    present: Rows
    unobserved: Rows
    status: NDArray[np.int8]  # (V, m) FREE, CONFIRMED or REJECTED
    evidence: Floats  # (V, m)
    single: bool
    share: Floats  # (V, m) P(condition | its look): `real`, 1 where confirmed, 0 where rejected

    @property
    def size(self) -> int:
        """How many visits are asked about."""
        return len(self.status)


def checked(
    model: NoisyOr, present: Any, unobserved: Any, confirmed: Any, rejected: Any, evidence: ArrayLike | None
) -> Query:
    single = is_one(present)
    V = 1 if single else (present.shape[0] if hasattr(present, "shape") else len(present))
    rows = {
        name: _rows(value, single, V, size, name)
        for name, value, size in (
            ("present", present, model.n),
            ("unobserved", unobserved, model.n),
            ("confirmed", confirmed, model.m),
            ("rejected", rejected, model.m),
        )
    }
    _disjoint(rows["present"], rows["unobserved"], model.n, "finding", "both present and unobserved")
    _disjoint(rows["confirmed"], rows["rejected"], model.m, "condition", "both confirmed and rejected")

    status = np.full((V, model.m), FREE, np.int8)
    for name, code in (("confirmed", CONFIRMED), ("rejected", REJECTED)):
        start, index = rows[name]
        status[np.repeat(np.arange(V), np.diff(start)), index] = code
    added = np.zeros((V, model.m)) if evidence is None else as_evidence(evidence, V, model.m)
    return Query(
        present=_by_weight(rows["present"], model.weight),
        unobserved=rows["unobserved"],
        status=status,
        evidence=added,
        single=single,
        share=(status != REJECTED).astype(np.float64),
    )


def is_one(value: Any) -> bool:
    """Whether `value` is one visit's indices (or its mask), not a list of visits."""
    if sparse.issparse(value):
        return False
    if isinstance(value, np.ndarray):
        return value.ndim == 1 and value.dtype != object
    return len(value) == 0 or np.ndim(value[0]) == 0


def _rows(value: Any, single: bool, V: int, size: int, what: str) -> Rows:
    if value is None:
        return np.zeros(V + 1, np.int64), np.empty(0, np.int64)
    if is_one(value):  # for many visits: the same for each of them
        index = as_indices(value, size, what)
        return np.arange(V + 1, dtype=np.int64) * index.size, np.tile(index, V)
    if single:
        raise QueryError(f"{what} is a list of visits but present is one visit; give one visit's indices")
    rows = as_rows(value, size, what)
    if rows[0].size != V + 1:
        raise QueryError(f"{what} has {rows[0].size - 1} visits but present has {V}")
    return rows


def _disjoint(a: Rows, b: Rows, size: int, noun: str, problem: str) -> None:
    if a[1].size == 0 or b[1].size == 0:
        return
    first, second = (np.repeat(np.arange(s.size - 1), np.diff(s)) * size + i for s, i in (a, b))
    both = np.intersect1d(first, second)
    if both.size:
        raise QueryError(f"{noun} {both[0] % size} of visit {both[0] // size} is {problem}; it can be only one")


def _by_weight(rows: Rows, weight: Floats) -> Rows:
    """Within each visit, findings of equal weight side by side: one logarithm then serves all of them."""
    start, index = rows
    if weight.size == 0 or weight.min() == weight.max():
        return rows
    visit = np.repeat(np.arange(start.size - 1), np.diff(start))
    return start, index[np.lexsort((index, weight[index], visit))]


@njit(cache=True, nogil=True)
def reduce_visit(
    v: int, present: Rows, unobserved: Rows, status: NDArray[np.int8], evidence: Floats, t: Tables
) -> tuple[int, float, float, Ints, Floats, Floats, Floats, Floats]:
    """Visit v of a query as a problem over its free conditions.

        log P(x, y) = base + sum_k y_k unary_k + sum_j w_j log p_j(y)

    Returns (verdict, base, scale, free (M,), unary (M,), on (P,), w (P,), rows (M, P)):
    verdict  POSSIBLE, or the index of a finding that no state allowed can make as it is
    scale    the size of the numbers added up, which rounding errors are in proportion to
    on       p_j with only the confirmed conditions on; TINY_LEAK where it is zero
    rows     fail of the free conditions and present findings

    Conditions that an absent finding rules out (fail 0) are not free. Cost O(m (P + unobserved)).
    """
    here = present[1][present[0][v] : present[0][v + 1]]
    hidden = unobserved[1][unobserved[0][v] : unobserved[0][v + 1]]
    m = status.shape[1]
    linear = t.log_fail_sum.copy()
    sure = t.sure_sum.copy()
    base = t.log_none + t.log_quiet_sum
    always = t.always_sum
    for part in (here, hidden):
        for j in part:
            if not t.counts[j]:
                continue
            base -= t.log_quiet[j]
            always -= t.always[j]
            for i in range(m):
                linear[i] -= t.log_fail[j, i]
                sure[i] -= t.sure[j, i]

    chosen, place = np.empty(m, np.int64), np.full(m, -1, np.int64)
    M = 0
    scale = abs(base)
    blocked = always > 0
    for i in range(m):
        if status[v, i] == CONFIRMED:
            base += linear[i] + t.log_odds[i] + evidence[v, i]
            scale += abs(t.log_fail_sum[i]) + abs(t.log_odds[i]) + abs(evidence[v, i])
            for k in range(i):
                if status[v, k] == CONFIRMED:
                    base += t.coupling[i, k]
            blocked |= sure[i] > 0
        elif status[v, i] == FREE and sure[i] == 0:
            chosen[M], place[i] = i, M
            M += 1
    free = chosen[:M]
    unary, yes = np.empty(M), np.flatnonzero(status[v] == CONFIRMED)
    for q in range(M):
        i = free[q]
        unary[q] = linear[i] + t.log_odds[i] + evidence[v, i]
        scale = max(scale, abs(t.log_fail_sum[i]) + abs(t.log_odds[i]) + abs(evidence[v, i]))
        for known in yes:
            unary[q] += t.coupling[i, known]

    P = 0
    for j in here:
        P += t.weight[j] > 0.0
    on, w, rows = np.empty(P), np.empty(P), np.ones((M, P))
    verdict = POSSIBLE
    c = 0
    for j in here:
        if t.weight[j] == 0.0:
            continue
        p = t.leak[j]
        for known in yes:
            p = p * t.fail[known, j] + (1.0 - t.fail[known, j])
        reachable = p > 0.0
        for e in range(t.edge_start[j], t.edge_start[j + 1]):
            if place[t.edge_cause[e]] >= 0:
                rows[place[t.edge_cause[e]], c] = t.edge_fail[e]
                reachable = True
        if not reachable and verdict == POSSIBLE:
            verdict = j
        on[c] = max(p, TINY_LEAK)
        w[c] = t.weight[j]
        c += 1

    if blocked and verdict == POSSIBLE:  # rare: look for the absent finding that had to be there
        seen = np.zeros(t.leak.size, np.bool_)
        for part in (here, hidden):
            for j in part:
                seen[j] = True
        for j in range(t.leak.size):
            impossible = t.always[j]
            for i in range(m):
                impossible |= status[v, i] == CONFIRMED and t.sure[j, i]
            if impossible and not seen[j] and verdict == POSSIBLE:
                verdict = j
    return verdict, base, scale, free, unary, on, w, rows
