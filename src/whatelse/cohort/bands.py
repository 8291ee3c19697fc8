"""Bands: numbers as findings. The cuts between bands are quantiles of the cohort, learned once and kept.

A number v of name `pulse` with cuts c1 < … < ck is one of the findings

    pulse:<c1     pulse:c1-c2  (c1 <= v < c2)     …     pulse:>=ck

so each value is in exactly one band, like a decade of age.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import pairwise

import numpy as np
from numpy.typing import ArrayLike, NDArray

Cuts = tuple[float, ...]
Bands = Mapping[str, Cuts]


def learn_cuts(values: ArrayLike, count: int) -> Cuts:
    """Cuts that part the values into at most `count` bands of about as many values each; fewer where values repeat.

    Cuts are values that occur, so that they read well; none if all values are the same. O(N log N).
    """
    return cuts_of_counts(*np.unique(np.asarray(values, dtype=np.float64), return_counts=True), count)


def cuts_of_counts(values: NDArray[np.float64], times: NDArray[np.int64], count: int) -> Cuts:
    """`learn_cuts` from distinct sorted values and how many times each occurred. Counts of parts of a cohort add up."""
    if count < 2 or not values.size:
        return ()
    ends = np.cumsum(times)
    place = np.ceil((ends[-1] - 1) * (np.arange(1, count) / count)).astype(np.int64)  # the quantile, or the next value
    cuts = np.unique(values[np.searchsorted(ends, place, side="right")])
    return tuple(float(f"{cut:.6g}") for cut in cuts if cut > values[0])


def band_names(name: str, cuts: Cuts) -> list[str]:
    """The findings of a number, from the lowest band to the highest; none without cuts."""
    if not cuts:
        return []
    written = [f"{cut:g}" for cut in cuts]
    return [f"{name}:<{written[0]}", *(f"{name}:{a}-{b}" for a, b in pairwise(written)), f"{name}:>={written[-1]}"]


def bands_of(cuts: Cuts, values: ArrayLike) -> NDArray[np.intp]:
    """Which band each value is in, from 0."""
    return np.searchsorted(np.array(cuts), np.asarray(values, dtype=np.float64), side="right")
