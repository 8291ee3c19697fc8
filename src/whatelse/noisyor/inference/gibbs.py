"""Gibbs sampling: marginals of the conditions for models too large for the posterior over sparse states.

Each step draws one condition given all others,

    log odds(y_i | rest, x) = u_i + sum_k J_ik y_k
                              + sum_{j present} w_j log( P(X_j=1 | y, y_i=1) / P(X_j=1 | y, y_i=0) )

with u_i the log odds from prior, evidence and absent findings. A step costs the present findings only: the kernel keeps
p_j = P(X_j = 1 | y) and switches condition i on by p <- p f + (1 - f). To switch one off it builds p up again from the
few that stay on instead of dividing, so nothing drifts and fail 0 or leak 0 need no special case.

What is averaged is the probability of each draw, not the draw (Rao-Blackwell): same mean, less noise.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numba import njit
from numpy.typing import ArrayLike, NDArray

from whatelse.errors import QueryError
from whatelse.noisyor.inference.posterior import lay_out
from whatelse.noisyor.inference.query import CONFIRMED, FREE, POSSIBLE, TINY_LEAK, reduce_visit
from whatelse.noisyor.inference.states import log_on, split_products, with_cause
from whatelse.noisyor.joint import Model
from whatelse.noisyor.likelihood import tables
from whatelse.types import Bools, Floats, Ints


@dataclass(frozen=True, eq=False)
class Gibbs:
    """Marginals, with what is needed to distrust them; arrays are (m,) for one visit, (V, m) for many.

    marginals       mean of the conditional probabilities over all chains
    ess             effective sample size (Geyer's initial monotone sequence over all chains)
    rhat            split R-hat: above 1.01, run longer; infinite if chains are stuck in different places
    standard_error  of the marginals, sqrt(variance / ess); zero where there was nothing to sample
    impossible      () or (V,): -1, or the index of a finding that cannot be as it is in any state allowed; then nothing
                    was sampled, the marginals are the priors, ess is 0 and rhat infinite
    chains, sweeps  what was kept, after burn-in
    """

    marginals: Floats
    ess: Floats
    rhat: Floats
    standard_error: Floats
    impossible: Ints
    chains: int
    sweeps: int


def gibbs(
    model: Model, present: Any, unobserved: Any = None, confirmed: Any = None, rejected: Any = None,
    evidence: ArrayLike | None = None, *, chains: int = 8, sweeps: int = 1000, burn_in: int = 200,
    rng: np.random.Generator | int = 0,
) -> Gibbs:  # fmt: skip
    """Sample the conditions of one visit or of many; arguments as in `posterior`.

    Chains start from states that can produce the visit, each with another share of conditions on, so that R-hat
    means something. The same seed gives the same numbers, and each visit has a stream of its own: its numbers do not
    depend on the visits beside it. Cost O(chains (sweeps + burn_in) M P) a visit: M conditions open, P findings.
    """
    if chains < 2 or sweeps < 8 or burn_in < 0:
        raise QueryError(
            "Gibbs needs at least 2 chains, 8 sweeps and no negative burn-in for its diagnostics; "
            f"got {chains}, {sweeps} and {burn_in}"
        )
    noisyor, query = lay_out(model, present, unobserved, confirmed, rejected, evidence)
    V, total = query.size, float(2 * chains * (sweeps // 2))
    marginals = (query.status == CONFIRMED).astype(np.float64)
    impossible = np.full(V, POSSIBLE, np.int64)
    ess, rhat, error = np.full((V, model.m), total), np.ones((V, model.m)), np.zeros((V, model.m))
    table = tables(noisyor)
    for v, stream in enumerate(np.random.default_rng(rng).spawn(V)):
        verdict, _, _, free, unary, leak, weight, fail = reduce_visit(
            v, query.present, query.unobserved, query.status, query.evidence, table
        )
        impossible[v] = verdict
        if verdict != POSSIBLE:
            open_ = query.status[v] == FREE
            marginals[v, open_], ess[v, open_], rhat[v, open_], error[v, open_] = noisyor.prior[open_], 0.0, np.inf, 1.0
            continue
        start = _start(fail, leak, chains, stream)
        pair = np.ascontiguousarray(noisyor.coupling[np.ix_(free, free)])
        seeds = stream.integers(0, 2**63, size=chains, dtype=np.uint64)
        draws = np.empty((free.size, chains, sweeps))
        _run(unary, fail, leak, weight, pair, bool(pair.any()), start, seeds, burn_in, draws)
        marginals[v, free] = draws.mean(axis=(1, 2))
        ess[v, free], rhat[v, free], variance = _diagnose(draws)
        error[v, free] = np.sqrt(variance / ess[v, free])
    marginals, error = marginals * query.share, error * query.share
    if query.single:
        return Gibbs(marginals[0], ess[0], rhat[0], error[0], impossible[0], chains, sweeps)
    return Gibbs(marginals, ess, rhat, error, impossible, chains, sweeps)


def held_out_anchor(marginals: Floats, sensitivity: Floats, false_positive: Floats) -> Floats:
    """P(A_i = 1 | X') for anchors that were held out, through their parents; any shape that broadcasts to (..., m).

    sum_y P(y_i | X') P(A_i = 1 | y_i) = q_i sensitivity_i + (1 - q_i) false_positive_i,  q = marginals given X'.
    The anchors must be unobserved in the query that gave the marginals.
    """
    return marginals * sensitivity + (1.0 - marginals) * false_positive


def _start(fail: Floats, leak: Floats, chains: int, rng: np.random.Generator) -> Bools:
    """Feasible, spread out starting states (chains, M): from none of the conditions on to half of them."""
    share = np.linspace(0.0, 0.5, chains)[:, None]
    state: Bools = rng.random((chains, len(fail))) < share
    for chain in state:
        for j in np.flatnonzero(leak <= TINY_LEAK):
            causes = fail[:, j] < 1
            if not causes[chain].any():  # nothing explains this finding yet: let a condition that can
                chain[rng.choice(np.flatnonzero(causes))] = True
    return state


@njit(cache=True, nogil=True)
def _fit(row: Floats, p: Floats, weight: Floats, ends: Ints, runs: int) -> float:
    """sum_j w_j log P(X_j = 1) once the condition of `row` joins; -inf if a finding is left without a cause."""
    total, alive = log_on(row, p, weight, ends, runs)
    return total if alive else -np.inf


@njit(cache=True, nogil=True)
def _run(
    unary: Floats, fail: Floats, leak: Floats, weight: Floats, pair: Floats, coupled: bool, start: Bools,
    seeds: NDArray[np.uint64], burn_in: int, draws: Floats,
) -> None:  # fmt: skip
    """Fill draws (M, chains, sweeps) with P(y_i = 1 | rest) at every step; arrays as `reduce_visit` gives them."""
    M, chains, sweeps = draws.shape
    P = leak.size
    nothing, p, without, ends = np.ones(P), np.empty(P), np.empty(P), np.empty(P + 1, np.int64)
    runs = split_products(leak, weight, ends)  # p only grows from here: safe in every state
    for c in range(chains):
        seed = seeds[c]
        y = start[c].copy()
        p[:] = leak
        for k in range(M):
            if y[k]:
                _join(p, fail[k])
        fit = _fit(nothing, p, weight, ends, runs)
        for sweep in range(-burn_in, sweeps):
            for i in range(M):
                if y[i]:
                    without[:] = leak
                    for k in range(M):
                        if y[k] and k != i:
                            _join(without, fail[k])
                    fit_on, fit_off = fit, _fit(nothing, without, weight, ends, runs)
                else:
                    fit_on, fit_off = _fit(fail[i], p, weight, ends, runs), fit
                odds = unary[i] + fit_on - fit_off
                if coupled:
                    for k in range(M):
                        odds += pair[i, k] * y[k]
                chance = 1.0 / (1.0 + np.exp(-odds)) if odds > -700.0 else 0.0
                # splitmix64: one 64-bit state per chain, so chains do not depend on one another
                seed = seed + np.uint64(0x9E3779B97F4A7C15)
                z = seed
                z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
                z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
                z = z ^ (z >> np.uint64(31))
                on = np.float64(z >> np.uint64(11)) * (1.0 / 9007199254740992.0) < chance
                if on and not y[i]:
                    _join(p, fail[i])
                elif y[i] and not on:
                    p[:] = without
                y[i], fit = on, fit_on if on else fit_off
                if sweep >= 0:
                    draws[i, c, sweep] = chance


@njit(cache=True, nogil=True)
def _join(p: Floats, row: Floats) -> None:
    """P(X_j = 1) with one more condition on."""
    for j in range(p.size):
        p[j] = with_cause(p[j], row[j])


@njit(cache=True, nogil=True)
def _diagnose(draws: Floats) -> tuple[Floats, Floats, Floats]:
    """ess, split R-hat and variance per condition from draws (m, chains, sweeps).

    Each chain is split in two; W is the mean variance within halves, B/T the variance between their means:
    variance = W (T-1)/T + B/T, rhat = sqrt(variance / W). Autocorrelation rho_t = 1 - (W - mean autocovariance_t) /
    variance, summed in pairs while they are positive and not rising (Geyer).
    """
    m, chains, sweeps = draws.shape
    length = sweeps // 2
    halves = 2 * chains
    ess, rhat, variance = np.empty(m), np.empty(m), np.empty(m)
    series = np.empty((halves, length))
    for i in range(m):
        means = np.empty(halves)
        within = 0.0
        for h in range(halves):
            first = 0 if h % 2 == 0 else sweeps - length
            series[h] = draws[i, h // 2, first : first + length]
            means[h] = series[h].mean()
            series[h] -= means[h]
            within += (series[h] ** 2).sum() / (length - 1) / halves
        between = ((means - means.mean()) ** 2).sum() / (halves - 1)
        variance[i] = within * (length - 1) / length + between
        total = float(halves * length)
        if variance[i] <= 1e-30:  # fixed, or known to rounding
            ess[i], rhat[i], variance[i] = total, 1.0, 0.0
            continue
        if within <= 1e-30:
            ess[i], rhat[i] = float(chains), np.inf
            continue
        rhat[i] = np.sqrt(variance[i] / within)
        tau, previous, lag = -1.0, np.inf, 0
        while lag + 1 < length:
            pair = 0.0
            for t in range(lag, lag + 2):
                covariance = 0.0
                for h in range(halves):
                    covariance += (series[h, : length - t] * series[h, t:]).sum() / length / halves
                pair += 1.0 - (within * (length - 1) / length - covariance) / variance[i]
            if pair <= 0:
                break
            previous = min(previous, pair)
            tau += 2.0 * previous
            lag += 2
        ess[i] = min(total / max(tau, 1.0 / np.log10(total)), total * np.log10(total))
    return ess, rhat, variance
