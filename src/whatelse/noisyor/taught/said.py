"""What people said of visits, as log odds; and what to believe of every condition, given a model and what was said.

A label that is sure adds SURE to the log odds of its condition, a person who errs once in twenty times adds log 19, and
where nobody said anything nothing is added:

    P(s | x, said)  ~  exp(F(s) + sum_i told_i s_i)                                                 F as in `nearby.py`

Where not every look is real (`evidence.py`), s are looks, and what was said of a condition tells of its look

    log( real exp(told) + 1 - real ):

that it is there, if the condition is; and hardly anything if the condition is not.

So conditions nobody spoke of are believed as likely as those that were spoken of make them, and a word that the visit
speaks against is doubted. What is learned from is P(said | x), the sum of this over states, divided by that of exp F.
It needs no weights where which tags were looked at depends on the visit and on what was said before, as in a list that
is looked down: what nobody looked at is summed over, and the rest is as likely as it would be had all been asked.
"""

from __future__ import annotations

import numpy as np
import scipy.sparse as sp

from whatelse.noisyor.params import NoisyOr
from whatelse.noisyor.taught.nearby import Nearby
from whatelse.types import Bools, Floats

SURE = 40.0
AT_ONCE = 10_000  # visits whose states are held at once


def log_odds(Y: Bools | Floats, known: Bools) -> Floats:
    """(L, m) what labels Y add where known: the log odds of the chance that each is true, -SURE to SURE."""
    chance = np.where(known, Y, 0.5).astype(np.float64)
    with np.errstate(divide="ignore"):
        out: Floats = np.clip(np.log(chance) - np.log1p(-chance), -SURE, SURE)
    return out


def is_sure(told: Floats) -> Bools:
    """(L, m) where nothing is left to doubt."""
    sure: Bools = np.abs(told) == SURE
    return sure


def of_looks(told: Floats, real: Floats) -> tuple[Floats, Floats]:
    """(L, m) what is told of the looks by what is told of the conditions, and the share of looks then real."""
    with np.errstate(divide="ignore"):
        is_real, is_not = np.log(real) + told, np.log1p(-real)
    both: Floats = np.logaddexp(is_real, is_not)
    return both, np.exp(is_real - both)


def believed(
    x: sp.csr_matrix, noisyor: NoisyOr, heard: Bools, fields: Floats, told: Floats, coupling: Floats, kappa: float,
    real: Floats,
) -> Floats:  # fmt: skip
    """(L, m) how likely each condition of visits x is, given their fields (L, m) and what was said of them (L, m)."""
    out: Floats = np.where(told > 0, 1.0, 0.0)
    unsure = np.flatnonzero(~is_sure(told).all(1))
    for first in range(0, unsure.size, AT_ONCE):
        rows = unsure[first : first + AT_ONCE]
        of_look, share = of_looks(told[rows], real)
        h, sure = fields[rows] + of_look, is_sure(told[rows])
        found = share * Nearby.of(x[rows], noisyor, heard, h).expected(h, coupling, kappa).singles
        out[rows] = np.where(sure, out[rows], found)
    return out
