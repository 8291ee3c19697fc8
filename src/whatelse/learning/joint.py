"""The default learner: knowledge, anchors and labels in one objective (`objective.py`), one joint model out of it.

Each round minimises the objective by L-BFGS; between rounds two things are estimated anew:
- the standard deviations of parameters around their means, those of weights apart for findings that the base knows
  for a condition and for all others (empirical Bayes: mean square plus posterior variance by the diagonal of the
  information);
- the value of conditions without a label in partly labelled visits: their probability.

At the end all log odds z become beta z + alpha, with the same alpha and beta for all conditions. With labels, alpha and
beta minimise the log loss with nothing known: the model that one half of the labels teaches is calibrated on the other
half. Without labels beta is SURENESS, and alpha makes the expected number of conditions equal to the sum of the shares.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
import scipy.sparse as sp
from scipy.optimize import minimize
from scipy.special import expit, logit

from whatelse.learning.objective import TINY, Labels, Objective, Parameters, Strengths, anchor_odds
from whatelse.learning.prior import Prior
from whatelse.noisyor.blocks import as_blocks, finding_counts
from whatelse.noisyor.evidence import Evidence
from whatelse.noisyor.inference.posterior import posterior
from whatelse.noisyor.joint import JointModel
from whatelse.noisyor.params import LARGEST, NoisyOr
from whatelse.types import Bools, Floats, Ints

ROUNDS, STEPS = 3, 60
KNOWLEDGE, PAIRS = (0.45, 0.6), 0.6  # prior means of s and t: evidence repeats itself
LEVEL_OF_PAIRS = -0.5  # prior mean of q: conditions with findings in common seem to go together more than they do
SPREAD, SPREAD_KNOWN = 0.35, 0.55  # first standard deviations of weights around their means
DEGREES = 5.0  # of freedom of the t distribution of weights around their means, once there are labels
# By kind of anchor: code or drug, phrase that goes with a condition, name of a condition, phrase and name of a symptom.
VOTES = np.array([3_000.0, 200.0, 1_000.0, 200.0, 1_000.0])  # visits that all votes count as, because errors repeat
ANCHOR_VOTES = np.array([200.0, 50.0, 50.0, 50.0, 50.0])  # labels of a condition at which the votes count half
PRECISION = np.array([0.55, 0.4, 0.8, 0.55, 0.85])
SENSITIVITY = np.array([0.55, 0.25, 0.45, 0.65, 0.8])
RATE_SPREAD = np.array([0.7, 1.2, 1.2, 1.2, 1.2])  # of the log odds of sensitivity and false-positive rate
OWN_PRECISION = 0.85  # how often a condition is there when the record states it, and no anchor does
SURENESS, SURENESS_SPREAD = 0.75, 0.5  # prior mean of beta, and the spread of its logarithm
LEVEL_SPREAD = 1.0  # of alpha
FEW_LABELS = 5_000  # with more labelled visits the pseudo-likelihood is calibrated by itself
DIGITS = 6  # of the parameters that are kept: the last bits of a sum depend on the machine's threads
CALIBRATED, TRIALS = 600, 24  # labelled visits that alpha and beta are found by, and how many pairs of them are tried
SAMPLE = 20_000  # visits that alpha is found by without labels
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


def typical_rates(fires: Floats, kind: Ints, share: Floats) -> tuple[Floats, Floats]:
    """(2, m) sensitivity and false-positive rate, and (m,) share, of anchors without labels.

    fires (m,): frequency of each anchor; kind (m,): as in `Prior.anchor`; share (m,): by the base, NaN if unknown.
    Sensitivity times precision is typical of the kind of anchor. Their ratio is share / frequency; the base tells it as
    far as shares and frequencies agree over all conditions, else the typical ratio stands.
    """
    frequency = np.clip(fires, 1e-5, 0.5)
    precision, sensitivity = PRECISION[kind], SENSITIVITY[kind]
    ratio = np.log(precision / sensitivity)
    by_share = np.log(share / frequency)
    known = np.isfinite(by_share) & (fires > 0)
    if known.sum() >= 3:
        centred = by_share - by_share[known].mean()
        trust = SHARE_NOISE / max(float(centred[known].var()), SHARE_NOISE)
        ratio = ratio + np.where(known, trust * centred, 0.0)
    product = precision * sensitivity
    precision = np.clip(np.sqrt(product * np.exp(ratio)), 0.05, 0.95)
    sensitivity = np.clip(precision / np.exp(ratio), 0.05, 0.95)
    prior = np.clip(frequency * precision / sensitivity, 1e-5, 0.5)
    false_positive = np.clip(frequency * (1 - precision) / (1 - prior), 1e-6, 0.5)
    return np.array([np.maximum(sensitivity, 1.01 * false_positive), false_positive]), prior


def fit_joint(
    X: sp.csr_matrix, columns: Ints, prior: Prior, rates: Floats, share: Floats,
    labels: Labels | None = None, known: Bools | None = None,
    on_step: Callable[[str, int, int], None] = lambda *progress: None,
) -> Fit:  # fmt: skip
    """Learn from visits X (N, n), a matrix or blocks, with anchors at columns (m,).

    rates   (2, m) sensitivity and false-positive rate of the anchors, as far as known; labels estimate them anew
    share   (m,) share of each condition, to start from
    labels  labelled visits; known (L, m): which of their labels are known
    """
    blocks = as_blocks(X)
    _, m, n = prior.weight.shape
    centre = finding_counts(X, n) / max(blocks.shape[0], 1)
    counted = np.zeros(m) if labels is None else (labels.weight > 0).sum(0)
    silent = centre[columns] == 0
    votes = VOTES[prior.anchor] / max(blocks.shape[0], 1)
    half = ANCHOR_VOTES[prior.anchor]
    votes = np.minimum(votes, 1.0) * half / (half + counted)
    omega = np.where(silent, 0.0, votes)
    rates = np.where(silent, 0.5, rates)
    start = Parameters(
        logit(np.clip(share, 1e-6, 1 - 1e-6)), np.array(KNOWLEDGE), np.zeros(m), PAIRS, LEVEL_OF_PAIRS, logit(rates),
        np.zeros((m, m)), np.zeros((m, n)),
    )  # fmt: skip
    prior = _with_own_names(prior, start)
    strengths = Strengths(np.where(prior.known, SPREAD_KNOWN, SPREAD), rate=RATE_SPREAD[prior.anchor])
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
            strengths = _strengths(objective, found, prior)
            if known is not None and not known.all():
                chance = expit(objective.label_fields(found, objective.weights(found)))
                labels = labels._replace(company=np.where(known, labels.company, chance))
    found = Parameters(*(np.round(part, DIGITS) for part in found))  # type: ignore[arg-type]
    weight = objective.weights(found)
    alpha, beta = (round(value, 3) for value in _calibrated(objective, found, share))
    spread = tuple(
        float(np.median(strengths.delta[part])) if part.any() else 0.0 for part in (prior.known, ~prior.known)
    )
    return Fit(
        _model(objective, found, alpha, beta), found, weight, expit(found.rates),
        (spread[0], spread[1]), tuple(round(value, 3) for value in history), converged,
    )  # fmt: skip


def _with_own_names(prior: Prior, start: Parameters) -> Prior:
    """The prior in which a condition that the record states has the probability OWN_PRECISION at its share.

    The objective multiplies names by their scale: KNOWLEDGE[1], its prior mean, is divided out here.
    """
    weight = prior.weight.copy()
    weight[1] = np.where(prior.own, ((logit(OWN_PRECISION) - start.b) / KNOWLEDGE[1])[:, None], weight[1])
    return replace(prior, weight=weight)


def _strengths(objective: Objective, found: Parameters, prior: Prior) -> Strengths:
    """Standard deviations anew: root of the mean square of what differs from the mean plus its posterior variance.

    D has one for findings that the base knows for a condition and one for all others; b, e and P have one each. Weights
    have heavy tails (Student's t, DEGREES of freedom): each has a variance of its own, whose expectation given the
    weight lies between the common one and the weight's square.
    """
    sd, start = objective.sd, objective.start
    square = found.D**2 + 1 / (objective.information(found) + sd.delta**-2)
    delta = sd.delta.copy()
    for part in (prior.known & objective.free, ~prior.known & objective.free):
        if part.any():
            delta[part] = _root_mean(square[part], 0.05, 2.0)
    delta = np.where(objective.free, np.sqrt((DEGREES * delta**2 + square) / (DEGREES + 1)), delta)
    bias, scale, pairs = objective.label_information(found)
    upper = objective.upper
    return replace(
        sd, delta=delta,
        bias=_root_mean((found.b - start.b) ** 2 + 1 / (bias + sd.bias**-2), 0.3, 2.0),
        own_scale=_root_mean(found.e**2 + 1 / (scale + sd.own_scale**-2), 0.02, 0.5),
        pair=_root_mean(found.P[upper] ** 2 + 1 / (pairs[upper] + sd.pair**-2), 0.05, 1.0),
    )  # fmt: skip


def _root_mean(squares: Floats, low: float, high: float) -> float:
    return float(np.clip(np.sqrt(squares.mean()), low, high)) if squares.size else low


def _calibrated(objective: Objective, found: Parameters, share: Floats) -> tuple[float, float]:
    """alpha and beta: level and scale of all log odds."""
    labels = objective.labels
    if labels is None:
        X = objective.X[np.arange(min(objective.X.shape[0], SAMPLE))].astype(float)
        weight = objective.weights(found)
        on = X[:, objective.columns].toarray() > 0
        fields = np.asarray(X @ weight.T) + (found.b - weight @ objective.centre) + anchor_odds(found.rates, on)
        wanted, low, high = float(share.sum()), -8.0, 8.0
        for _ in range(40):
            middle = (low + high) / 2
            total = expit(SURENESS * fields + middle).sum(1).mean()
            low, high = (middle, high) if total < wanted else (low, middle)
        return (low + high) / 2, SURENESS
    if labels.belief.shape[0] > FEW_LABELS:
        return 0.0, 1.0
    halves = _halves(objective, labels)

    def loss(point: Floats) -> float:
        total = 0.0
        for half, rest in halves:
            model = _model(objective, half, float(point[0]), float(np.exp(point[1])))
            chance = posterior(model, rest.X, tolerance=0.01, top=0).marginals
            likely = chance * rest.belief + (1 - chance) * (1 - rest.belief)
            total += float((rest.weight * np.log(np.maximum(likely, TINY))).sum())
        apart = (point - first) / (LEVEL_SPREAD, SURENESS_SPREAD)
        return float(-total + 0.5 * apart @ apart)

    first = np.array([0.0, np.log(SURENESS)])
    corners = first + np.array([[0.0, 0.0], [-0.3, 0.0], [0.0, 0.2]])
    options = {"initial_simplex": corners, "maxfev": TRIALS, "xatol": 0.01, "fatol": 0.1}
    alpha, log_beta = minimize(loss, first, method="Nelder-Mead", options=options).x
    return float(alpha), float(np.exp(log_beta))


def _halves(objective: Objective, labels: Labels) -> list[tuple[Parameters, Labels]]:
    """What each half of the labels teaches, with labelled visits of the other half."""
    even = np.arange(labels.belief.shape[0]) % 2 == 0
    out = []
    for half in (even, ~even):
        lesson = objective.with_labels(Labels(*(part[half] for part in labels)))
        found = lesson.unpack(
            minimize(
                lesson, lesson.pack(objective.start), jac=True, method="L-BFGS-B",
                options={"maxiter": STEPS, "maxcor": 12, "ftol": 1e-6},
            ).x
        )  # fmt: skip
        others = np.flatnonzero(~half)
        step = 1 + 2 * others.size // CALIBRATED  # evenly spread: visits may be in the order of their years
        others = others[::step]
        out.append((found, Labels(*(part[others] for part in labels))))
    return out


def _model(objective: Objective, found: Parameters, alpha: float, beta: float) -> JointModel:
    """The joint model: fields as evidence, couplings in a noisy-or whose findings say nothing."""
    columns, centre = objective.columns, objective.centre
    weight, silent = beta * objective.weights(found), centre[columns] == 0
    m, n = weight.shape
    silence, firing = (anchor_odds(found.rates, np.full((1, m), on))[0] for on in (False, True))
    of_anchor = np.where(silent, 0.0, beta * (firing - silence))
    weight[np.arange(m), columns] = of_anchor
    silence = np.where(silent, 0.0, beta * silence)
    field = beta * found.b + alpha + silence + of_anchor * centre[columns]
    prior = np.clip(field, -LARGEST, LARGEST)
    noisyor = NoisyOr(
        expit(prior), np.ones((m, n)), np.clip(centre, 1e-6, 1 - 1e-6), weight=np.zeros(n),
        coupling=beta * objective.coupling(found),
    )  # fmt: skip
    evidence = replace(
        Evidence.none(m, n), weight=weight, centre=centre, bias=field - prior, anchor_columns=columns,
        anchor_log_odds=np.array([silence, silence + of_anchor]),
    )  # fmt: skip
    return JointModel(noisyor, evidence)
