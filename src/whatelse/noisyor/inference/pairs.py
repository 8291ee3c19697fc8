"""Exact sums over pairwise couplings of conditions, by variable elimination on a sparse graph.

For odds a (m,) and couplings J (m, m), both sums over all 2^m states cost the sum of 2^(width) over steps:

    Z(a)        = sum_y prod_i a_i^{y_i} exp( sum_{i<k} J_ik y_i y_k )
    P_a(y_i=1)  = its marginals

The order of elimination is chosen once a model (fewest new neighbours first). `sparse_couplings` keeps the couplings
that matter most, so that no step is wider than asked.
"""

from __future__ import annotations

import math
from typing import NamedTuple
from weakref import WeakKeyDictionary

import numpy as np
from numba import njit

from whatelse.noisyor.params import NoisyOr
from whatelse.types import Floats, Int32s, Ints

LARGE = 1e100
WIDEST = 10  # neighbours in one step of the elimination, at most: its table has 2^11 entries


class EliminationTree(NamedTuple):
    """The steps of the elimination: step e sums out condition order[e], given its `size[e]` neighbours.

    Its table has 2^(size + 1) entries from start[e] on: bit 0 is the condition itself, bit b its neighbour b - 1. The
    sum over bit 0 is a message to step parent[e] (-1: none), whose table is multiplied by it: entry t of that table
    takes entry project[place[e] + t] of the message.
    """

    order: Ints
    size: Ints
    start: Ints
    parent: Ints
    pairs: Floats  # all tables, holding exp of the couplings between a step's condition and its neighbours
    project: Int32s
    place: Ints


class SparseCouplings(NamedTuple):
    """Couplings of a model as sums need them: rows of J, and the elimination.

    first (m + 1,), neighbour, strength   row i is strength[first[i]:first[i + 1]], of conditions neighbour[...]
    against (m,)                          exp of the sum of a condition's negative couplings
    """

    first: Ints
    neighbour: Ints
    strength: Floats
    against: Floats
    tree: EliminationTree


_KEPT: WeakKeyDictionary[NoisyOr, SparseCouplings | None] = WeakKeyDictionary()


def couplings_of(model: NoisyOr) -> SparseCouplings | None:
    """The couplings of a model, kept as long as the model lives; None if their elimination is wider than WIDEST."""
    if model not in _KEPT:
        J = np.array(model.coupling)
        if width_of(J) > WIDEST:
            _KEPT[model] = None
        else:
            rows, columns = np.nonzero(J)
            first = np.searchsorted(rows, np.arange(len(J) + 1)).astype(np.int64)
            against = np.exp(np.minimum(J, 0.0).sum(1))
            _KEPT[model] = SparseCouplings(
                first, columns.astype(np.int64), J[rows, columns], against, elimination_tree(J)
            )
    return _KEPT[model]


def elimination_tree(coupling: Floats) -> EliminationTree:
    """The tree of a coupling matrix (m, m). Its tables grow with 2^width: see `width_of`."""
    order, joined = _eliminate(coupling)
    m = len(order)
    position = {v: e for e, v in enumerate(order)}
    scopes = [sorted(scope, key=position.__getitem__) for scope in joined]
    size = np.array([len(scope) for scope in scopes], np.int64)
    start = np.zeros(m + 1, np.int64)
    np.cumsum(2 ** (size + 1), out=start[1:])
    parent = np.array([position[scope[0]] if scope else -1 for scope in scopes], np.int64)
    pairs, projects, place, taken = np.ones(int(start[-1])), [], np.zeros(m, np.int64), 0
    for e, v in enumerate(order):
        entries = np.arange(2 ** (len(scopes[e]) + 1))
        total = np.zeros(entries.size)
        for b, u in enumerate(scopes[e]):
            total += np.where((entries & 1) & (entries >> (b + 1) & 1), coupling[v, u], 0.0)
        pairs[start[e] : start[e + 1]] = np.exp(total)
        if parent[e] >= 0:
            p = int(parent[e])
            members = [order[p], *scopes[p]]
            entries = np.arange(2 ** len(members))
            taken_from = np.zeros(entries.size, np.int64)
            for b, u in enumerate(scopes[e]):
                taken_from |= (entries >> members.index(u) & 1) << b
            place[e] = taken
            taken += entries.size
            projects.append(taken_from.astype(np.int32))
    project = np.concatenate([*projects, np.empty(0, np.int32)]).astype(np.int32)
    return EliminationTree(np.array(order, np.int64), size, start, parent, pairs, project, place)


