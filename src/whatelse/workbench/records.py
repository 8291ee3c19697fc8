"""Records: the visits of a cohort in memory, and which of them have a phrase, drug or code."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np

from whatelse.annotators import Anchor
from whatelse.annotators.anchor_uses import mentions
from whatelse.cohort import Cohort
from whatelse.types import Indices
from whatelse.visits import Visit


class Records:
    """The records of N visits, by their rows in the cohort. Visits that the cohort does not have are passed over."""

    def __init__(self, cohort: Cohort, visits: Iterable[Visit]) -> None:
        row_of = {str(visit): row for row, visit in enumerate(cohort.ids)}
        found = {row_of[visit.id]: visit for visit in visits if visit.id in row_of}
        self._vocabulary = cohort.vocabulary
        self.rows = np.array(sorted(found), np.intp)
        self.visits = [found[row] for row in self.rows.tolist()]

    def __len__(self) -> int:
        return len(self.visits)

    def having(self, anchors: Sequence[Anchor]) -> list[Indices]:
        """For each anchor, the rows of the visits in which it would fire. Every note is read once, for all anchors."""
        there: list[set[str]] = [set() for _ in anchors]
        for which, excerpt in mentions(self.visits, anchors, self._vocabulary.rules, self._vocabulary.lexicon):
            there[which].add(excerpt.visit)
        return [self.rows[[visit.id in ids for visit in self.visits]] for ids in there]
