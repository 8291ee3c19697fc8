"""Maximum likelihood of fail and leak when the conditions are observed.

Visits with the same conditions are interchangeable, so the data are a table: G distinct condition vectors
("states"), N_g visits of state g, and C_gj of them with finding j. With theta_ij = -log f_ij >= 0 and
theta_0j = -log(1 - l_j) >= 0, and z_gj = theta_0j + sum_i y_gi theta_ij, a finding's log likelihood is

    sum_g C_gj log(e^{z_gj} - 1)  -  sum_g N_g z_gj

which is concave in theta and separate for every finding. The first sum has only the states that show the finding, and
the gradient of the second is one vector shared by all findings, so the cost is that of the non-zero C, whatever the
number of visits.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
import scipy.sparse as sp
from numpy.typing import ArrayLike
from scipy.optimize import minimize
from threadpoolctl import threadpool_limits

from whatelse.errors import ModelError
from whatelse.noisyor.blocks import Arrays, Blocks, matrix
from whatelse.noisyor.params import NoisyOr
from whatelse.types import Bools, Floats, Ints

LEAK_FLOOR = 1e-7
"""No finding gets a leak below this: a finding that the model calls impossible would make every state impossible."""
STEPS = 5_000  # of L-BFGS-B for one finding, at most


@dataclass(frozen=True, eq=False)
class StateCounts:
    """Visits counted by their conditions. A sum over visits: counts of parts merge into those of the whole.

    states  (G, m) bool, distinct, sorted
    visits  (G,)   N_g, the (possibly fractional) number of visits in that state
    present (G, n) C_gj, the number of them with the finding
    """

    states: Bools
    visits: Floats
    present: Floats

    @classmethod
    def of(cls, X: sp.csr_matrix, Y: ArrayLike) -> StateCounts:
        """Count visits with findings X (N, n) sparse 0/1 and conditions Y (N, m). O(nnz(X) + N m)."""
        labels = np.ascontiguousarray(Y, bool)
        if labels.ndim != 2 or labels.shape[0] != X.shape[0]:
            raise ModelError(f"conditions have shape {labels.shape}, findings {X.shape}: both need one row per visit")
        states, group = _distinct(labels)
        visits = np.bincount(group, minlength=len(states)).astype(float)
        member = sp.csr_matrix((np.ones(len(group)), (group, np.arange(len(group)))), shape=(len(states), len(group)))
        return cls(states, visits, (member @ X.astype(float)).toarray())

    def merge(self, other: StateCounts) -> StateCounts:
        """The counts of both sets of visits together."""
        if self.states.shape[1] != other.states.shape[1] or self.present.shape[1] != other.present.shape[1]:
            raise ModelError("counts of different conditions or findings cannot be merged")
        states, group = _distinct(np.vstack([self.states, other.states]))
        visits, present = np.zeros(len(states)), np.zeros((len(states), self.present.shape[1]))
        for part, own in ((self, group[: len(self.states)]), (other, group[len(self.states) :])):
            visits[own] += part.visits  # the states of a part are distinct
            present[own] += part.present
        return StateCounts(states, visits, present)

    def smoothed(self) -> StateCounts:
        """Add pseudo-visits that say "no edges": one with nothing on, and one with each condition alone.

        All show finding j at its overall rate (C_j + 1/2) / (N + 1), so rare conditions are pulled toward
        f = 1 and no leak is 0. It is the MAP estimate under the conjugate prior of that form.
        """
        m = self.states.shape[1]
        rate = (self.present.sum(0) + 0.5) / (self.visits.sum() + 1)
        states = np.vstack([np.zeros((1, m), bool), np.eye(m, dtype=bool)])
        pseudo = StateCounts(states, np.ones(m + 1), np.tile(rate, (m + 1, 1)))
        return self.merge(pseudo)


@threadpool_limits.wrap(limits=1, user_api="blas")  # threads of BLAS make the many small steps thirty times slower
def fit_states(counts: StateCounts) -> Floats:
    """theta (m+1, n) of largest likelihood, row m the leaks'. A finding takes some 25 steps of O(nnz(C_j) m).

    L-BFGS-B with bounds, on theta times the root of the visits with each condition, which makes the steps of rare and
    of common conditions comparable.
    """
    on = np.hstack([counts.states, np.ones((len(counts.states), 1), bool)]).astype(float)  # the leak is always on
    mass = counts.visits @ on
    unit = 1 / np.sqrt(np.maximum(mass, 1e-12))
    least = np.append(np.zeros(len(mass) - 1), -np.log1p(-LEAK_FLOOR))
    theta, stopped = np.tile(least[:, None], counts.present.shape[1]), 0
    for j, present in enumerate(counts.present.T):
        showing = np.flatnonzero(present)
        if showing.size == 0:
            continue
        rows, weight = on[showing] * unit, present[showing] / present.sum()
        pull = mass * unit / present.sum()

        def loss(x: Floats, rows: Floats = rows, weight: Floats = weight, pull: Floats = pull) -> tuple[float, Floats]:
            z = rows @ x
            p = -np.expm1(-z)
            return float(pull @ x - weight @ (z + np.log(p))), pull - (weight / p) @ rows

        rate = min(present.sum() / counts.visits.sum(), 1 - 1e-9)
        start = np.append(np.full(len(mass) - 1, 0.01), -np.log1p(-rate))
        options = {"maxiter": STEPS, "maxfun": 2 * STEPS, "ftol": 1e-15, "gtol": 1e-9}
        bounds = [(low, None) for low in least / unit]
        found = minimize(
            loss, np.maximum(start, least) / unit, jac=True, method="L-BFGS-B", bounds=bounds, options=options
        )
        stopped += found.status == 1
        theta[:, j] = np.maximum(found.x * unit, least)
    if stopped:
        warnings.warn(
            f"{stopped} findings had not converged after {STEPS} steps; add smoothing", RuntimeWarning, stacklevel=2
        )
    return theta


def count_states(blocks: Blocks, conditions: Callable[[Arrays], tuple[Arrays, Bools]]) -> StateCounts:
    """Of visits in blocks; `conditions` gives the visits of a block that count, and their conditions (V, m)."""
    n = blocks.shape[1]

    def of(block: Arrays) -> Arrays:
        own, Y = conditions(block)
        return vars(StateCounts.of(matrix(own, n), Y))

    def merge(a: Arrays, b: Arrays) -> Arrays:
        return vars(StateCounts(**a).merge(StateCounts(**b)))

    return StateCounts(**blocks.total(of, merge))


def model_of_counts(counts: StateCounts, *, prior: ArrayLike | None = None) -> NoisyOr:
    """The noisy-or of largest likelihood given visits that were counted by their conditions, smoothed.

    prior  (m,) if it is known from elsewhere; None: (N_i + 1/2) / (N + 1)
    """
    if prior is None:
        prior = (counts.visits @ counts.states + 0.5) / (counts.visits.sum() + 1)
    theta = fit_states(counts.smoothed())
    return NoisyOr(np.asarray(prior, float), np.exp(-theta[:-1]), -np.expm1(-theta[-1]))


def edit_anchors(
    model: NoisyOr, anchor_columns: ArrayLike, sensitivity: ArrayLike, false_positive: ArrayLike
) -> NoisyOr:
    """Set each anchor's parameters from its noise rates, with its own condition as only parent.

    1 - l = P(A=0|Y=0) and (1 - l) f = P(A=0|Y=1), so f = (1 - sensitivity) / (1 - false positive rate).
    """
    columns = np.asarray(anchor_columns, np.int64)
    sensitivity, false_positive = np.asarray(sensitivity, float), np.asarray(false_positive, float)
    backwards = np.flatnonzero(sensitivity < false_positive)
    if len(backwards):
        i = backwards[0]
        raise ModelError(
            f"the anchor of condition {i} fires more often without it ({false_positive[i]:.3g}) than with it "
            f"({sensitivity[i]:.3g}): it cannot stand in for the condition; choose another anchor"
        )
    fail, leak = model.fail.copy(), model.leak.copy()
    fail[:, columns] = 1.0
    fail[np.arange(model.m), columns] = (1 - sensitivity) / np.maximum(1 - false_positive, 1e-300)
    leak[columns] = false_positive
    return replace(model, fail=fail, leak=leak)


def _distinct(rows: Bools) -> tuple[Bools, Ints]:
    """Distinct rows, sorted, and which of them each row is: rows as bytes, so any number of conditions is fast."""
    packed = np.packbits(rows, axis=1)
    _, first, group = np.unique(packed.view(f"V{packed.shape[1]}").ravel(), return_index=True, return_inverse=True)
    return rows[first], group.ravel()
