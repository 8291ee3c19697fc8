"""Between the model and the noise rates, halfway: in company, by length of record, by condition. No labels.

Both are wrong, in opposite ways, and neither has seen a label.

- **Company.** Couplings are learned by telling which condition was hidden, which cannot show their level: the model
  expects too few conditions together. Pairs of anchors go together by more than their conditions do, since who writes
  much mentions much. One number, added to all couplings, brings the expected pairs halfway, in log, from the one to the
  other: the rates' priors times the lifts of the anchors' pairs.
- **Length.** To the model every word that a short record lacks speaks against every condition: it expects too few of
  them there, and too many in long records. The noise rates take an anchor's silence in three words for as telling as in
  a page: too many in short records, too few in long ones. One number, log odds per log of how much was written (the
  curve's last, `curve.py`), brings the expected conditions halfway from the one to the other.
- **Conditions.** Hidden anchors tell how conditions rank beside others, the rates how many there are of each. Each
  condition's log odds are moved halfway to the shift with which as many cases are expected as its rates say where its
  anchor is silent. Where the anchor fires they say how many of them are cases, and nothing speaks against believing it:
  what a firing anchor adds to the log odds is set so that this many are expected. It never speaks against its own
  condition: where findings alone expect more, it says nothing.

The rates' counts are taken over the same visits as the model's, so that chance cancels.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import scipy.sparse as sp
from scipy.special import expit, logit

from whatelse.noisyor.anchored.calibrate import marginals, root
from whatelse.noisyor.evidence import excused
from whatelse.noisyor.joint import JointModel
from whatelse.noisyor.params import LARGEST
from whatelse.noisyor.rates import Rates
from whatelse.types import Bools, Floats

HALFWAY = 0.5
ROUNDS = 3
WIDE = 12.0  # where shifts are looked for: between -+WIDE
STEEP = 3.0  # and log odds per log of length
STEADY = 0.75  # cases that one unit of an anchor's log odds must explain: a few visits with it move it little
BUDGET = 1_000  # states of a visit: sums over visits come out 2% low where each has several conditions, else exact
SHRUNK = 5.0  # pairs of anchors by which a lift is held back
UNLIKELY = 0.02  # conditions of a visit whose company is not looked at
HIGHEST = 0.6  # level of the couplings at most: many couplings above zero would make all conditions the likeliest
SURE = 1e-9


def by_pairs(model: JointModel, X: sp.csr_matrix, A: Bools, rates: Rates) -> JointModel:
    """The model with as many pairs of conditions in visits X as halfway to what pairs of anchors A (N, m) tell."""
    frequency, apart = A.mean(0), np.triu(np.ones((model.m, model.m), bool), 1)
    by_chance = np.outer(frequency, frequency) * len(A)
    lift = (A.T.astype(float) @ A + SHRUNK) / (by_chance + SHRUNK)
    told = float((np.outer(rates.prior, rates.prior) * lift)[apart].sum()) * X.shape[0]
    wanted, level = 0.0, 0.0
    for _ in range(ROUNDS):
        own = _pairs(_levelled(model, level), X)
        if not (own > 0 and told > 0):
            return model
        wanted = wanted or own ** (1 - HALFWAY) * told**HALFWAY
        level = float(np.clip(level + np.log(wanted / own), -HIGHEST, HIGHEST))
    return _levelled(model, level)


def _pairs(model: JointModel, X: sp.csr_matrix) -> float:
    """Expected pairs of conditions in visits X: half the sum over conditions of P(i | x) E[others | x, i]."""
    single = marginals(model, X, BUDGET)
    visit, condition = np.nonzero(single > UNLIKELY)
    confirmed = np.zeros((visit.size, model.m), bool)
    confirmed[np.arange(visit.size), condition] = True
    others = marginals(model, X[visit], BUDGET, confirmed).sum(1) - 1
    return float(single[visit, condition] @ others) / 2


def _levelled(model: JointModel, level: float) -> JointModel:
    """The model with `level` added to the couplings of all pairs."""
    coupling = model.noisyor.coupling + level * (1 - np.eye(model.m))
    return replace(model, noisyor=replace(model.noisyor, coupling=coupling))


def by_length(model: JointModel, X: sp.csr_matrix, rates: Rates) -> JointModel:
    """The model with as many conditions by length of record as halfway to the rates', in all as many as before."""
    silent, firing = rates.ppv
    told = np.where(_fires(model, X), firing, silent).sum(1)
    length = model.evidence.length(X)
    length = length - length.mean()
    own = _log_odds(model, X)
    total = float(expit(own).sum())
    wanted = float(length @ (HALFWAY * told + (1 - HALFWAY) * expit(own).sum(1)))
    for _ in range(ROUNDS):
        slope, shift = _tilted(own, length, total, wanted)
        model = _moved(model, np.full(model.m, shift - slope * model.evidence.length(X).mean()), slope=slope)
        own = _log_odds(model, X)
    return model


