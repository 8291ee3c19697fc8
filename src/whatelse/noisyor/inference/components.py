"""Conditions that share no present finding do not influence one another: split a visit into independent parts.

Each part is searched on its own; marginals stay, masses multiply, and the best joint states are the best combinations.
An early visit with little observed falls into many small parts, where a search over all of it would be hopeless.
"""

from __future__ import annotations

import numpy as np
from numba import njit

from whatelse.types import Bools, Floats, Ints


@njit(cache=True, nogil=True)
def label_parts(rows: Floats, pair: Floats) -> tuple[int, Ints]:
    """(number of parts, label (M,)): conditions joined by a present finding (rows (M, P) below 1) or a coupling (M, M).

    Labels are in the order of each part's first condition. Cost O(M P + M^2).
    """
    M, P = rows.shape
    label = np.full(M, -1, np.int64)
    waiting = np.empty(M, np.int64)
    done = np.zeros(P, np.bool_)  # findings whose other causes have been taken in
    parts = 0
    for first in range(M):
        if label[first] >= 0:
            continue
        label[first] = parts
        waiting[0], size = first, 1
        while size > 0:
            size -= 1
            i = waiting[size]
            for j in range(P):
                if rows[i, j] == 1.0 or done[j]:
                    continue
                done[j] = True
                for k in range(M):
                    if rows[k, j] < 1.0 and label[k] < 0:
                        label[k] = parts
                        waiting[size] = k
                        size += 1
            for k in range(M):
                if pair[i, k] != 0.0 and label[k] < 0:
                    label[k] = parts
                    waiting[size] = k
                    size += 1
        parts += 1
    return parts, label


@njit(cache=True, nogil=True)
def combine_best(probabilities: Floats, states: Bools, kept: int, more: Floats, members: Bools, extra: int) -> int:
    """The best joint states of all parts so far and one more; returns how many are kept.

    probabilities (top,) and states (top, m) hold the `kept` best so far, best first, and are replaced;
    more (top,) and members (top, m) the `extra` best of the part.
    """
    top = probabilities.size
    best = np.zeros(top)
    source = np.zeros((top, 2), np.int64)
    size = 0
    for a in range(kept):
        for b in range(extra):
            p = probabilities[a] * more[b]
            at = min(size, top - 1)
            if p == 0.0 or (size == top and p <= best[at]):
                break  # the rest of the part's states are no better
            while at > 0 and best[at - 1] < p:
                best[at] = best[at - 1]
                source[at, 0], source[at, 1] = source[at - 1, 0], source[at - 1, 1]
                at -= 1
            best[at] = p
            source[at, 0], source[at, 1] = a, b
            size = min(size + 1, top)
    old = states.copy()
    for r in range(size):
        probabilities[r] = best[r]
        for i in range(states.shape[1]):
            states[r, i] = old[source[r, 0], i] or members[source[r, 1], i]
    return size
