"""Calibration without labels: as many conditions as the noise rates say, where anchors fire and where they do not.

One temperature multiplies all log odds and one shift is added to them. Neither changes the order of a visit's tags.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import scipy.sparse as sp
from scipy.special import expit, logit

from whatelse.noisyor.anchor_visits import AnchorRates
from whatelse.noisyor.evidence import Evidence
from whatelse.noisyor.params import Bools, Floats, NoisyOr
from whatelse.noisyor.posterior import posterior

ROUNDS = 3
TOLERANCE, BUDGET = 1e-2, 2000


def marginals(model: NoisyOr, evidence: Evidence, X: sp.csr_matrix) -> Floats:
    """(V, m) P(Y=1 | visit), to the tolerance that counting conditions needs."""
    return posterior(model, X, evidence=evidence(X), tolerance=TOLERANCE, budget=BUDGET, top=0).marginals


def calibrated(model: NoisyOr, evidence: Evidence, X: sp.csr_matrix, rates: AnchorRates) -> tuple[NoisyOr, Evidence]:
    """By the visits X, in rounds: each solves for both numbers as if conditions were independent given the visit."""
    columns = evidence.anchor_columns
    fires = X[:, columns].toarray().astype(bool)
    silent, firing = rates.ppv
    wanted = (fires * firing).sum(), (~fires * silent).sum()
    for _ in range(ROUNDS):
        own = logit(np.clip(marginals(model, evidence, X), 1e-9, 1 - 1e-9))
        temperature, shift = _solve(own, fires, wanted)
        temperature = min(temperature, 1 / model.weight[columns[0]])  # weights stay within [0, 1]
        prior = np.clip(expit(temperature * logit(model.prior) + shift), 1e-9, 1 - 1e-9)
        model = NoisyOr(
            prior, model.fail, model.leak, model.frozen, temperature * model.weight, temperature * model.coupling
        )
        evidence = replace(
            evidence,
            weight=temperature * evidence.weight,
            anchor_log_odds=temperature * evidence.anchor_log_odds,
        )
    return model, evidence


def _solve(log_odds: Floats, fires: Bools, wanted: tuple[float, float]) -> tuple[float, float]:
    """Temperature t and shift c with sum of expit(t log_odds + c) as wanted where the anchor fires, and where not.

    For each t one c gives the sum where it does not fire; a higher t raises the other sum. Bisection in both.
    """
    on, off = log_odds[fires], log_odds[~fires]
    low, high = 0.1, 4.0
    shift = 0.0
    for _ in range(25):
        temperature = np.sqrt(low * high)
        shift = _shift(temperature * off, wanted[1] / off.size)
        too_many = expit(temperature * on + shift).sum() > wanted[0]
        low, high = (low, temperature) if too_many else (temperature, high)
    return float(np.sqrt(low * high)), shift


def _shift(log_odds: Floats, mean: float) -> float:
    """What to add to log odds so that the mean probability is `mean`, by bisection."""
    low, high = -40.0, 40.0
    for _ in range(50):
        middle = 0.5 * (low + high)
        low, high = (low, middle) if expit(log_odds + middle).mean() > mean else (middle, high)
    return 0.5 * (low + high)
