"""Findings of many visits at once, or of one with their places: everything that has a vocabulary reads visits here."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from scipy.sparse import csr_matrix

from whatelse.cohort.encoding import Encoded, Encoder, Joins
from whatelse.cohort.fields import given_fields
from whatelse.cohort.findings import REMEMBERED
from whatelse.text.assertion import ASSERTIONS, NEGATED
from whatelse.text.matcher import ASSERTION, END, NOTE, START, TYPE, WORD_ITEM
from whatelse.types import Int32s, Ints
from whatelse.visits import TEXT_FIELDS, Code, Visit

if TYPE_CHECKING:
    from whatelse.cohort.vocabulary import Vocabulary


class Found(NamedTuple):
    """One place where a finding was found: `text[start:end]` of a note's field, or a code, or neither (age, sex).

    assertion   what the note says about it, one of `whatelse.text.ASSERTIONS`
    """

    finding: int
    field: str
    start: int | None = None
    end: int | None = None
    code: Code | None = None
    assertion: str = "present"

    @property
    def negated(self) -> bool:
        """Whether the note denies it."""
        return self.assertion == ASSERTIONS[NEGATED]


class BatchReader:
    """A vocabulary made ready for reading visits."""

    def __init__(self, vocabulary: Vocabulary) -> None:
        self.vocabulary = vocabulary
        self.finder = finder = vocabulary._finder
        index = vocabulary.index
        parts = sorted({word for pair in vocabulary.bigrams for word in pair})
        names = dict.fromkeys([*vocabulary.names, *(sign + word for word in parts for sign in ("", "neg:"))])
        words = {name: k for k, name in enumerate(names)}
        self._joins = Joins.of(vocabulary.bigrams, words, lambda name: words.setdefault(name, len(words)))
        self._column = np.array([index.get(name, -1) for name in words] + [-1], np.int64)
        unknown = len(words)
        concepts = set(finder.reader.concepts)
        self._encoder = Encoder(
            finder,
            lambda name: unknown if name.removeprefix("neg:") in concepts else words.get(name, unknown),
            lambda name: vocabulary.columns.get(name, -1),
        )
        self._first = len(vocabulary.names) - len(vocabulary.conditions)
        self._codes: dict[tuple[str, Code], tuple[int, ...]] = {}
        self._hidden: dict[frozenset[str], Int32s] = {}
        self._bands = {name: [index.get(b, -1) for b in bands] for name, bands in vocabulary._band_names.items()}

    def present(self, visits: Sequence[Visit]) -> csr_matrix:
        """(V, n) CSR of 0/1: the findings of each visit. O(length of the records)."""
        found = self._encoder.encode(visits)
        word, first, _ = self._joins.join(found.word, found.gap)
        column = self._column[word]
        row, number = list[int](), list[int]()
        for v, visit in enumerate(visits):
            facts = [j for j, _, _ in self._facts(visit)]
            number += facts
            row += [v] * len(facts)
        n = len(self.vocabulary.names)
        rows = np.concatenate([found.word_row[first], found.fact_row, np.array(row, np.int64)])
        columns = np.concatenate([column, found.fact, np.array(number, np.int64)])
        key = np.unique((rows * n + columns)[columns >= 0])
        ends = np.searchsorted(key, np.arange(len(visits) + 1) * n)
        indices = (key % n).astype(np.int32)
        return csr_matrix((np.ones(key.size, np.uint8), indices, ends.astype(np.int32)), shape=(len(visits), n))

    def find(self, visit: Visit) -> list[Found]:
        """Every mention of every finding of one visit: first notes in reading order, then codes and numbers."""
        found = self._encoder.encode([visit])
        word, first, last = self._joins.join(found.word, found.gap)
        words = self._column[word], found.word_item[first], found.word_item[last]
        facts = found.fact, found.fact_item, found.fact_item
        places = [p for columns in (words, facts) for p in zip(*(c.tolist() for c in columns), strict=True)]
        here = [self._found(found, j, a, b) for j, a, b in places if j >= 0]
        here.sort(key=lambda f: (TEXT_FIELDS.index(f.field), f.start, f.end, f.finding))
        return here + [Found(j, field, code=code) for j, field, code in self._facts(visit)]

    def _found(self, found: Encoded, finding: int, first: int, last: int) -> Found:
        item = found.items[first]
        field = TEXT_FIELDS[found.notes.field[item[NOTE]]]
        end, assertion = int(found.items[last, END]), ASSERTIONS[item[ASSERTION]]
        return Found(finding, field, int(item[START]), end, assertion=assertion)

    def unknown_words(self, visits: Sequence[Visit]) -> tuple[Ints, Ints]:
        """(V,) how many words of the notes belong to no finding and no anchor, and (V,) how many words there are."""
        found = self._encoder.encode(visits)
        word, first, _ = self._joins.join(found.word, found.gap)
        unknown = np.bincount(found.word_row[first][self._column[word] < 0], minlength=len(visits))
        notes = found.items[found.items[:, TYPE] == WORD_ITEM, NOTE]
        words = np.bincount(found.notes.row[notes], minlength=len(visits))
        return unknown.astype(np.int64), words.astype(np.int64)

    def unobserved(self, visits: Sequence[Visit]) -> csr_matrix:
        """(V, n) CSR of 0/1: the unobserved findings."""
        return self.hidden_rows([given_fields(visit) for visit in visits])

    def hidden_rows(self, given: Sequence[frozenset[str]]) -> csr_matrix:
        """(V, n) CSR of 0/1: the unobserved findings of visits that have these fields."""
        rows = [self.hidden(fields) for fields in given]
        ends = np.concatenate([[0], np.cumsum([row.size for row in rows])]).astype(np.int32)
        indices = np.concatenate([np.empty(0, np.int32), *rows])
        shape = (len(rows), len(self.vocabulary.names))
        return csr_matrix((np.ones(indices.size, np.uint8), indices, ends), shape=shape)

    def hidden(self, given: frozenset[str]) -> Int32s:
        """The unobserved findings, sorted, of a visit that has these fields."""
        given &= self.vocabulary.fields
        hidden = self._hidden.get(given)
        if hidden is None:
            sources = self.vocabulary._sources
            hidden = np.array([j for j, fields in enumerate(sources) if not fields & given], np.int32)
            self._hidden[given] = hidden
        return hidden

    def _facts(self, visit: Visit) -> list[tuple[int, str, Code | None]]:
        """Findings besides notes, with the field and code of each."""
        found: list[tuple[int, str, Code | None]] = []
        index, codes = self.vocabulary.index, self._codes
        for names, conditions, field, code in self.finder.facts(visit):
            known = codes.get((field, code)) if code is not None else None
            if known is None:
                own = [j for name in names if (j := index.get(name)) is not None]
                known = (*(self._first + i for i in conditions), *own)
                if code is not None:
                    if len(codes) >= REMEMBERED:
                        codes.clear()
                    codes[field, code] = known
            found += [(j, field, code) for j in known]
        for name, value in visit.numbers or ():
            if name in self._bands:
                j = self._bands[name][bisect_right(self.vocabulary.bands[name], value)]
                found += [(j, "numbers", None)] if j >= 0 else []
        return found
