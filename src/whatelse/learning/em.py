"""Shared-state EM: maximum likelihood of fail and leak when the conditions are hidden.

E-step: the posterior of every visit over the states (sets of conditions that are on) that matter to it, and no more
than `max_on` on. Patients share their states, so what the M-step needs is one small table, whatever the number of
visits: the expected number of visits in state s, N_s, and of those that show finding j, C_sj (`EStatistics`).

M-step: with theta_ij = -log f_ij, theta_0j = -log(1 - l_j), z_sj = theta_0j + sum_{i in s} theta_ij, raise

    Q(theta) = sum_s sum_j C_sj log(e^{z_sj} - 1)  -  N_s z_sj

by a few of the Newton steps of `mle.py`. The table has the states with at most two on. A state with more on is not
worth a row; its visits enter through the causes behind each finding, hidden too: given that j is present in state s,
condition i brought it with probability (1 - f_ij) / p_j(s), and the leak with l_j / p_j(s). With R_ij their expected
number, Jensen's inequality puts sum_i R_ij log(e^{theta_ij} - 1) below those states' part of Q, with equality at the
current theta: the same form, as if a state had condition i alone, and no leak. So every step still raises

    bound = sum_v log sum_{s weighed} P(x_v, s)  -  sum_ij lambda_ij theta_ij.

lambda keeps out edges that the data do not carry (`edge_prices`). Statistics are sums over visits: those of parts
merge into those of the whole.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import ArrayLike

from whatelse.errors import ModelError
from whatelse.learning.em_kernels import climb, expect
from whatelse.noisyor.blocks import Arrays, Blocks, finding_counts
from whatelse.noisyor.likelihood import as_evidence
from whatelse.noisyor.mle import LEAK_FLOOR
from whatelse.noisyor.params import NoisyOr
from whatelse.types import Bools, Floats

NEGLIGIBLE = 1e-3  # of a visit's posterior mass: states that hold less are left out
TINY = 1e-30  # stands for a fail, a leak or a complement that is 0: nothing is certain, so no logarithm is infinite
FASTER, FASTEST = 1.3, 8.0  # how a step grows while the bound rises, and to how many M-steps at most
MOST_PARTS = 8  # of the visits in an E-step, each with its own statistics
BYTES_FOR_PARTS = 2**30  # for the statistics of all parts together: large tables mean fewer parts


@dataclass(frozen=True, eq=False)
class EStatistics:
    """What the M-step needs of the visits, given the current model. Those of parts merge into those of the whole.

    visits          how many
    log_likelihood  sum_v log sum_{s weighed} P(x_v, s)
    outside         sum over visits of a bound on the posterior mass of all states not weighed, deeper ones included
    weighed         states weighed, in all visits together
    mass    (S,)    N_s, of the states with at most two on: none, {i}, {i < k} in the order of itertools.combinations
    present (S, n)  C_sj
    spread  (m+1, n) R_ij, expected causes of present findings in states with more on; row m the leaks'
    on      (m,)    expected visits with each condition
    """

    visits: int
    log_likelihood: float
    outside: float
    weighed: int
    mass: Floats
    present: Floats
    spread: Floats
    on: Floats

    @classmethod
    def of(
        cls,
        model: NoisyOr,
        X: sp.csr_matrix,
        *,
        max_on: int = 4,
        negligible: float = NEGLIGIBLE,
        evidence: ArrayLike | None = None,
    ) -> EStatistics:
        """The E-step over X (N, n), sparse 0/1, on all cores.

        evidence (m,) or (N, m) is added to the log odds of the conditions. States that hold less than `negligible` of
        a visit's posterior are left out. Cost: O(P) per state weighed, P the findings present; memory S n.
        """
        start, index = _rows(X, model)
        visits = start.size - 1
        offset = np.zeros((0, model.m)) if evidence is None else as_evidence(evidence, visits, model.m)
        run = _expectation(model, max_on, negligible)
        # The number of parts does not depend on the cores, so that sums come out the same everywhere, to the last bit.
        S = 1 + model.m * (model.m + 1) // 2
        parts = int(np.clip(BYTES_FOR_PARTS // (8 * S * model.n), 1, MOST_PARTS))
        cuts = np.linspace(0, visits, parts + 1).astype(int).tolist()
        with ThreadPoolExecutor(min(parts, os.cpu_count() or 1)) as pool:
            total, *others = pool.map(lambda first, end: run(first, end, start, index, offset), cuts[:-1], cuts[1:])
        for other in others:
            total = total.merge(other)
        return total

    @classmethod
    def of_blocks(
        cls, model: NoisyOr, blocks: Blocks, *, max_on: int = 4, negligible: float = NEGLIGIBLE
    ) -> EStatistics:
        """The E-step over visits in blocks, wherever they are."""
        run, m = _expectation(model, max_on, negligible), model.m

        def of(block: Arrays) -> Arrays:
            start, index = block["indptr"].astype(np.int64), block["indices"].astype(np.int32, copy=False)
            return vars(run(0, start.size - 1, start, index, np.zeros((0, m))))

        found = blocks.total(of)
        whole = {name: np.asarray(found[name]).item() for name in ("visits", "log_likelihood", "outside", "weighed")}
        return cls(**found | whole)

    def merge(self, other: EStatistics) -> EStatistics:
        """The statistics of both sets of visits together, under the same model."""
        if self.present.shape != other.present.shape:
            raise ModelError(f"statistics of shapes {self.present.shape} and {other.present.shape} cannot be merged")
        return EStatistics(*(getattr(self, f.name) + getattr(other, f.name) for f in fields(self)))


def _expectation(model: NoisyOr, max_on: int, negligible: float) -> Callable[..., EStatistics]:
    """The E-step over visits first … end - 1 of (start, index), with evidence to add (N, m) or (0, m)."""
    if max_on < 1 or not 0 <= negligible < 1:
        raise ModelError(f"max_on is {max_on} and negligible {negligible}: need at least 1, and from 0 to below 1")
    fail, quiet = np.maximum(model.fail.T, TINY), np.maximum(1 - model.leak, TINY)
    leak, log_fail, log_quiet = np.maximum(model.leak, TINY), np.log(fail), np.log(quiet)
    log_odds = np.log(model.prior) - np.log1p(-model.prior)
    base = float(np.log1p(-model.prior).sum() + log_quiet.sum())
    S, m, n = 1 + model.m * (model.m + 1) // 2, model.m, model.n

    def run(first: int, end: int, start: Any, index: Any, offset: Floats) -> EStatistics:
        mass, present, spread = np.zeros(S), np.zeros((S, n)), np.zeros((m + 1, n))
        on, totals = np.zeros(m), np.zeros(3)
        expect(
            first, end, start, index, offset, log_odds + log_fail.sum(0), base, np.ascontiguousarray(fail),
            np.ascontiguousarray(log_fail), leak, log_quiet, min(max_on, m), negligible,
            mass, present, spread, on, totals,
        )  # fmt: skip
        return EStatistics(end - first, float(totals[0]), float(totals[1]), int(totals[2]), mass, present, spread, on)

    return run


@dataclass(frozen=True)
class EmStep:
    """The model after `step` M-steps: its bound (see above), and what that bound leaves out.

    outside  the posterior mass of states not weighed is at most this, on average over visits
    weighed  states weighed a visit
    seconds  of the E-step that found this and of the M-step before it
    """

    step: int
    bound: float
    log_likelihood: float
    outside: float
    weighed: float
    seconds: float


@dataclass(frozen=True, eq=False)
class EmResult:
    """history[t] belongs to the model after t steps, the last one to `model`; history[0] is the start's."""

    model: NoisyOr
    history: list[EmStep]
    converged: bool


