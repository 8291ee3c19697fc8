"""Branch and bound over decisions, for models with many conditions and no couplings.

A node fixes some conditions on (S) and some off; the rest L is undecided. Its mass is the sum over T within L of
W(S + T). Let r_l be the odds that adding l alone to S multiplies the weight by, q_l = r_l / (1 + r_l), and p_j(s) the
probability of finding j in state s. Then

    mass  =  W(S) prod_l (1 + r_l)  E[ prod_j psi_j(T) ],      each l in T with probability q_l,
    psi_j(T)  =  p_j(S + T) / p_j(S)  /  prod_{l in T} ( p_j(S + l) / p_j(S) ).

psi_j is what the causes of one finding take from one another. It is 1 for at most one cause and falls as T grows
(docs/inference.md). Falling functions of independent variables are positively correlated (Harris), so

    prod_j E[psi_j(T)]  <=  E[prod_j psi_j(T)]  <=  prod_j E[psi_j(T within A_j)]

for any disjoint sets A_j: each condition is put with the finding where it meets most competition. For a noisy-or
E[psi_j] is a difference of two products over conditions, and both ends cost the edges of the present findings. With a
power w_j below 1, E[psi] <= E[psi^w] <= E[psi]^w.

The same bounds with condition i on (N_i) or off (C_i) give an interval of each marginal N_i / (N_i + C_i): the middle
is reported, half the width is its error. If the nodes are spent before the interval is narrow, the ratio of the lower
ends is reported. The node with the widest gap is split at the condition that causes most of it.

Most conditions cause a single present finding. All of them but one of each finding are summed out before
(`merge_single_causes`): they become part of the leak, and their marginals follow from that of the one that is left.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numba import njit

from whatelse.noisyor.inference.states import pop, push, with_cause
from whatelse.types import Bools, Floats, Int8s, Ints

UNDECIDED, ON, OFF = 0, 1, -1
LARGE, MOST = 1e200, 300.0  # products are taken up to here, then their logarithm; log odds, at most
LEAST_OFF = 1e-6  # below this probability of "off" a difference of expectations has lost its digits
PATIENCE = 2.0  # marginals are looked at when the gap is this many tolerances, then each time it has fallen by as much


class Problem(NamedTuple):
    """One visit: K conditions that cause a present finding, P present findings.

    start (K + 1,), column, fail    the edges of condition k: findings column[start[k]:start[k + 1]], and their fail
    leak (P,), w (P,)               p_j with nothing undecided on, and powers
    odds (K,)                       of each condition, findings apart
    """

    start: Ints
    column: Ints
    fail: Floats
    leak: Floats
    w: Floats
    odds: Floats


class Node(NamedTuple):
    """Work space for one node: arrays over conditions (K,), findings (P,) and edges."""

    p: Floats  # (P,) p_j(S)
    q: Floats  # (K,) probability of each undecided condition if it competed with none; 0 if decided
    up: Floats  # (edges,) a: p_j(S) / p_j(S + k)
    load: Floats  # (P,) expected competition
    home: Ints  # (K,) the edge whose finding k is put with
    all: Floats  # (4, P) products x and y over all causes of a finding, x - y, and 1 / (p E[psi])
    own: Floats  # (4, P) over A_j


@njit(cache=True, nogil=True)
def lay_out_problem(unary: Floats, rows: Floats, on: Floats, w: Floats) -> tuple[Problem, Ints]:
    """The problem of one visit (`reduce_visit`), and which of the free conditions (M,) it is about (K,)."""
    M, P = rows.shape
    taken, K = np.empty(M, np.int64), 0
    start, column, fail = np.zeros(M + 1, np.int64), np.empty(M * P, np.int64), np.empty(M * P)
    odds, e = np.empty(M), 0
    for q in range(M):
        before = e
        for j in range(P):
            if rows[q, j] < 1.0:
                column[e], fail[e] = j, rows[q, j]
                e += 1
        if e > before:
            taken[K], odds[K] = q, math.exp(min(unary[q], MOST))
            K += 1
            start[K] = e
    return Problem(start[: K + 1], column[:e], fail[:e], on, w, odds[:K]), taken[:K]


@njit(cache=True, nogil=True)
def merge_single_causes(problem: Problem) -> tuple[Problem, Ints, Ints]:
    """Sum out conditions that cause one finding only, of weight 1, except the strongest of each finding.

    Summed over whether l is on, with odds o and fail f, P(X_j = 0) is multiplied by (1 + o f) / (1 + o), and the mass
    by 1 + o, which is for the caller. Returns the smaller problem, which conditions it has (K',), and for each
    condition (K,) its own place there if it was kept, else -1 - the place of the strongest cause of its finding.
    """
    K, P = problem.odds.size, problem.leak.size
    strongest, leak = np.full(P, -1, np.int64), problem.leak.copy()
    single = np.zeros(K, np.bool_)
    for k in range(K):
        j = problem.column[problem.start[k]]
        single[k] = problem.start[k + 1] - problem.start[k] == 1 and problem.w[j] == 1.0
        if single[k] and (strongest[j] < 0 or strength(problem, k) > strength(problem, strongest[j])):
            strongest[j] = k
    place, kept, size, edges = np.empty(K, np.int64), np.empty(K, np.int64), 0, 0
    start, column, fail = np.zeros(K + 1, np.int64), np.empty(problem.column.size, np.int64), problem.fail.copy()
    for k in range(K):
        j, o, f = problem.column[problem.start[k]], problem.odds[k], problem.fail[problem.start[k]]
        if single[k] and strongest[j] != k:
            leak[j] = with_cause(leak[j], (1.0 + o * f) / (1.0 + o))
            continue
        for e in range(problem.start[k], problem.start[k + 1]):
            column[edges], fail[edges] = problem.column[e], problem.fail[e]
            edges += 1
        place[k], kept[size] = size, k
        size += 1
        start[size] = edges
    for k in range(K):
        j = problem.column[problem.start[k]]
        if single[k] and strongest[j] != k:
            place[k] = -1 - place[strongest[j]]
    less = Problem(start[: size + 1], column[:edges], fail[:edges], leak, problem.w, problem.odds[kept[:size]])
    return less, kept[:size], place


@njit(cache=True, nogil=True)
def strength(problem: Problem, k: int) -> float:
    """How much the marginal of a single cause k of finding j rises with E[1 / p_j]: P(k on) = floor + strength E."""
    o, f = problem.odds[k], problem.fail[problem.start[k]]
    slope: float = o * (1.0 - f) / ((1.0 + o) * (1.0 + o * f))
    return slope


@njit(cache=True, nogil=True)
def merged_marginal(problem: Problem, k: int, other: int, chance: float) -> float:
    """P(k on) of a condition that was summed out, from that of the strongest cause of its finding.

    Both are floor + strength E[1 / p_j] with floor = o f / (1 + o f); strength(k) is the smaller, and so is the error.
    """
    o, f = problem.odds[k], problem.fail[problem.start[k]]
    oo, ff = problem.odds[other], problem.fail[problem.start[other]]
    most = strength(problem, other)
    share = strength(problem, k) / most if most > 0.0 else 0.0
    own: float = min(max(o * f / (1.0 + o * f) + share * (chance - oo * ff / (1.0 + oo * ff)), 0.0), 1.0)
    return own


@njit(cache=True, nogil=True)
def weigh_node(decided: Int8s, problem: Problem, node: Node) -> tuple[float, float, float, int]:
    """(log W(S), log of both ends of the mass, condition to split at or -1); fills `node`. O(edges)."""
    K, P = problem.odds.size, problem.leak.size
    p, q = node.p, node.q
    p[:] = problem.leak
    log_weight = 0.0
    for k in range(K):
        if decided[k] == ON:
            log_weight += math.log(problem.odds[k])
            for e in range(problem.start[k], problem.start[k + 1]):
                p[problem.column[e]] = with_cause(p[problem.column[e]], problem.fail[e])
    for j in range(P):
        log_weight += problem.w[j] * math.log(p[j])
        node.load[j], node.all[3, j] = 0.0, 1.0 / p[j]
    log_all, product = 0.0, 1.0
    for k in range(K):
        q[k] = 0.0
        if decided[k] != UNDECIDED:
            continue
        r = problem.odds[k]
        for e in range(problem.start[k], problem.start[k + 1]):
            j = problem.column[e]
            raised = with_cause(p[j], problem.fail[e])
            node.up[e] = p[j] / raised
            r *= _power(raised * node.all[3, j], problem.w[j])
        q[k] = r / (1.0 + r)
        product *= 1.0 + r
        if product > LARGE:
            log_all += math.log(product)
            product = 1.0
        for e in range(problem.start[k], problem.start[k + 1]):
            node.load[problem.column[e]] += q[k] * (1.0 - node.up[e])
    node.all[:2], node.own[:2] = 1.0, 1.0
    node.all[2], node.own[2] = 0.0, 0.0
    split, most = -1, 0.0
    for k in range(K):
        if decided[k] != UNDECIDED:
            continue
        best, total, home = -1.0, 0.0, -1
        for e in range(problem.start[k], problem.start[k + 1]):
            lost = 1.0 - node.up[e]
            competition = lost * (node.load[problem.column[e]] - q[k] * lost)
            total += competition
            if competition > best:
                best, home = competition, e
            _multiply(node.all, problem.column[e], q[k], node.up[e], problem.fail[e])
        node.home[k] = home
        _multiply(node.own, problem.column[home], q[k], node.up[home], problem.fail[home])
        blame = q[k] * (total - problem.w[problem.column[home]] * best)
        if blame > most:
            split, most = k, blame
    log_low = log_high = log_weight + log_all + math.log(product)
    for j in range(P):
        log_low += math.log(node.all[1, j] + node.all[2, j] / p[j])
        log_high += problem.w[j] * math.log(node.own[1, j] + node.own[2, j] / p[j])
        node.all[3, j] = 1.0 / (p[j] * node.all[1, j] + node.all[2, j])
        node.own[3, j] = 1.0 / (p[j] * node.own[1, j] + node.own[2, j])
    return log_weight, log_low, max(log_high, log_low), split


@njit(cache=True, nogil=True)
def _multiply(products: Floats, j: int, q: float, up: float, fail: float) -> None:
    """Take one more cause of finding j into E[psi_j] = y + (x - y) / p. Sums of positive terms keep their digits."""
    x = 1.0 - q + q * up
    products[2, j] = products[2, j] * x + products[1, j] * q * up * (1.0 - fail)
    products[0, j] *= x
    products[1, j] *= 1.0 - q + q * up * fail


@njit(cache=True, nogil=True)
def _power(x: float, w: float) -> float:
    """x ** w, without its cost where w is 1."""
    return x if w == 1.0 else float(x**w)


@njit(cache=True, nogil=True)
def _ratios(products: Floats, j: int, p: float, q: float, up: float, fail: float, off: float) -> tuple[float, float]:
    """E[psi_j] with one of its causes on, and with it off, each divided by E[psi_j]; the second at least.

    off   1 / (1 - q); 0 where that has lost its digits
    """
    x, y = 1.0 - q + q * up, 1.0 - q + q * up * fail
    on = (products[0, j] * y - (1.0 - p) * fail * products[1, j] * x) * up * products[3, j] / (x * y)
    on = min(on, 1.0)
    return on, max((1.0 - q * on) * off, 1.0)


@njit(cache=True, nogil=True)
def _add_bounds(decided: Int8s, low: float, high: float, problem: Problem, node: Node, on: Floats, off: Floats) -> None:
    """Add one node's intervals of N_i and C_i to on (2, K) and off (2, K), after `weigh_node`."""
    for k in range(problem.odds.size):
        if decided[k] == ON:
            on[0, k] += low
            on[1, k] += high
            continue
        if decided[k] == OFF:
            off[0, k] += low
            off[1, k] += high
            continue
        q = node.q[k]
        spare = 1.0 / (1.0 - q) if 1.0 - q > LEAST_OFF else 0.0
        on_low, off_low, on_high, off_high = q * low, (1.0 - q) * low, q * high, (1.0 - q) * high
        for e in range(problem.start[k], problem.start[k + 1]):
            j, f, up = problem.column[e], problem.fail[e], node.up[e]
            with_it, without = _ratios(node.all, j, node.p[j], q, up, f, spare)
            on_low *= with_it
            off_low *= without
            if e == node.home[k]:
                with_it, without = _ratios(node.own, j, node.p[j], q, up, f, spare)
                on_high *= _power(with_it, problem.w[j])
                if spare == 0.0:
                    without = node.p[j] * node.own[3, j]
                off_high *= _power(without, problem.w[j])
        on[0, k] += on_low
        off[0, k] += off_low
        on[1, k] += min(on_high, high - min(off_low, high))
        off[1, k] += min(off_high, high - min(on_low, high))


@njit(cache=True, nogil=True)
def branch(
    problem: Problem, tolerance: float, budget: int, chance: Floats, best: Floats, states: Bools
) -> tuple[int, float, float, int]:
    """Split nodes until every marginal is within `tolerance`, or `budget` nodes are weighed.

    Fills chance (K,) with marginals, best (top,) with the log weights of the heaviest states and states (top, K) with
    them. Returns (nodes weighed, log of the mass, error of marginals and of the heaviest states, states found).
    """
    K, P, top = problem.odds.size, problem.leak.size, best.size
    node = Node(
        np.empty(P), np.empty(K), np.empty(problem.column.size), np.empty(P), np.empty(K, np.int64),
        np.empty((4, P)), np.empty((4, P)),
    )  # fmt: skip
    decided = np.zeros((budget + 2, K), np.int8)
    lower, upper, split = np.empty(budget + 2), np.empty(budget + 2), np.empty(budget + 2, np.int64)
    keys, nodes = np.empty(budget + 2), np.empty(budget + 2, np.int32)
    on, off = np.empty((2, K)), np.empty((2, K))
    size, waiting, scale, kept, parent, side = 0, 0, 0.0, 0, -1, ON
    total_low, total_high, target, error = 0.0, 0.0, PATIENCE * tolerance, 1.0
    while True:
        if parent >= 0:
            decided[size] = decided[parent]
            decided[size, split[parent]] = side
        log_weight, log_low, log_high, split[size] = weigh_node(decided[size], problem, node)
        if parent < 0:
            scale = log_low
        lower[size] = math.exp(min(log_low - scale, 600.0))
        upper[size] = math.exp(min(log_high - scale, 600.0))
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
            for c in range(waiting):
                total_low += lower[nodes[c]]
                total_high += upper[nodes[c]]
        done = size + 2 > budget or split[nodes[0]] < 0
        if done or total_high - total_low <= target * total_low:
            error = _marginals(problem, node, decided, lower, upper, nodes[:waiting], tolerance, on, off, chance)
            if done or error <= tolerance:
                break
            target = min(target, (total_high - total_low) / total_low) / PATIENCE
        parent, side = int(nodes[0]), ON
        waiting = pop(keys, nodes, waiting)
        total_low -= lower[parent]
        total_high -= upper[parent]
    total_low, total_high = 0.0, 0.0
    for c in range(waiting):
        total_low += lower[nodes[c]]
        total_high += upper[nodes[c]]
    middle = 0.5 * (total_low + total_high)
    for s in range(kept):
        weight = math.exp(min(best[s] - scale, 600.0))
        error = max(error, max(weight / total_low - weight / middle, weight / middle - weight / total_high))
    return size, scale + math.log(middle), error, kept


@njit(cache=True, nogil=True)
def _marginals(
    problem: Problem, node: Node, decided: Int8s, lower: Floats, upper: Floats, nodes: Ints, tolerance: float,
    on: Floats, off: Floats, chance: Floats,
) -> float:  # fmt: skip
    """Fill `chance` with the marginals; returns their largest possible error.

    A marginal is the middle of its interval; where that is wider than the tolerance allows, N_i / (N_i + C_i) of the
    lower ends. Of the lightest nodes nothing is used but their mass.
    """
    on[:] = 0.0
    off[:] = 0.0
    total = 0.0
    for n in nodes:
        total += lower[n]
    skipped = 0.0
    for n in nodes:
        if upper[n] < 0.02 * tolerance * total / nodes.size:
            skipped += upper[n]
            continue
        weigh_node(decided[n], problem, node)
        _add_bounds(decided[n], lower[n], upper[n], problem, node, on, off)
    error = 0.0
    for k in range(chance.size):
        least = on[0, k] / (on[0, k] + off[1, k] + skipped) if on[0, k] > 0.0 else 0.0
        most = (on[1, k] + skipped) / (on[1, k] + skipped + off[0, k])
        chance[k] = 0.5 * (least + most)
        if most - least > 2.0 * tolerance:  # the middle of a wide interval would make a rare condition likely
            chance[k] = on[0, k] / (on[0, k] + off[0, k]) if on[0, k] > 0.0 else least
        error = max(error, max(most - chance[k], chance[k] - least))
    return error


@njit(cache=True, nogil=True)
def _keep(weight: float, decided: Int8s, best: Floats, states: Bools, kept: int) -> int:
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
        states[at, k] = decided[k] == ON
    return min(kept + 1, top)
