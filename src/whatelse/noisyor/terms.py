"""What one visit leaves of the model: one number per condition, and the findings that are present.

Unobserved findings left out, the log posterior of the conditions y is, up to a constant,

    sum_i u_i y_i  +  sum_{i<k} J_ik y_i y_k  +  sum_{j present} w_j log P(X_j = 1 | y)
    u_i = logit pi_i + evidence_i + sum_{j absent} w_j log f_ij
    P(X_j = 1 | y) = 1 - (1 - l_j) prod_i f_ij^{y_i}

so absent findings cost nothing once u is known. `Terms` holds u and the columns of the present findings.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from whatelse.errors import QueryError
from whatelse.noisyor.params import Bools, Floats, NoisyOr

Ints = NDArray[np.int64]
Indices = ArrayLike | None
OPEN, OFF, ON = -1, 0, 1


@dataclass(frozen=True)
class Terms:
    """One query against one model, reduced.

    unary   (m,)    u; minus infinity where an absent finding rules the condition out
    known   (m,)    ON (confirmed), OFF (rejected) or OPEN
    present (p,)    present findings with weight above zero, sorted
    absent  (n,)    bool: observed and not present
    cause   (m, p)  1 - f of the present findings: the chance that the condition turns the finding on
    leak    (p,)    l of the present findings
    weight  (p,)
    """

    unary: Floats
    known: NDArray[np.int8]
    present: Ints
    absent: Bools
    cause: Floats
    leak: Floats
    weight: Floats


def terms(
    model: NoisyOr,
    present: Indices,
    unobserved: Indices = None,
    confirmed: Indices = None,
    rejected: Indices = None,
    evidence: ArrayLike | None = None,
) -> Terms:
    """Check a query's indices and reduce it; O(mn). Raises QueryError if no state of the conditions fits it."""
    m, n = model.m, model.n
    here, hidden = indices("present", present, n), indices("unobserved", unobserved, n)
    on, off = indices("confirmed", confirmed, m), indices("rejected", rejected, m)
    for first, second, one, other in ((here, hidden, "present", "unobserved"), (on, off, "confirmed", "rejected")):
        if both := np.intersect1d(first, second).tolist():
            raise QueryError(f"index {both[0]} is both {one} and {other}; leave it in one of the two")
    added = np.zeros(m) if evidence is None else np.asarray(evidence, np.float64)
    if added.shape != (m,) or not np.isfinite(added).all():
        raise QueryError(f"evidence has shape {added.shape}; give {m} finite log odds, one per condition")

    absent = model.weight > 0
    absent[here] = absent[hidden] = False
    here = here[model.weight[here] > 0]
    with np.errstate(divide="ignore"):
        against = np.log(model.fail[:, absent]) @ model.weight[absent]
    unary = np.log(model.prior) - np.log1p(-model.prior) + added + against
    known = np.full(m, OPEN, np.int8)
    known[on], known[off] = ON, OFF
    reduced = Terms(unary, known, here, absent, 1.0 - model.fail[:, here], model.leak[here], model.weight[here])
    _some_state_fits(model, reduced)
    return reduced


def indices(name: str, given: Indices, size: int) -> Ints:
    """The given indices, sorted, each once; QueryError unless they are integers in [0, size)."""
    array = np.asarray([] if given is None else given)
    if array.size == 0:
        return np.empty(0, np.int64)
    if array.ndim != 1 or array.dtype.kind not in "iu":
        raise QueryError(f"{name} must be a flat list of integer indices, got {array.dtype} of shape {array.shape}")
    array = np.unique(array).astype(np.int64)
    if array[0] < 0 or array[-1] >= size:
        wrong = array[0] if array[0] < 0 else array[-1]
        raise QueryError(f"{name} has index {wrong}; this model has indices 0 to {size - 1}")
    return array


def probability_present(reduced: Terms, states: Bools) -> Floats:
    """P(X_j = 1 | y) of each present finding in each state: (S, m) -> (S, p); O(S m p), no cancellation.

    Built up as P <- P + (1 - P) c, which stays exact for tiny leaks and for causes that never fail.
    """
    p = np.broadcast_to(reduced.leak, (len(states), reduced.leak.size)).copy()
    for i in np.flatnonzero(states.any(axis=0)):
        on = np.flatnonzero(states[:, i])
        p[on] += (1.0 - p[on]) * reduced.cause[i]
    return p


def _some_state_fits(model: NoisyOr, reduced: Terms) -> None:
    """More conditions on only help the present findings: if all that may be on do not do it, nothing does."""
    never = np.flatnonzero(reduced.absent & (model.leak == 1))
    if never.size:
        raise QueryError(
            f"finding {never[0]} is absent but the model says it is always present (leak 1); list it as unobserved"
        )
    impossible = np.flatnonzero((reduced.known == ON) & np.isneginf(reduced.unary))
    if impossible.size:
        raise QueryError(
            f"condition {impossible[0]} is confirmed but a finding it always causes (fail 0) is absent; "
            "list that finding as unobserved"
        )
    may = (reduced.known != OFF) & ~np.isneginf(reduced.unary)
    lost = np.flatnonzero((reduced.leak == 0) & ~(reduced.cause[may] > 0).any(axis=0))
    if lost.size:
        raise QueryError(
            f"finding {reduced.present[lost[0]]} is present but no condition still possible can cause it and its leak "
            "is 0; list it as unobserved, or give the finding a leak"
        )
