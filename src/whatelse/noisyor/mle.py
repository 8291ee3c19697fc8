"""Maximum likelihood of fail and leak when the conditions are observed.

Visits with the same conditions are interchangeable, so the data are a table: G distinct condition vectors
("states"), N_g visits of state g, and C_gj of them with finding j. With theta_ij = -log f_ij >= 0 and
theta_0j = -log(1 - l_j) >= 0, and z_gj = theta_0j + sum_i y_gi theta_ij, a finding's log likelihood is

    sum_g C_gj log(e^{z_gj} - 1)  -  sum_g N_g z_gj

which is concave in theta and separate for every finding. It is maximised by Newton steps, projected onto
theta >= 0 and damped as by Levenberg and Marquardt: where few states show a finding the Hessian is singular.
The first sum has only the states that show the finding, and the gradient of the second is one vector shared
by all findings, so the cost is that of the non-zero C, whatever the number of visits. Counts may be fractional:
the M-step of `em.py` climbs the same function.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import scipy.sparse as sp
from numba import njit, prange
from numpy.typing import ArrayLike

from whatelse.errors import ModelError
from whatelse.noisyor.blocks import Arrays, Blocks, matrix
from whatelse.noisyor.params import NoisyOr
from whatelse.types import Bools, Floats, Ints

LEAK_FLOOR = 1e-7
"""No finding gets a leak below this: a finding that the model calls impossible would make every state impossible."""


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

    def smoothed(self, strength: float) -> StateCounts:
        """Add pseudo-visits that say "no edges": `strength` with nothing on, and as many with each condition alone.

        All show finding j at its overall rate (C_j + 1/2) / (N + 1), so rare conditions are pulled toward
        f = 1 and no leak is 0. It is the MAP estimate under the conjugate prior of that form.
        """
        if not strength:
            return self
        m = self.states.shape[1]
        rate = (self.present.sum(0) + 0.5) / (self.visits.sum() + 1)
        states = np.vstack([np.zeros((1, m), bool), np.eye(m, dtype=bool)])
        pseudo = StateCounts(states, np.full(m + 1, float(strength)), np.tile(strength * rate, (m + 1, 1)))
        return self.merge(pseudo)


@dataclass(frozen=True, eq=False)
class Fit:
    """The maximum: theta (m+1, n), row m the leaks', and how well it is reached.

    `residual` (n,) is the largest violation of the optimality conditions,
    max_i |theta_i - max(theta_i - g_i / M_i, floor_i)|: g the gradient, M_i the visits with condition i.
    """

    theta: Floats
    residual: Floats
    iterations: Ints
    converged: Bools


def fit_states(
    counts: StateCounts,
    *,
    start: Floats | None = None,
    frozen: Bools | None = None,
    l1: float = 0.0,
    leak_floor: float = LEAK_FLOOR,
    tol: float = 1e-6,
    max_iter: int = 200,
) -> Fit:
    """Maximise sum_g C log(e^z - 1) - N z - l1 sum_i theta_i for all findings at once.

    start  (m+1, n)  theta to start from (row m the leaks'); a good one saves iterations
    frozen (m+1, n)  entries to leave as they are in `start`
    l1               what an edge pays per theta_ij: l1 visits with condition i on and finding j off weigh the same

    Each iteration of a finding costs O(nnz(C_j) k^2 + m^3), k the conditions on in a state.
    """
    g, m = counts.states.shape
    n = counts.present.shape[1]
    if counts.visits.shape != (g,) or counts.present.shape[0] != g:
        raise ModelError(f"{g} states, but visits {counts.visits.shape} and present {counts.present.shape}")
    floor = -np.log1p(-leak_floor)
    on = sp.csr_matrix(np.hstack([counts.states, np.ones((g, 1), bool)]))  # the leak is a condition always on
    mass = counts.visits @ on + np.append(np.full(m, l1), 0.0)
    if frozen is None:
        frozen = np.zeros((m + 1, n), bool)
    elif start is None:
        raise ModelError("frozen entries need a start that holds their values")
    if start is None:
        rate = np.clip(counts.present.sum(0) / max(counts.visits.sum(), 1e-300), 1e-9, 1 - 1e-9)
        start = np.vstack([np.full((m, n), 0.01), -np.log1p(-rate)])
    theta = np.ascontiguousarray(start.T)
    residual, iterations = np.empty(n), np.empty(n, np.int64)
    _newton(
        on.indptr.astype(np.int64), on.indices.astype(np.int64), mass, np.ascontiguousarray(counts.present.T),
        np.ascontiguousarray(frozen.T), floor, tol, max_iter, theta, residual, iterations,
    )  # fmt: skip
    converged = residual <= tol
    if not converged.all():
        warnings.warn(
            f"{(~converged).sum()} of {n} findings did not reach tolerance {tol:g} in {max_iter} iterations "
            f"(worst residual {residual.max():.2g}); raise max_iter or add smoothing",
            RuntimeWarning,
            stacklevel=2,
        )
    return Fit(np.ascontiguousarray(theta.T), residual, iterations, converged)


def count_states(blocks: Blocks, conditions: Callable[[Arrays], tuple[Arrays, Bools]]) -> StateCounts:
    """Of visits in blocks; `conditions` gives the visits of a block that count, and their conditions (V, m)."""
    n = blocks.shape[1]

    def of(block: Arrays) -> Arrays:
        own, Y = conditions(block)
        return vars(StateCounts.of(matrix(own, n), Y))

    def merge(a: Arrays, b: Arrays) -> Arrays:
        return vars(StateCounts(**a).merge(StateCounts(**b)))

    return StateCounts(**blocks.total(of, merge))


def mle_model(X: sp.csr_matrix, Y: ArrayLike, **options: Any) -> NoisyOr:
    """The noisy-or of largest likelihood given findings X (N, n) and conditions Y (N, m).

    options  those of `model_of_counts`: prior, smoothing, l1, leak_floor
    """
    return model_of_counts(StateCounts.of(X, Y), **options)


def model_of_counts(
    counts: StateCounts,
    *,
    prior: ArrayLike | None = None,
    smoothing: float = 1.0,
    l1: float = 0.0,
    leak_floor: float = LEAK_FLOOR,
) -> NoisyOr:
    """`mle_model` of visits that were counted already.

    prior      (m,) if it is known from elsewhere; None: (N_i + 1/2) / (N + 1)
    smoothing  strength of `StateCounts.smoothed`; 0 is plain maximum likelihood, with the leak floor only
    """
    if prior is None:
        prior = (counts.visits @ counts.states + 0.5) / (counts.visits.sum() + 1)
    fit = fit_states(counts.smoothed(smoothing), l1=l1, leak_floor=leak_floor)
    return NoisyOr(np.asarray(prior, float), np.exp(-fit.theta[:-1]), -np.expm1(-fit.theta[-1]))


def edit_anchors(
    model: NoisyOr, anchor_columns: ArrayLike, sensitivity: ArrayLike, false_positive: ArrayLike
) -> NoisyOr:
    """Set each anchor's parameters from its noise rates, with its own condition as only parent, and freeze them.

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
    fail, leak, frozen = model.fail.copy(), model.leak.copy(), model.frozen.copy()
    fail[:, columns] = 1.0
    fail[np.arange(model.m), columns] = (1 - sensitivity) / np.maximum(1 - false_positive, 1e-300)
    leak[columns] = false_positive
    frozen[:, columns] = True
    return replace(model, fail=fail, leak=leak, frozen=frozen)


def _distinct(rows: Bools) -> tuple[Bools, Ints]:
    """Distinct rows, sorted, and which of them each row is: rows as bytes, so any number of conditions is fast."""
    packed = np.packbits(rows, axis=1)
    _, first, group = np.unique(packed.view(f"V{packed.shape[1]}").ravel(), return_index=True, return_inverse=True)
    return rows[first], group.ravel()


@njit(cache=True, parallel=True)
def _newton(
    indptr: Ints, indices: Ints, mass: Floats, present: Floats, frozen: Bools, leak_floor: float, tol: float,
    max_iter: int, theta: Floats, residual: Floats, iterations: Ints,
) -> None:  # fmt: skip
    """`newton_steps` for every finding; writes theta, residual and iterations in place.

    theta and frozen are (n, m+1), the leak last, present (n, G); leak_floor is the least theta of a leak.
    """
    for j in prange(theta.shape[0]):
        iterations[j], residual[j] = newton_steps(
            indptr, indices, mass, present[j], frozen[j], leak_floor, tol, max_iter, 1e-13, True, theta[j]
        )


@njit(cache=True)
def newton_steps(
    indptr: Ints, indices: Ints, mass: Floats, present: Floats, frozen: Bools, leak_floor: float, tol: float,
    max_iter: int, slack: float, judge: bool, x: Floats,
) -> tuple[int, float]:  # fmt: skip
    """At most `max_iter` projected, damped Newton steps down `loss` of one finding, from x (m+1,), in place.

    frozen (m+1,); leak_floor is the least x of the leak. A step may raise the loss by `slack` of it: the rounding of
    the loss, as near the maximum a Newton step is better than none. Where no step lowers the loss, x is done. Returns
    the steps taken and the residual, how far the gradient would still move an entry, which ends the steps at `tol`;
    without `judge` the residual may be that before the last step.
    """
    d = len(x)
    showing = np.flatnonzero(present > 0.0)  # the states that show it
    floor = np.zeros(d)
    floor[d - 1] = leak_floor
    fixed = np.ones(d, np.bool_)  # frozen, or on in no state that shows the finding
    for g in showing:
        for t in range(indptr[g], indptr[g + 1]):
            fixed[indices[t]] = False
    for i in range(d):
        if frozen[i]:
            fixed[i] = True
            floor[i] = min(floor[i], x[i])
        elif fixed[i]:
            x[i] = floor[i]  # never seen with the finding: the likelihood only falls with theta_i
        else:
            x[i] = max(x[i], floor[i])
    gradient, trial = np.empty(d), np.empty(d)
    hessian, moving = np.empty((d, d)), np.empty(d, np.int64)
    value = loss(indptr, indices, mass, present, showing, x)
    if not np.isfinite(value):  # a start that calls something seen impossible
        for i in range(d):
            if not fixed[i]:
                x[i] = max(x[i], 1e-3)
        value = loss(indptr, indices, mass, present, showing, x)
    if not np.isfinite(value):
        return 0, np.inf
    iteration, damping, worst = 0, 1e-6, np.inf
    while judge or iteration < max_iter:
        loss_derivatives(indptr, indices, mass, present, showing, x, gradient, hessian)
        worst = 0.0
        for i in range(d):
            if not fixed[i]:
                worst = max(worst, abs(x[i] - max(x[i] - gradient[i] / mass[i], floor[i])))
        if worst <= tol or iteration == max_iter:
            break
        iteration += 1
        count = 0
        for i in range(d):  # entries at their floor that want to go lower stay there
            trial[i] = x[i]
            if not fixed[i] and (gradient[i] < 0 or x[i] > floor[i]):
                moving[count] = i
                count += 1
        better = False
        while count > 0 and not better and damping < 1e12:
            step = damped_step(hessian, mass, gradient, moving, count, damping)
            promised = 0.0
            for a in range(count):
                i = moving[a]
                trial[i] = max(x[i] - step[a], floor[i])
                promised += gradient[i] * (x[i] - trial[i])
            new = loss(indptr, indices, mass, present, showing, trial)
            better = value - new >= 1e-4 * max(promised, 0.0) - slack * abs(value)
            damping *= 0.1 if better else 10.0
        if not better:
            break
        x[:] = trial
        value = new
        damping = max(damping, 1e-9)
    return iteration, worst


@njit(cache=True)
def loss(indptr: Ints, indices: Ints, mass: Floats, present: Floats, showing: Ints, theta: Floats) -> float:
    """mass . theta - sum_g C_g log(e^{z_g} - 1) of one finding, to be minimised; infinite if what was seen cannot be.

    State g has conditions indices[indptr[g]:indptr[g+1]] on, rising; the leak counts as one, the last.
    mass (m+1,)   visits with each condition, sum_g N_g y_gi, and any L1 penalty
    present (G,)  C_g; showing: the g where it is not 0
    """
    total = 0.0
    for i in range(len(theta)):
        total += mass[i] * theta[i]
    for g in showing:
        z = 0.0
        for t in range(indptr[g], indptr[g + 1]):
            z += theta[indices[t]]
        if z <= 0.0:
            return np.inf
        total -= present[g] * (z + np.log(-np.expm1(-z)))
    return total


@njit(cache=True)
def loss_derivatives(
    indptr: Ints, indices: Ints, mass: Floats, present: Floats, showing: Ints, theta: Floats,
    gradient: Floats, hessian: Floats,
) -> None:  # fmt: skip
    """Write the gradient of `loss` and the lower triangle of its Hessian. With p = 1 - e^{-z} they are

    mass_i - sum_g C_g y_gi / p_g   and   sum_g C_g y_gi y_gk (1 - p_g) / p_g^2.
    """
    gradient[:] = mass
    hessian[:] = 0.0
    for g in showing:
        z = 0.0
        for t in range(indptr[g], indptr[g + 1]):
            z += theta[indices[t]]
        p = -np.expm1(-z)
        slope = present[g] / p
        curvature = slope * (1.0 - p) / p
        for t in range(indptr[g], indptr[g + 1]):
            i = indices[t]
            gradient[i] -= slope
            for u in range(indptr[g], t + 1):
                hessian[i, indices[u]] += curvature  # lower triangle: indices rise within a state


@njit(cache=True)
def damped_step(hessian: Floats, mass: Floats, gradient: Floats, moving: Ints, count: int, damping: float) -> Floats:
    """(H + damping diag(diag H + mass))^{-1} g of the entries moving[:count], others held; a step subtracts it.

    By Cholesky, from the lower triangle of H. Cost O(count^3).
    """
    factor, step = np.empty((count, count)), np.empty(count)
    for a in range(count):
        for b in range(a + 1):
            value = hessian[moving[a], moving[b]]
            for c in range(b):
                value -= factor[a, c] * factor[b, c]
            if a == b:
                i = moving[a]
                factor[a, a] = np.sqrt(max(value, 0.0) + damping * (hessian[i, i] + mass[i]))
            else:
                factor[a, b] = value / factor[b, b]
    for a in range(count):
        value = gradient[moving[a]]
        for c in range(a):
            value -= factor[a, c] * step[c]
        step[a] = value / factor[a, a]
    for a in range(count - 1, -1, -1):
        value = step[a]
        for c in range(a + 1, count):
            value -= factor[c, a] * step[c]
        step[a] = value / factor[a, a]
    return step
