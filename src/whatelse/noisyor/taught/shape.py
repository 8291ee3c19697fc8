"""How sure the fields of labelled visits prove to be: one curve for all conditions, and a shift for each.

    h_i = s_i + C(f_i, x)                                                                  C of `curve.py`

f_i(x) is the condition's field (log odds when nothing else is on). Linear log odds are too sure of themselves at the
top (a condition that is plain to see may still not be among the labels), and a short record says little against
anything. Five numbers and the shifts, by the full likelihood (`nearby.py`) of labelled visits whose fields were learned
from other visits; Gaussian priors around the curve that anchors taught.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.optimize import minimize

from whatelse.noisyor.curve import KNOTS, SIZE, bend
from whatelse.noisyor.params import Floats
from whatelse.noisyor.taught.nearby import Nearby

CURVE_PRECISION, SHIFT_PRECISION = 5.0, 10.0
STEPS = 40


@dataclass(frozen=True, eq=False)
class Shape:
    """curve (SIZE,) as in `curve.py`; shift (m,)."""

    curve: Floats
    shift: Floats

    @classmethod
    def of(cls, curve: Floats, m: int) -> Shape:
        """A curve and no shifts."""
        return cls(curve, np.zeros(m))

    def below(self, steeper: float) -> Shape:
        """The slope below the first knot raised, and the same from there on."""
        curve = self.curve.copy()
        curve[:2] += steeper, -steeper
        return Shape(curve, self.shift - KNOTS[0] * steeper)

    def __call__(self, fields: Floats, length: Floats) -> Floats:
        """(V, m) of fields (V, m) and lengths (V,)."""
        return bend(self.curve, fields, length) + self.shift


def fit_shape(
    fields: Floats,
    length: Floats,
    told: Floats,
    weight: Floats,
    near: Nearby,
    coupling: Floats,
    kappa: float,
    start: Shape,
) -> Shape:
    """By visits (V) of which told (V, m) is known, each counting `weight` (V,). O(V states) a step.

    told   log odds that what people said of each condition adds: zero where nobody said anything, SURE where it is so
    start  what labels move away from

    Of each visit the probability of what was said: log sum over states of exp(F + told) less log sum of exp F; its
    gradient is what is expected with what was said, less what is expected without it.
    """
    V, m = fields.shape
    size, most = SIZE, np.maximum(told, 0.0).sum(1)  # so that the loss is near zero and small gains are seen
    parts = [fields, *(np.maximum(fields - t, 0.0) for t in KNOTS)]
    centre = np.concatenate([start.curve, start.shift])
    precision = np.concatenate([np.full(size, CURVE_PRECISION), np.full(m, SHIFT_PRECISION)])

    def objective(v: Floats) -> tuple[float, Floats]:
        h = np.ascontiguousarray(Shape(v[:size], v[size:])(fields, length))
        free, said = near.expected(h, coupling, kappa), near.expected(h + told, coupling, kappa)
        miss = (free.singles - said.singles) * weight[:, None]
        loss = float((weight * (free.log_sum - said.log_sum + most)).sum())
        gradient = np.concatenate([[(miss * p).sum() for p in parts], [miss.sum(1) @ length], miss.sum(0)])
        away = v - centre
        return (loss + 0.5 * float(precision @ away**2)) / V, (gradient + precision * away) / V

    found = minimize(objective, centre, jac=True, method="L-BFGS-B", options={"maxiter": STEPS, "ftol": 1e-7})
    return Shape(found.x[:size], found.x[size:])
