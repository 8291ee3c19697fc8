"""What can be set about NVIL. Apart, so that commands can show the defaults where PyTorch is not installed."""

from __future__ import annotations

import math
from dataclasses import dataclass

from whatelse.errors import ModelError

L2_CHOICES = (0.0, 0.1, 0.01, 0.001)
"""The weight decays among which the paper selects by held-out anchors."""


@dataclass(frozen=True)
class NvilSettings:
    """The defaults are the paper's; where the paper gives none, that is said.

    epochs          passes over the visits, burn-in included (the paper stops by held-out anchors: any upper limit)
    burn_in         epochs at the start in which theta is held fixed
    samples         draws of the conditions for each visit and step
    learning_rate   of phi and of the baseline
    theta_rate      the learning rate of theta as a share of that
    supervised      lambda (no value given; with 1 tags drift away after some hundred epochs, docs/results.md)
    l2              weight decay on phi without its biases, per visit: the penalty is l2/2 |phi|^2 (see L2_CHOICES)
    phi_range       phi starts uniform in [-phi_range, phi_range]
    hidden          tanh units of the baseline
    minibatch       visits in a step (not given). RMSprop moves a parameter by about the learning rate a step, and the
                    biases of q must travel from 0 to the log odds of the priors, about -2.5, during burn-in: with
                    11,000 visits, 50 epochs and a rate of 1e-4 that takes minibatches of about 20. Five times both
                    minibatch and learning rate moves as far in an epoch at under half the cost
    smoothing       of the running mean and variance of the signal (not given)
    rms_decay       of RMSprop's squared gradients (not given: the default of Torch's RMSprop)
    margin          failures and leaks that are learned start within [margin, 1 - margin]: the sigmoid reaches
                    neither 0 nor 1 (not given)
    """

    epochs: int = 200
    burn_in: int = 50
    samples: int = 10
    learning_rate: float = 1e-4
    theta_rate: float = 0.2
    supervised: float = 10.0
    l2: float = 0.0
    phi_range: float = 0.1
    hidden: int = 100
    minibatch: int = 20
    smoothing: float = 0.8
    rms_decay: float = 0.99
    margin: float = 1e-4

    def __post_init__(self) -> None:
        for name in ("epochs", "burn_in", "learning_rate", "theta_rate", "supervised", "l2", "phi_range"):
            if not 0 <= getattr(self, name) < math.inf:
                raise ModelError(f"{name} is {getattr(self, name)}, must be finite and not negative")
        for name in ("samples", "hidden", "minibatch"):
            if getattr(self, name) < 1:
                raise ModelError(f"{name} is {getattr(self, name)}, must be at least 1")
        for name in ("smoothing", "rms_decay"):
            if not 0 <= getattr(self, name) < 1:
                raise ModelError(f"{name} is {getattr(self, name)}, must be at least 0 and below 1")
        if not 0 < self.margin < 0.5:
            raise ModelError(f"margin is {self.margin}, must be between 0 and 0.5")
