"""Best-first sum over the states of conditions that are coupled in pairs, where no present finding bears on them.

Models of the default learner are of this kind: the log weight of a state is a sum of unary terms u and couplings J. As
in `states.py` a state's children add one condition each, here always one that comes later in the order of u, so that
every set is met once. With b_l = W(s + l) / W(s), the weight of two more conditions is known without a look at them:

    W(s + i + l)  =  W(s) b_i b_l exp(J_il)

Expanding s adds up its grandchildren as products of arrays. A child c = s + i is expanded only for sets T of two and
more that are added to it, T within L, the conditions after i. Each l of such a T has a partner in T, so the pairs that
it is in multiply W by at most g_l^2: the largest exp(J_lk), k in L, or the product of those above 1 if there are any.
A pair is shared by its two conditions, hence the square:

    sum over |T| >= 2 of W(c + T)  <=  W(c) (prod_l (1 + r_l) - 1 - sum_l r_l),    r_l = b_l exp(J_il) g_l
"""

from __future__ import annotations

import math

import numpy as np
from numba import njit

from whatelse.noisyor.inference.states import LARGE, Tree, pop, push
from whatelse.types import Floats, Ints

MOST = 300.0  # log of a number that is kept as it is
EPSILON = 2.0**-52
DUST = 1e-7  # of what is tolerated: a bound below it is never worth a place in the queue


@njit(cache=True, nogil=True)
def log_mode(unary: Floats, pair: Floats) -> float:
    """The log weight of a heavy state: conditions are added while one of them raises it. O(M) a condition."""
    given, total = unary.copy(), 0.0
    for _ in range(unary.size):
        k = int(np.argmax(given))
        if given[k] <= 0.0:
            break
        total += given[k]
        given += pair[k]
        given[k] = -np.inf
    return total


@njit(cache=True, nogil=True)
def bound_factors(factor: Floats) -> Floats:
    """(M, M) exp(J_il) g_l from exp(J_il), for L = i + 1 .. M - 1; 0 where a condition has no partner. O(M^2)."""
    M = len(factor)
    out, most = np.zeros((M, M)), np.zeros(M)  # most: g^2
    for i in range(M - 1, -1, -1):
        best, product = 0.0, 1.0
        for k in range(i + 1, M):
            f = factor[i, k]
            out[i, k] = f * math.sqrt(most[k])
            best, product = max(best, f), product * max(f, 1.0)
            most[k] = max(most[k], 1.0) * f if f > 1.0 else max(most[k], f)
        most[i] = product if best > 1.0 else best
    return out


@njit(cache=True, nogil=True, fastmath={"reassoc"})  # sums and products may be reordered, so that they vectorise
def add_pairs(i: int, weight: float, b: Floats, factor: Floats, bound: Floats, mass: Floats) -> tuple[float, float]:
    """Add the states of child i and one more condition to `mass` (M,); returns (their sum, bound on all larger sets).

    b (M,), factor (M, M) exp(J), bound (M, M) of `bound_factors`. Both numbers are in units of the child's weight.
    """
    one, total, product = 0.0, 0.0, 1.0
    for k in range(i + 1, b.size):
        exact, r = b[k] * factor[i, k], b[k] * bound[i, k]
        mass[k] += weight * exact
        one += exact
        total += r
        product *= 1.0 + r
    # Where the difference would lose digits, what is no less and hardly more.
    more = 0.501 * total * total if total < 1e-3 else product - 1.0 - total + 1e-15 * product
    return one, more


@njit(cache=True, nogil=True)
def sum_pairwise(
    unary: Floats, pair: Floats, exp_pair: Floats, tolerance: float, budget: int, tree: Tree, mass: Floats
) -> tuple[int, int, float, float, float]:
    """Sum over states until the mass left out is at most `tolerance` of the mass found, or `budget` nodes are weighed.

    unary (M,), pair (M, M) as in `search`; exp_pair (M, M) its exponential. Returns (nodes, deepest, top, found, left)
    as `search` does; found is 0 if a number is out of range. Fills mass (M,): the mass of the states with each
    condition, in units of exp(top). O(M) a node.
    """
    parent, cond, weight, keys, nodes = tree[0], tree[1], tree[3], tree[6], tree[7]
    M, top = unary.size, log_mode(unary, pair)
    if not max(top, np.max(unary)) < MOST:
        return 0, 0, 0.0, 0.0, np.inf
    order: Ints = np.argsort(-unary)
    odds, factor = np.exp(unary[order]), np.empty((M, M))
    for a in range(M):
        for k in range(M):
            factor[a, k] = exp_pair[order[a], order[k]]
    bound, own, b = bound_factors(factor), np.zeros(M), np.empty(M)
    parent[0], cond[0], weight[0] = -1, -1, math.exp(-top)
    found, dust, open_mass, summed = weight[0], 0.0, 0.0, False
    size, kept, waiting, node, deepest = 1, 1, 0, 0, 0
    while True:
        first, depth, at = cond[node] + 1, 0, node
        b[:] = odds
        while at > 0:
            for k in range(first, M):
                b[k] *= factor[cond[at], k]
            at = parent[at]
            depth += 1
        added, tolerated = 0.0, tolerance * found
        for i in range(first, M):
            w = weight[node] * b[i]
            one, more = add_pairs(i, w, b, factor, bound, own)
            if not w * (1.0 + one + more) < LARGE:
                return size, 0, 0.0, 0.0, np.inf
            of_i = w * (one + (node == 0))  # the parent of any other node has added the child itself
            own[i] += of_i
            added += of_i
            if w * more < DUST * tolerated:
                dust += w * more
            else:
                parent[kept], cond[kept], weight[kept] = node, i, w
                waiting = push(keys, nodes, waiting, w * more, kept)
                open_mass += w * more
                kept += 1
        at = node
        while at > 0:
            own[cond[at]] += added
            at = parent[at]
        found += added
        size += M - first
        deepest = max(deepest, depth + 2)
        if not summed and waiting > 0 and keys[0] < tolerance * found:  # before, a sum would lose its digits
            summed, open_mass = True, np.sum(keys[:waiting])
        if waiting == 0 or size + M > budget or (summed and open_mass + dust <= tolerance * found):
            break
        node = nodes[0]
        open_mass -= keys[0]
        waiting = pop(keys, nodes, waiting)
    for k in range(M):
        mass[order[k]] = own[k]
    rounding = EPSILON * size * M * found
    return size, deepest, top, found, dust + np.sum(keys[:waiting]) + rounding
