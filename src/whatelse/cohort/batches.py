"""Findings of many visits at once, as `Vocabulary.present` and `unobserved` have them, some four times faster.

Notes go through the compiled loop of `text/compiled.py`; one with an anchor phrase that has signs inside ("abd. pain")
goes the long way. Codes, ages and numbers are remembered as the findings they are.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_matrix

from whatelse.cohort.bands import band
from whatelse.cohort.findings import REMEMBERED, Finder
from whatelse.cohort.vocabulary import Vocabulary
from whatelse.text import join_bigrams
from whatelse.text.compiled import Pieces, find, phrase_table
from whatelse.visits import CODE_FIELDS, TEXT_FIELDS, Code, Visit

Ints = NDArray[np.int64]
_BIT = {field: 1 << k for k, field in enumerate(TEXT_FIELDS)}


class BatchReader:
    """A vocabulary made ready for batches of visits. Not for several threads at once."""

    def __init__(self, vocabulary: Vocabulary) -> None:
        self.vocabulary = vocabulary
        self._finder = finder = Finder(vocabulary.anchors, vocabulary.rules)
        self._first = first = len(vocabulary.names) - len(vocabulary.conditions)
        phrases = finder.all_phrases()
        pairs = sorted(vocabulary.bigrams)
        parts = (name.removeprefix("neg:") for name in vocabulary.names)
        texts = chain(parts, chain.from_iterable(words for words, *_ in phrases), chain.from_iterable(pairs))
        self._pieces = Pieces(vocabulary.rules, texts)
        known, index = self._pieces.fixed, vocabulary.index
        about = [
            (first + condition, sum(_BIT.get(field, 0) for field in fields), not any(signs))
            for _, signs, condition, fields in phrases
        ]
        keys = np.array([(known[a] << 32) + known[b] for a, b in pairs], np.int64)
        joined = [(index.get(f"{a}_{b}", -1), index.get(f"neg:{a}_{b}", -1)) for a, b in pairs]
        order = np.argsort(keys)
        self._words = (
            *phrase_table([(words, k) for k, (words, *_) in enumerate(phrases)], known),
            np.array(about, np.int64).reshape(-1, 3),
            np.array([index.get(text, -1) for text in known], np.int64),
            np.array([index.get(f"neg:{text}", -1) for text in known], np.int64),
            keys[order],
            np.array(joined, np.int64).reshape(-1, 2)[order],
        )
        self._codes: dict[tuple[str, Code], tuple[int, ...]] = {}
        self._hidden: dict[frozenset[str], NDArray[np.int32]] = {}
        self._bands = {name: [index.get(b, -1) for b in bands] for name, bands in vocabulary._band_names.items()}

    def present(self, visits: Sequence[Visit]) -> csr_matrix:
        """(V, n) CSR of 0/1: the findings of each visit."""
        notes: list[str] = []
        owner: list[int] = []
        bits: list[int] = []
        row: list[int] = []
        number: list[int] = []
        for v, visit in enumerate(visits):
            for field, bit in _BIT.items():
                if text := getattr(visit, field):
                    notes.append(text)
                    owner.append(v)
                    bits.append(bit)
            facts = self._facts(visit)
            number += facts
            row += [v] * len(facts)
        note, found, hard = find(self._pieces, self._pieces.read(notes), np.array(bits, np.int64), self._words)
        owners = np.array(owner, np.int64)
        for k in np.flatnonzero(hard).tolist():
            slow = self._slowly(TEXT_FIELDS[bits[k].bit_length() - 1], notes[k])
            number += slow
            row += [owner[k]] * len(slow)
        n = len(self.vocabulary.names)
        key = np.concatenate([owners[note] * n + found, np.array(row, np.int64) * n + np.array(number, np.int64)])
        key = np.unique(key)
        ends = np.searchsorted(key, np.arange(len(visits) + 1) * n)
        indices = (key % n).astype(np.int32)
        return csr_matrix((np.ones(key.size, np.uint8), indices, ends.astype(np.int32)), shape=(len(visits), n))

    def unobserved(self, visits: Sequence[Visit]) -> csr_matrix:
        """(V, n) CSR of 0/1: the findings that nobody looked for."""
        n, fields = len(self.vocabulary.names), self.vocabulary._fields
        rows = []
        for visit in visits:
            measured = {f"number {name}" for name, _ in visit.numbers or ()}
            missing = frozenset(f for f in fields if f not in measured and getattr(visit, f, None) is None)
            hidden = self._hidden.get(missing)
            if hidden is None:
                hidden = self._hidden[missing] = self.vocabulary.unobserved(visit)
            rows.append(hidden)
        ends = np.concatenate([[0], np.cumsum([row.size for row in rows])]).astype(np.int32)
        indices = np.concatenate([np.empty(0, np.int32), *rows])
        return csr_matrix((np.ones(indices.size, np.uint8), indices, ends), shape=(len(visits), n))

    def _facts(self, visit: Visit) -> list[int]:
        """Findings besides notes."""
        found: list[int] = []
        index, codes = self.vocabulary.index, self._codes
        if visit.age is not None:
            decade = int(visit.age // 10) * 10
            if (j := index.get(f"age:{decade}-{decade + 10}")) is not None:
                found.append(j)
        if visit.sex is not None and (j := index.get(f"sex:{visit.sex}")) is not None:
            found.append(j)
        for field in CODE_FIELDS:
            for code in getattr(visit, field) or ():
                known = codes.get((field, code))
                if known is None:
                    name, conditions = self._finder.code(field, code)
                    own = index.get(name)
                    known = (*(self._first + i for i in conditions), *(() if own is None else (own,)))
                    if len(codes) >= REMEMBERED:
                        codes.clear()
                    codes[field, code] = known
                found += known
        for name, value in visit.numbers or ():
            if name in self._bands:
                found += [j for j in (self._bands[name][band(self.vocabulary.bands[name], value)],) if j >= 0]
        return found

    def _slowly(self, field: str, text: str) -> list[int]:
        """Findings of one note, as `Vocabulary.find` has them."""
        tokens = self._finder.tokens(text)
        phrases = self._finder.phrases(field, text, tokens)
        words = [token.word for token in join_bigrams(self._finder.rest(tokens, phrases), self.vocabulary.bigrams)]
        found = (self.vocabulary.index.get(word) for word in words)
        return [self._first + condition for condition, _, _ in phrases] + [j for j in found if j is not None]
