"""Gibbs sampling: marginals of the conditions for models too large for the posterior over sparse states.

Each step draws one condition given all others,

    log odds(y_i | rest, x) = u_i + sum_k J_ik y_k
                              + sum_{j present} w_j log( P(X_j=1 | y, y_i=1) / P(X_j=1 | y, y_i=0) )

at a cost in the present findings only: the kernel keeps P_j = P(X_j = 1 | y) and switches condition i on by
P_j + (1 - P_j)(1 - f_ij). To switch one off it multiplies up the few that stay on instead of dividing, so nothing
drifts and fail 0 or leak 0 need no special case.

What is averaged is the probability of each draw, not the draw (Rao-Blackwell): same mean, less noise.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numba import njit
from numpy.typing import ArrayLike

from whatelse.errors import QueryError
from whatelse.noisyor.params import Bools, Floats, NoisyOr
from whatelse.noisyor.terms import ON, OPEN, Indices, Terms, terms


@dataclass(frozen=True)
class Gibbs:
    """Marginals of one visit, with what is needed to distrust them; all arrays (m,).

    marginals       mean of the conditional probabilities over all chains
    ess             effective sample size (Geyer's initial monotone sequence over all chains)
    rhat            split R-hat: above 1.01, run longer; infinite if chains are stuck in different places
    standard_error  of the marginals, sqrt(variance / ess)
    chains, sweeps  what was kept, after burn-in
    """

    marginals: Floats
    ess: Floats
    rhat: Floats
    standard_error: Floats
    chains: int
    sweeps: int


def gibbs(
    model: NoisyOr,
    present: Indices,
    unobserved: Indices = None,
    confirmed: Indices = None,
    rejected: Indices = None,
    evidence: ArrayLike | None = None,
    *,
    chains: int = 8,
    sweeps: int = 1000,
    burn_in: int = 200,
    rng: np.random.Generator | int = 0,
) -> Gibbs:
    """Sample one visit: O(chains (sweeps + burn_in) m p) for p present findings.

    Chains start from states that can produce the visit, each with another share of conditions on, so that R-hat
    means something. The same `rng` seed gives the same numbers. The kernel releases the interpreter lock.
    """
    if chains < 2 or sweeps < 8 or burn_in < 0:
        raise QueryError(
            f"Gibbs needs at least 2 chains, 8 sweeps and no negative burn-in for its diagnostics; "
            f"got {chains}, {sweeps}, {burn_in}"
        )
    rng = np.random.default_rng(rng)
    reduced = terms(model, present, unobserved, confirmed, rejected, evidence)
    start = _start(reduced, chains, rng)
    seeds = rng.integers(0, 2**63, size=chains, dtype=np.uint64)
    draws = np.empty((reduced.unary.size, chains, sweeps))
    _run(
        reduced.unary, reduced.known, reduced.cause, reduced.leak, reduced.weight,
        model.coupling, bool(model.coupling.any()), start, seeds, burn_in, draws,
    )  # fmt: skip
    marginals = draws.mean(axis=(1, 2))
    ess, rhat, variance = _diagnose(draws)
    return Gibbs(marginals, ess, rhat, np.sqrt(variance / ess), chains, sweeps)


def gibbs_many(
    model: NoisyOr,
    present: Sequence[Indices],
    unobserved: Sequence[Indices] | None = None,
    confirmed: Sequence[Indices] | None = None,
    rejected: Sequence[Indices] | None = None,
    evidence: ArrayLike | None = None,
    *,
    chains: int = 8,
    sweeps: int = 1000,
    burn_in: int = 200,
    rng: np.random.Generator | int = 0,
) -> list[Gibbs]:
    """`gibbs` for N visits, each with a stream of its own: visit k does not depend on the visits beside it.

    `present` and the others are N lists of indices; `evidence` is (N, m).
    """
    visits = len(present)
    given = {"unobserved": unobserved, "confirmed": confirmed, "rejected": rejected, "evidence": evidence}
    columns = {}
    for name, value in given.items():
        rows = [None] * visits if value is None else list(value)  # type: ignore[arg-type]
        if len(rows) != visits:
            raise QueryError(f"{name} has {len(rows)} visits but present has {visits}")
        columns[name] = rows
    streams = np.random.default_rng(rng).spawn(visits)
    return [
        gibbs(
            model,
            here,
            **{name: rows[k] for name, rows in columns.items()},
            chains=chains,
            sweeps=sweeps,
            burn_in=burn_in,
            rng=streams[k],
        )
        for k, here in enumerate(present)
    ]


def held_out_anchor(marginals: Floats, sensitivity: Floats, false_positive: Floats) -> Floats:
    """P(A_i = 1 | X') for anchors that were held out, through their parents; any shape that broadcasts to (..., m).

    sum_y P(y_i | X') P(A_i = 1 | y_i) = q_i sensitivity_i + (1 - q_i) false_positive_i,  q = marginals given X'.
    The anchors must be unobserved in the query that gave the marginals.
    """
    return marginals * sensitivity + (1.0 - marginals) * false_positive


def _start(reduced: Terms, chains: int, rng: np.random.Generator) -> Bools:
    """Feasible, spread out starting states (chains, m): chain c has a share c/chains of half the open ones on."""
    may = (reduced.known == OPEN) & ~np.isneginf(reduced.unary)
    share = np.linspace(0.0, 0.5, chains)[:, None]
    state: Bools = ((rng.random((chains, may.size)) < share) & may) | (reduced.known == ON)
    for chain in state:
        for j in np.flatnonzero(reduced.leak == 0):
            causes = reduced.cause[:, j] > 0
            if not causes[chain].any():  # nothing explains this finding yet: let a condition that may
                chain[rng.choice(np.flatnonzero(causes & may))] = True
    return state


@njit(cache=True)
def _log_present(p: Floats, weight: Floats) -> float:
    """sum_j w_j log p_j; findings of weight one share one logarithm per ~300 decimal digits of their product."""
    total, product = 0.0, 1.0
    for j in range(p.size):
        if weight[j] == 1.0:
            product *= p[j]
            if product < 1e-280:
                total += np.log(product)
                product = 1.0
        else:
            total += weight[j] * np.log(p[j])
    return total + float(np.log(product))


@njit(cache=True, nogil=True)
def _run(unary, known, cause, leak, weight, coupling, coupled, start, seeds, burn_in, draws):  # type: ignore[no-untyped-def]
    """Fill draws (m, chains, sweeps) with P(y_i = 1 | rest) at every step."""
    m, chains, sweeps = draws.shape
    size = leak.size
    for c in range(chains):
        seed = seeds[c]
        y = start[c].copy()
        p, other, with_i = np.empty(size), np.empty(size), np.empty(size)
        p[:] = leak
        for k in range(m):
            if y[k]:
                for j in range(size):
                    p[j] += (1.0 - p[j]) * cause[k, j]
        fit = _log_present(p, weight)
        for sweep in range(-burn_in, sweeps):
            for i in range(m):
                if known[i] != -1:
                    chance = float(known[i])
                else:
                    odds = unary[i]
                    if coupled:
                        for k in range(m):
                            if y[k]:
                                odds += coupling[i, k]
                    if y[i]:
                        other[:] = leak
                        for k in range(m):
                            if y[k] and k != i:
                                for j in range(size):
                                    other[j] += (1.0 - other[j]) * cause[k, j]
                        fit_off, fit_on = _log_present(other, weight), fit
                    else:
                        for j in range(size):
                            with_i[j] = p[j] + (1.0 - p[j]) * cause[i, j]
                        fit_off, fit_on = fit, _log_present(with_i, weight)
                    # a feasible state has fit_on above minus infinity, so this is never inf - inf
                    odds += fit_on - fit_off
                    chance = 1.0 / (1.0 + np.exp(-odds)) if odds > -700.0 else 0.0
                    # splitmix64: one 64-bit state per chain, so chains do not depend on one another
                    seed = seed + np.uint64(0x9E3779B97F4A7C15)
                    z = seed
                    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
                    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
                    z = z ^ (z >> np.uint64(31))
                    on = (z >> np.uint64(11)) * (1.0 / 9007199254740992.0) < chance
                    if on and not y[i]:
                        p[:] = with_i
                        fit = fit_on
                    elif y[i] and not on:
                        p[:] = other
                        fit = fit_off
                    y[i] = on
                if sweep >= 0:
                    draws[i, c, sweep] = chance


@njit(cache=True)
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
