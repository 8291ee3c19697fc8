"""How sure the fields of labelled visits prove to be: one curve for all conditions, and a shift for each.

    h_i = s_i + C(f_i, x)                                                                  C of `curve.py`

f_i(x) is the condition's field (log odds when nothing else is on). Linear log odds are too sure of themselves at the
top (a condition that is plain to see may still not be among the labels), and a short record says little against
anything. Five numbers and the shifts, by the full likelihood (`nearby.py`) of labelled visits whose fields were learned
from other visits; Gaussian priors around the curve that anchors taught. One number more moves the log odds of what
share of looks is real (`evidence.py`): conditions that are plain to see and not there tell it.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.optimize import minimize
from scipy.special import expit, logit

from whatelse.noisyor.evidence import Evidence
from whatelse.noisyor.recalibration import KNOTS, SIZE, bend
from whatelse.noisyor.taught.nearby import Nearby
from whatelse.noisyor.taught.said import of_looks
from whatelse.types import Floats

CURVE_PRECISION, BENT_PRECISION, REAL_PRECISION = 5.0, 50.0, 1.0
SHIFT_PRECISION, COMMON_PRECISION = 10.0, 0.1  # of each condition's own shift, and of the one they share
MOST_REAL = 0.98  # share of real looks that labels start from at most: of visits that all are, one could not tell
STEPS = 40


@dataclass(frozen=True, eq=False)
class Shape:
    """curve (SIZE,) as in `curve.py`; shift (m,); real (m,) as in `evidence.py`, below one."""

    curve: Floats
    shift: Floats
    real: Floats

    @classmethod
    def of(cls, evidence: Evidence) -> Shape:
        """The curve and the share of real looks that evidence has, and no shifts."""
        return cls(evidence.curve, np.zeros(len(evidence.real)), np.minimum(evidence.real, MOST_REAL))

    def below(self, steeper: float) -> Shape:
        """The slope below the first knot raised, and the same from there on."""
        curve = self.curve.copy()
        curve[:2] += steeper, -steeper
        return Shape(curve, self.shift - KNOTS[0] * steeper, self.real)

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
    unlike: float = 1.0,
) -> Shape:
    """By visits (V) of which told (V, m) is known, each counting `weight` (V,). O(V states) a step.

    told   log odds that what people said of each condition adds: zero where nobody said anything, SURE where it is so
    start  what labels move away from
    unlike by how much that is dearer for what all conditions share (`pseudo.unlike`)

    Of each visit the probability of what was said: log sum over states of exp(F + told of looks) less log sum of exp F;
    its gradient is what is expected with what was said, less what is expected without it.
    """
    V, m = fields.shape
    size, most = SIZE, np.maximum(told, 0.0).sum(1)  # so that the loss is near zero and small gains are seen
    parts = [fields, *(np.maximum(fields - t, 0.0) for t in KNOTS)]
    centre = np.concatenate([start.curve, start.shift, [0.0, 0.0]])
    bent = np.full(size, CURVE_PRECISION)
    bent[1:-1] = BENT_PRECISION  # a look that is something else explains better why no visit is sure
    common = unlike * np.array([COMMON_PRECISION, REAL_PRECISION])
    precision = np.concatenate([unlike * bent, np.full(m, SHIFT_PRECISION), common])

    def shape(v: Floats) -> Shape:
        return Shape(v[:size], v[size:-2] + v[-2], expit(logit(start.real) + v[-1]))

    def objective(v: Floats) -> tuple[float, Floats]:
        now = shape(v)
        h = np.ascontiguousarray(now(fields, length))
        of_look, share = of_looks(told, now.real)
        free, said = near.expected(h, coupling, kappa), near.expected(h + of_look, coupling, kappa)
        miss = (free.singles - said.singles) * weight[:, None]
        loss = float((weight * (free.log_sum - said.log_sum + most)).sum())
        more_real = -float((said.singles * (share - now.real) * weight[:, None]).sum())
        slopes = [(miss * p).sum() for p in parts]
        gradient = np.concatenate([slopes, [miss.sum(1) @ length], miss.sum(0), [miss.sum(), more_real]])
        away = v - centre
        return (loss + 0.5 * float(precision @ away**2)) / V, (gradient + precision * away) / V

    found = minimize(objective, centre, jac=True, method="L-BFGS-B", options={"maxiter": STEPS, "ftol": 1e-7})
    return shape(found.x)
