"""The default learner: knowledge, anchors and labels in one objective (`objective.py`), one joint model out of it.

Each round minimises the objective by L-BFGS; between rounds two things are estimated anew:
- the standard deviation of the weights around their means, apart for findings that the base knows for a condition and
  for all others (empirical Bayes: the mean square of D plus its posterior variance by the diagonal of the information);
- the value of conditions without a label in partly labelled visits: their probability.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
import scipy.sparse as sp
from scipy.optimize import minimize
from scipy.special import expit, logit

from whatelse.learning.objective import Labels, Objective, Parameters, Strengths, anchor_odds
from whatelse.learning.prior import Prior
from whatelse.noisyor.blocks import as_blocks, finding_counts
from whatelse.noisyor.evidence import Evidence
from whatelse.noisyor.joint import JointModel
from whatelse.noisyor.params import LARGEST, NoisyOr
from whatelse.types import Bools, Floats, Ints

ROUNDS, STEPS = 3, 60
KNOWLEDGE, PAIRS = 0.45, 0.6  # prior means of s and t: evidence repeats itself
SPREAD, SPREAD_KNOWN = 0.35, 0.55  # first standard deviations of weights around their means
VOTES_OF_NAMES, VOTES_OF_CODES = 500.0, 3_000.0  # visits that an anchor's votes count as, however many: errors repeat
ANCHOR_VOTES = 200.0  # labels of a condition at which its anchor's votes count half
NAME, CODE = (0.8, 0.6), (0.55, 0.55)  # typical precision and sensitivity of anchors that are phrases, or codes
SHARE_NOISE = 0.25  # variance of log(share / frequency of the anchor) where knowledge is right


@dataclass(frozen=True, eq=False)
class Fit:
    """What was learned: the model, the parameters and their prior, rates (2, m) of the anchors, and how it went."""

    model: JointModel
    parameters: Parameters
    weight: Floats
    rates: Floats
    spread: tuple[float, float]
    history: tuple[float, ...]
    converged: bool


def typical_rates(fires: Floats, names: Bools, share: Floats) -> tuple[Floats, Floats]:
    """(2, m) sensitivity and false-positive rate, and (m,) share, of anchors without labels.

    fires (m,): frequency of each anchor; names (m,): whether it is a phrase; share (m,): by the base, NaN if unknown.
    Sensitivity times precision is typical of the kind of anchor. Their ratio is share / frequency; the base tells it as
    far as shares and frequencies agree over all conditions, else the typical ratio stands.
    """
    frequency = np.clip(fires, 1e-5, 0.5)
    precision, sensitivity = (np.where(names, NAME[k], CODE[k]) for k in (0, 1))
    ratio = np.log(precision / sensitivity)
    told = np.log(share / frequency)
    known = np.isfinite(told) & (fires > 0)
    if known.sum() >= 3:
        centred = told - told[known].mean()
        trust = SHARE_NOISE / max(float(centred[known].var()), SHARE_NOISE)
        ratio = ratio + np.where(known, trust * centred, 0.0)
    product = precision * sensitivity
    precision = np.clip(np.sqrt(product * np.exp(ratio)), 0.05, 0.95)
    sensitivity = np.clip(precision / np.exp(ratio), 0.05, 0.95)
    prior = np.clip(frequency * precision / sensitivity, 1e-5, 0.5)
    false_positive = np.clip(frequency * (1 - precision) / (1 - prior), 1e-6, 0.5)
    return np.array([np.maximum(sensitivity, 1.01 * false_positive), false_positive]), prior


def fit_joint(
    X: sp.csr_matrix, columns: Ints, names: Bools, prior: Prior, rates: Floats, share: Floats,
    labels: Labels | None = None, known: Bools | None = None,
    on_step: Callable[[str, int, int], None] = lambda *told: None,
) -> Fit:  # fmt: skip
    """Learn from visits X (N, n), a matrix or blocks, with anchors at columns (m,); names (m,): those that are phrases.

    rates   (2, m) sensitivity and false-positive rate of the anchors, as far as known; labels estimate them anew
    share   (m,) share of each condition, to start from
    labels  labelled visits; known (L, m): which of their labels are known
    """
    blocks = as_blocks(X)
    m, n = prior.weight.shape
    centre = finding_counts(X, n) / max(blocks.shape[0], 1)
    counted = np.zeros(m) if labels is None else (labels.weight > 0).sum(0)
    silent = centre[columns] == 0
    votes = np.where(names, VOTES_OF_NAMES, VOTES_OF_CODES) / max(blocks.shape[0], 1)
    votes = np.minimum(votes, 1.0) * ANCHOR_VOTES / (ANCHOR_VOTES + counted)
    omega = np.where(silent, 0.0, votes)
    rates = np.where(silent, 0.5, rates)
    start = Parameters(
        logit(np.clip(share, 1e-6, 1 - 1e-6)), KNOWLEDGE, np.zeros(m), PAIRS, logit(rates),
        np.zeros((m, m)), np.zeros((m, n)),
    )  # fmt: skip
    strengths = Strengths(np.where(prior.known, SPREAD_KNOWN, SPREAD))
    found, history, converged = start, list[float](), False
    rounds = 1 if labels is None else ROUNDS
    for number in range(rounds):
        objective = Objective(
            blocks, columns, centre, prior, start, strengths, omega, expit(found.rates), labels,
        )  # fmt: skip
        first = number * STEPS

        def step(_: Floats, first: int = first, done: list[int] = [0]) -> None:  # noqa: B006
            done[0] = min(done[0] + 1, STEPS)
            on_step("learning", first + done[0], rounds * STEPS)

        result = minimize(
            objective, objective.pack(found), jac=True, method="L-BFGS-B", callback=step,
            options={"maxiter": STEPS, "maxcor": 12, "ftol": 1e-7},
        )  # fmt: skip
        found = objective.unpack(result.x)
        history.append(-float(result.fun))
        converged = bool(result.success) or (number > 0 and abs(history[-1] - history[-2]) < 1e-4 * abs(history[-2]))
        if labels is not None and number + 1 < rounds:
            strengths = replace(strengths, delta=_spread(objective, found, prior))
            if known is not None and not known.all():
                chance = expit(objective.label_fields(found, objective.weights(found)))
                labels = labels._replace(company=np.where(known, labels.company, chance))
    weight = objective.weights(found)
    spread = tuple(
        float(np.median(strengths.delta[part])) if part.any() else 0.0 for part in (prior.known, ~prior.known)
    )
    return Fit(
        _model(objective, found, weight, columns, centre, silent), found, weight, expit(found.rates),
        (spread[0], spread[1]), tuple(history), converged,
    )  # fmt: skip


def _spread(objective: Objective, found: Parameters, prior: Prior) -> Floats:
    """(m, n) standard deviations of D: one for findings that the base knows for a condition, one for all others."""
    precision = objective.information(found) + objective.sd.delta**-2
    square = found.D**2 + 1 / precision
    out = objective.sd.delta.copy()
    for part in (prior.known & objective.free, ~prior.known & objective.free):
        if part.any():
            out[part] = np.sqrt(np.clip(square[part].mean(), 0.05**2, 2.0**2))
    return out


def _model(
    objective: Objective, found: Parameters, weight: Floats, columns: Ints, centre: Floats, silent: Bools
) -> JointModel:
    """The joint model: fields as evidence, couplings in a noisy-or whose findings say nothing."""
    m, n = weight.shape
    silence, firing = (anchor_odds(found.rates, np.full((1, m), on))[0] for on in (False, True))
    told = np.where(silent, 0.0, firing - silence)
    weight = weight.copy()
    weight[np.arange(m), columns] = told
    silence = np.where(silent, 0.0, silence)
    field = found.b + silence + told * centre[columns]
    prior = np.clip(field, -LARGEST, LARGEST)
    noisyor = NoisyOr(
        expit(prior), np.ones((m, n)), np.clip(centre, 1e-6, 1 - 1e-6), weight=np.zeros(n),
        coupling=objective.coupling(found),
    )  # fmt: skip
    evidence = replace(
        Evidence.none(m, n), weight=weight, centre=centre, bias=field - prior, anchor_columns=columns,
        anchor_log_odds=np.array([silence, silence + told]),
    )  # fmt: skip
    return JointModel(noisyor, evidence)
