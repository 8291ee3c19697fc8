"""Branch and bound over decisions, for models with many conditions and sparse couplings.

A node fixes some conditions on (S) and some off; L are undecided. Its mass is the sum over T within L of W(S + T).

Bounds. Let r_l(s) be the odds that adding l to the state s multiplies the weight by, couplings inside L apart. Gains of
present findings only fall as s grows (docs/inference.md), so with the undecided conditions in any order

    low_l = r_l(S and all of L before l)  <=  r_l(S and some of L before l)  <=  r_l(S) = high_l,

and the mass lies between W(S) Z(low) and W(S) Z(high), Z the exact sum over the couplings among L (`pairs.py`). The
first member k of T has the gain high_k, not low_k: with non-negative couplings this adds

    W(S) sum_k (high_k - low_k) prod_{l after k} (1 + low_l)

to the lower end; a negative coupling of l is counted against it in full. Conditions that cause no present finding have
low = high.

The node with the widest gap is split at its likeliest undecided condition, until the gaps add up to little. The middle
of each interval is reported; its lower end, with twice the bound, where the gaps are still WIDE. Of a condition i the
mass with i on, N, and with i off, C, lie in intervals whose widths add up to the gap G. With estimates N^, C^ in their
middles

    | N / (N + C) - N^ / (N^ + C^) |  =  | e_N C^ - e_C N^ | / (Z Z^)  <=  (G / 2) / Z,     |e_N| + |e_C| <= G / 2.
"""

from __future__ import annotations

import math

import numpy as np
from numba import njit

from whatelse.noisyor.inference.pairs import SparseCouplings, log_sum, marginals
from whatelse.noisyor.inference.states import log_on, pop, push, split_products, with_cause
from whatelse.types import Floats, Ints

NODE_SHARE = 0.02  # part of the tolerance that may be spent on leaving out the marginals of the lightest nodes
WIDE = 0.1  # gap, as part of the mass, beyond which the upper ends are not worth believing
UNDECIDED, ON, OFF = 0, 1, -1


@njit(cache=True, nogil=True)
def weigh_node(
    decided: Ints, rows: Floats, leak: Floats, w: Floats, near: Ints, far: Ints, unary: Floats,
    sparse: SparseCouplings, high: Floats, low: Floats, order: Ints,
    high_all: Floats, low_all: Floats, tables: Floats, messages: Floats,
) -> tuple[float, float, float, float, int]:  # fmt: skip
    """(log W(S), log Z(high), log Z(low), correction of the lower end in units of W(S), condition to split at).

    decided (K,) ON, OFF or UNDECIDED of the conditions `near` (K,), which cause a present finding; far: the others.
    high_all, low_all (m,) get the odds of all conditions; order (K,) the near ones, likeliest first.
    """
    K, P = rows.shape
    on, ends = leak.copy(), np.empty(P + 1, np.int64)
    pull = unary.copy()
    log_weight = 0.0
    for k in range(K):
        if decided[k] == ON:
            i = near[k]
            log_weight += pull[i]
            for q in range(sparse.first[i], sparse.first[i + 1]):
                pull[sparse.neighbour[q]] += sparse.strength[q]
            for j in range(P):
                on[j] = with_cause(on[j], rows[k, j])
    runs = split_products(on, w, ends)
    here, _ = log_on(np.ones(P), on, w, ends, runs)
    log_weight += here
    for k in range(K):
        i = near[k]
        if decided[k] == UNDECIDED:
            gained, _ = log_on(rows[k], on, w, ends, runs)
            high[k] = math.exp(min(pull[i] + gained - here, 300.0))
        else:
            high[k] = 0.0
        high_all[i] = high[k]
    order[:] = np.argsort(-high)
    suffix = 1.0
    for i in far:
        high_all[i] = low_all[i] = math.exp(min(pull[i], 300.0))
        suffix *= 1.0 + low_all[i] * sparse.against[i]
    for q in range(K):
        k = order[q]
        i = near[k]
        if decided[k] != UNDECIDED:
            low[k] = low_all[i] = 0.0
            continue
        gained, _ = log_on(rows[k], on, w, ends, runs)
        low[k] = min(math.exp(min(pull[i] + gained - here, 300.0)), high[k])
        low_all[i] = low[k]
        here = gained
        for j in range(P):
            on[j] = with_cause(on[j], rows[k, j])
    correction = 0.0
    for q in range(K - 1, -1, -1):
        k = order[q]
        correction += (high[k] - low[k]) * suffix
        suffix *= 1.0 + low[k] * sparse.against[near[k]]
    log_low = log_sum(low_all, sparse.tree, tables, messages)
    log_high = log_sum(high_all, sparse.tree, tables, messages)
    return log_weight, log_high, log_low, correction, order[0] if K > 0 else -1


