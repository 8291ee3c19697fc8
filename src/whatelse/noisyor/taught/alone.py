"""A joint model, condition by condition: what the visit says for each alone, and what the others take away.

    alone_i(x)    = log P(x, only i on) - log P(x, none on) + e_i(x)              linear in x, save for excused anchors
    taken_i(x, y) = [log P(x | y + i) - log P(x | y - i)] - [log P(x | i) - log P(x | none)]     at most zero

How much was written (the curve that anchors taught) is left out of `alone`: labels bend it from there (`shape.py`).

`taken` is explaining away: findings that another condition accounts for speak less for i. It is counted here over the
findings that are not anchors (an anchor has one parent, nothing can explain it away), with weight one.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import scipy.sparse as sp

from whatelse.noisyor.anchored.hidden import Pairs, noisyor_gains
from whatelse.noisyor.joint import JointModel
from whatelse.noisyor.recalibration import IDENTITY
from whatelse.types import Bools, Floats

SMALL = 1e-9


@dataclass(frozen=True, eq=False)
class Alone:
    """model without its curve, its anchors' columns (m,), and the noisy-or's part of `alone`, with weight one.

    ratio     (m, n) what finding j says for i when it is present rather than absent;  log_fail (m, n) when it is absent
    ordinary  (n,) bool: findings that are not anchors;  kappa: how much they count in the model (the same for all)
    """

    model: JointModel
    columns: Any
    ratio: Floats
    log_fail: Floats
    ordinary: Bools
    kappa: float

    @classmethod
    def of(cls, model: JointModel, anchor_columns: Any) -> Alone:
        """With logarithms kept finite."""
        noisyor = model.noisyor
        fail, leak = np.clip(noisyor.fail, SMALL, 1.0), np.clip(noisyor.leak, SMALL, 1 - SMALL)
        ratio = np.log1p(-(1 - leak) * fail) - np.log(leak) - np.log(fail)
        ordinary = np.ones(noisyor.n, bool)
        ordinary[anchor_columns] = False
        kappa = float(noisyor.weight[ordinary].max(initial=0.0))
        model = replace(model, evidence=replace(model.evidence, curve=IDENTITY))
        return cls(model, np.asarray(anchor_columns, np.int64), ratio, np.log(fail), ordinary, kappa)

    @property
    def prior(self) -> Floats:
        """(m,) the prior's log odds."""
        log_odds: Floats = np.log(self.model.noisyor.prior) - np.log1p(-self.model.noisyor.prior)
        return log_odds

    def __call__(self, X: sp.csr_matrix) -> Floats:
        """(V, m) alone_i of visits X (V, n). O(nnz m)."""
        weight = self.model.noisyor.weight
        said = np.asarray(X @ (weight * self.ratio).T) + (weight * self.log_fail).sum(1)
        out: Floats = self.prior + said + self.model.evidence(X)
        return out

    def taken(self, X: sp.csr_matrix, on: Bools) -> Floats:
        """(V, m) taken_i of visits X whose conditions `on` (V, m) are on, over ordinary findings. O(nnz m)."""
        x = sp.csr_matrix(sp.csr_matrix(X, dtype=np.float64) @ sp.diags(self.ordinary.astype(float)))
        x.eliminate_zeros()
        V = len(on)
        none = np.zeros(V, np.int64)
        out = noisyor_gains(self.model.noisyor, Pairs(np.arange(V), none, on, x), self.columns)
        visit, condition = np.nonzero(on)  # for a condition that is on, the others
        others = on[visit]
        others[np.arange(visit.size), condition] = False
        own = noisyor_gains(self.model.noisyor, Pairs(visit, condition, others, x[visit]), self.columns)
        out[visit, condition] = own[np.arange(visit.size), condition]
        alone = np.asarray(x @ np.where(self.ordinary, self.ratio, 0.0).T) + self.log_fail[:, self.ordinary].sum(1)
        taken: Floats = np.minimum(out - alone, 0.0)
        return taken