def fit_em(
    X: sp.csr_matrix | Blocks,
    start: NoisyOr,
    *,
    max_on: int = 4,
    steps: int = 20,
    tolerance: float = 1e-5,
    sparsity: float = 0.0,
    evidence: ArrayLike | None = None,
    newton: int = 2,
    negligible: float = NEGLIGIBLE,
    on_step: Callable[[EmStep, NoisyOr], bool | None] | None = None,
) -> EmResult:
    """Learn from X (N, n), sparse 0/1, beginning at `start`; its priors and frozen entries stay as they are.

    max_on     states with more conditions on have no part in the posterior (what that loses is in the history)
    steps      M-steps at most; 0 gives the start and its bound
    tolerance  converged when a step adds less than this to the bound, in nats a visit
    sparsity   an L1 penalty on theta_ij = -log f_ij, in standard errors: see `edge_prices`
    evidence   (m,) or (N, m), log odds to add to the prior's; then the bound is not normalised, but rises all the same
    newton     Newton steps of an M-step, at most
    on_step    called with every EmStep and its model; learning ends where it returns True

    EM creeps where much is hidden, so each step goes on beyond what the M-step found, FASTER and faster while the bound
    rises; where it would fall, the step ends where the M-step did (adaptive over-relaxation). So the bound never falls,
    save for rounding and what `negligible` cuts off (at most about N times that).
    Cost of a step: see `EStatistics.of`; the M-step does not depend on the number of visits.
    """
    if start.coupling.any() or (start.weight != 1).any():
        raise ModelError("EM learns the plain noisy-or: start from a model without coupling and weights")
    if isinstance(X, Blocks) and evidence is not None:
        raise ModelError("evidence of visits in blocks has no place here: put it into the start")
    if steps < 0 or newton < 1 or sparsity < 0:
        raise ModelError(f"steps {steps}, newton {newton}, sparsity {sparsity}: need at least 0, 1 and 0")
    price = edge_prices(X, start, sparsity)
    floor = np.append(np.zeros(start.m), -np.log1p(-LEAK_FLOOR))[:, None]

    def model_of(theta: Floats) -> NoisyOr:
        return replace(
            start,
            fail=np.where(start.frozen[:-1], start.fail, np.exp(-theta[:-1])),
            leak=np.where(start.frozen[-1], start.leak, -np.expm1(-theta[-1])),
        )

    model, theta, history, converged = start, _theta(start), list[EmStep](), False
    found_theta, stretch = theta, 1 / FASTER  # where the M-step ended, and how many times as far was gone
    began = time.perf_counter()
    while True:
        if isinstance(X, Blocks):
            found = EStatistics.of_blocks(model, X, max_on=max_on, negligible=negligible)
        else:
            found = EStatistics.of(model, X, max_on=max_on, negligible=negligible, evidence=evidence)
        bound = float(found.log_likelihood - (price * theta[:-1]).sum())
        visits = max(found.visits, 1)
        if history and stretch > 1 and bound < history[-1].bound:  # too far: back to where the bound cannot fall
            theta, stretch = found_theta, 1.0
            model = model_of(theta)
            continue
        step = EmStep(
            len(history),
            bound,
            found.log_likelihood,
            found.outside / visits,
            found.weighed / visits,
            time.perf_counter() - began,
        )
        converged = bool(history) and bound - history[-1].bound < tolerance * visits
        history.append(step)
        stop = on_step is not None and on_step(step, model) is True
        if converged or stop or step.step == steps:
            return EmResult(model, history, converged)
        began = time.perf_counter()
        found_theta = maximise(found, theta, model.frozen, price, newton=newton)
        stretch = min(stretch * FASTER, FASTEST)
        theta = np.maximum(theta + stretch * (found_theta - theta), floor)
        model = model_of(theta)