@njit(cache=True, nogil=True)
def branch(
    rows: Floats, leak: Floats, w: Floats, near: Ints, far: Ints, unary: Floats, sparse: SparseCouplings,
    tolerance: float, budget: int, chance: Floats,
    best: Floats, states: Ints,
) -> tuple[int, float, float, float, int]:  # fmt: skip
    """Search one visit until half the gap is at most `tolerance` of the mass, or `budget` nodes are weighed.

    rows (K, P), leak (P,), w (P,) of the conditions `near` (K,) that cause a present finding; far: the other free ones;
    unary (m,) log odds. Fills chance (m,) with marginals; best (top,) with the log weights of the heaviest states and
    states (top, K) with them (1: on).

    Returns (nodes weighed, log of the mass, error of the marginals, log of the lower end, states found).
    """
    m, K, top = unary.size, near.size, best.size
    high, low, order = np.empty(K), np.empty(K), np.empty(K, np.int64)
    high_all, low_all = np.zeros(m), np.zeros(m)
    tables, messages, back = (
        np.empty(sparse.tree.pairs.size),
        np.empty(sparse.tree.pairs.size),
        np.empty(sparse.tree.pairs.size),
    )
    decided = np.zeros((budget + 2, K), np.int8)
    lower, upper = np.empty(budget + 2), np.empty(budget + 2)
    split = np.empty(budget + 2, np.int64)
    keys, nodes = np.empty(budget + 2), np.empty(budget + 2, np.int32)
    size, waiting, scale, kept = 0, 0, 0.0, 0
    parent, side = -1, ON
    total_low, total_high = 0.0, 0.0
    while True:
        if parent >= 0:
            decided[size] = decided[parent]
            decided[size, split[parent]] = side
        log_weight, log_high, log_low, correction, split[size] = weigh_node(
            decided[size], rows, leak, w, near, far, unary, sparse, high, low, order, high_all, low_all,
            tables, messages,
        )  # fmt: skip
        log_lower = log_weight + log_low + math.log1p(correction * math.exp(-log_low))
        log_upper = max(log_weight + log_high, log_lower)
        if parent < 0:
            scale = log_lower
        lower[size] = math.exp(min(log_lower - scale, 600.0))
        upper[size] = math.exp(min(log_upper - scale, 600.0))
        waiting = push(keys, nodes, waiting, upper[size] - lower[size], size)
        total_low += lower[size]
        total_high += upper[size]
        if top > 0 and (parent < 0 or side == ON):
            kept = _keep(log_weight, decided[size], best, states, kept)
        size += 1
        if parent >= 0 and side == ON:
            side = OFF
            continue
        if size % 32 == 1:  # differences of large sums lose digits: add up anew
            total_low, total_high = 0.0, 0.0
            for q in range(waiting):
                total_low += lower[nodes[q]]
                total_high += upper[nodes[q]]
        if total_high - total_low <= 2.0 * tolerance * total_low or size + 2 > budget or keys[0] <= 0.0:
            break
        parent, side = int(nodes[0]), ON
        waiting = pop(keys, nodes, waiting)
        total_low -= lower[parent]
        total_high -= upper[parent]

    # Marginals: the lightest nodes are left out, as far as they hardly count.
    mass = np.empty(waiting)
    for q in range(waiting):
        mass[q] = upper[nodes[q]]
    ranked = np.argsort(mass)
    total_low, total_high, skipped = 0.0, 0.0, 0.0
    for q in range(waiting):
        total_low += lower[nodes[q]]
        total_high += upper[nodes[q]]
    for i in range(m):
        chance[i] = 0.0
    found, gap = 0.0, total_high - total_low
    lean = 0.5 if gap <= max(WIDE, 2.1 * tolerance) * total_low else 0.0  # where in the intervals the estimate lies
    share = np.empty(m)
    for position in range(waiting):
        node = nodes[ranked[position]]
        if skipped + upper[node] <= NODE_SHARE * tolerance * total_low:
            skipped += upper[node]
            gap -= upper[node] - lower[node]
            continue
        log_weight, log_high, log_low, correction, _ = weigh_node(
            decided[node], rows, leak, w, near, far, unary, sparse, high, low, order, high_all, low_all,
            tables, messages,
        )  # fmt: skip
        middle = lower[node] + lean * (upper[node] - lower[node])
        found += middle
        marginals(high_all, sparse.tree, tables, messages, back, share)  # log_sum(high) was the last
        for i in range(m):
            chance[i] += lean * upper[node] * share[i]
        log_sum(low_all, sparse.tree, tables, messages)
        marginals(low_all, sparse.tree, tables, messages, back, share)
        weight = math.exp(log_weight + log_low - scale)
        for i in range(m):
            chance[i] += (1.0 - lean) * weight * share[i]
        unit = (1.0 - lean) * math.exp(log_weight - scale)
        _add_correction(unit, near, far, high, low, order, sparse, low_all, chance)
        for k in range(K):
            if decided[node, k] == ON:
                chance[near[k]] += middle
    for i in range(m):
        chance[i] /= found
    error = (1.0 - lean) * gap / total_low + skipped / total_low
    return size, scale + math.log(found), error, scale + math.log(total_low), kept


