"""Values in notes: adds the numbers that `measurements.py` reads to the mentions that the compiled pass found.

A value that is asserted as present is a mention of the concepts that it means ("temp 39.5": fever) or denies ("temp
36.8": no fever). The anchors of a concept that it means fire. A list of denials or of old diseases reaches neither a
value ("no LOC, BP 85/50"; "PMH: htn. T 101") nor the word that the value belongs to ("no rash, fever 104"); a direct
denial does ("denies temp > 101"). The name of a value is no drug ("bicarb 8"). Words of values, ages and durations are
covered: they are no findings. A mention that ends inside a value that denies it is negated ("tmax 98.6" is no fever,
"knee pain 0/10" no pain), and fires no anchor.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numba import njit

from whatelse.text.assertion import HISTORICAL, NEGATED, POSSIBLE, PRESENT
from whatelse.text.function_words import says_nothing
from whatelse.text.lexicon import Lexicon
from whatelse.text.matcher import (
    ANCHOR,
    ASSERTION,
    COVERED,
    CUE_END,
    CUE_START,
    DROPPED,
    END,
    FLAGS,
    ID,
    MENTION,
    NOTE,
    START,
    TYPE,
    WORD_ITEM,
)
from whatelse.text.measurements import Measures, Numbers
from whatelse.text.tables import IS_DRUG, AnchorTables
from whatelse.types import Int32s, Ints

PAIN = "pain"  # denied by a pain score of 0
PAIN_SCORE = "pain_score"
DIRECT = re.compile(r"[^\W\d]+")  # words; between a cue and a value only words of grammar may stand


class NoteValues(NamedTuple):
    """items (K, 9) with what values say, and the numbers of each note; none without a table of measures."""

    items: Ints
    numbers: Sequence[Numbers] = ()


class ValueReader:
    """The table of measures of a lexicon, made ready."""

    def __init__(self, lexicon: Lexicon) -> None:
        self.measures, self.tables = Measures(lexicon.measures), lexicon.compiled.tables
        self.concepts = {name: k for k, name in enumerate(lexicon.compiled.concepts)}

    def add(
        self, items: Ints, notes: Sequence[str], ages: Sequence[float | None] | None, anchor_concepts: Int32s,
        anchors: AnchorTables, fields: Ints,
    ) -> NoteValues:  # fmt: skip
        """`items` of notes, changed in place and with the mentions that values are.

        ages: of the patients, in years; anchor_concepts: the concept of each anchor; fields (N,): bits of each note
        """
        every = [self.measures.read(text) for text in notes]
        found = [(n, numbers) for n, numbers in enumerate(every) if numbers.spans]
        if not found:
            return NoteValues(items, every)
        spans = np.array([(n, *span) for n, numbers in found for span in numbers.spans], np.int64)
        denied = self._denied(found, ages)
        assertion, cue_end = np.full(len(spans), PRESENT, np.int64), np.zeros(len(spans), np.int64)
        _cover(items, spans, assertion, cue_end, *denied, anchor_concepts, self.tables)
        said: dict[tuple[int, int, int], int] = {}
        reached: list[tuple[int, int, int]] = []  # places that a list of denials or old diseases runs over
        measured = {(n, m.start, m.end) for n, numbers in found for m in numbers.measurements}
        for (n, a, b), code, cue in zip(spans.tolist(), assertion.tolist(), cue_end.tolist(), strict=True):
            direct = all(map(says_nothing, DIRECT.findall(notes[n][cue:a].lower())))
            runs_over = not direct and (code in (NEGATED, POSSIBLE) or (code == HISTORICAL and (n, a, b) in measured))
            said[n, a, b] = PRESENT if runs_over else code
            if runs_over and code != POSSIBLE:
                reached.append((n, a, b))
        if reached:
            _affirm(items, np.array(reached, np.int64))
        rows: list[tuple[int, ...]] = []
        for n, numbers in found:
            age = _age(n, numbers, ages)
            here = [m for m in numbers.measurements if said[n, m.start, m.end] == PRESENT]
            for name, m in self.measures.findings(here, age).items():
                concept = self.concepts.get(name.removeprefix("neg:"))
                if concept is not None:
                    code = NEGATED if name.startswith("neg:") else PRESENT
                    rows.append((n, MENTION, concept, m.start, m.end, code, -1, -1, 0))
                    if code == PRESENT:
                        fire = anchors.concept[anchors.of[concept] : anchors.of[concept + 1]].tolist()
                        rows += [
                            (n, ANCHOR, anchor, m.start, m.end, PRESENT, -1, -1, 0)
                            for anchor in fire
                            if anchors.fields[anchor] & fields[n]
                        ]
            for duration in numbers.durations:
                concept = self.concepts.get(duration.concept)
                if concept is not None and said[n, duration.start, duration.end] == PRESENT:
                    rows.append((n, MENTION, concept, duration.start, duration.end, PRESENT, -1, -1, 0))
        more = np.array(rows, np.int64).reshape(-1, items.shape[1])
        return NoteValues(np.concatenate([items, more]), every)

    def _denied(self, found: list[tuple[int, Numbers]], ages: Sequence[float | None] | None) -> tuple[Ints, Ints]:
        """Concepts that each span denies, one list after the other: where each begins, and what they hold."""
        starts, flat = [0], list[int]()
        for n, numbers in found:
            age = _age(n, numbers, ages)
            by_place: dict[tuple[int, int], list[str]] = {}
            for m in numbers.measurements:
                names = [name[4:] for name in self.measures.findings([m], age) if name.startswith("neg:")]
                if m.name == PAIN_SCORE and m.value == 0:
                    names.append(PAIN)
                by_place.setdefault((m.start, m.end), []).extend(names)
            for span in numbers.spans:
                flat += [c for name in by_place.get(span, ()) if (c := self.concepts.get(name)) is not None]
                starts.append(len(flat))
        return np.array(starts, np.int64), np.array(flat, np.int64)


def _age(note: int, numbers: Numbers, ages: Sequence[float | None] | None) -> float | None:
    """The age of the patient: as given, else as the note says."""
    given = None if ages is None else ages[note]
    return given if given is not None or not numbers.ages else numbers.ages[0].years


def _affirm(items: Ints, places: Ints) -> None:
    """Take the mentions inside places (P, 3), sorted, out of the lists that run over them. O(K log P)."""
    listed = (items[:, ASSERTION] == NEGATED) | (items[:, ASSERTION] == HISTORICAL)
    rows = np.flatnonzero((items[:, TYPE] == MENTION) & listed & (items[:, CUE_END] >= 0))
    begins = (places[:, 0] << 32) + places[:, 1]
    at = np.searchsorted(begins, (items[rows, NOTE] << 32) + items[rows, START], "right") - 1
    rows, place = rows[at >= 0], places[at[at >= 0]]
    inside = rows[(items[rows, NOTE] == place[:, 0]) & (items[rows, END] <= place[:, 2])]
    items[inside, ASSERTION] = PRESENT
    items[inside, CUE_START] = items[inside, CUE_END] = -1


@njit(cache=True, nogil=True)
def _cover(items, spans, assertion, cue_end, denied_start, denied, anchor_concepts, tables):  # type: ignore[no-untyped-def]
    """Mark the words of spans as covered, give each span the assertion of its last word, deny mentions inside.

    items   sorted by note; within a note its words come last, in reading order. spans (S, 3): note, start, end, sorted
    """
    at = 0
    s = 0
    while s < len(spans):
        note = spans[s, 0]
        last = s
        while last < len(spans) and spans[last, 0] == note:
            last += 1
        while at < len(items) and items[at, NOTE] < note:
            at += 1
        first = at
        while at < len(items) and items[at, NOTE] == note and items[at, TYPE] != WORD_ITEM:
            at += 1
        words = at
        while at < len(items) and items[at, NOTE] == note:
            at += 1
        for k in range(first, words):  # mentions and anchors
            low, high = s, last
            while low < high:  # the last span that begins before the mention ends
                middle = (low + high) >> 1
                if spans[middle, 1] < items[k, END]:
                    low = middle + 1
                else:
                    high = middle
            p = low - 1
            if p < s or items[k, END] > spans[p, 2]:
                continue
            concept = items[k, ID] if items[k, TYPE] == MENTION else anchor_concepts[items[k, ID]]
            if items[k, TYPE] == MENTION and tables.unit[concept] == IS_DRUG:
                items[k, TYPE] = DROPPED
                continue
            for d in range(denied_start[p], denied_start[p + 1]):
                same = denied[d] == concept
                for u in range(tables.up_start[concept], tables.up_start[concept + 1] if concept >= 0 else 0):
                    same = same or tables.up[u] == denied[d]
                if same:
                    items[k, ASSERTION] = NEGATED
                    items[k, CUE_START] = items[k, CUE_END] = -1
                    if items[k, TYPE] == ANCHOR:
                        items[k, TYPE] = DROPPED
        k = words
        for p in range(s, last):
            while k > words and items[k - 1, END] > spans[p, 1]:  # spans may overlap
                k -= 1
            while k < at and items[k, END] <= spans[p, 1]:
                k += 1
            while k < at and items[k, START] < spans[p, 2]:
                items[k, FLAGS] |= COVERED
                assertion[p], cue_end[p] = items[k, ASSERTION], items[k, CUE_END]
                k += 1
        s = last
