"""Slow, obvious versions of the formulas: loops and full enumeration, written from the definitions alone."""

from __future__ import annotations

import itertools
import math
from typing import Any

import numpy as np

from whatelse.noisyor import NoisyOr


def log(x: float) -> float:
    return math.log(x) if x > 0 else -math.inf


def probability_on(model: NoisyOr, j: int, y: Any) -> float:
    """P(X_j = 1 | y) = 1 - (1 - l_j) prod_i f_ij^y_i."""
    off = 1.0 - float(model.leak[j])
    for i in range(model.m):
        if y[i]:
            off *= float(model.fail[i, j])
    return 1.0 - off


def log_joint(model: NoisyOr, present: Any, y: Any, unobserved: Any = (), evidence: Any = None) -> float:
    """log P(x, y), finding by finding, with weights, couplings and evidence."""
    total = 0.0
    for i in range(model.m):
        pi = float(model.prior[i])
        total += log(pi) if y[i] else log(1.0 - pi)
        if y[i] and evidence is not None:
            total += float(evidence[i])
        for k in range(i):
            if y[i] and y[k]:
                total += float(model.coupling[i, k])
    for j in range(model.n):
        if j in unobserved or model.weight[j] == 0:
            continue
        on = probability_on(model, j, y)
        total += float(model.weight[j]) * log(on if j in present else 1.0 - on)
    return total


def states(m: int, confirmed: Any = (), rejected: Any = (), count: int | None = None) -> list[tuple[int, ...]]:
    """Every y that agrees with what is confirmed, rejected and counted."""
    return [
        y
        for y in itertools.product((0, 1), repeat=m)
        if all(y[i] for i in confirmed) and not any(y[i] for i in rejected) and (count is None or sum(y) == count)
    ]


def posterior(
    model: NoisyOr, present: Any, unobserved: Any = (), confirmed: Any = (), rejected: Any = (),
    count: int | None = None, evidence: Any = None,
) -> tuple[Any, float, list[tuple[float, tuple[int, ...]]]]:  # fmt: skip
    """(marginals (m,), log evidence, [(probability, state)] most probable first) from every state."""
    present, unobserved = set(map(int, present)), set(map(int, unobserved))
    allowed = states(model.m, confirmed, rejected, count)
    weights = [log_joint(model, present, y, unobserved, evidence) for y in allowed]
    peak = max(weights)
    if peak == -math.inf:
        return None, -math.inf, []
    mass = np.exp(np.array(weights) - peak)
    marginals = (mass[:, None] * np.array(allowed, float).reshape(len(allowed), model.m)).sum(0) / mass.sum()
    ranked = sorted(zip((mass / mass.sum()).tolist(), allowed, strict=True), reverse=True)
    return marginals, peak + math.log(mass.sum()), ranked


def heldout_tag(model: NoisyOr, present: Any, confirmed: Any, evidence: Any = None) -> Any:
    """P(i is the one condition on besides those confirmed), (m,)."""
    known = [i for i in range(model.m) if confirmed[i]]
    marginals, _, _ = posterior(model, present, confirmed=known, count=len(known) + 1, evidence=evidence)
    marginals[known] = 0.0
    return marginals


def finding_marginals(model: NoisyOr) -> Any:
    """P(X_j = 1) by summing over every y; independent conditions."""
    out = np.zeros(model.n)
    for y in states(model.m):
        p = math.prod(float(model.prior[i]) if y[i] else 1.0 - float(model.prior[i]) for i in range(model.m))
        for j in range(model.n):
            out[j] += p * probability_on(model, j, y)
    return out
