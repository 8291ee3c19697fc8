"""Silent cases: a test for linear evidence that mentions cannot pass.

Linear evidence may learn how a condition is mentioned instead of what it does, and held-out anchors cannot tell the two
apart: anchors are mentions. Where the anchor is silent there was no mention. So the findings are parted in two. What
one half is sure of, by the noisy-or, among conditions with a silent anchor is taken for a case; evidence from the other
half, learned from hidden anchors as always, helps to find these cases or hinders. No label is needed.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
from scipy.special import expit

from whatelse.noisyor.anchored.anchor_visits import AnchorVisits, Halves, cut
from whatelse.noisyor.anchored.hidden import HiddenFit, Pairs, blocks_of, fit_hidden, noisyor_gains
from whatelse.noisyor.params import NoisyOr
from whatelse.noisyor.rates import Rates
from whatelse.types import Bools, Floats, Ints

SURE = 0.6  # probability from which on a condition with a silent anchor counts as a case
PENALTY = 128.0  # on the linear evidence that is tested: mild, the first steps of what would be learned
STEPS = 10  # in which it is learned
PARTINGS = 4  # of the findings in two halves, each of which names cases for the other


def gain_on_silent_cases(
    visits: AnchorVisits,
    rates: Rates,
    noisyor: NoisyOr,
    halves: Halves,
    start: HiddenFit,
    rng: np.random.Generator,
    on_fit: Callable[[int, int], None],
) -> tuple[float, float]:
    """What linear evidence adds to the log probability of a silent case, and its standard error over the partings.

    Zeros where there is no case.

    Each finding of the noisy-or was learned on its own, so half of them are a noisy-or too: nothing is learned anew.
    """
    gains = []
    for parting in range(PARTINGS):
        half: Bools = rng.random(visits.x.shape[1]) < 0.5
        sides = [
            _Side(some := visits.findings(keep), rates, cut(noisyor, ~keep), halves.cut(~keep).gains(some.pairs))
            for keep in (half, ~half)
        ]
        plain = [side.fit(start, None) for side in sides]
        named = [side.sure_of(fit) for side, fit in zip(sides, plain, strict=True)]
        for k, (side, without) in enumerate(zip(sides, plain, strict=True)):
            cases = named[1 - k]
            linear = side.fit(without, PENALTY)
            if cases[0].size:
                gain = side.log_probability(linear, *cases) - side.log_probability(without, *cases)
                gains.append(float(gain.mean()))
            on_fit(2 * parting + k + 1, 2 * PARTINGS)
    return (float(np.mean(gains)), float(np.std(gains) / np.sqrt(len(gains)))) if gains else (0.0, 0.0)


@dataclass(frozen=True, eq=False)
class _Side:
    """Half of the findings: visits with these alone, a noisy-or over them, and the gains of the visits' pairs."""

    visits: AnchorVisits
    rates: Rates
    noisyor: NoisyOr
    gains: Floats

    def fit(self, start: HiddenFit, penalty: float | None) -> HiddenFit:
        """By hidden anchors, in a few steps from what is known already."""
        return fit_hidden(blocks_of(self.visits.pairs, self.gains), start, weight_penalty=penalty, max_steps=STEPS)

    def sure_of(self, fit: HiddenFit) -> tuple[Ints, Ints]:
        """Visits and their likeliest condition with a silent anchor, where it is likely enough."""
        everywhere = np.arange(len(self.visits.A))
        pairs = Pairs(everywhere, np.zeros_like(everywhere), self.visits.A, self.visits.x)
        bias = self.visits.of_conditions(fit.bias, self.rates)
        log_odds = bias + self.visits.A @ fit.coupling + fit.kappa * self._gains(pairs)
        fires = self.visits.X[:, self.visits.columns].toarray() > 0
        probability = np.where(fires, 0.0, expit(log_odds))
        rows = np.flatnonzero(probability.max(1) > SURE)
        return rows, probability[rows].argmax(1)

    def log_probability(self, fit: HiddenFit, rows: Ints, conditions: Ints) -> Floats:
        """Of each case, among all conditions that are not confirmed by an anchor."""
        pairs = Pairs(rows, conditions, self.visits.A[rows], self.visits.x[rows])
        of_conditions = replace(fit, bias=self.visits.of_conditions(fit.bias, self.rates))
        scores: Floats = of_conditions.scores(pairs, self._gains(pairs))[np.arange(rows.size), conditions]
        return scores

    def _gains(self, pairs: Pairs) -> Floats:
        return noisyor_gains(self.noisyor, pairs, self.visits.columns)
