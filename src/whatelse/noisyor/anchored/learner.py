"""The default learner: a noisy-or from anchors, weighed and joined by what hidden anchors teach. No labels, no drift.

1. Findings that give an anchor away as a mere mention excuse it (`excuses.py`).
2. A noisy-or by maximum likelihood from the anchors that are not excused, taken for conditions; edges from a condition
   to what excuses its anchor are cut (`anchor_visits.py`).
3. How much its findings count, which conditions go together and, where it helps, linear evidence: fitted to hidden
   anchors, a concave problem (`hidden.py`), on visits that the noisy-or of step 2 did not see.
4. Linear evidence is used unless it hinders where anchors are silent (`silent_cases.py`).
5. How much findings count once more, with the conditions of a visit that have no anchor drawn from the model's own
   posterior: findings that such a condition brought on would otherwise speak against all of the rest.
6. As many conditions as the noise rates say, in all (`calibrate.py`); halfway in company, by length of record and
   condition by condition (`halfway.py`).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
import scipy.sparse as sp
from numpy.typing import ArrayLike
from scipy.special import expit

from whatelse.noisyor.anchored.anchor_visits import AnchorBlocks, AnchorVisits, Halves, some_of
from whatelse.noisyor.anchored.calibrate import calibrated, marginals
from whatelse.noisyor.anchored.excuses import find_excuses
from whatelse.noisyor.anchored.halfway import by_condition, by_length, by_pairs
from whatelse.noisyor.anchored.hidden import HiddenFit, Pairs, fit_hidden
from whatelse.noisyor.anchored.silent_cases import gain_on_silent_cases
from whatelse.noisyor.blocks import Blocks, as_blocks
from whatelse.noisyor.evidence import Evidence
from whatelse.noisyor.joint import JointModel
from whatelse.noisyor.params import NoisyOr
from whatelse.noisyor.rates import Rates
from whatelse.types import Bools

PENALTY = 40.0  # on linear evidence: a prior standard deviation of 0.16 for each weight
DECIDE_ON = 5_000  # anchors by which it is decided whether to use it, at most
CONFIDENCE = 2.0  # standard errors by which it must hinder not to be used
COMPLETE_ON, COMPLETE_BY = 2_000, 1_000  # visits whose conditions are drawn, and states to draw from, at most
CALIBRATE_ON = 1_500  # conditions that visits are expected to have, which are counted
TELL_ON = 3_000  # and which are compared with what the rates tell of each condition
COMPANY_ON = 1_500  # visits whose pairs of conditions are counted
REAL = 0.9  # of visits that have every look of a condition, the share taken to have it where nobody has labelled any
EACH = 100  # visits with each anchor that are looked at besides
Step = Callable[[str, int, int], None]


@dataclass(frozen=True, eq=False)
class Anchored:
    """The model to answer with, the history of the objective, and what was found on the way.

    linear       whether linear evidence is used
    silent_gain  what it added to the log probability of silent cases, by which that was decided; NaN if it was given
    """

    model: JointModel
    linear: bool
    silent_gain: float
    kappa: float
    history: tuple[float, ...]
    converged: bool


def fit_anchored(
    X: sp.csr_matrix | Blocks,
    anchor_columns: ArrayLike,
    rates: Rates,
    *,
    linear: bool | None = None,
    refused: Bools | None = None,
    assumed: bool = False,
    seed: int = 0,
    on_step: Step | None = None,
) -> Anchored:
    """Learn from visits X (N, n), anchors included, and the anchors' noise rates. O(nnz(X) m) a step.

    X        a matrix, or visits in blocks wherever they are: the same sums either way (`blocks.py`)
    linear   whether to use linear evidence; None: unless silent cases speak against it
    refused  (m, n) bool: finding j may not excuse the anchor of condition i
    assumed  whether the rates are typical ones, which do not tell one condition from another
    """
    columns = np.asarray(anchor_columns, np.int64)
    rates.informative()
    tell = on_step or (lambda what, done, total: None)
    rng = np.random.default_rng(seed)
    tell("looking for mere mentions", 0, 1)
    whole = as_blocks(X)
    excuse = find_excuses(whole, columns, rates.prior, rates.sensitivity, rng, refused)
    visits = AnchorBlocks.of(whole, columns, excuse)
    noisyor, halves = visits.noisyor(rates), Halves.of(visits, rates, rng)

    tell("learning from hidden anchors", 0, 2)
    pairs = halves.pairs(visits)
    fit = fit_hidden(pairs, HiddenFit.blank(visits.log_rate, noisyor.n), weight_penalty=None)
    silent_gain = np.nan
    if linear is None:
        what = "weighing linear evidence"
        tell(what, 0, 1)
        some = some_of(len(visits), int(DECIDE_ON / max(visits.firing.sum() / len(visits), 1e-9)) + 1, rng)
        silent_gain, error = gain_on_silent_cases(
            visits.rows(some), rates, noisyor, halves.rows(some), fit, rng, lambda done, total: tell(what, done, total)
        )
        linear = silent_gain + CONFIDENCE * error >= 0
    if linear:
        fit = fit_hidden(pairs, fit, weight_penalty=PENALTY)
    pairs.release()
    tell("learning from hidden anchors", 1, 2)
    judges = whole[some_of(len(visits), int(CALIBRATE_ON / rates.prior.sum()) + 1, rng)]
    rough = _assembled(noisyor, fit, rates, visits)
    model = calibrated(rough, judges[::3], rates, temper=linear, budget=COMPLETE_BY)
    some = visits.with_any_anchor(COMPLETE_ON, rng)
    completed = _completed(visits.rows(some), model, rng)
    fit = fit.reweighed(completed, halves.rows(some).gains(completed))
    model = calibrated(_assembled(noisyor, fit, rates, visits), judges, rates, temper=linear)
    judges = whole[some_of(len(visits), int(TELL_ON / rates.prior.sum()) + 1, rng)]
    if not assumed:
        model = by_pairs(model, judges[:COMPANY_ON], judges[:, columns].toarray() > 0, rates)
    model = by_length(model, judges, rates)
    if not assumed:
        model = by_condition(model, judges, whole[visits.with_each_anchor(EACH, rng)], rates)
    visits.blocks.release()
    return Anchored(model, linear, silent_gain, fit.kappa, fit.history, fit.converged)


def _assembled(noisyor: NoisyOr, fit: HiddenFit, rates: Rates, visits: AnchorBlocks) -> JointModel:
    """The joint model: the softmax's scores as log odds of the conditions, with anchors back in as findings."""
    weight = np.full(noisyor.n, fit.kappa)
    weight[visits.columns] = 1.0
    centre = visits.centre
    bias = visits.of_conditions(fit.bias, rates) + fit.weight @ centre
    model = NoisyOr(
        np.clip(expit(bias), 1e-9, 1 - 1e-9), noisyor.fail, noisyor.leak, noisyor.frozen, weight, fit.coupling
    )
    real = np.maximum(REAL, (1 + rates.ppv[1]) / 2)  # what a firing anchor proves must be within reach
    evidence = Evidence(fit.weight, centre, visits.excuse, visits.columns, rates.log_odds, real=real)
    return JointModel(model, evidence)


def _completed(visits: AnchorVisits, model: JointModel, rng: np.random.Generator) -> Pairs:
    """Pairs of some visits, whose confirmed conditions are joined by a draw of those that have no anchor."""
    drawn = rng.random(visits.A.shape) < marginals(model, visits.X, COMPLETE_BY)
    pairs = visits.pairs
    return replace(pairs, confirmed=pairs.confirmed | (drawn & ~visits.A)[pairs.visit])