def width_of(coupling: Floats) -> int:
    """The most neighbours that a condition has when it is summed out."""
    return max((len(scope) for scope in _eliminate(coupling)[1]), default=0)


def sparse_couplings(coupling: Floats, importance: Floats, width: int) -> Floats:
    """The couplings that matter most (largest `importance` (m, m) first) whose elimination is no wider than `width`."""
    a, b = np.nonzero(np.triu(coupling, 1))
    ranked = np.argsort(-importance[a, b], kind="stable")
    low, high = 0, ranked.size  # the width grows with the number of couplings, nearly: search, then mend
    while low < high:
        middle = (low + high + 1) // 2
        if width_of(_only(coupling, a[ranked[:middle]], b[ranked[:middle]])) <= width:
            low = middle
        else:
            high = middle - 1
    return _only(coupling, a[ranked[:low]], b[ranked[:low]])


def _only(coupling: Floats, a: Ints, b: Ints) -> Floats:
    out = np.zeros_like(coupling)
    out[a, b] = out[b, a] = coupling[a, b]
    return out


def _eliminate(coupling: Floats) -> tuple[list[int], list[set[int]]]:
    """(order, neighbours when summed out): always the condition that would join the fewest new pairs of neighbours."""
    near: dict[int, set[int]] = {i: set(np.flatnonzero(row).tolist()) for i, row in enumerate(coupling)}
    fill = {v: _fill(near, v) for v in near}
    order, scopes = [], []
    while near:
        v = min(near, key=lambda u: (fill[u], len(near[u]), u))
        scope = near.pop(v)
        order.append(v)
        scopes.append(scope)
        touched = set(scope)
        for u in scope:
            near[u] |= scope
            near[u] -= {u, v}
            touched |= near[u]
        for u in touched:
            fill[u] = _fill(near, u)
    return order, scopes


def _fill(near: dict[int, set[int]], v: int) -> int:
    scope = near[v]
    return sum(len(scope - near[u]) - 1 for u in scope) // 2


@njit(cache=True, nogil=True)
def log_sum(odds: Floats, tree: EliminationTree, tables: Floats, messages: Floats) -> float:
    """log Z(odds). `tables` (as tree.pairs) and `messages` (as tree.pairs) are left for `marginals`."""
    tables[:] = tree.pairs
    total = 0.0
    for e in range(tree.order.size):
        count, first, a = 1 << tree.size[e], tree.start[e], odds[tree.order[e]]
        largest = 0.0
        for t in range(count):
            value = tables[first + 2 * t] + a * tables[first + 2 * t + 1]
            messages[first + t] = value
            largest = max(largest, value)
        p = tree.parent[e]
        if p < 0:
            total += math.log(messages[first])
            continue
        if largest > LARGE:
            total += math.log(largest)
            for t in range(count):
                messages[first + t] /= largest
        above, place = tree.start[p], tree.place[e]
        for t in range(tree.start[p + 1] - above):
            tables[above + t] *= messages[first + tree.project[place + t]]
    return total


@njit(cache=True, nogil=True)
def marginals(odds: Floats, tree: EliminationTree, tables: Floats, messages: Floats, back: Floats, out: Floats) -> None:
    """P(y_i = 1) of each condition into `out` (m,), after `log_sum` with the same odds.

    Messages are handed back from the last step to the first: a step's table, times what comes from its parent, is in
    proportion to the joint probability of its condition and neighbours. `back` as tree.pairs.
    """
    for e in range(tree.order.size - 1, -1, -1):
        count, first, a, p = 1 << tree.size[e], tree.start[e], odds[tree.order[e]], tree.parent[e]
        if p >= 0:  # the parent's joint table, summed over what is not in this step's scope, less this step's message
            above, place = tree.start[p], tree.place[e]
            for t in range(count):
                back[first + t] = 0.0
            for t in range(tree.start[p + 1] - above):
                back[first + tree.project[place + t]] += tables[above + t]
            for t in range(count):
                value = messages[first + t]
                back[first + t] = back[first + t] / value if value > 0.0 else 0.0
        else:
            back[first] = 1.0
        on, off = 0.0, 0.0
        for t in range(count):
            tables[first + 2 * t] *= back[first + t]
            tables[first + 2 * t + 1] *= a * back[first + t]
            off += tables[first + 2 * t]
            on += tables[first + 2 * t + 1]
        out[tree.order[e]] = on / (on + off)
        scale = 1.0 / (on + off)
        for t in range(2 * count):
            tables[first + t] *= scale