def _tilted(own: Floats, length: Floats, total: float, wanted: float) -> tuple[float, float]:
    """Slope a and shift c: expit(own + a length + c) sum to `total`, and weighed by length to `wanted`."""

    def shift(slope: float) -> float:
        tilted = own + slope * length[:, None]
        return root(lambda c: float(expit(tilted + c).sum()) - total, -WIDE, WIDE)

    def surplus(slope: float) -> float:
        return float(length @ expit(own + slope * length[:, None] + shift(slope)).sum(1)) - wanted

    slope = root(surplus, -STEEP, STEEP)
    return slope, shift(slope)


def by_condition(model: JointModel, X: sp.csr_matrix, firing_visits: sp.csr_matrix, rates: Rates) -> JointModel:
    """The model with log odds of each condition, and what its anchor tells, moved as the module says.

    X are visits at random; firing_visits further ones in which some anchor fires, so that rare anchors are seen.
    """
    both = sp.csr_matrix(sp.vstack([X, firing_visits]), dtype=np.float64)
    fires, believed = _fires(model, both), ~excused(both, model.evidence.excuse)
    at_random = np.arange(len(fires)) < X.shape[0]
    silent, firing = rates.ppv
    shift, anchor = np.zeros(model.m), np.zeros(model.m)
    for step in range(ROUNDS + 1):
        own = _log_odds(_moved(model, shift, anchor), both)
        if step < ROUNDS:
            more = [_shift(own[q, i], q.sum() * silent[i]) for i, q in enumerate((~fires & at_random[:, None]).T)]
            own, shift = own + more, shift + more
        for i, loud in enumerate(fires.T):
            least = -model.evidence.anchor_log_odds[1, i] - anchor[i]
            anchor[i] += _anchor(own[loud, i], believed[loud, i], loud.sum() * firing[i], anchor[i], least)
        if step == ROUNDS - 1:
            shift *= HALFWAY  # what the anchors tell is then set once more
    return _moved(model, shift, anchor)


def _shift(own: Floats, wanted: float) -> float:
    return root(lambda c: float(expit(own + c).sum()) - wanted, -WIDE, WIDE)


def _anchor(own: Floats, believed: Bools, wanted: float, before: float, least: float) -> float:
    """What to add to `before`, which a firing anchor adds already: not less than `least`, with which it tells nothing.

    An excused anchor adds nothing.
    """
    return root(lambda d: float(expit(own + d * believed).sum()) - wanted + STEADY * (before + d), least, WIDE)


def _fires(model: JointModel, X: sp.csr_matrix) -> Bools:
    fires: Bools = X[:, model.evidence.anchor_columns].toarray() > 0
    return fires


def _log_odds(model: JointModel, X: sp.csr_matrix) -> Floats:
    out: Floats = logit(np.clip(marginals(model, X, BUDGET), SURE, 1 - SURE))
    return out


def _moved(model: JointModel, shift: Floats, anchor: Floats | None = None, slope: float = 0.0) -> JointModel:
    """The model with log odds shifted (m,), firing anchors (m,) telling so much more, and tilted by length."""
    noisyor, evidence = model.noisyor, model.evidence
    more = np.zeros(model.m) if anchor is None else anchor
    weight, told, curve = evidence.weight.copy(), evidence.anchor_log_odds.copy(), evidence.curve.copy()
    own = np.arange(model.m), evidence.anchor_columns
    weight[own] += more
    told[1] += more
    curve[-1] += slope
    # evidence counts from the centre: an anchor that is silent tells what it told before
    log_odds = logit(noisyor.prior) + shift + more * evidence.centre[evidence.anchor_columns]
    prior = expit(np.clip(log_odds, -LARGEST, LARGEST))
    return JointModel(
        replace(noisyor, prior=prior), replace(evidence, weight=weight, anchor_log_odds=told, curve=curve)
    )
