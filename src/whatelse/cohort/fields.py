"""Which fields of a record were there: a finding that no field could tell is unobserved, not absent."""

from __future__ import annotations

from array import array
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from whatelse.types import Indices, Int32s
from whatelse.visits import CODE_FIELDS, TEXT_FIELDS, Visit

FIELDS = (*TEXT_FIELDS, *CODE_FIELDS, "age", "sex", "numbers")


def given_fields(visit: Visit) -> frozenset[str]:
    """The fields that a visit has; of a number, its name after "number "."""
    here = [field for field in FIELDS if getattr(visit, field) is not None]
    return frozenset([*here, *(f"number {name}" for name, _ in visit.numbers or ())])


@dataclass(frozen=True, eq=False)
class FieldSets:
    """The fields that each of N visits has.

    kinds   the different sets of fields; which: (N,) the set of each visit
    """

    kinds: tuple[frozenset[str], ...]
    which: Int32s

    def rows(self, rows: Indices) -> FieldSets:
        """The fields of the visits with these row numbers."""
        return FieldSets(self.kinds, self.which[rows])

    def of_names(self, names: Iterable[str]) -> list[list[int]]:
        """For each visit: the places of its fields in `names`."""
        place = {name: k for k, name in enumerate(names)}
        lists = [sorted(place[field] for field in kind if field in place) for kind in self.kinds]
        return [lists[k] for k in self.which.tolist()]


class FieldCollector:
    """Gathers FieldSets visit by visit."""

    def __init__(self) -> None:
        self.kinds: dict[frozenset[str], int] = {}
        self.which = array("i")

    def add(self, fields: frozenset[str]) -> None:
        self.which.append(self.kinds.setdefault(fields, len(self.kinds)))

    def done(self) -> FieldSets:
        """What was gathered."""
        return FieldSets(tuple(self.kinds), np.array(self.which, np.int32))
