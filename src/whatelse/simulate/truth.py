"""The noisy-or model that visits obey when every departure is off."""

from __future__ import annotations

import numpy as np

from whatelse.simulate.content import WORD_SIGNAL, load, word_leak
from whatelse.simulate.departures import Departures
from whatelse.types import Floats


def truth_model(departures: Departures | None = None) -> tuple[tuple[str, ...], Floats, Floats, Floats]:
    """(finding names, prior (m,), fail (m, n), leak (n,)) of the visits that `simulate(…, Departures.none())` gives.

    The names are those a vocabulary built from the visits has, the 23 `anchor:` findings last; conditions are in the
    order of `conditions.yaml`, which is the paper's. ValueError for departures other than none: no noisy-or model
    describes those visits.
    """
    if departures is not None and departures != Departures.none():
        raise ValueError("only visits with every departure off have a true noisy-or model; use Departures.none()")
    department = load()
    m = len(department.conditions)
    hit, miss = department.sensitivity, department.false_alarm
    fail = np.ones((m, m))
    np.fill_diagonal(fail, (1 - hit) / (1 - miss))
    names = (*department.names, *(f"anchor:{name}" for name in department.conditions))
    return (
        names,
        department.prior.copy(),
        np.hstack([np.exp(-WORD_SIGNAL * department.rate[:m]), fail]),
        np.concatenate([-np.expm1(-word_leak(department)), miss]),
    )
