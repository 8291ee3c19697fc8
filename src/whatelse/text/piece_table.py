"""PieceTable: notes as numbers of pieces (`pieces.py`), which the compiled pass reads. A piece is looked at once."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import chain

import numpy as np

from whatelse.text.pieces import lower, pieces, read
from whatelse.text.rules import Rules
from whatelse.text.terms import TermTable
from whatelse.types import Ints

MOST = 1 << 17  # strings between two spaces that are kept; then everything starts afresh
LONGEST = 32  # characters of such a string


class PieceTable:
    """Different pieces by number, as they are met.

    table   (pieces, 7): number of its text (-1: blanks), kind, offset, length, width, cue word, term
    names   the texts by number, texts: their numbers
    age     how often everything was started afresh: numbers are good for one age
    """

    def __init__(self, rules: Rules, terms: TermTable) -> None:
        self.rules, self.terms = rules, terms
        self.age = -1
        self._fresh()

    def _fresh(self) -> None:
        self.age += 1
        self.texts: dict[str, int] = {}
        self.names: list[str] = []
        self._memo: dict[str, tuple[int, ...]] = {}
        self._rows: list[tuple[int, ...]] = []
        self._number: dict[tuple[int, ...], int] = {}
        self.table: Ints = np.empty((0, 7), np.int64)

    def read(self, notes: Iterable[str]) -> tuple[Ints, Ints]:
        """(ends (N + 1,), piece numbers) of N notes. O(characters)."""
        if len(self._memo) > MOST or len(self._rows) > 4 * MOST:
            self._fresh()
        memo, new = self._memo, self._new
        coded: list[int] = []
        ends = [0]
        for note in notes:
            parts = lower(note).split(" ")
            try:
                coded.extend(chain.from_iterable([memo[part] for part in parts]))
            except KeyError:
                coded.extend(chain.from_iterable([memo[part] if part in memo else new(part) for part in parts]))
            ends.append(len(coded))
        if len(self.table) < len(self._rows):
            more = np.array(self._rows[len(self.table) :], np.int64)
            self.table = np.concatenate([self.table, more])
        return np.array(ends, np.int64), np.array(coded, np.int64)

    def _new(self, between: str) -> tuple[int, ...]:
        """The pieces of what stands between two spaces, met for the first time (or too long to be kept)."""
        cut = pieces(between) or [""]
        widths = [*map(len, cut[:-1]), len(cut[-1]) + 1]  # the last is followed by the space
        found = []
        for piece, width in zip(cut, widths, strict=True):
            text, kind, offset, length = read(piece)
            number = -1
            if text:
                number = self.texts.setdefault(text, len(self.texts))
                if number == len(self.names):
                    self.names.append(text)
            raw = piece[offset : offset + length] if "#" in text else text
            cue = self.rules.cue_words.get(text, -1)
            row = (number, kind, offset, length, width, cue, self.terms.number(text, raw))
            if row not in self._number:
                self._number[row] = len(self._rows)
                self._rows.append(row)
            found.append(self._number[row])
        if len(between) <= LONGEST:
            self._memo[between] = tuple(found)
        return tuple(found)
