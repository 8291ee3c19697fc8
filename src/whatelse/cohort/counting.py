"""Collector: the content of a stream of visits as integers, so that a vocabulary can be chosen after one pass.

A visit is kept as the numbers of its words in reading order and the numbers of its other findings: 4 bytes each, about
0.1 GB for 273,174 visits with three notes. When the stream ends, bigrams learned from all visits are joined, and each
visit becomes its distinct findings.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Iterator
from typing import Self

import numpy as np
from numpy.typing import NDArray

from whatelse.annotators import AnchorSet
from whatelse.annotators.spelling import meant
from whatelse.cohort.bands import Bands, band_names, bands_of
from whatelse.cohort.encoding import Encoder, Joins
from whatelse.cohort.fields import FieldCollector, given_fields
from whatelse.cohort.findings import Finder
from whatelse.errors import CohortError
from whatelse.text import Bigram, BigramCounts
from whatelse.types import Int32s, Ints
from whatelse.visits import Visit

CHUNK = 2_000_000  # words; bounds the memory of the working arrays to about 0.1 GB
AT_ONCE = 500  # visits that are read in one pass


class _Numbers(dict[str, int]):
    """Name -> its number, the next free one for a name not met before."""

    def __missing__(self, name: str) -> int:
        self[name] = number = len(self)
        return number


class Labels:
    """Ids of visits and which conditions are known to be true or false of each."""

    def __init__(self, anchors: AnchorSet) -> None:
        self.anchors = anchors
        self.ids: list[str] = []
        self.other = 0  # names in `truth` that are none of the conditions
        self.named = 0  # names in `truth` that are
        self._true, self._known = bytearray(), bytearray()

    def add(self, visit: Visit) -> None:
        labels = self.anchors.labels(visit)
        if visit.truth:
            self._check(visit.truth)
        self.ids.append(visit.id)
        self._true.extend(label is True for label in labels)
        self._known.extend(label is not None for label in labels)

    def _check(self, truth: tuple[str, ...]) -> None:
        """Count the names of `truth`; a name that differs from a condition by a letter is an error."""
        unknown = [name for name in truth if name not in self.anchors.names]
        self.other += len(unknown)
        self.named += len(truth) - len(unknown)
        for name in unknown:
            if (known := meant(name, self.anchors.names)) is not None:
                where = f"visit number {len(self.ids) + 1:,}: its 'truth' names a condition that is not defined"
                raise CohortError(f"{where}; did you mean {known!r}? Correct the records, or define that name")

    def arrays(self) -> tuple[NDArray[np.object_], NDArray[np.bool_] | None, NDArray[np.bool_]]:
        """ids (N,), Y (N, m) or None where no visit has labels, known (N, m)."""
        if self.other and not self.named:
            names = f"its conditions are {', '.join(self.anchors.names)}"
            advice = "give --conditions FILE, or map the right column as 'truth'"
            raise CohortError(f"'truth' has {self.other:,} names and none is a condition here; {names}: {advice}")
        if len(set(self.ids)) < len(self.ids):
            twice = len(self.ids) - len(set(self.ids))
            raise CohortError(f"{twice:,} visits have an id that another visit has: every visit needs an id of its own")
        true, known = self.matrices()
        return np.array(self.ids, dtype=object), true if known.any() else None, known

    def matrices(self) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
        """True and known, each (N, m)."""
        shape = len(self.ids), len(self.anchors.names)
        true, known = (np.frombuffer(part, dtype=bool).reshape(shape).copy() for part in (self._true, self._known))
        return true, known


class Collector:
    """Takes visits one by one. The first m facts are the anchors of the m conditions.

    Visits wait until there are enough for one pass over their notes (`encoding.py`).
    """

    def __init__(self, finder: Finder) -> None:
        self.finder = finder
        self.labels = Labels(finder.anchors)
        self.bigrams = BigramCounts()
        self.words, self.facts = _Numbers(), _Numbers()
        self.left: set[str] = set()  # names of codes that were anchors
        self.fields = FieldCollector()
        self._anchors = [self.facts[f"anchor:{name}"] for name in finder.anchors.names]
        self._encoder = Encoder(finder, self.words.__getitem__, self.facts.__getitem__)
        self._waiting: list[Visit] = []
        self._word, self._word_end = array("i"), array("q", [0])  # 2 * number + 1 where a pair cannot end there
        self._fact, self._fact_end = array("i"), array("q", [0])
        self._numbers: dict[str, tuple[array[int], array[float]]] = {}  # rows and values of each number

    def __len__(self) -> int:
        return len(self._word_end) - 1 + len(self._waiting)

    def add(self, visit: Visit) -> None:
        """Collect the words, facts, numbers and labels of a visit. O(length of the record)."""
        self.labels.add(visit)
        self.fields.add(given_fields(visit))
        measures = self.finder.reader.measures
        for name, value in visit.numbers or ():
            if measures is not None and measures.is_column(name):
                continue  # read as what it means, not by bands
            rows, values = self._numbers.setdefault(name, (array("q"), array("d")))
            rows.append(len(self))
            values.append(value)
        self._waiting.append(visit)
        if len(self._waiting) >= AT_ONCE:
            self.read()

    def read(self) -> None:
        """Read the notes and codes of the visits that wait."""
        visits, self._waiting = self._waiting, []
        if not visits:
            return
        found = self._encoder.encode(visits, self.bigrams)
        rows, facts = list[int](), list[int]()
        for v, visit in enumerate(visits):
            for names, conditions, _, _ in self.finder.facts(visit):
                if conditions:
                    here = [self._anchors[i] for i in conditions]
                    self.left.update(names)
                else:
                    here = [self.facts[name] for name in names]
                facts += here
                rows += [v] * len(here)
        width = len(self.facts) + 1
        row = np.concatenate([found.fact_row, np.array(rows, np.int64)])
        key = np.unique(row * width + np.concatenate([found.fact, np.array(facts, np.int64)]))
        self._extend(self._fact, self._fact_end, key % width, key // width, len(visits))
        self._extend(self._word, self._word_end, 2 * found.word + found.gap, found.word_row, len(visits))

    @staticmethod
    def _extend(values: array[int], ends: array[int], more: Ints, row: Ints, visits: int) -> None:
        """Append numbers of `visits` further visits; `row`, sorted, is the visit of each."""
        offset = ends[-1]
        values.frombytes(more.astype(np.int32).tobytes())
        ends.frombytes((offset + np.searchsorted(row, np.arange(visits), side="right")).astype(np.int64).tobytes())

    def add_all(self, visits: Iterable[Visit]) -> Self:
        for visit in visits:
            self.add(visit)
        self.read()
        return self

    def numbers(self) -> dict[str, NDArray[np.float64]]:
        """The values of every number that visits have, by name."""
        return {name: np.array(values) for name, (_, values) in sorted(self._numbers.items())}

    def findings(self, bigrams: frozenset[Bigram], bands: Bands) -> tuple[list[str], NDArray[np.int64], Int32s]:
        """(names, row ends (N + 1,), numbers): each visit's distinct findings, as numbers into the names.

        Facts come first among the names, anchors first among those.
        """
        self.read()
        join = Joins.of(bigrams, self.words, self.words.__getitem__)
        measured_row, measured = self._measured(bands)
        names = [*self.facts, *self.words]
        offset = len(self.facts)
        fact_end, facts = np.frombuffer(self._fact_end, dtype=np.int64), np.frombuffer(self._fact, dtype=np.int32)
        parts, sizes = [], []
        for rows, coded in self._chunks():
            start = self._word_end[rows.start]
            ends = np.frombuffer(self._word_end, dtype=np.int64)[rows.start + 1 : rows.stop + 1] - start
            row = np.searchsorted(ends, np.arange(coded.size), side="right")
            word, first, _ = join.join(coded >> 1, (coded & 1).astype(bool))
            row = row[first]
            low, high = fact_end[rows.start], fact_end[rows.stop]
            fact_row = np.searchsorted(fact_end[rows.start + 1 : rows.stop + 1], np.arange(low, high), side="right")
            width = len(names) + 1
            some = slice(*np.searchsorted(measured_row, [rows.start, rows.stop]))
            band_key = (measured_row[some] - rows.start) * width + measured[some]
            key = np.concatenate([row * width + word + offset, fact_row * width + facts[low:high], band_key])
            key = np.unique(key)
            parts.append((key % width).astype(np.int32))
            sizes.append(np.bincount(key // width, minlength=len(rows)))
        ends = np.concatenate([[0], np.cumsum(np.concatenate([np.empty(0, np.int64), *sizes]))]).astype(np.int64)
        return names, ends, np.concatenate([np.empty(0, np.int32), *parts])

    def _measured(self, bands: Bands) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Rows, sorted, and the fact that a number of each is: its band."""
        rows, facts = [np.empty(0, np.int64)], [np.empty(0, np.int64)]
        for name, cuts in sorted(bands.items()):
            if name in self._numbers and cuts:
                fact = np.array([self.facts[finding] for finding in band_names(name, cuts)], dtype=np.int64)
                rows.append(np.array(self._numbers[name][0], dtype=np.int64))
                facts.append(fact[bands_of(cuts, self._numbers[name][1])])
        row, found = np.concatenate(rows), np.concatenate(facts)
        order = np.argsort(row, kind="stable")
        return row[order], found[order]

    def _chunks(self) -> Iterator[tuple[range, NDArray[np.int64]]]:
        """Rows in runs of about CHUNK words, with their coded words."""
        ends = np.frombuffer(self._word_end, dtype=np.int64)
        words = np.frombuffer(self._word, dtype=np.int32)
        first = 0
        while first < len(self):
            last = int(np.searchsorted(ends, ends[first] + CHUNK, side="right")) - 1
            last = min(max(last, first + 1), len(self))
            last = min(last, first + CHUNK)  # visits without a word are rows all the same
            yield range(first, last), words[ends[first] : ends[last]].astype(np.int64)
            first = last
