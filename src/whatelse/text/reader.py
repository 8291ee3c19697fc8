"""NoteReader: notes to mentions. The same compiled pass (`matcher.py`) reads one note and millions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from threading import Lock

import numpy as np

from whatelse.text.assertion import ASSERTIONS, HISTORICAL, HYPOTHETICAL, NEGATED, OTHER, POSSIBLE, PRESENT
from whatelse.text.lexicon import DRUG, DRUG_CLASS, EMPTY, SITE, Lexicon, Words, cut_term
from whatelse.text.matcher import (
    ASSERTION,
    COVERED,
    CUE_END,
    CUE_START,
    DRUG_ALLERGY,
    DRUG_GIVEN,
    END,
    FLAGS,
    ID,
    MENTION,
    NOTE,
    START,
    TYPE,
    WORD_ITEM,
    match_notes,
)
from whatelse.text.measure import Measurement
from whatelse.text.measurements import NOTHING, Measures
from whatelse.text.note import Mention, ReadNote, Unread
from whatelse.text.piece_table import PieceTable
from whatelse.text.rules import Rules, load_rules
from whatelse.text.tables import anchor_tables
from whatelse.text.values import NoteValues, ValueReader
from whatelse.types import Int32s, Ints

PREFIX = {PRESENT: "", NEGATED: "neg:", POSSIBLE: "possible:", HISTORICAL: "hx:", OTHER: "family:"}
COLUMNS = 9


@dataclass(frozen=True)
class Phrase:
    """An anchor phrase: the fields it is looked for in (bits), and whether a historical mention counts."""

    text: str
    fields: int = -1
    historical: bool = False


class NoteReader:
    """A lexicon and assertion rules made ready for reading. Threads must hold `lock` while they use `items`.

    phrases          anchors; an item calls each by its place in this list
    anchor_concepts  (A,) the concept that each anchor names: its mentions fire the anchor; -1: the phrase itself does
    """

    def __init__(
        self, lexicon: Lexicon = EMPTY, rules: str | Path | Rules = "default", phrases: Sequence[Phrase] = ()
    ) -> None:
        self.lexicon, self.rules = lexicon, load_rules(rules)
        terms, self.tables, self.concepts = lexicon.compiled
        words = [cut_term(phrase.text, terms.exact) for phrase in phrases]
        self.terms = terms.with_phrases(words) if phrases else terms
        self.pieces = PieceTable(self.rules, self.terms)
        self._values = ValueReader(lexicon) if lexicon.measures else None
        self.lock = Lock()
        self.anchor_concepts: Int32s = np.empty(0, np.int32)
        self.anchors = anchor_tables(self.terms, self.tables, (), (), (), ())
        self.anchor_concepts = np.array(self._named([phrase.text for phrase in phrases], words), np.int32)
        historical = [
            phrase.historical or bool(c >= 0 and self.tables.lasting[c])
            for phrase, c in zip(phrases, self.anchor_concepts, strict=True)
        ]
        fields = [phrase.fields for phrase in phrases]
        self.anchors = anchor_tables(self.terms, self.tables, words, self.anchor_concepts, fields, historical)

    def _named(self, texts: Sequence[str], words: Sequence[Words]) -> list[int]:
        """The concept that each text means as a whole ("fractured wrist"), -1 where it means none."""
        if not self.lexicon.entries or not texts:
            return [-1] * len(texts)
        found = [-1] * len(texts)
        notes = [text.strip() for text in texts]
        for item in self.items(notes).tolist():
            if item[TYPE] == MENTION and (item[START], item[END]) == (0, len(notes[item[NOTE]])):
                found[item[NOTE]] = item[ID]
        own = [self.lexicon.phrases.get(some, -1) for some in words]
        return [c if c >= 0 and self.lexicon.entries[c].kind != SITE else f for c, f in zip(own, found, strict=True)]

    def items(
        self,
        notes: Sequence[str],
        fields: Sequence[int] | Ints | None = None,
        ages: Sequence[float | None] | None = None,
    ) -> Ints:
        """Mentions, words and anchors of notes as rows (`matcher.py` names the columns). O(characters).

        fields   (N,) the field of each note, as a bit; all bits if None
        ages     (N,) age of the patient in years, for what a measured value means
        """
        return self._read(notes, fields, ages).items

    def _read(
        self,
        notes: Sequence[str],
        fields: Sequence[int] | Ints | None = None,
        ages: Sequence[float | None] | None = None,
    ) -> NoteValues:
        ends, coded = self.pieces.read(notes)
        bits = np.full(len(notes), -1, np.int64) if fields is None else np.asarray(fields, np.int64)
        room = 3 * coded.size + 64
        while True:
            items = np.empty((room, COLUMNS), np.int64)
            table = self.pieces.table
            count = match_notes(ends, coded, table, self.rules.tables, self.tables, self.anchors, bits, items)
            if count >= 0:
                break
            room *= 2
        if self._values is None:
            return NoteValues(items[:count])
        return self._values.add(items[:count], notes, ages, self.anchor_concepts, self.anchors, bits)

    def mentions(self, text: str, field: str = "", age: float | None = None) -> list[Mention]:
        """The mentions of one note in reading order. O(characters)."""
        return list(self.note(text, field, age).mentions)

    def note(self, text: str, field: str = "", age: float | None = None) -> ReadNote:
        """One note as it was understood. O(characters)."""
        with self.lock:
            items, numbers = self._read([text], ages=[age])
            words = [row for row in items.tolist() if row[TYPE] == WORD_ITEM]
            cues = {(row[CUE_START], row[CUE_END]) for row in words if row[CUE_START] >= 0}
            cued = {k for a, b in cues for k in range(a, b)}
            open_words = [row for row in words if not row[FLAGS] & COVERED and row[START] not in cued]
            unread = tuple(Unread(self.pieces.names[row[ID]], row[START], row[END]) for row in open_words)
        said = numbers[0] if numbers else NOTHING
        values = {(m.start, m.end): m for m in said.measurements}
        rows = items[items[:, TYPE] == MENTION].tolist()
        found = [self._mention(row, field, values.get((row[START], row[END]))) for row in rows]
        found.sort(key=lambda mention: (mention.start, mention.end))
        return ReadNote(text, field, tuple(found), unread, len(words), said)

    def _mention(self, row: list[int], field: str, value: Measurement | None) -> Mention:
        cue = (row[CUE_START], row[CUE_END]) if row[CUE_START] >= 0 else None
        finding = self.finding(row[ID], row[ASSERTION], row[FLAGS])
        assertion = ASSERTIONS[row[ASSERTION]]
        return Mention(self.concepts[row[ID]], field, row[START], row[END], assertion, cue, value, finding)

    @property
    def measures(self) -> Measures | None:
        """The table of measures; None without one."""
        return None if self._values is None else self._values.measures

    def finding(self, concept: int, assertion: int, flags: int = 0) -> str:
        """The name of the finding that a mention is, "" if it is none."""
        name = self.concepts[concept]
        entry = self.lexicon.by_name.get(name)
        return finding_name(name, entry.kind if entry else "", bool(entry and entry.lasting), assertion, flags)


def finding_name(name: str, kind: str, lasting: bool, assertion: int, flags: int = 0) -> str:
    """The finding that a mention of a concept is: `fever`, `neg:fever`, `hx:stroke`; "" if it is none.

    A drug of a note is `hx:` (taken at home), or `rx:` where the note says that it was given here.
    """
    if assertion == HYPOTHETICAL:
        return ""
    if kind in (DRUG, DRUG_CLASS):
        if assertion in (OTHER, POSSIBLE) or flags == DRUG_ALLERGY:
            return ""
        if assertion == NEGATED:
            return f"neg:{name}"
        return f"rx:{name}" if flags == DRUG_GIVEN else f"hx:{name}"
    if assertion == HISTORICAL and lasting:
        return name
    return PREFIX[assertion] + name
