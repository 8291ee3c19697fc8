"""Slow, obvious versions of what the sampler, `why` and `ask` compute: every state of the conditions, with loops."""

from __future__ import annotations

from itertools import product
from math import exp, log, prod

import numpy as np

from whatelse.noisyor import NoisyOr


def chance(model: NoisyOr, y: tuple[int, ...], j: int) -> float:
    """P(X_j = 1 | y)."""
    return 1.0 - (1.0 - model.leak[j]) * prod(model.fail[i, j] for i in range(model.m) if y[i])


def posterior(
    model: NoisyOr,
    present: tuple[int, ...] = (),
    unobserved: tuple[int, ...] = (),
    confirmed: tuple[int, ...] = (),
    rejected: tuple[int, ...] = (),
    evidence: np.ndarray | None = None,
) -> tuple[np.ndarray, np.ndarray]:
    """All states that agree with what is known (S, m), and their probabilities (S,): all zero if none can be."""
    evidence = np.zeros(model.m) if evidence is None else evidence
    states, weights = [], []
    for y in product((0, 1), repeat=model.m):
        if any(not y[i] for i in confirmed) or any(y[i] for i in rejected):
            continue
        total = 1.0
        for i in range(model.m):
            total *= exp(evidence[i]) * model.prior[i] if y[i] else 1 - model.prior[i]
            for k in range(i):
                total *= exp(model.coupling[i, k] * y[i] * y[k])
        for j in range(model.n):
            if j not in unobserved and model.weight[j] > 0:
                total *= (chance(model, y, j) if j in present else 1 - chance(model, y, j)) ** model.weight[j]
        states.append(y)
        weights.append(total)
    found = np.array(weights)
    return np.array(states, bool), found / found.sum() if found.any() else found


def log_odds(states: np.ndarray, weights: np.ndarray, i: int) -> float:
    return log(weights[states[:, i]].sum()) - log(weights[~states[:, i]].sum())


def random_model(rng: np.random.Generator, m: int, n: int, *, plain: bool = False) -> NoisyOr:
    """A small model with missing edges; unless plain, with weights below one and couplings of both signs."""
    fail = np.where(rng.random((m, n)) < 0.5, rng.uniform(0.05, 0.9, (m, n)), 1.0)
    coupling = np.triu(rng.normal(0, 0.8, (m, m)), 1)
    return NoisyOr(
        prior=rng.uniform(0.05, 0.4, m),
        fail=fail,
        leak=rng.uniform(0.01, 0.3, n),
        weight=None if plain else rng.choice([0.0, 0.4, 1.0], n, p=[0.1, 0.4, 0.5]),
        coupling=None if plain else coupling + coupling.T,
    )


def extreme_query(rng: np.random.Generator) -> tuple[NoisyOr, dict]:
    """A small model full of certain causes, missing leaks, tiny weights and couplings, and a question to it."""
    m, n = int(rng.integers(1, 6)), int(rng.integers(1, 9))
    coupling = np.triu(rng.normal(0, 1, (m, m)), 1) * (rng.random() < 0.5)
    model = NoisyOr(
        prior=rng.uniform(0.01, 0.9, m),
        fail=rng.choice([0, 0.1, 0.5, 0.9, 1], (m, n), p=[0.1, 0.15, 0.15, 0.15, 0.45]),
        leak=rng.choice([0, 0.1, 0.5, 1], n, p=[0.4, 0.3, 0.25, 0.05]),
        weight=rng.choice([1, 0.5, 0.01, 0], n, p=[0.6, 0.2, 0.1, 0.1]),
        coupling=coupling + coupling.T,
    )
    finding, condition = rng.choice(3, n), rng.choice(3, m, p=[0.6, 0.2, 0.2])
    condition[0] = 0  # one at least is open
    query = dict(
        present=tuple(np.flatnonzero(finding == 0).tolist()),
        unobserved=tuple(np.flatnonzero(finding == 1).tolist()),
        confirmed=tuple(np.flatnonzero(condition == 1).tolist()),
        rejected=tuple(np.flatnonzero(condition == 2).tolist()),
        evidence=rng.normal(0, 1, m),
    )
    return model, query
