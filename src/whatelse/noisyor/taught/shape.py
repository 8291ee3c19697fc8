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
from whatelse.noisyor.params import Bools, Floats
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

    def __call__(self, fields: Floats, length: Floats) -> Floats:
        """(V, m) of fields (V, m) and lengths (V,)."""
        return bend(self.curve, fields, length) + self.shift


def fit_shape(
    fields: Floats, length: Floats, Y: Bools, weight: Floats, near: Nearby, coupling: Floats, kappa: float, start: Shape
) -> Shape:
    """By visits (V) whose labels Y (V, m) are all known, each counting `weight` (V,). O(V states) a step.

    start is what labels move away from.
    """
    V, m = fields.shape
    held, _ = near.of_state(Y)
    w = np.where(held, weight, 0.0)
    truth = Y.astype(float)
    size = SIZE
    parts = [fields, *(np.maximum(fields - t, 0.0) for t in KNOTS)]
    centre = np.concatenate([start.curve, start.shift])
    precision = np.concatenate([np.full(size, CURVE_PRECISION), np.full(m, SHIFT_PRECISION)])

    def objective(v: Floats) -> tuple[float, Floats]:
        h = np.ascontiguousarray(Shape(v[:size], v[size:])(fields, length))
        expected = near.expected(h, coupling, kappa)
        miss = (expected.singles - truth) * w[:, None]
        loss = float((w * (expected.log_sum - (h * truth).sum(1))).sum())
        gradient = np.concatenate([[(miss * p).sum() for p in parts], [miss.sum(1) @ length], miss.sum(0)])
        away = v - centre
        return (loss + 0.5 * float(precision @ away**2)) / V, (gradient + precision * away) / V

    found = minimize(objective, centre, jac=True, method="L-BFGS-B", options={"maxiter": STEPS, "ftol": 1e-7})
    return Shape(found.x[:size], found.x[size:])
