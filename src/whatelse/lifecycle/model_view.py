"""ModelView: a model that is compared with another, and the visits as it reads them.

Two models may differ in findings (words of an anchor are no findings) and in conditions. Each reads the same visits
with its own vocabulary; both are asked about the conditions that both know.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from whatelse.evaluation.updates import answers_of
from whatelse.tagger import Tagger
from whatelse.types import Bools, Floats


@dataclass(frozen=True, eq=False)
class ModelView:
    """A model, the visits X (V, n) in its own findings, and which of its conditions the m compared ones are, (m,)."""

    tagger: Tagger
    X: sp.csr_matrix
    of: NDArray[np.intp]

    @classmethod
    def about(cls, tagger: Tagger, X: sp.csr_matrix, conditions: Sequence[str]) -> ModelView:
        """The side of a model that knows all these conditions."""
        index = {c: i for i, c in enumerate(tagger.conditions_)}
        return cls(tagger, X, np.array([index[c] for c in conditions], np.intp))

    def rows(self, which: Any) -> ModelView:
        """The same model with some of the visits, or with visits several times."""
        return ModelView(self.tagger, self.X[which], self.of)

    def answer(self, confirmed: Bools | None = None, rejected: Bools | None = None) -> Floats:
        """(V, m) probabilities, given what is confirmed and rejected, each (V, m)."""
        ask = answers_of(self.tagger.model_)
        return ask(self.X, self._own(confirmed), self._own(rejected))[:, self.of]

    def heldout(self, confirmed: Bools) -> Floats:
        """(V, m) which one condition is on besides those confirmed."""
        own = self._own(confirmed)
        assert own is not None
        return self.tagger.heldout_tag(self.X, own)[:, self.of]

    def _own(self, mask: Bools | None) -> Bools | None:
        """(V, m) as (V, number of the model's own conditions)."""
        if mask is None:
            return None
        wide = np.zeros((len(mask), len(self.tagger.conditions_)), bool)
        wide[:, self.of] = mask
        return wide


def shared_conditions(old: Tagger, new: Tagger) -> tuple[str, ...]:
    """The conditions that both know, in the order of the old model."""
    return tuple(c for c in old.conditions_ if c in set(new.conditions_))
