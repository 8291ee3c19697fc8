"""JointModel: all that answers a question about a visit. A learner returns it, a model file holds it.

    log P(y | x)  =  log P(x, y) of the noisy-or  +  sum_i y_i e_i(x)  -  log Z(x)

The noisy-or carries priors, failures, leaks, and which conditions go together; the evidence e(x) adds what a noisy-or
cannot say. Evidence is modular in y, so every question keeps the cost and the certificate of the plain noisy-or.
"""

from __future__ import annotations

from dataclasses import dataclass

from whatelse.errors import ModelError
from whatelse.noisyor.evidence import Evidence
from whatelse.noisyor.params import NoisyOr


@dataclass(frozen=True, eq=False)
class JointModel:
    """A noisy-or of m conditions and n findings, with evidence over the same conditions and findings."""

    noisyor: NoisyOr
    evidence: Evidence

    def __post_init__(self) -> None:
        if self.evidence.weight.shape != self.noisyor.fail.shape:
            raise ModelError(
                f"the evidence is of {self.evidence.weight.shape} conditions and findings, "
                f"the noisy-or of {self.noisyor.fail.shape}"
            )

    @classmethod
    def plain(cls, noisyor: NoisyOr) -> JointModel:
        """A noisy-or on its own: evidence that says nothing."""
        return cls(noisyor, Evidence.none(noisyor.m, noisyor.n))

    @property
    def m(self) -> int:
        """Number of conditions."""
        return self.noisyor.m

    @property
    def n(self) -> int:
        """Number of findings."""
        return self.noisyor.n


Model = NoisyOr | JointModel


def joint(model: Model) -> JointModel:
    """A joint model as it is, a noisy-or as a joint model without evidence."""
    return model if isinstance(model, JointModel) else JointModel.plain(model)