def edge_prices(X: sp.csr_matrix | Blocks, model: NoisyOr, sparsity: float) -> Floats:
    """lambda_ij = sparsity sqrt(N pi_i (1 - r_j) / r_j), (m, n), r_j the share of visits with finding j.

    It is 0 where frozen. If finding j had nothing to do with condition i, the likelihood's slope by theta_ij at 0 would
    be a sum of x_j / r_j - 1 over the N pi_i visits that have i: mean 0 and that standard deviation. So an edge has to
    be `sparsity` standard errors away from nothing to be there at all, whatever the number of visits.
    """
    visits = X.shape[0]
    rate = (finding_counts(X, model.n) + 0.5) / (visits + 1)
    return np.where(model.frozen[:-1], 0.0, sparsity * np.sqrt(visits * np.outer(model.prior, (1 - rate) / rate)))


def maximise(found: EStatistics, theta: Floats, frozen: Bools, price: Floats, *, newton: int) -> Floats:
    """The M-step: theta (m+1, n) after at most `newton` Newton steps up Q - price . theta, finding by finding.

    Cost: O(nnz(C)) a step, and a Cholesky factor of size m for each finding.
    """
    m = len(found.on)
    low, high = np.triu_indices(m, 1)
    pair = np.arange(len(low))
    seen = np.flatnonzero(found.mass)
    states = sp.vstack(
        [
            sp.csr_matrix((1, m)),
            sp.eye(m),
            sp.csr_matrix((np.ones(2 * len(low)), (np.tile(pair, 2), np.append(low, high))), (len(low), m)),
        ],
        format="csr",
    )[seen]
    # The leak is a condition that is on in every state, but not behind the causes of `spread`: those stand alone.
    rows = sp.vstack([sp.hstack([states, np.ones((len(seen), 1))]), sp.eye(m + 1)], format="csr")
    rows.sort_indices()
    present = np.vstack([found.present[seen], found.spread])
    mass = np.append(found.on, found.visits)  # sum_s N_s z_s = mass . theta, over all states, however many are on
    new = np.ascontiguousarray(theta.T)
    climb(
        rows.indptr.astype(np.int64), rows.indices.astype(np.int64), mass,
        np.vstack([price, np.zeros(len(new))]).T.copy(), np.ascontiguousarray(present.T),
        np.ascontiguousarray(frozen.T), -np.log1p(-LEAK_FLOOR), newton, new,
    )  # fmt: skip
    return np.ascontiguousarray(new.T)


def _theta(model: NoisyOr) -> Floats:
    """-log fail and, last, -log(1 - leak), (m+1, n)."""
    quiet = np.log1p(-np.minimum(model.leak, 1 - 1e-16))
    return -np.vstack([np.log(np.maximum(model.fail, TINY)), quiet])


def _rows(X: sp.csr_matrix, model: NoisyOr) -> tuple[Any, Any]:
    """X as (start (N + 1,), index): visit v has findings index[start[v]:start[v + 1]]. Raises if X does not fit."""
    if X.format != "csr" or not X.has_canonical_format or X.nnz != np.count_nonzero(X.data == 1):
        raise ModelError("X must be a CSR matrix of ones in canonical form (no stored zeros, no duplicates)")
    if X.shape[1] != model.n:
        raise ModelError(f"X has {X.shape[1]} findings but the model has {model.n}")
    return X.indptr.astype(np.int64), X.indices.astype(np.int32, copy=False)
