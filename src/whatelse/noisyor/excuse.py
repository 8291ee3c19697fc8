"""Excuses: findings that give an anchor away as a mere mention.

If an anchor depends on nothing but its condition, then for every finding j

    P(A_i = 1 | X_j = 1) = s_i P(Y_i = 1 | X_j = 1) + t_i P(Y_i = 0 | X_j = 1)  <=  s_i,

s the sensitivity, t < s the false positive rate. A finding beside which the anchor fires more often than s_i breaks the
assumption, and no label is needed to see it: "childhood", "well controlled" beside asthma, an exposure to venereal
disease beside azithromycin as an anchor of pneumonia. Where such a finding is present the anchor is *excused*: it says
nothing about its condition, and the finding, part of the mention, is no evidence for it.
"""

from __future__ import annotations

import numpy as np
import scipy.sparse as sp
from numpy.typing import ArrayLike

from whatelse.noisyor.params import Bools

CONFIDENCE = 1.645  # standard errors: one-sided 95%


def excusing(
    X: sp.csr_matrix, anchor_columns: ArrayLike, sensitivity: ArrayLike, *, confidence: float = CONFIDENCE
) -> Bools:
    """(m, n) bool: finding j excuses the anchor of condition i. Anchors excuse nothing. O(nnz(X)).

    Tested by the lower end of Wilson's interval for P(A_i=1 | X_j=1), which is far below 1 where j is rare.
    """
    columns = np.asarray(anchor_columns, np.int64)
    x = sp.csr_matrix(X, dtype=np.float64)
    together = np.asarray((x[:, columns].T @ x).todense())  # (m, n)
    count = np.maximum(np.asarray(x.sum(0)).ravel(), 1e-12)
    rate, z2 = together / count, confidence**2
    middle = rate + z2 / (2 * count)
    half = confidence * np.sqrt(rate * (1 - rate) / count + z2 / (4 * count**2))
    found: Bools = (middle - half) / (1 + z2 / count) > np.asarray(sensitivity, float)[:, None]
    found[:, columns] = False
    return found


def excused(X: sp.csr_matrix, excuse: Bools) -> Bools:
    """(V, m) bool: visits in which the anchor of each condition is excused."""
    beside: Bools = (
        np.asarray((sp.csr_matrix(X, dtype=np.float64) @ sp.csr_matrix(excuse.T.astype(float))).todense()) > 0
    )
    return beside
