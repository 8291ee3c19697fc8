"""Best-first search over the states of one visit, with a bound on the mass of every state not visited.

A state s is a set of free conditions that are on. Its children add one condition each; expanding s weighs all of them
exactly. Ordered by gain, the child that adds the q-th condition may later add only those after it, so every set is
reached once, and the subtree below a child c = s + i is {c + T : T within L}, L the conditions after i.

Bound. The weight of a state is W(s) = exp(modular + pairs) prod_j p_j(s)^w_j, and each log p_j is a concave function
of a modular one, so the gain g_l(s) = sum_j w_j log p_j(s + l) / p_j(s) only falls as s grows. Hence

    W(c + T) <= W(c) prod_{l in T} r_l,   r_l = exp(u_l + g_l(s) + J_il + h_l),

with u_l the unary term of l given s, J_il its coupling with i, and h_l half the sum of positive couplings between l
and the rest of L, which covers the pairs inside T (negative ones are dropped: they only lower W). Summing over T:

    sum over T nonempty  <=  W(c) (prod_{l in L} (1 + r_l) - 1)

A set of one has no pairs, so there h_l is not needed: with couplings, sum r_l is replaced by the sum of r_l exp(-h_l).
Most of the bound is of such sets.

The search always expands the state with the largest bound, and stops when what is left is small enough or when
it has weighed `budget` states. Weights are relative to exp(top), the largest met so far.
"""

from __future__ import annotations

import math

import numpy as np
from numba import njit

from whatelse.types import Floats, Int32s, Ints

Tree = tuple[Int32s, Int32s, Int32s, Floats, Floats, Floats, Floats, Int32s]  # see `search`

DUST = -16.0  # a bound this far (log) below what is tolerated is never worth a place in the queue
DEAD = 1e-270  # a product below this holds a TINY_LEAK: a present finding nothing on can cause
LARGE = 1e150  # products below this are kept as they are, above as logarithms
SPLIT = 1e-200  # products are taken up to here, then their logarithm


@njit(cache=True, nogil=True)
def with_cause(p: float, fail: float) -> float:
    """P(X_j = 1) once one more cause is on; a sum of positive terms, so relative precision is kept."""
    return p * fail + (1.0 - fail)


@njit(cache=True, nogil=True)
def split_products(on: Floats, w: Floats, ends: Ints) -> int:
    """Cut the present findings into runs of equal weight whose product cannot underflow; returns how many.

    p_j only grows as conditions are added, so runs that are safe at a state are safe below it.
    """
    runs = 0
    product = 1.0
    for j in range(on.size):
        if j > 0 and (w[j] != w[j - 1] or product * on[j] < SPLIT):
            ends[runs] = j
            runs += 1
            product = 1.0
        product *= on[j]
    ends[runs] = on.size
    return runs + 1


@njit(cache=True, nogil=True, fastmath={"reassoc"})  # the product may be reordered, so that it vectorises
def log_on(row: Floats, on: Floats, w: Floats, ends: Ints, runs: int) -> tuple[float, bool]:
    """(sum_j w_j log p_j, whether every finding has a cause) once the condition of `row` is on as well. Cost P."""
    total, alive, first = 0.0, True, 0
    for r in range(runs):
        product = 1.0
        for j in range(first, ends[r]):
            product *= with_cause(on[j], row[j])
        if ends[r] > first:
            total += w[first] * math.log(product)
            alive = alive and product > DEAD
        first = ends[r]
    return total, alive


@njit(cache=True, nogil=True)
def clear(sums: Floats) -> None:
    """Begin a sum over sets of nothing."""
    sums[0], sums[1] = 0.0, -np.inf


@njit(cache=True, nogil=True)
def add_term(sums: Floats, x: float) -> None:
    """Take one more r = exp(x) into the sum over sets.

    sums[0] = prod (1 + r) - 1 as long as it is in range, then infinity, and sums[1] its logarithm.
    """
    r = math.exp(min(x, 700.0))
    if max(r, sums[0]) < LARGE:
        sums[0] += r * (1.0 + sums[0])
    else:
        if sums[0] < np.inf:
            sums[0], sums[1] = np.inf, math.log1p(sums[0])
        sums[1] += max(x, math.log1p(r))


@njit(cache=True, nogil=True)
def log_sum(sums: Floats) -> float:
    """The logarithm of the sum over sets, the empty one left out."""
    if sums[0] == np.inf:
        return float(sums[1])
    return math.log(sums[0]) if sums[0] > 0.0 else -np.inf


