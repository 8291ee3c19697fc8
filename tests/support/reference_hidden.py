"""Slow, obvious versions of learning from hidden anchors: loops over pairs and conditions, from the definitions."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from whatelse.noisyor.anchored.hidden import Pairs


def scores(pairs: Pairs, gains: Any, bias: Any, weight: Any, coupling: Any, kappa: float) -> Any:
    """(P, m) log P(hidden = i | x, C): b_i + w_i . x + sum_{k in C} J_ik + kappa r_i, normalised; -inf in C."""
    out = np.full(pairs.confirmed.shape, -math.inf)
    for p in range(len(pairs)):
        present = pairs.x[p].indices
        confirmed = np.flatnonzero(pairs.confirmed[p])
        candidates = [i for i in range(len(bias)) if i not in confirmed]
        for i in candidates:
            linear = sum(weight[i, j] for j in present) + sum(coupling[i, k] for k in confirmed)
            out[p, i] = bias[i] + linear + kappa * gains[p, i]
        top = max(out[p, candidates])
        out[p] -= top + math.log(sum(math.exp(out[p, i] - top) for i in candidates))
    return out


def objective(
    pairs: Pairs, gains: Any, bias: Any, weight: Any, coupling: Any, kappa: float, weight_penalty: float = 0.0,
    coupling_penalty: float = 0.0,
) -> float:  # fmt: skip
    """Log likelihood of the hidden anchors less (penalty / 2) |.|^2 of the weights and of each coupling, once."""
    found = scores(pairs, gains, bias, weight, coupling, kappa)
    total = sum(found[p, pairs.hidden[p]] for p in range(len(pairs)))
    pairwise = sum(coupling[i, k] ** 2 for i in range(len(bias)) for k in range(i))
    return float(total - 0.5 * weight_penalty * (weight**2).sum() - 0.5 * coupling_penalty * pairwise)


def gradient(pairs: Pairs, gains: Any, bias: Any, weight: Any, coupling: Any, kappa: float) -> Any:
    """(by bias, by weight, by coupling J_ki with k confirmed, by kappa) of the likelihood: residual times feature."""
    residual = -np.exp(scores(pairs, gains, bias, weight, coupling, kappa))
    residual[np.arange(len(pairs)), pairs.hidden] += 1.0
    return (
        residual.sum(0),
        residual.T @ pairs.x.toarray(),
        pairs.confirmed.astype(float).T @ residual,
        float((residual * gains).sum()),
    )
