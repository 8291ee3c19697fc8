"""Fail and leak from counts of anchors and findings alone: the paper's "Model initialization".

If conditions were seen, f_ij = P(X_j=0 | Y_i=1) / P(X_j=0 | Y_i=0). What is seen is the anchor A_i, and because
the anchor depends on nothing but its condition,

    P(X_j | A_i=a) = r_a P(X_j | Y_i=1) + (1 - r_a) P(X_j | Y_i=0),      r_a = P(Y_i=1 | A_i=a).

(The matrix R of the paper's appendix is printed with P(A|Y) in place of P(Y|A), and one entry twice; this is
the equation of its main text.) Four equations in four unknowns; two of them say that probabilities sum to
one, so a pair (i, j) has two unknowns, u_y = P(X_j=1 | Y_i=y), from two rates, q_a = P(X_j=1 | A_i=a).

Inverting the equations can give u outside [0, 1]. Instead u minimises, under the simplex constraint of each y,

    KL(u) = sum_a w_a [ q_a log(q_a / p_a) + (1 - q_a) log((1 - q_a) / (1 - p_a)) ],     p_a = r_a u_1 + (1 - r_a) u_0

with w_a the share of visits with A_i = a: then it is the likelihood of the findings given the anchors, and
the small group of anchored visits counts for no more than it can say. Where the inverse is valid it is the
minimum (KL = 0).
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass

import numpy as np
import scipy.sparse as sp
from numba import njit, prange
from numpy.typing import ArrayLike

from whatelse.annotators import NoiseRates
from whatelse.errors import ModelError
from whatelse.noisyor.blocks import Blocks, matrix
from whatelse.noisyor.mle import edit_anchors
from whatelse.noisyor.params import NoisyOr
from whatelse.types import Floats, Ints

ROWS_AT_ONCE = 100_000
MAX_STEPS = 200
TOLERANCE = 1e-11  # nats a visit
TINY = 1e-15


@dataclass(frozen=True, eq=False)
class Counts:
    """All that the moments need of the visits. Exact integers; counts of parts merge into those of the whole.

    visits   N
    anchors  (m,)   visits with the anchor
    findings (n,)   visits with the finding
    both     (m, n) visits with both
    """

    visits: int
    anchors: Ints
    findings: Ints
    both: Ints

    @classmethod
    def of(cls, X: sp.csr_matrix | Blocks, anchor_columns: ArrayLike) -> Counts:
        """Count visits with findings X (N, n), sparse 0/1. O(sum over visits of anchors on times findings on)."""
        if isinstance(X, Blocks):
            columns, n = np.asarray(anchor_columns, np.int64), X.shape[1]
            found = X.total(lambda block: vars(cls.of(matrix(block, n), columns)))
            return cls(int(found["visits"]), found["anchors"], found["findings"], found["both"])
        columns = np.asarray(anchor_columns, np.int64)
        n = X.shape[1]
        if columns.ndim != 1 or (len(columns) and not 0 <= columns.min() <= columns.max() < n):
            raise ModelError(f"anchor columns must be {columns.size} numbers from 0 to {n - 1}")
        both = np.zeros((len(columns), n), np.int64)
        findings = np.zeros(n, np.int64)
        for start in range(0, X.shape[0], ROWS_AT_ONCE):
            rows = sp.csr_matrix(X[start : start + ROWS_AT_ONCE]).astype(np.int64)
            both += (rows[:, columns].T @ rows).toarray()
            findings += np.asarray(rows.sum(0)).ravel()
        return cls(X.shape[0], findings[columns], findings, both)

    def merge(self, other: Counts) -> Counts:
        """The counts of both sets of visits together."""
        if self.both.shape != other.both.shape:
            raise ModelError(f"counts of shapes {self.both.shape} and {other.both.shape} cannot be merged")
        return Counts(
            self.visits + other.visits,
            self.anchors + other.anchors,
            self.findings + other.findings,
            self.both + other.both,
        )

    @property
    def rates(self) -> tuple[Floats, Floats]:
        """q_1 = P(X_j=1 | A_i=1) and q_0 = P(X_j=1 | A_i=0), each (m, n); the overall rate for a group of no visits."""
        overall = self.findings / max(self.visits, 1)
        with_anchor, without = self.anchors[:, None], self.visits - self.anchors[:, None]
        q1 = np.where(with_anchor > 0, self.both / np.maximum(with_anchor, 1), overall)
        q0 = np.where(without > 0, (self.findings - self.both) / np.maximum(without, 1), overall)
        return q1, q0


def moments_model(counts: Counts, rates: NoiseRates, anchor_columns: ArrayLike, *, shrink: float = 0.0) -> NoisyOr:
    """The moments estimate of the whole model, anchors and priors as the noise rates say.

        f_ij = clip((1 - u_1) / (1 - u_0), 1 / (N_i + 2), 1),       l_j = 1 - P(X_j=0) / prod_i (1 - pi_i + pi_i f_ij)

    with N_i the visits with anchor i. The second is Quickscore solved for the leak; where it is below 1 / (N + 2), for
    the same reason, it is raised to that. Consistent: on data that obey the model the error falls like 1/sqrt(N).
    O(m n) whatever the number of visits. `shrink`: see `denoise`.
    """
    pi = rates.prior
    u1, u0 = denoise(counts, rates, shrink)
    # f = 0 would let one absent finding rule a condition out whatever else is seen. Counts cannot show that: after
    # k visits without a failure the rule of succession says 1 / (k + 2), which vanishes as visits grow.
    floor = 1 / (counts.anchors[:, None] + 2)
    fail = np.clip((1 - u1) / np.maximum(1 - u0, 1e-12), floor, 1.0)
    columns = np.asarray(anchor_columns, np.int64)
    fail[:, columns] = 1.0
    explained = np.exp(np.log1p(-pi[:, None] * (1 - fail)).sum(0))
    quiet = 1 - counts.findings / max(counts.visits, 1)
    least = 1 / (counts.visits + 2)
    leak = np.clip(1 - quiet / explained, least, 1 - least)
    return edit_anchors(NoisyOr(pi, fail, leak), columns, rates.sensitivity, rates.false_positive)


def denoise(counts: Counts, rates: NoiseRates, shrink: float = 0.0) -> tuple[Floats, Floats]:
    """u_1 and u_0, each (m, n): P(X_j=1 | Y_i=1) and P(X_j=1 | Y_i=0), within TOLERANCE of the smallest KL.

    shrink  the naive estimate q (the anchor taken for the condition) weighs as much as `shrink` visits with known
            conditions would: the denoised one is worth n = q (1 - q) / v such visits, v its sampling variance, and
            u = (n u + shrink q) / (n + shrink). Denoising divides differences by r_1 - r_0, noise included.
    """
    m = counts.both.shape[0]
    if rates.m != m:
        raise ModelError(f"noise rates of {rates.m} conditions: counts have {m} conditions")
    rates.informative()
    q1, q0 = counts.rates
    r1, r0 = rates.ppv[:, None], rates.fn[:, None]
    u1 = ((1 - r0) * q1 - (1 - r1) * q0) / (r1 - r0)
    u0 = (r1 * q0 - r0 * q1) / (r1 - r0)
    gap = np.zeros_like(u1)
    share = counts.anchors / max(counts.visits, 1)
    _minimise(q1, q0, rates.ppv, rates.fn, share, TOLERANCE, u1, u0, gap)
    if gap.max(initial=0.0) > TOLERANCE:
        warnings.warn(
            f"denoising of {(gap > TOLERANCE).sum()} of {gap.size} pairs stopped before tolerance {TOLERANCE:g} "
            f"(at most {gap.max():.2g} nats a visit from the minimum); the noise rates may be close to useless",
            RuntimeWarning,
            stacklevel=2,
        )
    if shrink:
        n1, n0 = _worth(counts, q1, q0, r1, r0)
        u1, u0 = (n1 * u1 + shrink * q1) / (n1 + shrink), (n0 * u0 + shrink * q0) / (n0 + shrink)
    return u1, u0


def _worth(counts: Counts, q1: Floats, q0: Floats, r1: Floats, r0: Floats) -> tuple[Floats, Floats]:
    """How many visits with known Y=1, and Y=0, would give estimates as precise as the inverse, each (m, n).

    u_1 = ((1 - r_0) q_1 - (1 - r_1) q_0) / (r_1 - r_0) and var q_a = q_a (1 - q_a) / N_a; likewise u_0.
    """
    spread1, spread0 = (np.maximum(q * (1 - q), 1e-9) for q in (q1, q0))
    var1 = spread1 / np.maximum(counts.anchors[:, None], 1)
    var0 = spread0 / np.maximum(counts.visits - counts.anchors[:, None], 1)
    scale = (r1 - r0) ** 2
    n1 = spread1 * scale / ((1 - r0) ** 2 * var1 + (1 - r1) ** 2 * var0)
    n0 = spread0 * scale / (r0**2 * var1 + r1**2 * var0)
    return n1, n0


@njit(cache=True, parallel=True)
def _minimise(Q1, Q0, R1, R0, share, tol, U1, U0, gap):  # type: ignore[no-untyped-def]
    """Minimise KL(u) for every pair, in place, from the inverse of the equations in U1, U0.

    KL is convex and its only free minimum is the inverse. So either that is valid and the answer, or the minimum
    is on a side of the square [0, 1]^2, one unknown at 0 or 1 and the other on its own simplex: the best of four.
    `gap` is sum_y max_{v in {0,1}} dKL/du_y (u_y - v), which bounds KL(u) - min KL over the whole square.
    """
    m, n = Q1.shape
    for i in prange(m):
        w1, r1, r0 = share[i], R1[i], R0[i]
        w0 = 1.0 - w1
        for j in range(n):
            q1, q0 = Q1[i, j], Q0[i, j]
            u1, u0 = U1[i, j], U0[i, j]
            if not (0.0 <= u1 <= 1.0 and 0.0 <= u0 <= 1.0):
                best = np.inf
                for side in range(4):
                    end = float(side % 2)
                    start = min(max(U0[i, j] if side < 2 else U1[i, j], 1e-6), 1.0 - 1e-6)
                    free = _exponentiated_gradient(q1, q0, r1, r0, w1, w0, side < 2, end, start, 0.5 * tol)
                    t1, t0 = (end, free) if side < 2 else (free, end)
                    value = _kl(q1, q0, r1, r0, w1, w0, t1, t0)
                    if value < best:
                        best, u1, u0 = value, t1, t0
            g1, g0, _, _ = _slopes(q1, q0, r1, r0, w1, w0, u1, u0)
            gap[i, j] = max(g1 * u1, -g1 * (1.0 - u1)) + max(g0 * u0, -g0 * (1.0 - u0))
            U1[i, j], U0[i, j] = u1, u0


@njit(cache=True)
def _exponentiated_gradient(q1, q0, r1, r0, w1, w0, fixed1, end, u, tol):  # type: ignore[no-untyped-def]
    """Minimise KL over one unknown, the other fixed at `end`.

    On a simplex of two outcomes an exponentiated gradient step multiplies the odds, u / (1 - u) *= e^{-s}. With
    s = KL' / (KL'' u (1 - u)) it is a Newton step to first order; it is limited to e^4 and halved while KL rises.
    """
    for _ in range(MAX_STEPS):
        g1, g0, h1, h0 = _slopes(q1, q0, r1, r0, w1, w0, end if fixed1 else u, u if fixed1 else end)
        g, h = (g0, h0) if fixed1 else (g1, h1)
        if max(g * u, -g * (1.0 - u)) <= tol:
            break
        step = max(-4.0, min(4.0, g / (h * u * (1.0 - u))))
        value = _kl(q1, q0, r1, r0, w1, w0, end if fixed1 else u, u if fixed1 else end)
        new = u
        while abs(step) > 1e-15:
            scaled = u * np.exp(-step)
            new = min(max(scaled / (scaled + 1.0 - u), TINY), 1.0 - 1e-15)
            if _kl(q1, q0, r1, r0, w1, w0, end if fixed1 else new, new if fixed1 else end) <= value + 1e-15:
                break
            step *= 0.5
        if new == u:
            break
        u = new
    return u


@njit(cache=True)
def _kl(q1, q0, r1, r0, w1, w0, u1, u0):  # type: ignore[no-untyped-def]
    """KL(u) without its constant part: -sum_a w_a (q_a log p_a + (1 - q_a) log(1 - p_a)); infinite if impossible."""
    p1 = r1 * u1 + (1.0 - r1) * u0
    p0 = r0 * u1 + (1.0 - r0) * u0
    total = 0.0
    for w, q, p in ((w1, q1, p1), (w0, q0, p0)):
        if w * q > 0.0:
            total -= w * q * np.log(p) if p > 0.0 else -np.inf
        if w * (1.0 - q) > 0.0:
            total -= w * (1.0 - q) * np.log1p(-p) if p < 1.0 else -np.inf
    return total


@njit(cache=True)
def _slopes(q1, q0, r1, r0, w1, w0, u1, u0):  # type: ignore[no-untyped-def]
    """First derivatives of KL by u_1 and u_0, then the second ones."""
    p1 = min(max(r1 * u1 + (1.0 - r1) * u0, TINY), 1.0 - 1e-15)
    p0 = min(max(r0 * u1 + (1.0 - r0) * u0, TINY), 1.0 - 1e-15)
    d1 = w1 * (p1 - q1) / (p1 * (1.0 - p1))
    d0 = w0 * (p0 - q0) / (p0 * (1.0 - p0))
    c1 = w1 * (q1 / p1**2 + (1.0 - q1) / (1.0 - p1) ** 2)
    c0 = w0 * (q0 / p0**2 + (1.0 - q0) / (1.0 - p0) ** 2)
    return (
        d1 * r1 + d0 * r0,
        d1 * (1.0 - r1) + d0 * (1.0 - r0),
        c1 * r1**2 + c0 * r0**2,
        c1 * (1.0 - r1) ** 2 + c0 * (1.0 - r0) ** 2 + 1e-300,
    )