@njit(cache=True, nogil=True)
def _add_correction(
    unit: float, near: Ints, far: Ints, high: Floats, low: Floats, order: Ints, sparse: SparseCouplings,
    low_all: Floats, chance: Floats,
) -> None:  # fmt: skip
    """Add what the correction of the lower end brings to each condition, times `unit`."""
    K = order.size
    suffix = 1.0
    for i in far:
        suffix *= 1.0 + low_all[i] * sparse.against[i]
    after = np.empty(K)
    for q in range(K - 1, -1, -1):
        after[q] = suffix
        suffix *= 1.0 + low[order[q]] * sparse.against[near[order[q]]]
    before = 0.0  # of the members before this one: (high - low) times all that follows them
    for q in range(K):
        k = order[q]
        own = (high[k] - low[k]) * after[q]
        odds = low[k] * sparse.against[near[k]]
        chance[near[k]] += unit * (own + before * odds / (1.0 + odds))
        before += own
    for i in far:
        odds = low_all[i] * sparse.against[i]
        chance[i] += unit * before * odds / (1.0 + odds)


@njit(cache=True, nogil=True)
def _keep(weight: float, decided: Ints, best: Floats, states: Ints, kept: int) -> int:
    """Put a state among the heaviest, if it is one; returns how many are kept."""
    top = best.size
    if kept == top and weight <= best[top - 1]:
        return kept
    at = min(kept, top - 1)
    while at > 0 and best[at - 1] < weight:
        best[at] = best[at - 1]
        states[at] = states[at - 1]
        at -= 1
    best[at] = weight
    for k in range(decided.size):
        states[at, k] = decided[k] == 1
    return min(kept + 1, top)
