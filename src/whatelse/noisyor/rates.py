"""Rates: how noisy m anchors are, as arrays. `anchors.NoiseRates` says where the numbers come from and names them."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from whatelse.errors import ModelError
from whatelse.types import Floats


@dataclass(frozen=True, eq=False)
class Rates:
    """(m,) each: P(Y=1), P(A=1 | Y=1) and P(A=1 | Y=0)."""

    prior: Floats
    sensitivity: Floats
    false_positive: Floats

    def __post_init__(self) -> None:
        for name in ("prior", "sensitivity", "false_positive"):
            object.__setattr__(self, name, np.asarray(getattr(self, name), np.float64))

    @property
    def log_odds(self) -> Floats:
        """(2, m): what an anchor that is silent, or fires, adds to the log odds of its condition; never infinite."""
        s, t = (np.clip(rate, 1e-9, 1 - 1e-9) for rate in (self.sensitivity, self.false_positive))
        return np.stack([np.log1p(-s) - np.log1p(-t), np.log(s) - np.log(t)])

    @property
    def ppv(self) -> Floats:
        """(2, m): P(Y=1 | A) of an anchor that is silent, or fires."""
        true = np.stack([1 - self.sensitivity, self.sensitivity]) * self.prior
        false = np.stack([1 - self.false_positive, self.false_positive]) * (1 - self.prior)
        found: Floats = true / (true + false)
        return found

    def informative(self) -> Rates:
        """The rates, if every anchor fires more often with its condition than without; ModelError otherwise."""
        useless = np.flatnonzero(self.sensitivity <= self.false_positive)
        if useless.size:
            i = int(useless[0])
            raise ModelError(
                f"the anchor of condition {i} fires no more often with it ({self.sensitivity[i]:.3g}) than without "
                f"({self.false_positive[i]:.3g}): nothing can be learned from it; choose another anchor"
            )
        return self
