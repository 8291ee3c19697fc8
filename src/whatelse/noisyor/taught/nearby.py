"""Expectations over the states of visits near what is likely: every state with at most two conditions on, and
every state with three to five of the eight conditions that are likeliest in the visit.

    P(y | x) = exp F(y) / sum_s exp F(s),     F(s) = sum_i s_i h_i + sum_{i<k} J_ik s_i s_k + kappa G(s)

h (V, m) are the visits' fields (log odds when nothing else is on), G(s) = log P(x | s) - log P(x | none) less its part
that is linear in s, which the fields hold: so G is zero for states with at most one condition, and below zero where two
conditions share findings (explaining away). log P is concave in (h, J, kappa). Its gradient is observed less expected:
of single conditions, of pairs, of G. Patients have few conditions at once, so what is left out is small; inference
itself (`posterior.py`) leaves nothing out.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import combinations
from typing import Any

import numpy as np
import scipy.sparse as sp
from numba import njit
from numpy.typing import NDArray

from whatelse.noisyor.params import NoisyOr
from whatelse.types import Bools, Floats, Ints

DEEP, DEEPEST = 8, 5  # conditions that states with more than two on are made of; conditions on at most
PARTS = 8  # the sum over visits is cut so, whatever the number of cores: the same bits everywhere


@dataclass(frozen=True, eq=False)
class Expected:
    """Of V visits: log_sum (V,) over states of exp F, singles (V, m), and pairs (m, m) and G summed over visits."""

    log_sum: Floats
    singles: Floats
    pairs: Floats
    shared: float


@dataclass(frozen=True, eq=False)
class Nearby:
    """The states of V visits: order (V, DEEP) likeliest conditions; shared (V, S) the G of each state.

    States are numbered: none, m singles, pairs in the order of combinations, then deep ones by `subsets`.
    """

    order: Ints
    shared: NDArray[np.float32]
    m: int

    @classmethod
    def of(cls, x: sp.csr_matrix, noisyor: NoisyOr, heard: Bools, likely: Floats) -> Nearby:
        """Of visits x (V, n), by how likely (V, m) conditions are.

        heard  (n,) bool: the findings that count, with weight one. O(V S present findings).
        """
        V, m = likely.shape
        deep = min(DEEP, m)
        order = np.argsort(-likely, axis=1, kind="stable")[:, :deep].astype(np.int64)
        order.sort(axis=1)
        masks = subsets(deep)
        shared = np.zeros((V, 1 + m + m * (m - 1) // 2 + len(masks)), np.float32)
        fail = np.clip(noisyor.fail, 1e-9, 1.0).T.copy()
        indptr, indices = x.indptr.astype(np.int64), x.indices.astype(np.int64)
        _in_parts(V, lambda a, b: _shared(a, b, indptr, indices, heard, fail, noisyor.leak, order, masks, shared))
        return cls(order, shared, m)

    def expected(self, fields: Floats, coupling: Floats, kappa: float) -> Expected:
        """O(V S)."""
        V, m = fields.shape
        masks = subsets(self.order.shape[1])
        log_sum, singles = np.empty(V), np.zeros((V, m))
        J = np.ascontiguousarray(coupling)
        parts = _in_parts(
            V, lambda a, b: _expected(a, b, fields, J, kappa, self.shared, self.order, masks, log_sum, singles)
        )
        pairs = np.zeros((m, m))
        for part in parts:
            pairs += part[0]
        return Expected(log_sum, singles, pairs + pairs.T, float(sum(part[1] for part in parts)))


def subsets(deep: int) -> Ints:
    """Bit masks of the subsets of 3 … DEEPEST of `deep` conditions."""
    return np.array(
        [sum(1 << i for i in chosen) for k in range(3, DEEPEST + 1) for chosen in combinations(range(deep), k)],
        np.int64,
    )


def _in_parts(count: int, work: Callable[[int, int], Any]) -> list[Any]:
    """What `work` makes of visits first … end - 1, for PARTS cuts of the visits, in order."""
    cuts = np.linspace(0, count, PARTS + 1).astype(int).tolist()
    with ThreadPoolExecutor(min(PARTS, os.cpu_count() or 1)) as pool:
        return list(pool.map(lambda k: work(cuts[k], cuts[k + 1]), range(PARTS)))


@njit(cache=True, nogil=True)
def _shared(first, end, indptr, indices, heard, fail, leak, order, masks, out):  # type: ignore[no-untyped-def]
    """G of every state of visits first … end - 1. Log of a product over present findings of p_j(s) / prod_i p_j(i)."""
    m, deep = fail.shape[1], order.shape[1]
    for v in range(first, end):
        count = 0
        for k in range(indptr[v], indptr[v + 1]):
            count += heard[indices[k]]
        f, quiet, own = np.empty((count, m)), np.empty(count), np.empty((count, m))
        c = 0
        for k in range(indptr[v], indptr[v + 1]):
            j = indices[k]
            if heard[j]:
                quiet[c] = 1.0 - leak[j]
                for i in range(m):
                    f[c, i] = fail[j, i]
                    own[c, i] = (1.0 - quiet[c] * fail[j, i]) / max(leak[j], 1e-9)
                c += 1
        at = 1 + m
        for a in range(m):
            for b in range(a + 1, m):
                total, product = 0.0, 1.0
                for c in range(count):
                    if f[c, a] < 1.0 and f[c, b] < 1.0:
                        both = (1.0 - quiet[c] * f[c, a] * f[c, b]) / max(1.0 - quiet[c], 1e-9)
                        product *= both / (own[c, a] * own[c, b])
                        if product < 1e-200:
                            total += np.log(product)
                            product = 1.0
                out[v, at] = total + np.log(product)
                at += 1
        for mask in masks:
            total, product = 0.0, 1.0
            for c in range(count):
                q, alone = quiet[c], 1.0
                for k in range(deep):
                    if mask >> k & 1:
                        q *= f[c, order[v, k]]
                        alone *= own[c, order[v, k]]
                product *= (1.0 - q) / max(1.0 - quiet[c], 1e-9) / alone
                if product < 1e-200:
                    total += np.log(product)
                    product = 1.0
            out[v, at] = total + np.log(product)
            at += 1


@njit(cache=True, nogil=True)
def _expected(first, end, fields, J, kappa, shared, order, masks, log_sum, singles):  # type: ignore[no-untyped-def]
    """Log sums and singles of visits first … end - 1 into their rows; returns their pairs (upper triangle) and G."""
    m, deep = fields.shape[1], order.shape[1]
    pairs, g_total = np.zeros((m, m)), 0.0
    S = shared.shape[1]
    z = np.empty(S)
    pick = np.empty(deep, np.int64)
    for v in range(first, end):
        h = fields[v]
        z[0] = 0.0
        top = 0.0
        for i in range(m):
            z[1 + i] = h[i]
            top = max(top, h[i])
        at = 1 + m
        for a in range(m):
            for b in range(a + 1, m):
                z[at] = h[a] + h[b] + J[a, b] + kappa * shared[v, at]
                top = max(top, z[at])
                at += 1
        for mask in masks:
            count = 0
            for k in range(deep):
                if mask >> k & 1:
                    pick[count] = order[v, k]
                    count += 1
            value = kappa * shared[v, at]
            for a in range(count):
                value += h[pick[a]]
                for b in range(a):
                    value += J[pick[a], pick[b]]
            z[at] = value
            top = max(top, value)
            at += 1
        total = 0.0
        for s in range(S):
            z[s] = np.exp(z[s] - top)
            total += z[s]
        log_sum[v] = top + np.log(total)
        for i in range(m):
            singles[v, i] = z[1 + i] / total
        at = 1 + m
        for a in range(m):
            for b in range(a + 1, m):
                p = z[at] / total
                singles[v, a] += p
                singles[v, b] += p
                pairs[a, b] += p
                g_total += p * shared[v, at]
                at += 1
        for mask in masks:
            p = z[at] / total
            if p > 1e-12:
                count = 0
                for k in range(deep):
                    if mask >> k & 1:
                        pick[count] = order[v, k]
                        count += 1
                for a in range(count):
                    singles[v, pick[a]] += p
                    for b in range(a + 1, count):
                        pairs[pick[a], pick[b]] += p
                g_total += p * shared[v, at]
            at += 1
    return pairs, g_total
