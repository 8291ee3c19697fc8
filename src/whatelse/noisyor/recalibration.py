"""Recalibration of models of version 0.2: a piecewise-linear map of a condition's log odds, shared by all conditions.

    C(f, x) = a f + sum_t a_t max(f - t, 0) + a_len (log(1 + findings present) - log(1 + findings of a typical visit))

with knots t = -2, 0, 2 of the log odds f, and the last bracket kept between -1 and 1: of records with less than a third
of what is typical, or more than three times as much, there are too few to learn from. Linear evidence is too sure of
itself at the top, and what is absent counts for less the less was written. Both are functions of the visit alone, so
evidence bent so is still modular in y.
"""

from __future__ import annotations

import numpy as np

from whatelse.types import Floats

KNOTS = (-2.0, 0.0, 2.0)
SIZE = 2 + len(KNOTS)  # slope, a change of slope at each knot, length
FARTHEST = 1.0  # from the length of a typical visit, in log
IDENTITY: Floats = np.eye(SIZE)[0]


def bend(curve: Floats, fields: Floats, length: Floats) -> Floats:
    """C of fields (V, m) and lengths (V,), by curve (SIZE,)."""
    out: Floats = curve[0] * fields + curve[-1] * length[:, None]
    for knot, change in zip(KNOTS, curve[1:-1], strict=True):
        out = out + change * np.maximum(fields - knot, 0.0)
    return out


def length_of(present: Floats, typical: Floats) -> Floats:
    """(V,) how much was written, from the number of findings present and that of a typical visit, both (V,)."""
    out: Floats = np.clip(np.log1p(present) - np.log1p(typical), -FARTHEST, FARTHEST)
    return out
