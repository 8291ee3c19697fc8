"""Words of many notes at once, as numbers: what `tokenize`, anchor phrases and `join_bigrams` say together, compiled.

`Pieces` turns notes into numbers of pieces (`pieces.py`); `find` goes over them: which words are negated, which runs of
words are phrases, which pairs are joined, and which of the results have a number in a vocabulary. Nothing is kept of
where words stand; whoever asks about one visit wants that, and calls `tokenize`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import chain
from typing import Any

import numpy as np
from numba import njit
from numpy.typing import NDArray

from whatelse.text.pieces import SIGN, WORD, lower, pieces, read
from whatelse.text.rules import AFTER, ANSWER, BEFORE, NEGATES, NEXT_WORD, STOP, Rules

Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]
MOST = 1 << 17  # what stands between two spaces, kept at most; then everything starts afresh
LONGEST = 32


class Pieces:
    """Notes as numbers of pieces; `table` (6, pieces) says of each: text, kind, offset, length, width, opens or not.

    texts   text -> its number. Numbers below `fixed` were there from the start (rules, phrases, vocabulary) and stay
    """

    def __init__(self, rules: Rules, texts: Iterable[str]) -> None:
        self.rules = rules
        phrases: list[tuple[str, tuple[str, ...], int]]
        phrases = [(first, (), alone) for first, (alone, _) in rules.entries.items()]
        for first, (_, longer) in rules.entries.items():
            phrases += [(first, tail, kinds) for some in longer.values() for tail, kinds in some]
        names = dict.fromkeys(texts)
        names.update(dict.fromkeys(word for first, tail, _ in phrases for word in (first, *tail)))
        names.update(dict.fromkeys(rules.opens))
        self.fixed = {name: k for k, name in enumerate(names)}
        self.cues = phrase_table([((first, *tail), kinds) for first, tail, kinds in phrases], self.fixed)
        self._fresh()

    def _fresh(self) -> None:
        self.texts = dict(self.fixed)
        self._memo: dict[str, tuple[int, ...]] = {}
        self._rows: list[tuple[int, ...]] = []
        self._number: dict[tuple[int, ...], int] = {}
        self.table: Ints = np.empty((0, 6), np.int64)

    def read(self, notes: Iterable[str]) -> tuple[Ints, Ints]:
        """(ends (N + 1,), piece numbers) of N notes."""
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
        widths = [*map(len, cut[:-1]), len(cut[-1]) + 1]
        found = []
        for piece, width in zip(cut, widths, strict=True):
            text, what, offset, length = read(piece)
            number = self.texts.setdefault(text, len(self.texts)) if text else -1
            row = (number, what, offset, length, width, int(text in self.rules.opens))
            if row not in self._number:
                self._number[row] = len(self._rows)
                self._rows.append(row)
            found.append(self._number[row])
        if len(between) <= LONGEST:
            self._memo[between] = tuple(found)
        return tuple(found)


def phrase_table(phrases: list[tuple[tuple[str, ...], int]], texts: Mapping[str, int]) -> tuple[Ints, Ints, Ints]:
    """Phrases by their first word, longest first: start (T + 1,) by text; rows (P, 2) of (end in words, value); words.

    Words of phrase p are words[rows[p - 1, 0] : rows[p, 0]].
    """
    known = [(tuple(texts[word] for word in words), value) for words, value in phrases]
    known.sort(key=lambda phrase: (phrase[0][0], -len(phrase[0])))
    start = np.zeros(len(texts) + 1, np.int64)
    np.add.at(start, [words[0] + 1 for words, _ in known], 1)
    rows = np.zeros((len(known) + 1, 2), np.int64)
    rows[1:, 0] = np.cumsum([len(words) for words, _ in known])
    rows[1:, 1] = [value for _, value in known]
    return np.cumsum(start), rows, np.array([word for words, _ in known for word in words], np.int64)


def find(found: Pieces, notes: tuple[Ints, Ints], fields: Ints, words: Any) -> tuple[Ints, Ints, Bools]:
    """(note, number found) pairs, and the notes (flags) that hold a phrase too intricate for this.

    fields  (N,) which field each note is, as bits
    words   what is looked for: see `cohort/batches.py`
    """
    ends, coded = notes
    hard: Bools = np.zeros(ends.size - 1, np.bool_)
    room = 2 * coded.size + 16
    note, number = np.empty(room, np.int64), np.empty(room, np.int64)
    count = _find(ends, coded, found.table, *found.cues, fields, *words, note, number, hard)
    return note[:count], number[:count], hard


@njit(cache=True, nogil=True)
def _same(text, at, count, words, first, end):  # type: ignore[no-untyped-def]
    """Whether the texts from `at` on, of `count`, are words[first:end]."""
    if at + end - first > count:
        return False
    for k in range(end - first):  # noqa: SIM110 (numba compiles loops, not generators)
        if text[at + k] != words[first + k]:
            return False
    return True


@njit(cache=True, nogil=True)
def _answered(text, what, opens, count, end, kinds, cue_start, cue_rows):  # type: ignore[no-untyped-def]
    """`_answer` of tokens.py."""
    if not kinds & ANSWER:
        return kinds
    if end < count:
        stops = _alone(text[end], cue_start, cue_rows) & STOP
        if not stops and (what[end] == WORD or not opens[end]):
            return kinds & ~ANSWER
    return AFTER


@njit(cache=True, nogil=True)
def _alone(text, cue_start, cue_rows):  # type: ignore[no-untyped-def]
    """What a text does alone: 0 where it starts no phrase of one word."""
    if text < 0 or text + 1 >= cue_start.size:
        return 0
    p = cue_start[text + 1]
    if p > cue_start[text] and cue_rows[p, 0] - cue_rows[p - 1, 0] == 1:  # the shortest comes last
        return cue_rows[p, 1]
    return 0


@njit(cache=True, nogil=True)
def _negate(text, what, place, offset, length, opens, count, cue_start, cue_rows, cue_words, negated):  # type: ignore[no-untyped-def]
    """`_triggers` of tokens.py: which pieces are negated."""
    known = cue_start.size - 1
    open_ = False
    begin = back = done = 0
    for i in range(count):
        if i < done or text[i] >= known or cue_start[text[i]] == cue_start[text[i] + 1]:
            continue
        kinds, done = 0, i + 1
        matched = False
        for p in range(cue_start[text[i]] + 1, cue_start[text[i] + 1] + 1):
            first, end = cue_rows[p - 1, 0], cue_rows[p, 0]
            if end - first > 1 and _same(text, i, count, cue_words, first, end):
                kinds = _answered(text, what, opens, count, i + end - first, cue_rows[p, 1], cue_start, cue_rows)
                if kinds:
                    done, matched = i + end - first, True
                    break
        if not matched:
            alone = _alone(text[i], cue_start, cue_rows)
            kinds = _answered(text, what, opens, count, i + 1, alone, cue_start, cue_rows)
        if open_ and kinds & (STOP | BEFORE | AFTER):
            negated[begin:i] = True
            open_ = False
        if kinds & STOP:
            back = done
        if kinds & NEGATES:
            if kinds & BEFORE:
                open_ = True
                begin = back = done
            elif kinds & AFTER:
                k = i
                while k > back and not opens[k - 1]:
                    k -= 1
                negated[k:i] = True
                back = done
            elif done < count:
                last = place[done - 1] + offset[done - 1] + length[done - 1]
                if kinds & NEXT_WORD or place[done] + offset[done] == last:
                    negated[done] = True
    if open_:
        negated[begin:count] = True


@njit(cache=True, nogil=True)
def _find(  # type: ignore[no-untyped-def]
    ends, coded, table, cue_start, cue_rows, cue_words, fields, phrase_start, phrase_rows, phrase_words, phrase_about,
    plain, denied, pair_keys, pair_numbers, note, number, hard,
):  # fmt: skip
    """Into (note, number): what each note holds; returns how much that is."""
    found, widest = 0, 0
    for v in range(ends.size - 1):
        widest = max(widest, ends[v + 1] - ends[v])
    text, what = np.empty(widest, np.int64), np.empty(widest, np.int64)
    place, offset, length = np.empty(widest, np.int64), np.empty(widest, np.int64), np.empty(widest, np.int64)
    opens, negated = np.empty(widest, np.bool_), np.empty(widest, np.bool_)
    word, no, apart = np.empty(widest, np.int64), np.empty(widest, np.bool_), np.empty(widest, np.bool_)
    taken = np.empty(widest, np.bool_)
    known, phrased = plain.size, phrase_start.size - 1
    for v in range(ends.size - 1):
        count, at = 0, 0
        for k in range(ends[v], ends[v + 1]):
            row = table[coded[k]]
            if row[0] >= 0:
                text[count], what[count], offset[count], length[count] = row[0], row[1], row[2], row[3]
                opens[count], place[count], negated[count] = row[5] == 1, at, False
                count += 1
            at += row[4]
        _negate(text, what, place, offset, length, opens, count, cue_start, cue_rows, cue_words, negated)
        words, sign = 0, False
        for k in range(count):
            if what[k] == WORD:
                word[words], no[words], apart[words], taken[words] = text[k], negated[k], sign, False
                words += 1
                sign = False
            elif what[k] == SIGN:
                sign = True
        first_found = found
        for k in range(words):
            if word[k] >= phrased:
                continue
            for p in range(phrase_start[word[k]] + 1, phrase_start[word[k] + 1] + 1):
                first, end = phrase_rows[p - 1, 0], phrase_rows[p, 0]
                value, where, easy = phrase_about[phrase_rows[p, 1]]
                if not where & fields[v] or not _same(word, k, words, phrase_words, first, end):
                    continue
                if not easy:
                    hard[v] = True
                    continue
                good = not no[k]
                for j in range(k + 1, k + end - first):
                    good = good and not no[j] and not apart[j]
                if good:
                    taken[k : k + end - first] = True
                    note[found], number[found] = v, value
                    found += 1
                    if found + 8 >= note.size:
                        hard[v] = True
                        found = first_found
        if hard[v]:
            found = first_found
            continue
        kept = 0
        for k in range(words):  # nothing is joined over the gap that a phrase leaves
            if not taken[k]:
                gap = apart[k] or (k > 0 and taken[k - 1])
                word[kept], no[kept], apart[kept] = word[k], no[k], gap
                kept += 1
        k = 0
        while k < kept:
            hit = -1
            joined = False
            if k + 1 < kept and no[k] == no[k + 1] and not apart[k + 1] and word[k] < known and word[k + 1] < known:
                key = (word[k] << 32) + word[k + 1]
                at = np.searchsorted(pair_keys, key)
                if at < pair_keys.size and pair_keys[at] == key:
                    joined = True
                    hit = pair_numbers[at, 1 if no[k] else 0]
            if not joined and word[k] < known:
                hit = denied[word[k]] if no[k] else plain[word[k]]
            if hit >= 0:
                note[found], number[found] = v, hit
                found += 1
            k += 2 if joined else 1
    return found
