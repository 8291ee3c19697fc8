"""The compiled loops of EM: `expect`, the E-step over visits, and `climb`, the M-step over findings.

The E-step weighs the states that matter to a visit, then hands their probabilities to the statistics.

A state is a set of conditions that are on. For a visit with present findings j = 1 .. P its weight is

    log P(x, s) = base + sum_{i in s} u_i + sum_j log p_j(s),     p_j(s + i) = p_j(s) f_ij + (1 - f_ij),

u_i holding the prior's log odds and the absent findings. Weighing a state is one pass over P numbers that lie in the
first-level cache: cheaper than reading its row of a table of all states, and only few states are weighed at all.

Which ones: depth first from the empty state, most gain first, as in `states.py`. The gain of adding i only falls as s
grows (every log p_j is concave), so with r_l = P(x, s + l) / P(x, s) and L the conditions that may still be added,

    sum over T within L, T not empty, of P(x, c + T)  <=  P(x, c) (prod_{l in L} (1 + r_l) - 1),     c = s + i.

A subtree whose bound is below `negligible` of the mass found is not entered; the bounds of all that is left out add up
to a certificate.
"""

from __future__ import annotations

import math

import numpy as np
from numba import njit, prange

from whatelse.noisyor.mle import newton_steps
from whatelse.types import Bools, Floats, Int32s, Ints

SAFE = 1e-250  # a product of probabilities is taken up to here, then its logarithm
ROOM = 4_000  # states of one visit at most (m = 23, at most 3 on: 2,048); what that leaves out is in the certificate


@njit(cache=True, nogil=True, fastmath={"reassoc", "contract"})
def _log_on(p_on: Floats, fail: Floats, ends: Ints, runs: int) -> float:
    """sum_j log(p_j f_j + 1 - f_j): products within runs that cannot underflow, so that it vectorises. Cost P."""
    total, first = 0.0, 0
    for r in range(runs):
        product = 1.0
        for j in range(first, ends[r]):
            product *= p_on[j] * fail[j] + (1.0 - fail[j])
        total += math.log(product)
        first = ends[r]
    return total