@njit(cache=True, nogil=True)
def push(keys: Floats, nodes: Int32s, size: int, key: float, node: int) -> int:
    """Put a node in the queue (a binary heap, largest key first); returns its new size."""
    at = size
    while at > 0 and keys[(at - 1) >> 1] < key:
        keys[at], nodes[at] = keys[(at - 1) >> 1], nodes[(at - 1) >> 1]
        at = (at - 1) >> 1
    keys[at], nodes[at] = key, node
    return size + 1


@njit(cache=True, nogil=True)
def pop(keys: Floats, nodes: Int32s, size: int) -> int:
    """Drop the first of the queue; returns its new size."""
    size -= 1
    key, node, at = keys[size], nodes[size], 0
    while True:
        below = 2 * at + 1
        if below >= size:
            break
        if below + 1 < size and keys[below + 1] > keys[below]:
            below += 1
        if keys[below] <= key:
            break
        keys[at], nodes[at] = keys[below], nodes[below]
        at = below
    keys[at], nodes[at] = key, node
    return size


@njit(cache=True, nogil=True)
def bound_children(
    first: int, size: int, coupled: bool, pair: Floats, cond: Int32s, gain: Floats, half: Floats, sums: Floats,
    log_bound: Floats,
) -> None:  # fmt: skip
    """log of the bound's factor on W(c) for each child first .. first + size - 1, into log_bound[q].

    gain (by condition) is u_l + g_l at the parent. Without couplings one pass from the last child to the first does it,
    O(size); with them each child has its own r_l, O(size^2).
    """
    clear(sums)
    for q in range(size - 1, -1, -1):
        i = cond[first + q]
        if coupled:
            clear(sums)
            for k in range(q + 1, size):
                l = cond[first + k]  # noqa: E741
                add_term(sums, gain[l] + pair[i, l] + half[l])
        log_bound[q] = log_sum(sums)
        if coupled:
            half[i] = 0.0
            for k in range(q + 1, size):
                l = cond[first + k]  # noqa: E741
                shared = 0.5 * max(pair[i, l], 0.0)
                half[l] += shared
                half[i] += shared
        else:
            add_term(sums, gain[i])


@njit(cache=True, nogil=True, fastmath={"reassoc"})  # sums and products may be reordered, so that they vectorise
def bound_coupled(
    first: int, size: int, factor: Floats, shared: Floats, cond: Int32s, gain: Floats, bare: Floats, odds: Floats,
    log_bound: Floats,
) -> bool:  # fmt: skip
    """`bound_children` with couplings, where all numbers are in range; if not, False.

    factor (M, M) is exp(J), shared (M, M) its root where that is above 1. Of the conditions met so far, the last
    child's first, bare[l] is exp(gain_l) and odds[l] is exp(gain_l + h_l); both are 0 of others: whole rows then go
    through without a choice, and a child takes one logarithm.
    """
    for k in range(odds.size):
        bare[k] = odds[k] = 0.0
    for q in range(size - 1, -1, -1):
        i = cond[first + q]
        one, total, product, half = 0.0, 0.0, 1.0, 1.0
        for k in range(odds.size):
            r = odds[k] * factor[i, k]
            one += bare[k] * factor[i, k]
            total += r
            product *= 1.0 + r
        if not product < LARGE or gain[i] > 300.0:
            return False
        # Sets of two and more; where the difference would lose digits, what is no less and hardly more.
        more = total * total if total < 1e-3 else product - 1.0 - total + 1e-15 * product
        log_bound[q] = math.log(one + more) if one > 0.0 else -np.inf
        for k in range(odds.size):
            half *= shared[i, k] if odds[k] > 0.0 else 1.0
            odds[k] *= shared[i, k]
        bare[i] = math.exp(gain[i])
        odds[i] = bare[i] * half
    return True


