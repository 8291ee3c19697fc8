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

from dataclasses import dataclass

import numpy as np
import scipy.sparse as sp
from numpy.typing import ArrayLike
from scipy.special import xlog1py, xlogy

from whatelse.annotators import NoiseRates
from whatelse.errors import ModelError
from whatelse.noisyor.blocks import Arrays, Blocks, as_blocks, matrix
from whatelse.noisyor.mle import edit_anchors
from whatelse.noisyor.params import NoisyOr
from whatelse.types import Floats, Ints

HALVINGS = 60  # of an interval in which a minimum is looked for: to the last bit
TINY = 1e-15


@dataclass(frozen=True, eq=False)
class Counts:
    """All that the moments need of the visits, as exact integers.

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
        columns, (visits, n) = np.asarray(anchor_columns, np.int64), X.shape
        if columns.ndim != 1 or (len(columns) and not 0 <= columns.min() <= columns.max() < n):
            raise ModelError(f"anchor columns must be {columns.size} numbers from 0 to {n - 1}")

        def of_block(block: Arrays) -> Arrays:
            rows = matrix(block, n).astype(np.int64)
            return {"both": (rows[:, columns].T @ rows).toarray(), "findings": np.asarray(rows.sum(0)).ravel()}

        found = as_blocks(X).total(of_block)
        return cls(visits, found["findings"][columns], found["findings"], found["both"])

    @property
    def rates(self) -> tuple[Floats, Floats]:
        """q_1 = P(X_j=1 | A_i=1) and q_0 = P(X_j=1 | A_i=0), each (m, n); the overall rate for a group of no visits."""
        overall = self.findings / max(self.visits, 1)
        with_anchor, without = self.anchors[:, None], self.visits - self.anchors[:, None]
        q1 = np.where(with_anchor > 0, self.both / np.maximum(with_anchor, 1), overall)
        q0 = np.where(without > 0, (self.findings - self.both) / np.maximum(without, 1), overall)
        return q1, q0


def moments_model(counts: Counts, rates: NoiseRates, anchor_columns: ArrayLike) -> NoisyOr:
    """The moments estimate of the whole model, anchors and priors as the noise rates say.

        f_ij = clip((1 - u_1) / (1 - u_0), 1 / (N_i + 2), 1),       l_j = 1 - P(X_j=0) / prod_i (1 - pi_i + pi_i f_ij)

    with N_i the visits with anchor i. The second is Quickscore solved for the leak; where it is below 1 / (N + 2), for
    the same reason, it is raised to that. Consistent: on data that obey the model the error falls like 1/sqrt(N).
    O(m n) whatever the number of visits.
    """
    pi = rates.prior
    u1, u0 = denoise(counts, rates)
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


def denoise(counts: Counts, rates: NoiseRates) -> tuple[Floats, Floats]:
    """u_1 and u_0, each (m, n): P(X_j=1 | Y_i=1) and P(X_j=1 | Y_i=0), of the smallest KL.

    KL is convex and its only free minimum is the inverse of the equations. So either that is valid and the answer, or
    the minimum is on a side of the square [0, 1]^2: one unknown at 0 or 1, and the other where the slope of KL, which
    rises along the side, changes its sign.
    """
    m = counts.both.shape[0]
    if rates.m != m:
        raise ModelError(f"noise rates of {rates.m} conditions: counts have {m} conditions")
    rates.informative()
    q1, q0 = counts.rates
    r1, r0, w1 = (
        np.broadcast_to(x[:, None], q1.shape) for x in (rates.ppv, rates.fn, counts.anchors / max(counts.visits, 1))
    )
    u1 = ((1 - r0) * q1 - (1 - r1) * q0) / (r1 - r0)
    u0 = (r1 * q0 - r0 * q1) / (r1 - r0)
    outside = (u1 < 0) | (u1 > 1) | (u0 < 0) | (u0 > 1)
    q, r = np.stack([q1, q0])[:, outside], np.stack([r1, r0])[:, outside]
    w = np.stack([w1, 1 - w1])[:, outside]
    least = np.full(q.shape[1], np.inf)
    sides = [(which, end) for which in (1, 0) for end in (0.0, 1.0)]
    for which, end in sides:  # u_1 or u_0 is at the end
        fixed, slope = (r * end, 1 - r) if which else ((1 - r) * end, r)
        low, high = np.zeros(q.shape[1]), np.ones(q.shape[1])
        for _ in range(HALVINGS):
            free = (low + high) / 2
            p = np.clip(fixed + slope * free, TINY, 1 - TINY)
            rises = (w * slope * (p - q) / (p * (1 - p))).sum(0) > 0
            low, high = np.where(rises, low, free), np.where(rises, free, high)
        p = np.clip(fixed + slope * free, 0, 1)
        kl = -(w * (xlogy(q, p) + xlog1py(1 - q, -p))).sum(0)
        better = kl < least
        least = np.where(better, kl, least)
        for u, value in zip((u1, u0), (end, free) if which else (free, end), strict=True):
            u[outside] = np.where(better, np.asarray(value), u[outside])
    return u1, u0
