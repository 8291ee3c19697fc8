"""Visits to numbers, a batch at a time: the one path from notes and codes to findings.

`Encoder` reads the notes of a batch in one compiled pass and gives words and facts as numbers: the numbers of a
vocabulary that exists (`batches.py`), or those of a collector that makes one (`counting.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from whatelse.cohort.findings import Finder, Notes
from whatelse.text.assertion import HISTORICAL, NEGATED, PRESENT
from whatelse.text.bigrams import Bigram, BigramCounts
from whatelse.text.matcher import ANCHOR, APART, ASSERTION, COVERED, FLAGS, ID, MENTION, NOTE, TAKEN, TYPE, WORD_ITEM
from whatelse.types import Bools, Ints
from whatelse.visits import Visit

STATES = 18  # of a mention: six assertions, three origins of a drug
Number = Callable[[str], int]


class Encoded(NamedTuple):
    """The notes of V visits as numbers.

    word_row, word, gap   words in reading order: visit, number (of `neg:` word where denied), and whether the word
                          cannot be joined with the word before
    word_item             rows of `items` of the words
    fact_row, fact        facts: visit and number (-1: none); fact_item: rows of `items`
    notes, items          the notes and what the pass found in them
    """

    word_row: Ints
    word: Ints
    gap: Bools
    word_item: Ints
    fact_row: Ints
    fact: Ints
    fact_item: Ints
    notes: Notes
    items: Ints


class Encoder:
    """Reads notes with a finder; `word` and `fact` give names their numbers."""

    def __init__(self, finder: Finder, word: Number, fact: Number) -> None:
        self.finder = finder
        self._word, self._fact = word, fact
        self._age = -1
        self._words: Ints = np.empty(0, np.int64)  # number of a text, -2: not yet asked for
        self._slot: Ints = np.full(len(finder.reader.concepts) * STATES, -1, np.int64)
        self._slots: list[list[int]] = []
        names = finder.anchors.names
        self._anchor = np.array([fact(f"anchor:{names[i]}") for i, _ in finder.phrase_of], np.int64)

    def encode(self, visits: Sequence[Visit], counts: BigramCounts | None = None) -> Encoded:
        """Words and facts of the notes of visits; `counts` is told which words and pairs there are. O(characters)."""
        notes = self.finder.notes(visits)
        with self.finder.reader.lock:
            items = self.finder.items(notes, [visit.age for visit in visits])
            at = np.flatnonzero(items[:, TYPE] == WORD_ITEM)
            rows = items[at]
            word, gap, stays = self._encode_words(rows)
            if counts is not None:
                self._count(rows, counts)
        facts = self._encode_facts(items)
        owner = notes.row[items[:, NOTE]]
        return Encoded(owner[at[stays]], word, gap, at[stays], owner[facts[0]], facts[1], facts[0], notes, items)

    def _encode_words(self, rows: Ints) -> tuple[Ints, Bools, Bools]:
        """Numbers and gaps of the words that are findings, and which of `rows` these are."""
        assertion = rows[:, ASSERTION]
        denied = assertion == NEGATED
        said = denied | (assertion == PRESENT) | (assertion == HISTORICAL)
        stays = said & ((rows[:, FLAGS] & (TAKEN | COVERED)) == 0)
        gap = (rows[:, FLAGS] & APART) > 0
        gap[1:] |= ~stays[:-1] | (rows[1:, NOTE] != rows[:-1, NOTE])
        gap[:1] = True
        text = (2 * rows[:, ID] + denied)[stays]
        pieces = self.finder.reader.pieces
        if self._age != pieces.age:
            self._age, self._words = pieces.age, np.empty(0, np.int64)
        if self._words.size < 2 * len(pieces.names):
            more = np.full(2 * max(len(pieces.names), 2 * self._words.size, 1024), -2, np.int64)
            more[: self._words.size] = self._words
            self._words = more
        word = self._words[text]
        if (word == -2).any():
            for key in np.unique(text[word == -2]).tolist():
                name = pieces.names[key >> 1]
                self._words[key] = self._word(f"neg:{name}" if key & 1 else name)
            word = self._words[text]
        return word, gap[stays], stays

    def _count(self, rows: Ints, counts: BigramCounts) -> None:
        names = self.finder.reader.pieces.names
        gap = (rows[:, FLAGS] & APART) > 0
        gap[1:] |= (rows[:-1, FLAGS] & COVERED) > 0
        kept = (rows[:, FLAGS] & COVERED) == 0
        rows, gap = rows[kept], gap[kept]
        text, times = np.unique(rows[:, ID], return_counts=True)
        words = {names[t]: int(n) for t, n in zip(text.tolist(), times.tolist(), strict=True)}
        beside = (rows[1:, NOTE] == rows[:-1, NOTE]) & ~gap[1:]
        beside &= (rows[1:, ASSERTION] == NEGATED) == (rows[:-1, ASSERTION] == NEGATED)
        key, times = np.unique((rows[:-1, ID] << 32)[beside] + rows[1:, ID][beside], return_counts=True)
        pairs = {(names[k >> 32], names[k & 0xFFFFFFFF]): n for k, n in zip(key.tolist(), times.tolist(), strict=True)}
        counts.add(words, pairs)

    def _encode_facts(self, items: Ints) -> tuple[Ints, Ints]:
        """(rows of items, facts) of mentions and anchors; a mention may be several facts."""
        at = np.flatnonzero(items[:, TYPE] == MENTION)
        anchors = np.flatnonzero(items[:, TYPE] == ANCHOR)
        key = items[at, ID] * STATES + items[at, ASSERTION] * 3 + items[at, FLAGS]
        slot = self._slot[key]
        if (slot < 0).any():
            for new in np.unique(key[slot < 0]).tolist():
                concept, state = divmod(new, STATES)
                names = self.finder.concept_names(self.finder.reader.concepts[concept], state // 3, state % 3)
                self._slot[new] = len(self._slots)
                self._slots.append([number for name in names if (number := self._fact(name)) >= 0])
            slot = self._slot[key]
        lists = [self._slots[k] for k in slot.tolist()]
        size = np.fromiter(map(len, lists), np.int64, len(lists))
        facts = np.array([number for some in lists for number in some], np.int64)
        return np.concatenate([np.repeat(at, size), anchors]), np.concatenate([facts, self._anchor[items[anchors, ID]]])


class Joins(NamedTuple):
    """Pairs of words that are joined: sorted keys a * 2^32 + b of word numbers, and the number of the joined word."""

    keys: Ints
    numbers: Ints

    @classmethod
    def of(cls, bigrams: frozenset[Bigram], words: Mapping[str, int], number: Number) -> Joins:
        """Joins of pairs whose words are both in `words`, also denied; `number` gives a joined word its number."""
        join = {}
        for a, b in sorted(bigrams):
            for sign in ("", "neg:"):
                if sign + a in words and sign + b in words:
                    join[(words[sign + a] << 32) + words[sign + b]] = number(f"{sign}{a}_{b}")
        keys = sorted(join)
        return cls(np.array(keys, np.int64), np.array([join[key] for key in keys], np.int64))

    def join(self, word: Ints, gap: Bools) -> tuple[Ints, Ints, Ints]:
        """(words, place of the first part, place of the last part): pairs joined from left to right, without overlap.

        word   numbers of words in reading order; gap: a word cannot be joined with the word before
        """
        place = np.arange(word.size)
        if not self.keys.size or word.size < 2:
            return word, place, place
        key = (word[:-1] << 32) + word[1:]
        at = np.minimum(np.searchsorted(self.keys, key), self.keys.size - 1)
        pair = (self.keys[at] == key) & ~gap[1:]
        # Greedy without a loop: in a run of overlapping pairs the 1st, 3rd, 5th … are taken.
        spot = np.arange(pair.size)
        begins = pair & ~np.concatenate([[False], pair[:-1]])
        start = np.maximum.accumulate(np.where(begins, spot, 0))
        taken = np.flatnonzero(pair & ((spot - start) % 2 == 0))
        word, last = word.copy(), place.copy()
        word[taken] = self.numbers[at[taken]]
        last[taken] += 1
        keep = np.ones(word.size, dtype=bool)
        keep[taken + 1] = False
        return word[keep], place[keep], last[keep]