@njit(cache=True, nogil=True)
def search(
    rows: Floats, leak: Floats, w: Floats, unary: Floats, pair: Floats, tolerance: float, budget: int, tree: Tree
) -> tuple[int, int, float, float, float]:  # fmt: skip
    """Search one visit's states until the mass left out is at most `tolerance` of the mass found, or `budget` is spent.

    rows (M, P), leak (P,), w (P,), unary (M,) as `reduce_visit` gives them; pair (M, M) couplings among the free
    conditions.

    Returns (states weighed, deepest, top, found, left): masses in units of exp(top); left is inf if unknown. In `tree`
    it leaves, for each state, parent, condition added and log weight (-inf if it has no part in the mass).
    Cost O(P) a state.
    """
    parent, cond, last, weight, linear, causes, keys, nodes = tree
    M, P = rows.shape
    coupled = False
    for a in range(M):
        for b in range(a):
            coupled = coupled or pair[a, b] != 0.0
    on, ends = np.empty(P), np.empty(P + 1, np.int64)
    order, gain, given, half = np.empty(M, np.int64), np.empty(M), np.empty(M), np.empty(M)
    child_causes, child_alive, log_bound = np.empty(M), np.empty(M, np.bool_), np.empty(M)
    sums, bare, odds = np.empty(2), np.empty(M), np.empty(M)
    factor, shared = np.empty((M, M)), np.empty((M, M))
    for a in range(M if coupled else 0):
        for b in range(a + 1):
            factor[a, b] = factor[b, a] = math.exp(pair[a, b])
            shared[a, b] = shared[b, a] = math.sqrt(max(factor[a, b], 1.0))

    parent[0], cond[0], last[0], linear[0] = -1, -1, M + 1, 0.0
    runs = split_products(leak, w, ends)
    causes[0], alive = log_on(np.ones(P), leak, w, ends, runs)
    weight[0] = causes[0] if alive else -np.inf
    top, found = weight[0], (1.0 if weight[0] > -np.inf else 0.0)
    dust, open_mass, summed = 0.0, 0.0, False
    size, waiting, node, deepest = 1, 0, 0, 0
    if M == 0:
        return size, 0, top, found, 0.0

    while True:
        # The state itself: p_j of the present findings, unary terms given what is on.
        for j in range(P):
            on[j] = leak[j]
        for k in range(M):
            given[k] = unary[k]
        depth, at = 0, node
        while at > 0:
            row = rows[cond[at]]
            for j in range(P):
                on[j] = with_cause(on[j], row[j])
            for k in range(M if coupled else 0):
                given[k] += pair[cond[at], k]
            at = parent[at]
            depth += 1
        runs = split_products(on, w, ends)

        # Weigh its children, most gain first (what may still be added comes nearly in order from the parent).
        children = last[node] - node - 1
        for q in range(children):
            k = cond[node + 1 + q] if node > 0 else q
            child_causes[k], child_alive[k] = log_on(rows[k], on, w, ends, runs)
            gain[k] = given[k] + child_causes[k] - causes[node]
            at = q
            while at > 0 and gain[order[at - 1]] < gain[k]:
                order[at] = order[at - 1]
                at -= 1
            order[at] = k
        for q in range(children):
            k, c = order[q], size + q
            parent[c], cond[c], last[c] = node, k, size + children
            causes[c], linear[c] = child_causes[k], linear[node] + given[k]
            weight[c] = -np.inf
            if child_alive[k]:
                weight[c] = linear[c] + causes[c]
                if weight[c] > top:
                    shrink = math.exp(top - weight[c])
                    found, dust, open_mass = found * shrink, dust * shrink, open_mass * shrink
                    top = weight[c]
                found += math.exp(weight[c] - top)
        deepest = max(deepest, depth + 1)

        # Queue those whose subtrees could matter.
        tolerated = math.log(tolerance * found) + top if found > 0.0 else -np.inf
        if not coupled or not bound_coupled(size, children, factor, shared, cond, gain, bare, odds, log_bound):
            bound_children(size, children, coupled, pair, cond, gain, half, sums, log_bound)
        for q in range(children):
            c = size + q
            key = linear[c] + causes[c] + log_bound[q]
            if key < tolerated + DUST:
                dust += math.exp(key - top)
            elif key > -np.inf:
                waiting = push(keys, nodes, waiting, key, c)
                if summed:
                    open_mass += math.exp(key - top)
        size += children

        # Until the largest bound is small itself, there is no point in (and no precision for) adding them up.
        if not summed and waiting > 0 and keys[0] < tolerated:
            summed, open_mass = True, 0.0
            for q in range(waiting):
                open_mass += math.exp(keys[q] - top)
        if waiting == 0 or size + M > budget or (summed and open_mass + dust <= tolerance * found):
            break
        node = nodes[0]
        if summed:
            open_mass -= math.exp(keys[0] - top)
        waiting = pop(keys, nodes, waiting)

    left = dust
    for q in range(waiting):
        left += math.exp(keys[q] - top) if top > -np.inf and keys[q] - top < 700.0 else np.inf
    return size, deepest, top, found, left
