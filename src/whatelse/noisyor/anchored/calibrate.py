"""Calibration without labels: as many conditions as the noise rates say, where anchors fire and where they do not.

Two numbers do it: a shift of all log odds, and a scale. The scale is of what anchors tell: like findings, anchors
repeat what others say, and how much findings count has been learned already. Linear evidence has learned to predict
anchors and is too sure of itself wherever they fire; with it the scale is of all log odds alike, a temperature.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import scipy.sparse as sp
from scipy.optimize import brentq
from scipy.special import expit, logit

from whatelse.noisyor.inference.posterior import posterior
from whatelse.noisyor.joint import JointModel
from whatelse.noisyor.params import NoisyOr
from whatelse.noisyor.rates import Rates
from whatelse.types import Bools, Floats

ROUNDS = 3
TOLERANCE, BUDGET = 1e-2, 4000
LEAST, SHIFTS = 0.1, 40.0  # where the scale and the shift are looked for: from LEAST on, and between -+SHIFTS


def marginals(model: JointModel, X: sp.csr_matrix, budget: int = BUDGET, confirmed: Bools | None = None) -> Floats:
    """(V, m) P(Y=1 | visit, confirmed), to the tolerance that counting conditions needs."""
    return posterior(model, X, confirmed=confirmed, tolerance=TOLERANCE, budget=budget, top=0).marginals


def calibrated(model: JointModel, X: sp.csr_matrix, rates: Rates, *, temper: bool, budget: int = BUDGET) -> JointModel:
    """By the visits X, in rounds: each solves for both numbers as if conditions were independent given the visit.

    temper  scale all log odds, not only what anchors tell
    """
    columns = model.evidence.anchor_columns
    fires = X[:, columns].toarray().astype(bool)
    silent, firing = rates.ppv
    wanted = float((fires * firing).sum()), float((~fires * silent).sum())
    for _ in range(ROUNDS):
        own = logit(np.clip(marginals(model, X, budget), 1e-9, 1 - 1e-9))
        scaled = own if temper else model.evidence.told(X)
        most = 1 / model.noisyor.weight[columns[0]]  # weights stay within [0, 1]
        scale, shift = _solve(own - scaled, scaled, fires, wanted, most)
        model = _scaled(model, scale, shift, temper)
    return model


def _scaled(joint: JointModel, scale: float, shift: float, temper: bool) -> JointModel:
    """The model with log odds, or what anchors tell them, times scale; plus shift."""
    model, evidence = joint.noisyor, joint.evidence
    all_ = scale if temper else 1.0
    weight = all_ * model.weight
    weight[evidence.anchor_columns] = scale * model.weight[evidence.anchor_columns]
    prior = np.clip(expit(all_ * logit(model.prior) + shift), 1e-9, 1 - 1e-9)
    return JointModel(
        NoisyOr(prior, model.fail, model.leak, model.frozen, weight, all_ * model.coupling),
        replace(evidence, weight=all_ * evidence.weight, anchor_log_odds=scale * evidence.anchor_log_odds),
    )


def _solve(
    fixed: Floats, scaled: Floats, fires: Bools, wanted: tuple[float, float], most: float
) -> tuple[float, float]:
    """Scale a and shift c with sum of expit(fixed + a scaled + c) as wanted where the anchor fires, and where not.

    For each a one c gives the sum where it does not fire; a higher a raises the other sum.
    """

    def shift(scale: float) -> float:
        silent = (fixed + scale * scaled)[~fires]
        return root(lambda c: float(expit(silent + c).sum()) - wanted[1], -SHIFTS, SHIFTS)

    def surplus(scale: float) -> float:
        return float(expit((fixed + scale * scaled)[fires] + shift(scale)).sum()) - wanted[0]

    scale = root(surplus, LEAST, most)
    return scale, shift(scale)


def root(rising: Callable[[float], float], low: float, high: float) -> float:
    """Where a function that rises is zero; the nearer end if it is zero nowhere."""
    if rising(low) >= 0:
        return low
    if rising(high) <= 0:
        return high
    return float(brentq(rising, low, high, xtol=1e-4))
