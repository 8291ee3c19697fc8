"""Noise rates of a cohort from whatever labels it has, and which conditions there is too little to learn from.

A condition is learned from its anchor, from labels, or from both. One whose anchor never fires is learned from labels
alone if there are enough; with neither it is refused by name.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

from whatelse.annotators import NoiseRates
from whatelse.cohort import Cohort
from whatelse.cohort.contingency import Tally
from whatelse.errors import CohortError
from whatelse.types import Bools, Floats

LABELS, ASSUMED, GIVEN = "labels", "assumed", "given"
"""Where noise rates come from."""
ENOUGH = 10  # labelled visits that have a condition, and that do not, from which it is learned without an anchor


def rates_of(cohort: Cohort, weights: ArrayLike | None = None, *, strict: bool = True) -> tuple[NoiseRates, str]:
    """Noise rates from the labels that a cohort has, all, some or none, and where they come from.

    weights  (N,) or (N, m) how many visits each label stands for; None: labelled visits were chosen at random
    strict   refuse conditions that have neither an anchor that fires nor enough labels
    """
    tally = cohort.tally()
    silent: Bools = np.asarray(tally.fires == 0)
    if strict:
        _refuse(cohort, tally)
    if not tally.known.any():
        return NoiseRates.assumed_of(tally.fires, tally.visits, cohort.conditions), ASSUMED
    if (tally.true == tally.known).all():  # every condition would come out as all but certain, of every visit
        raise CohortError(
            f"all {int(tally.known.sum()):,} labels say that a condition is there, and none that one is not: nothing "
            "tells how common conditions are; write 0 where a labelled visit does not have one ('whatelse anchors "
            "label-next' lists visits to label in full), or learn without these labels"
        )
    if tally.whole == tally.visits and weights is None:
        return NoiseRates.from_counts(*tally.table, cohort.conditions), LABELS
    rows, part = cohort.labelled_part()
    assert part.Y is not None
    Y, known, w = part.Y, part.known, _weights(weights, part, rows)
    heard: Bools = ~silent
    names = tuple(c for c, h in zip(cohort.conditions, heard, strict=True) if h)
    found = NoiseRates.from_sample(
        part.A[:, heard], Y[:, heard], np.arange(len(part)), names, weights=w[:, heard], known=known[:, heard],
        fired=(tally.fires[heard], tally.visits - tally.fires[heard]),
    )  # fmt: skip
    if heard.all():
        return found, LABELS
    # an anchor that never fires says nothing, and how often the condition is there only its labels say
    N = tally.visits
    counted = np.where(known, w, 0.0)
    prior = ((counted * Y).sum(0) + 0.5) / (counted.sum(0) + 1.0)
    sensitivity, false_positive = np.full(silent.size, 1 / (N + 1)), np.full(silent.size, 0.1 / (N + 1))
    prior[heard], sensitivity[heard] = found.prior, found.sensitivity
    false_positive[heard] = found.false_positive
    return NoiseRates(prior, sensitivity, false_positive, cohort.conditions), LABELS


def _weights(weights: ArrayLike | None, part: Cohort, rows: NDArray[np.intp]) -> Floats:
    """(k, m), above zero everywhere: one where nothing is known, which is not looked at."""
    known = part.known
    if weights is None:
        return np.ones(known.shape)
    given = np.asarray(weights, float)[rows]
    whole = np.where(known, given[:, None] if given.ndim == 1 else given, 1.0)
    if not (np.isfinite(whole).all() and (whole > 0).all()):
        raise CohortError("a label's weight must be a number above 0")
    return whole


def _refuse(cohort: Cohort, tally: Tally) -> None:
    few = (tally.fires == 0) & (np.minimum(tally.true, tally.known - tally.true) < ENOUGH)
    if few.any():
        names = [c for c, bad in zip(cohort.conditions, few, strict=True) if bad]
        raise CohortError(
            f"nothing can be learned about {', '.join(names)}: no anchor fires in {len(cohort):,} visits, and fewer "
            f"than {ENOUGH} labelled visits have it, or have it not; add an anchor to the conditions file and build "
            "again, label more visits, or leave the condition out"
        )
