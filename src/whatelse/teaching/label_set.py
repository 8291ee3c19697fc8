"""LabelSet: what people said of a cohort's visits, from label files and from decisions, as arrays for the learner."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from whatelse.cohort import Cohort
from whatelse.errors import InputError
from whatelse.teaching.labels import Others, read_labels, read_weights

Floats = NDArray[np.float64]
Bools = NDArray[np.bool_]
NAMED = 5  # labels that contradict each other which a message names


@dataclass(frozen=True, eq=False)
class LabelSet:
    """Labels of N visits and m conditions.

    belief  (N, m) the chance that the condition is true: 0 or 1 in a label file, between where people may have erred
    known   (N, m) where anybody said anything
    weight  (N, m) how many visits each label stands for; 1 where visits were chosen at random, 0 where not known
    said    (N, m) the chance by what people said alone, as if it were as likely as not before: what is learned from
    """

    belief: Floats
    known: Bools
    weight: Floats
    said: Floats

    @classmethod
    def nothing(cls, cohort: Cohort) -> LabelSet:
        shape = (len(cohort), len(cohort.conditions))
        return cls(np.zeros(shape), np.zeros(shape, bool), np.zeros(shape), np.zeros(shape))

    @classmethod
    def of_cohort(cls, cohort: Cohort) -> LabelSet:
        """The labels that the cohort itself has."""
        Y = np.zeros(cohort.known.shape) if cohort.Y is None else cohort.Y.astype(float)
        return cls(Y, cohort.known.copy(), cohort.known.astype(float), Y)

    @classmethod
    def read(cls, paths: Sequence[Path], cohort: Cohort, *, others: Others = "refuse") -> LabelSet:
        """Several files, each wide or long, weighted or not. InputError names what two of them say differently.

        A label that two files agree on counts once, with the first file's weight.
        """
        found = cls.nothing(cohort)
        value = np.full(found.known.shape, -1, np.int8)
        source = np.zeros(found.known.shape, np.int16)
        for number, path in enumerate(paths):
            labels, weights = read_labels(path, cohort, others=others), read_weights(path, cohort)
            told = labels >= 0
            if len(differ := np.argwhere(told & (value >= 0) & (labels != value))):
                raise InputError(_conflict(cohort, differ, [paths[source[v, i]] for v, i in differ]), file=path)
            fresh = told & (value < 0)
            value[fresh], source[fresh] = labels[fresh], number
            weight = np.ones(len(cohort)) if weights is None else weights
            found.weight[fresh] = np.broadcast_to(weight[:, None], told.shape)[fresh]
        if paths and not (value >= 0).any():
            raise InputError(
                f"no visit of the cohort has a label in {', '.join(map(str, paths))}: are the ids those of the cohort?"
            )
        true = (value == 1).astype(float)
        return cls(true, value >= 0, found.weight, true)

    @property
    def visits(self) -> int:
        """How many visits have a label."""
        return int(self.known.any(1).sum())

    def then(self, other: LabelSet) -> LabelSet:
        """The labels of this set, and where it has none, those of `other`."""
        fresh = other.known & ~self.known
        return LabelSet(
            np.where(fresh, other.belief, self.belief),
            self.known | other.known,
            np.where(fresh, other.weight, self.weight),
            np.where(fresh, other.said, self.said),
        )

    def only(self, rows: Bools) -> LabelSet:
        """Without the labels of visits that are not among `rows` (N,)."""
        kept = self.known & rows[:, None]
        belief, weight, said = (np.where(kept, part, 0.0) for part in (self.belief, self.weight, self.said))
        return LabelSet(belief, kept, weight, said)

    def on(self, cohort: Cohort) -> Cohort:
        """The cohort with these labels instead of its own: what is likelier true than not, where anybody said it."""
        return Cohort(
            cohort.X, cohort.vocabulary, cohort.ids, (self.belief > 0.5) & self.known, self.known, cohort.about
        )


def _conflict(cohort: Cohort, differ: NDArray[np.intp], others: list[Path]) -> str:
    """Which labels two files contradict each other in, by row of the cohort: an id may identify somebody."""
    named = [
        f"{cohort.conditions[i]} of visit {v + 1:,} of the cohort ({other.name})"
        for (v, i), other in list(zip(differ.tolist(), others, strict=True))[:NAMED]
    ]
    more = f" and {len(differ) - NAMED:,} more" if len(differ) > NAMED else ""
    return f"contradicts another file about {', '.join(named)}{more}: keep one label of each"
