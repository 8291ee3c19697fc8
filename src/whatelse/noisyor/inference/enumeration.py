"""Every state of the free conditions: the exact posterior, for few of them (2^23 states take about a second).

State b (an integer whose bits say what is on) differs from b without its lowest bit t by one condition, and that
one's p_j are still held at the level of its own lowest bit: one vector update and one product per state.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numba import njit

from whatelse.errors import QueryError
from whatelse.noisyor.inference.posterior import lay_out
from whatelse.noisyor.inference.query import CONFIRMED, POSSIBLE, reduce_visit
from whatelse.noisyor.inference.solver import EPSILON, Posterior, empty, finish
from whatelse.noisyor.inference.states import DEAD, split_products, with_cause
from whatelse.noisyor.joint import Model
from whatelse.noisyor.likelihood import tables
from whatelse.types import Floats, Ints

MOST = 25  # free conditions


def enumerate_posterior(model: Model, present: Any, *, top: int = 5, **question: Any) -> Posterior:
    """The answer to a question, put as to `posterior`, from all 2^M states of the M <= 25 free conditions.

    error_bound is what rounding can do. Cost O(2^M P) per visit.
    """
    noisyor, query = lay_out(model, present, **question)
    out = empty(noisyor, query, top)
    t = tables(noisyor)
    for v in range(query.size):
        verdict, base, scale, free, unary, on, w, rows = reduce_visit(
            v, query.present, query.unobserved, query.status, query.evidence, t
        )
        on_already = query.status[v] == CONFIRMED
        if free.size > MOST:
            raise QueryError(
                f"visit {v} has {free.size} free conditions, at most {MOST} can be enumerated; use posterior"
            )
        out.impossible[v] = verdict
        if verdict != POSSIBLE:
            continue
        pair = np.ascontiguousarray(noisyor.coupling[np.ix_(free, free)])
        half = free.size // 2
        low, high = np.zeros(1 << half), np.zeros(1 << (free.size - half))
        best, weights = np.zeros(top, np.int64), np.full(top, -np.inf)
        peak = _enumerate(rows, on, w, unary, pair, bool(pair.any()), low, high, best, weights)
        total = low.sum()
        out.states[v] = 1 << free.size
        out.marginals[v] = on_already
        for q in range(free.size):
            table, bit = (low, q) if q < half else (high, q - half)
            out.marginals[v, free[q]] = table[(np.arange(table.size) >> bit) & 1 == 1].sum() / total
        for r in np.flatnonzero(np.isfinite(weights)):
            out.probabilities[v, r] = np.exp(weights[r] - peak) / total
            out.explanations[v, r] = on_already
            out.explanations[v, r, free] = (best[r] >> np.arange(free.size)) & 1 == 1
        out.log_evidence[v] = base + peak + np.log(total)
        out.error_bound[v] = 8 * EPSILON * (on.size + scale * (1 + free.size) + abs(peak) + free.size)
    return finish(noisyor, query, out, tolerance=1.0)


@njit(cache=True, nogil=True, fastmath={"reassoc"})
def _update(p: Floats, row: Floats, into: Floats, first: int, end: int) -> float:
    """into = p with one more cause, for findings first .. end - 1; returns the product."""
    product = 1.0
    for j in range(first, end):
        into[j] = with_cause(p[j], row[j])
        product *= into[j]
    return product


@njit(cache=True, nogil=True)
def _enumerate(
    rows: Floats, leak: Floats, w: Floats, unary: Floats, pair: Floats, coupled: bool,
    low: Floats, high: Floats, best: Ints, weights: Floats,
) -> float:  # fmt: skip
    """Add each state's mass, in units of exp(peak), to low[b % low.size] and high[b // low.size]; returns peak.

    best, weights (top,): the heaviest states and their log weights, heaviest first.
    """
    M, P = rows.shape
    p = np.empty((M + 1, P))  # p[t]: the state whose lowest bit is t, of those on the way to b; p[M]: nothing on
    linear = np.zeros(M + 1)
    bare = np.ones(P)
    ends = np.empty(P + 1, np.int64)
    runs = split_products(leak, w, ends)
    peak = -np.inf
    for b in range(1 << M):
        t = M
        if b > 0:
            t = 0
            while not (b >> t) & 1:
                t += 1
            rest = b ^ (1 << t)
            up = t + 1
            while up < M and not (rest >> up) & 1:
                up += 1
            linear[t] = linear[up] + unary[t]
            for k in range(t + 1, M if coupled else 0):
                if (b >> k) & 1:
                    linear[t] += pair[t, k]
        log_weight, alive, first = float(linear[t]), True, 0
        for r in range(runs):
            end = ends[r]
            product = _update(p[up], rows[t], p[t], first, end) if b > 0 else _update(leak, bare, p[t], first, end)
            if end > first:
                log_weight += w[first] * math.log(product)
                alive = alive and product > DEAD
            first = end
        if not alive:
            continue
        if log_weight > peak:
            shrink = math.exp(peak - log_weight)
            for k in range(low.size):
                low[k] *= shrink
            for k in range(high.size):
                high[k] *= shrink
            peak = log_weight
        mass = math.exp(log_weight - peak)
        low[b & (low.size - 1)] += mass
        high[b // low.size] += mass
        if weights.size > 0 and log_weight > weights[-1]:
            rank = weights.size - 1
            while rank > 0 and weights[rank - 1] < log_weight:
                weights[rank], best[rank] = weights[rank - 1], best[rank - 1]
                rank -= 1
            weights[rank], best[rank] = log_weight, b
    return peak
