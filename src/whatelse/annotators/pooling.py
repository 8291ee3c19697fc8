"""Shares of many small groups, each borrowing strength from the others.

Group i has `yes` of `yes + no` units. With 200 labelled visits and a condition that one visit in a hundred has, its own
counts say next to nothing, and all conditions together say how large such shares tend to be. So the share of group i is

    p_i ~ Beta(alpha_i, beta_i),   mean mu_i with odds = level * offset_i,   spread by `strength`

and level and strength, the same for all groups, are learned from all groups at once: the likelihood of the counts is
beta-binomial, evaluated on a grid. The logarithm of the strength is flat beforehand; that of the level is normal
around what is typical, so that two labels of one group do not say that all groups are full, or empty.
Given a cell of the grid the posterior of p_i is Beta(alpha_i + yes_i, beta_i + no_i); the whole posterior is the
mixture of these over the grid, so not knowing level and strength widens the intervals as it should.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.special import betaln

from whatelse.types import Bools, Floats

SPREAD = 0.7  # of the level's logarithm beforehand


@dataclass(frozen=True, eq=False)
class Pooled:
    """The posterior of the shares of m groups: a mixture, with `weight` (G,), of Beta(alpha, beta), both (G, m)."""

    weight: Floats
    alpha: Floats
    beta: Floats

    @property
    def mean(self) -> Floats:
        """(m,) posterior mean of each share."""
        mean: Floats = self.weight @ (self.alpha / (self.alpha + self.beta))
        return mean

    def draw(self, rng: np.random.Generator, draws: int) -> Floats:
        """(draws, m) shares drawn from the posterior, groups of one draw sharing level and strength."""
        cell = rng.choice(len(self.weight), size=draws, p=self.weight)
        return rng.beta(self.alpha[cell], self.beta[cell])


def pool(
    yes: Floats, no: Floats, offset: Floats, levels: Floats, strengths: Floats, *, typical: float, rare: bool
) -> Pooled:
    """The posterior of m shares from their counts (m,), which need not be whole numbers. O(levels strengths m).

    offset   (m,) how the odds of the mean differ between groups, known beforehand
    typical  the level beforehand, give or take a factor of two (SPREAD)
    rare     True: Beta(s, s / odds), whose relative spread 1/sqrt(s) is the same for a share of a hundredth and of a
             thousandth; False: Beta(s mu, s (1 - mu)), worth s units of any group
    """
    level, strength = (grid.ravel()[:, None] for grid in np.meshgrid(levels, strengths, indexing="ij"))
    odds = level * offset
    alpha = strength * (np.ones_like(odds) if rare else odds / (1 + odds))
    beta = strength * (1 / odds if rare else 1 / (1 + odds))
    evidence = (betaln(alpha + yes, beta + no) - betaln(alpha, beta)).sum(1)
    evidence -= 0.5 * (np.log(level[:, 0] / typical) / SPREAD) ** 2
    weight = np.exp(evidence - evidence.max())
    return Pooled(weight / weight.sum(), alpha + yes, beta + no)


def effective_counts(y: Bools, among: Bools, weight: Floats) -> tuple[Floats, Floats]:
    """How many of the visits `among` (k, m) have y (k, m) and have not, (m,) each, when visit j stands for weight_j,
    (k,), or each of its labels for its own weight, (k, m).

    With equal weights these are the plain counts. Else the share is Hajek's, p = sum(w y) / sum(w), and the number n of
    visits is divided by the design effect: the variance of p over what n visits at random would give,

        sum(w^2 (y - p)^2) / (mean(w) sum(w (y - p)^2))

    which is below 1 where the visits with y were likely to be chosen. Seen in few visits of one group it is noisy, and
    it would go together with p: a rare y of a large weight would be played down. So only what the weights alone say,
    n sum(w^2) / sum(w)^2, differs between groups, and the rest is one factor for all of them; there, one visit more
    with y and the mean weight steadies groups in which none was found. O(k m).
    """
    w = np.where(among, weight[:, None] if weight.ndim == 1 else weight, 0.0)
    n, total = among.sum(0), w.sum(0)
    typical = np.divide(total, n, out=np.ones(n.size), where=n > 0)
    share = np.divide((w * y).sum(0), total, out=np.zeros(n.size), where=n > 0)
    w /= typical
    steady = (share * n + 0.5) / (n + 1)
    squared, one = (y - steady) ** 2, (1 - steady) ** 2
    unequal = np.where(n > 0, (w**2).sum(0) / np.maximum(n, 1), 1.0)
    found = (w**2 * squared).sum(0) + one
    from_weights = unequal * ((w * squared).sum(0) + one)
    size = n / (unequal * found.sum() / from_weights.sum())
    return share * size, (1 - share) * size