@njit(cache=True, nogil=True)
def _search(
    fails: Floats, p_on: Floats, linear: Floats, ends: Ints, runs: int, max_on: int, negligible: float,
    weight: Floats, parent: Int32s, added: Int32s,
) -> tuple[int, float, float, float]:  # fmt: skip
    """Weigh the states of one visit with at most max_on on; returns (states, top, found, left), masses over exp(top).

    fails (m, P)          f_ij of the findings present
    p_on (max_on + 1, P)  p_j of the state at each depth; p_on[0] comes with the leaks, the rest is filled here
    linear (m,)           what a condition adds to the log weight whatever it explains: u_i
    ends, runs            run r of `_log_on` ends before finding ends[r]

    State c, numbered as they are weighed, is parent[c] with condition added[c] on as well; weight[c] is its log
    weight without `base`. `found` is the mass of the states weighed, `left` at least that of all others.
    """
    m, P = fails.shape
    candidate = np.empty((max_on + 1, m), np.int64)  # what may be added at each depth, most gain first
    state = np.empty((max_on + 1, m), np.int64)  # the number of the state that this gives
    ratio = np.empty((max_on + 1, m))  # r_l
    rest = np.empty((max_on + 1, m))  # prod over those after it of (1 + r_l), less one
    count = np.empty(max_on + 1, np.int64)  # how many candidates
    turn = np.empty(max_on + 1, np.int64)  # which of them is next
    node = np.zeros(max_on + 1, np.int64)  # the number of the state they are added to
    linear_sum = np.zeros(max_on + 1)  # its sum of linear_i

    weight[0], parent[0], added[0] = 0.0, -1, -1
    for j in range(P):
        weight[0] += math.log(p_on[0, j])
    top, found, left, size = weight[0], 1.0, 0.0, 1
    depth, fresh = 0, True
    count[0] = m if max_on > 0 else 0
    for i in range(m):
        candidate[0, i] = i
    while depth >= 0:
        if fresh:  # weigh what may be added here, and put the most gain first
            fresh = False
            turn[depth] = 0
            own = weight[node[depth]]
            for q in range(count[depth]):
                i = candidate[depth, q]
                new = linear_sum[depth] + linear[i] + _log_on(p_on[depth, :P], fails[i], ends, runs)
                if new > top:
                    shrink = math.exp(top - new)
                    found, left, top = found * shrink, left * shrink, new
                found += math.exp(new - top)
                weight[size], parent[size], added[size] = new, node[depth], i
                place = q
                while place > 0 and weight[state[depth, place - 1]] < new:
                    candidate[depth, place], state[depth, place] = candidate[depth, place - 1], state[depth, place - 1]
                    place -= 1
                candidate[depth, place], state[depth, place] = i, size
                size += 1
            product = 0.0
            for q in range(count[depth] - 1, -1, -1):
                ratio[depth, q] = math.exp(min(weight[state[depth, q]] - own, 300.0))
                rest[depth, q] = product
                product = min(product + ratio[depth, q] * (1.0 + product), 1e300)
        if turn[depth] == count[depth]:
            depth -= 1
            continue
        q = turn[depth]
        turn[depth] += 1
        if rest[depth, q] == 0.0:
            continue
        child = state[depth, q]
        own = math.exp(max(weight[child] - top, -700.0))
        if own * rest[depth, q] < negligible * found or depth + 1 >= max_on or size + m > weight.size:
            left += own * rest[depth, q]
            continue
        i = candidate[depth, q]
        kept = 0
        for k in range(q + 1, count[depth]):  # a condition all of whose states are negligible goes too
            bound = own * ratio[depth, k] * (1.0 + rest[depth, q])
            if bound < negligible * found:
                left += bound
            else:
                candidate[depth + 1, kept] = candidate[depth, k]
                kept += 1
        if kept == 0:
            continue
        for j in range(P):
            p_on[depth + 1, j] = p_on[depth, j] * fails[i, j] + (1.0 - fails[i, j])
        linear_sum[depth + 1] = linear_sum[depth] + linear[i]
        node[depth + 1] = child
        depth += 1
        count[depth] = kept
        fresh = True
    return size, top, found, left


@njit(cache=True, nogil=True, fastmath={"contract"})
def _add_causes(q: float, leak: Floats, fails: Floats, chosen: Ints, inverse: Floats, causes: Floats) -> None:
    """Add q / p_j(s) to the rows of `causes` (m + 1, P) that are on in s, the leak's with them. Cost P |s|.

    `inverse` (P,) is room to work in.
    """
    P = leak.size
    for j in range(P):
        inverse[j] = leak[j]
    for i in chosen:
        for j in range(P):
            inverse[j] = inverse[j] * fails[i, j] + (1.0 - fails[i, j])
    for j in range(P):
        inverse[j] = q / inverse[j]
        causes[-1, j] += inverse[j]
    for i in chosen:
        for j in range(P):
            causes[i, j] += inverse[j]


