"""Tally: counts of anchors and labels in a cohort. Tallies of parts add up to the tally of the whole."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from whatelse.types import Bools, Ints


@dataclass(frozen=True, eq=False)
class Tally:
    """Numbers of visits.

    visits        all of them
    some, whole   visits with at least one known label; visits with every label known

    For each condition, (m,):
    fires         visits with its anchor
    known         visits whose label is known
    true          visits that have the condition by their label
    both          visits that have the condition by their label, and its anchor
    fires_known   visits with the anchor whose label is known
    """

    visits: int
    some: int
    whole: int
    fires: Ints
    known: Ints
    true: Ints
    both: Ints
    fires_known: Ints

    @classmethod
    def of(cls, A: Bools, Y: Bools | None, known: Bools) -> Tally:
        """Counts of anchors A, labels Y and known labels, each (N, m). O(N m)."""
        true = np.zeros_like(known) if Y is None else Y & known
        counts = [np.asarray(marks.sum(0), np.int64) for marks in (A, known, true, A & true, A & known)]
        return cls(len(A), int(known.any(1).sum()), int(known.all(1).sum()), *counts)

    @property
    def table(self) -> tuple[Ints, Ints, Ints, Ints]:
        """(m,) each: labelled visits with (anchor, condition) = (1, 1), (1, 0), (0, 1), (0, 0)."""
        other = self.known - self.fires_known - self.true + self.both
        return self.both, self.fires_known - self.both, self.true - self.both, other
