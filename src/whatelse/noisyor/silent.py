"""Silent cases: a test for linear evidence that mentions cannot pass.

Linear evidence may learn how a condition is mentioned instead of what it does, and held-out anchors cannot tell the two
apart: anchors are mentions. Where the anchor is silent there was no mention. So the findings are parted in two. What
one half is sure of, by the noisy-or, among conditions with a silent anchor is taken for a case; evidence from the other
half, learned from hidden anchors as always, helps to find these cases or it does not. No label is needed.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit

from whatelse.noisyor.anchor_visits import AnchorRates, AnchorVisits, Halves, noisyor_of
from whatelse.noisyor.hidden import HiddenFit, Pairs, fit_hidden, noisyor_gains
from whatelse.noisyor.params import Bools, Floats, NoisyOr

SURE = 0.6  # probability from which on a condition with a silent anchor counts as a case
PENALTY = 128.0  # on the linear evidence that is tested: mild, the first steps of what would be learned
STEPS = 15  # in which it is learned, from zero
PARTINGS = 4  # of the findings in two halves, each of which names cases for the other
Ints = NDArray[np.int64]


def gain_on_silent_cases(
    visits: AnchorVisits,
    rates: AnchorRates,
    excuse: Bools,
    rng: np.random.Generator,
    on_fit: Callable[[int, int], None],
) -> float:
    """What linear evidence adds to the log probability of a silent case, on average; 0 where there is no case."""
    gains = []
    for parting in range(PARTINGS):
        half: Bools = rng.random(visits.x.shape[1]) < 0.5
        sides = [_Side.of(visits, rates, excuse, keep, rng) for keep in (half, ~half)]
        plain = [side.fit(None) for side in sides]
        named = [side.sure_of(fit) for side, fit in zip(sides, plain, strict=True)]
        for k, (side, without) in enumerate(zip(sides, plain, strict=True)):
            cases = named[1 - k]
            gains.append(side.log_probability(side.fit(PENALTY), *cases) - side.log_probability(without, *cases))
            on_fit(2 * parting + k + 1, 2 * PARTINGS)
    return float(np.concatenate(gains).mean()) if any(map(len, gains)) else 0.0


@dataclass(frozen=True, eq=False)
class _Side:
    """Half of the findings: visits with these alone, a noisy-or over them, and the gains of the visits' pairs."""

    visits: AnchorVisits
    rates: AnchorRates
    noisyor: NoisyOr
    gains: Floats

    @classmethod
    def of(
        cls, visits: AnchorVisits, rates: AnchorRates, excuse: Bools, keep: Bools, rng: np.random.Generator
    ) -> _Side:
        some, cut = visits.findings(keep), excuse | ~keep
        gains = Halves.of(some, rates, cut, rng).gains(some.pairs)
        return cls(some, rates, noisyor_of(some, rates, cut), gains)

    def fit(self, penalty: float | None) -> HiddenFit:
        """By hidden anchors; the biases are those of conditions."""
        steps = {} if penalty is None else {"max_steps": STEPS}
        fit = fit_hidden(self.visits.pairs, self.gains, self.visits.log_rate, weight_penalty=penalty, **steps)
        return replace(fit, bias=fit.bias - self.visits.log_rate + np.log(self.rates.prior))

    def sure_of(self, fit: HiddenFit) -> tuple[Ints, Ints]:
        """Visits and their likeliest condition with a silent anchor, where it is likely enough."""
        everywhere = np.arange(len(self.visits.A))
        pairs = Pairs(everywhere, np.zeros_like(everywhere), self.visits.A, self.visits.x)
        log_odds = fit.bias + self.visits.A @ fit.coupling + fit.kappa * self._gains(pairs)
        fires = self.visits.X[:, self.visits.columns].toarray() > 0
        probability = np.where(fires, 0.0, expit(log_odds))
        rows = np.flatnonzero(probability.max(1) > SURE)
        return rows, probability[rows].argmax(1)

    def log_probability(self, fit: HiddenFit, rows: Ints, conditions: Ints) -> Floats:
        """Of each case, among all conditions that are not confirmed by an anchor."""
        pairs = Pairs(rows, conditions, self.visits.A[rows], self.visits.x[rows])
        scores: Floats = fit.scores(pairs, self._gains(pairs))[np.arange(rows.size), conditions]
        return scores

    def _gains(self, pairs: Pairs) -> Floats:
        return noisyor_gains(self.noisyor, pairs, self.visits.columns)