@njit(cache=True, nogil=True)
def expect(
    first: int, end: int, start: Ints, index: Ints, evidence: Floats, unary: Floats, base: float, fail: Floats,
    log_fail: Floats, leak: Floats, log_quiet: Floats, max_on: int, negligible: float,
    mass: Floats, present: Floats, spread: Floats, on_mass: Floats, totals: Floats,
) -> None:  # fmt: skip
    """Add visits first .. end - 1 to the statistics of the last line.

    start, index   rows of X;  evidence (N, m) or (0, m): log odds to add
    unary (m,), base   log odds plus sum_j log f_ij, and log P(nothing on, nothing present)
    fail, log_fail (n, m); leak, log_quiet (n,), the latter log(1 - leak)
    mass (S,), present (S, n)   of the S states with at most two on: none, {i}, then {i < k} row by row
    spread (m + 1, n)           expected causes in states with more on (see `EStatistics`)
    on_mass (m,)                expected visits with each condition
    totals (3,)                 log likelihood, bound on the mass left out, states weighed
    """
    m = unary.size
    widest = 0
    for v in range(first, end):
        widest = max(widest, start[v + 1] - start[v])
    all_causes = np.empty((m + 1) * widest)
    all_fails, all_p_on = np.empty(m * widest), np.empty((max_on + 1) * widest)
    linear, ends, chosen = np.empty(m), np.empty(widest + 1, np.int64), np.empty(max_on + 1, np.int64)
    weight, parent, added = np.empty(ROOM), np.empty(ROOM, np.int32), np.empty(ROOM, np.int32)
    for v in range(first, end):
        here = index[start[v] : start[v + 1]]
        P = here.size
        fails = all_fails[: m * P].reshape(m, P)
        p_on = all_p_on[: (max_on + 1) * P].reshape(max_on + 1, P)
        constant = base
        for i in range(m):
            linear[i] = unary[i] + (evidence[v, i] if evidence.shape[0] > 0 else 0.0)
        runs, product = 0, 1.0
        for c in range(P):
            j = here[c]
            constant -= log_quiet[j]
            p_on[0, c] = leak[j]
            if product * leak[j] < SAFE:  # p_j only grows: runs that are safe here are safe in every state
                ends[runs] = c
                runs += 1
                product = 1.0
            product *= leak[j]
            for i in range(m):
                linear[i] -= log_fail[j, i]
                fails[i, c] = fail[j, i]
        ends[runs] = P
        size, top, found, left = _search(fails, p_on, linear, ends, runs + 1, max_on, negligible, weight, parent, added)
        totals[0] += constant + top + math.log(found)
        totals[1] += left / (found + left)
        totals[2] += size

        # What is negligible is dropped and the rest sums to one: the posterior over the states kept.
        causes = all_causes[: (m + 1) * P].reshape(m + 1, P)
        causes[:] = 0.0
        kept, deep = 0.0, False
        for c in range(size):
            weight[c] = math.exp(weight[c] - top)
            if weight[c] >= negligible * found:
                kept += weight[c]
            else:
                weight[c] = 0.0
        for c in range(size):
            q = weight[c] / kept
            if q == 0.0:
                continue
            depth, up = 0, c
            while up > 0:
                chosen[depth] = added[up]
                on_mass[added[up]] += q
                depth += 1
                up = parent[up]
            if depth <= 2:
                row = 0
                if depth == 1:
                    row = 1 + chosen[0]
                elif depth == 2:
                    low, high = min(chosen[0], chosen[1]), max(chosen[0], chosen[1])
                    row = m + low * (2 * m - low - 1) // 2 + high - low
                mass[row] += q
                for j in here:
                    present[row, j] += q
            else:
                deep = True
                _add_causes(q, p_on[0], fails, chosen[:depth], p_on[1], causes)  # p_on[1] is no longer needed
        if deep:  # which cause brought the finding: leak or condition, in proportion to (1 - f) / p
            for k in range(P):
                j = here[k]
                spread[m, j] += causes[m, k] * leak[j]
                for i in range(m):
                    spread[i, j] += causes[i, k] * (1.0 - fails[i, k])


@njit(cache=True, parallel=True)
def climb(
    indptr: Ints, indices: Ints, mass: Floats, price: Floats, present: Floats, frozen: Bools, leak_floor: float,
    steps: int, theta: Floats,
) -> None:  # fmt: skip
    """At most `steps` projected, damped Newton steps up sum_s C_s log(e^{z_s} - 1) - (mass + price_j) . theta.

    In place and for each finding by itself, down `loss` of `mle.py`; only that here each finding pays its own prices.
    theta, price and frozen are (n, m + 1), present (n, S); leak_floor is the least theta of a leak. No step raises the
    loss: where none lowers it, a finding is done.
    """
    for j in prange(theta.shape[0]):
        newton_steps(
            indptr, indices, mass + price[j], present[j], frozen[j], leak_floor, 0.0, steps, 0.0, False, theta[j]
        )
