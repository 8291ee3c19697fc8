"""Why: how much each finding moved the log odds of one condition, adding up to the model's own posterior log odds.

Write y for the other conditions, A(y) and B(y) for the weight of y with condition i off and on. Then

    B(y) / A(y) = exp( u_i + sum_k J_ik y_k + sum_{j present} rho_j(y) ),
    u_i         = logit pi_i + evidence_i + sum_{j absent} w_j log f_ij,
    rho_j(y)    = w_j log( P(X_j=1 | y, i on) / P(X_j=1 | y, i off) )  >= 0.

Prior, evidence and absent findings are constants: their lines are exact. What a present finding brings depends on y, on
what else could explain it, so it is averaged along the path from what the others are likely to be if i is off, to what
they are likely to be if i is on, E_t over weights A(y)^(1-t) B(y)^t:

    contribution_j = integral over t from 0 to 1 of E_t[rho_j],     coupling_k = J_ik times that of E_t[y_k].

The derivative of log sum_y A^(1-t) B^t is the sum of what is averaged, so the lines add up to log( sum B / sum A ), the
log odds, whatever the other conditions are: no interaction is left over. If they are known, E_t is one state and each
line is the plain log likelihood ratio. Present findings never count against a condition and absent ones never for it.

`remainder` is what the lines do not reproduce: of the integral (kept below 1e-9), and of states that were left out.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numba import njit
from numpy.typing import ArrayLike
from scipy.special import logsumexp

from whatelse.errors import QueryError
from whatelse.noisyor.inference.posterior import lay_out
from whatelse.noisyor.inference.query import CONFIRMED, FREE, POSSIBLE, REJECTED, Query, reduce_visit
from whatelse.noisyor.inference.solver import solve
from whatelse.noisyor.inference.states import with_cause
from whatelse.noisyor.joint import JointModel, Model
from whatelse.noisyor.likelihood import tables
from whatelse.noisyor.params import NoisyOr
from whatelse.types import Bools, Floats, Ints

STATES = 500  # joint states looked at on each side, at most
BUDGET = 20_000
TOLERANCE = 1e-5
NEVER = -1000.0  # stands for the log of an impossible state on the path: its weight is zero, its log is not infinite
SHORTEST = 2.0**-40  # interval of the integral
_NODES, _WEIGHTS = np.polynomial.legendre.leggauss(8)


@dataclass(frozen=True, eq=False)
class Why:
    """The log odds of one condition of one visit, line by line.

    log_odds   of the posterior; prior + evidence + findings.sum() + coupling.sum() + remainder
    prior      logit of the prior; evidence: as given (of a joint model's own evidence what belongs to no finding:
               how sure what the visit looks like proves to be)
    findings   (n,) contributions. Of the noisy-or: >= 0 for present, <= 0 for absent, 0 for unobserved findings
    coupling   (m,) what the other conditions bring through the correlated prior
    remainder  what the lines do not reproduce; infinite if nothing but this condition can explain a present finding,
               whose line is then some 1,000
    confirmed  (m,) how much confirming each of the confirmed conditions changed log_odds, all else equal; 0 for the
               others. Not part of the sum: explaining away acts through the findings' lines.
    certified  whether log_odds is known to be within 2 TOLERANCE of the exact value; if not, it is what the states say
               that were found within BUDGET
    """

    log_odds: float
    prior: float
    evidence: float
    findings: Floats
    coupling: Floats
    remainder: float
    confirmed: Floats
    certified: bool


def why(
    model: Model, condition: int, present: Any, unobserved: Any = None, confirmed: Any = None, rejected: Any = None,
    evidence: ArrayLike | None = None,
) -> Why:  # fmt: skip
    """Explain one open condition of one visit; arguments as in `posterior`. Cost: a posterior, and O(STATES P)."""
    noisyor, query = lay_out(model, present, unobserved, confirmed, rejected, evidence)
    if not query.single:
        raise QueryError("why is asked for one visit at a time; give one visit's indices")
    if not 0 <= condition < noisyor.m:
        raise QueryError(f"condition {condition} is not in this model, which has 0 to {noisyor.m - 1}")
    share = float(query.share[0, condition])
    if query.status[0, condition] != FREE or share == 0.0:
        raise QueryError(f"condition {condition} is confirmed or rejected: its odds are not the noisyor's to explain")
    here = query.present[1]
    here = here[noisyor.weight[here] > 0]
    absent = noisyor.absence > 0
    absent[query.present[1]] = absent[query.unobserved[1]] = False
    findings = np.zeros(noisyor.n)
    with np.errstate(divide="ignore"):
        findings[absent] = noisyor.absence[absent] * np.log(noisyor.fail[condition, absent])
    prior = float(np.log(noisyor.prior[condition]) - np.log1p(-noisyor.prior[condition]))
    added = float(query.evidence[0, condition])

    log_odds, certified, others = _log_odds(noisyor, query, condition, STATES)
    log_off, rho = _weigh(noisyor, query, condition, here, others)
    pull = others * noisyor.coupling[condition]
    gain = rho.sum(axis=1) + pull.sum(axis=1)
    if not certified:  # the two searches may have missed each other's states: take both sums over all of them
        log_odds = prior + added + float(findings.sum() + logsumexp(log_off + gain) - logsumexp(log_off))
    along = _path(log_off, gain)
    findings[here], coupling = along @ rho, along @ pull
    own, changed = _of_condition(log_odds, share), np.zeros(noisyor.m)
    for k in np.flatnonzero(query.status[0] == CONFIRMED).tolist():
        before, _, _ = _log_odds(noisyor, _with_status(query, k, FREE), condition, 0)
        changed[k] = _difference(own, _of_condition(before, share))
    added += own - log_odds if np.isfinite(log_odds) else 0.0
    remainder = _difference(own, prior + added + float(findings.sum() + coupling.sum()))
    if isinstance(model, JointModel) and evidence is None:  # the evidence's own lines, finding by finding
        said = model.evidence.lines(query.present[1], query.unobserved[1])[condition]
        bias = float(model.evidence.bias[condition])
        findings, prior, added = findings + said, prior + bias, added - bias - float(said.sum())
    return Why(own, prior, added, findings, coupling, remainder, changed, certified)


def _of_condition(log_odds: float, share: float) -> float:
    """Log odds of a condition from those of its look: of p = share P(look), log p - log(1 - p)."""
    if share == 1.0:
        return log_odds
    return float(np.log(share) - np.logaddexp(np.log1p(-share), -log_odds))


def _log_odds(model: NoisyOr, query: Query, i: int, top: int) -> tuple[float, bool, Bools]:
    """log P(x, y_i = 1) - log P(x, y_i = 0), whether both are certified, and the likely states of the others (R, m).

    Two sums, not one marginal: it keeps its digits however near to certain the condition is.
    """
    on, off = (solve(model, _with_status(query, i, known), TOLERANCE, BUDGET, top) for known in (CONFIRMED, REJECTED))
    impossible = [end.impossible for end in (off, on) if np.isneginf(end.log_evidence)]
    if len(impossible) == 2:
        raise QueryError(
            f"finding {impossible[0]} cannot be as it is in any state that is still possible: there are no odds to "
            "explain; list it as unobserved, or give the model a leak"
        )
    if POSSIBLE in impossible:
        raise QueryError(f"no state that produces this visit was found among {BUDGET:,}: there are no odds to explain")
    states = np.concatenate([end.explanations[end.probabilities > 0] for end in (off, on)])
    states[:, i] = False
    first = np.unique(np.packbits(states, axis=1), axis=0, return_index=True)[1]
    certified = all(end.certified or np.isneginf(end.log_evidence) for end in (off, on))
    return float(on.log_evidence - off.log_evidence), certified, states[first]


def _with_status(query: Query, i: int, known: int) -> Query:
    status = query.status.copy()
    status[0, i] = known
    return replace(query, status=status)


def _weigh(model: NoisyOr, query: Query, i: int, here: Ints, others: Bools) -> tuple[Floats, Floats]:
    """log A (R,) up to a constant, and rho (R, P), for R states of the other conditions."""
    asked = query.present, query.unobserved, query.status, query.evidence
    _, _, _, free, unary, _, _, _ = reduce_visit(0, *asked, tables(model))
    among, weight, fail = others[:, free].astype(np.float64), model.weight[here], model.fail[i, here]
    pairs = 0.5 * ((among @ model.coupling[np.ix_(free, free)]) * among).sum(axis=1)
    off = _chances(others, np.ascontiguousarray(model.fail[:, here]), model.leak[here])
    with np.errstate(divide="ignore"):
        log_p_off = np.where(off > 0, weight * np.log(off), NEVER)
        log_p_on = np.maximum(weight * np.log(off * fail + (1.0 - fail)), NEVER)
    return among @ unary + pairs + log_p_off.sum(axis=1), log_p_on - log_p_off


@njit(cache=True, nogil=True)
def _chances(states: Bools, fail: Floats, leak: Floats) -> Floats:
    """P(X_j = 1 | y) of P findings in R states: (R, P)."""
    p = np.empty((len(states), leak.size))
    for r in range(len(states)):
        p[r] = leak
        for i in np.flatnonzero(states[r]):
            for j in range(leak.size):
                p[r, j] = with_cause(p[r, j], fail[i, j])
    return p


def _difference(a: float, b: float) -> float:
    """a - b, and zero if both are the same infinity."""
    return 0.0 if a == b else a - b


def _path(log_off: Floats, gain: Floats) -> Floats:
    """Integral over t in [0, 1] of the normalised weights exp(log_off + t gain): (R,).

    Gauss-Legendre on intervals halved until each reproduces the integral of E_t[gain], which is known exactly: the
    difference of log sum exp at its ends.
    """
    total = np.zeros(log_off.size)
    waiting = [(0.0, 1.0)]
    while waiting:
        a, b = waiting.pop()
        t = 0.5 * (a + b) + 0.5 * (b - a) * _NODES
        weights = log_off + t[:, None] * gain
        weights = np.exp(weights - weights.max(axis=1, keepdims=True))
        weights *= (0.5 * (b - a) * _WEIGHTS / weights.sum(axis=1))[:, None]
        part = weights.sum(axis=0)
        exact = logsumexp(log_off + b * gain) - logsumexp(log_off + a * gain)
        if abs(part @ gain - exact) <= 1e-11 * (1.0 + abs(exact)) or b - a < SHORTEST:
            total += part
        else:
            waiting += [(a, 0.5 * (a + b)), (0.5 * (a + b), b)]
    return total
