"""Finder: the findings of a visit by name, and which of them are anchors of a condition.

A finding's name says where it comes from:

    vomiting                     a concept of the lexicon that the record mentions as present, or a word of the notes
    neg:vomiting                 the same, denied
    hx:stroke                    historical; possible:pneumonia: not certain; family:diabetes: of another person
    hx:warfarin, rx:ceftriaxone  a drug taken at home, a drug given here; so are drug classes (hx:anticoagulant)
    age:40-50, sex:F             and `system:label` for a code whose label names no concept

A concept that is mentioned implies its wider concepts, unless it is denied. Without a lexicon (vocabularies of schema 1
and 2) notes are words and denied words alone, and a drug or code is its label.

**What leaves.** A finding that an anchor is made of must not stay an ordinary finding: it would be on whenever the
anchor is, whatever the condition. So these leave:
- the concept that an anchor's phrase means: every mention of it, or of a kind of it, fires the anchor;
- every word of an anchor's phrase ("s/p fall" takes `s/p` and `fall` with it, in every field);
- a joined word that holds a whole anchor (`etoh_abuse`) or is part of one (`urinary_tract`); `chest_pain` stays though
  "abd pain" takes `pain`. The words of a mention that fires an anchor are not joined with their neighbours: "chronic
  abd pain" is the anchor and `chronic`, not `chronic_abd`;
- a drug or code that is an anchor, in the field where it is one. Tamsulosin dispensed is an anchor of kidney stones, so
  `rx:tamsulosin` leaves; tamsulosin taken at home is not, so `hx:tamsulosin` stays.
A denied mention (`neg:etoh`) neither fires the anchor nor leaves: it is a finding of its own, as in the paper.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from whatelse.annotators import AnchorSet
from whatelse.cohort.coded import code_findings, number_findings
from whatelse.errors import ConditionError
from whatelse.knowledge import age_band
from whatelse.text import Rules, load_rules
from whatelse.text.assertion import HISTORICAL, NEGATED, PRESENT
from whatelse.text.lexicon import DRUG, DRUG_CLASS, EMPTY, Lexicon
from whatelse.text.matcher import ANCHOR, END, ID, NOTE, START, TYPE
from whatelse.text.pieces import WORD, cut
from whatelse.text.reader import NoteReader, Phrase, finding_name
from whatelse.types import Ints
from whatelse.visits import CODE_FIELDS, TEXT_FIELDS, Code, Visit

Words = tuple[str, ...]
FIELD_BITS = {field: 1 << k for k, field in enumerate(TEXT_FIELDS)}
YOUNG = ((28 / 365.25, "newborn"), (0.25, "young_infant"))  # ages (years) below which an infant has the finding
REMEMBERED = 100_000  # codes; drug names are typed by people, so there is no end to them


class Notes(NamedTuple):
    """The notes of visits, one after the other.

    texts  the notes; row: (notes,) the visit of each; field: (notes,) its place in TEXT_FIELDS
    """

    texts: list[str]
    row: Ints
    field: Ints


class AnchorMention(NamedTuple):
    """An anchor phrase in a note: condition and number of its anchor, and text[start:end] of a field of visit `row`."""

    row: int
    condition: int
    anchor: int
    field: str
    start: int
    end: int


class Finder:
    """An AnchorSet, assertion rules and a lexicon made ready for reading visits.

    rules     a shipped name, a path, or loaded ones
    lexicon   the concepts; EMPTY: notes are words alone
    """

    def __init__(self, anchors: AnchorSet, rules: str | Path | Rules = "default", lexicon: Lexicon = EMPTY) -> None:
        self.anchors, self.rules, self.lexicon = anchors, load_rules(rules), lexicon
        self._phrases: set[Words] = set()
        self.phrase_of: list[tuple[int, int]] = []  # condition and number of the anchor of each phrase
        self._coded = []
        for i, condition in enumerate(anchors.conditions):
            for number, anchor in enumerate(condition.anchors):
                if anchor.how != "phrase":
                    self._coded += [(i, anchor, field) for field in anchor.fields]
                    continue
                words = tuple(word for word, kind, _ in cut(anchor.value) if kind == WORD)
                if not words:
                    raise ConditionError(f"condition {condition.name!r}: anchor {anchor.value!r} has no word in it")
                self._phrases.add(words)
                self.phrase_of.append((i, number))
        self._words = {word for phrase in self._phrases for word in phrase}
        self._memo: dict[tuple[str, Code], tuple[tuple[str, ...], tuple[int, ...]]] = {}

    def __getstate__(self) -> dict[str, Any]:
        return {key: value for key, value in self.__dict__.items() if key != "reader"}  # a lock cannot travel

    @cached_property
    def reader(self) -> NoteReader:
        """The reader of notes, which knows the anchors that are phrases."""
        phrases = []
        for i, number in self.phrase_of:
            condition = self.anchors.conditions[i]
            anchor = condition.anchors[number]
            bits = sum(FIELD_BITS.get(field, 0) for field in anchor.fields)
            phrases.append(Phrase(anchor.value, bits, condition.kind == "history"))
        return NoteReader(self.lexicon, self.rules, phrases)

    def notes(self, visits: Iterable[Visit]) -> Notes:
        """The notes of visits that have any text."""
        texts, row, field = list[str](), list[int](), list[int]()
        for v, visit in enumerate(visits):
            for k, name in enumerate(TEXT_FIELDS):
                if text := getattr(visit, name):
                    texts.append(text)
                    row.append(v)
                    field.append(k)
        return Notes(texts, np.array(row, np.int64), np.array(field, np.int64))

    def items(self, notes: Notes, ages: Sequence[float | None]) -> Ints:
        """Mentions, words and anchors of notes (`text/matcher.py`); ages: of visits. Hold `reader.lock` meanwhile."""
        return self.reader.items(notes.texts, 1 << notes.field, [ages[row] for row in notes.row.tolist()])

    def anchor_mentions(self, visits: Sequence[Visit]) -> list[AnchorMention]:
        """Where anchor phrases fire in the notes of visits, note by note in reading order."""
        notes = self.notes(visits)
        with self.reader.lock:
            items = self.items(notes, [visit.age for visit in visits])
        items = items[items[:, TYPE] == ANCHOR]
        found = []
        for item in items.tolist():
            note = item[NOTE]
            condition, anchor = self.phrase_of[item[ID]]
            field = TEXT_FIELDS[notes.field[note]]
            found.append(AnchorMention(int(notes.row[note]), condition, anchor, field, item[START], item[END]))
        return found

    # ---- names

    def concept_names(self, name: str, assertion: int, flags: int = 0) -> list[str]:
        """Names of the findings of a mention: its concept and, unless it is denied, the wider concepts."""
        lexicon = self.lexicon
        entry = lexicon.by_name.get(name)
        kind, lasting = (entry.kind, entry.lasting) if entry else ("", False)
        own = finding_name(name, kind, lasting, assertion, flags)
        if not own or assertion == NEGATED:
            return [own] if own else []
        drug = kind in (DRUG, DRUG_CLASS)
        wider = PRESENT if assertion == HISTORICAL and lasting and not drug else assertion
        names = [own]
        for parent in lexicon.ancestors(name):
            above = lexicon.by_name.get(parent)
            names.append(finding_name(parent, above.kind if above else "", False, wider, flags))
        return names

    def code(self, field: str, code: Code) -> tuple[tuple[str, ...], tuple[int, ...]]:
        """The findings that a code is, and the conditions it is an anchor of (usually none). Remembered: O(1)."""
        known = self._memo.get((field, code))
        if known is None:
            names = code_findings(self, field, code)
            conditions = dict.fromkeys(i for i, anchor, f in self._coded if f == field and anchor.matches(code))
            named = [i for name in names if field == "coded" for i in self._named_by.get(name, ())]
            known = names, tuple(conditions | dict.fromkeys(named))
            if len(self._memo) >= REMEMBERED:
                self._memo.clear()
            self._memo[field, code] = known
        return known

    def facts(self, visit: Visit) -> Iterator[tuple[tuple[str, ...], tuple[int, ...], str, Code | None]]:
        """What a visit holds besides its notes: (finding names, conditions they anchor, field, code)."""
        if visit.age is not None:
            decade = int(visit.age // 10) * 10
            bands = (f"age:{age_band(visit.age)}",) if self.lexicon.entries and self.lexicon.labels else ()
            young = next((name for limit, name in YOUNG if visit.age < limit), None) if bands else None
            infant = self.concept_names(young, PRESENT) if young else ()
            yield (f"age:{decade}-{decade + 10}", *bands, *infant), (), "age", None
        if visit.sex is not None:
            yield (f"sex:{visit.sex}",), (), "sex", None
        for field in CODE_FIELDS:
            for code in getattr(visit, field) or ():
                yield *self.code(field, code), field, code
        if names := tuple(number_findings(self, visit)):
            named = dict.fromkeys(i for name in names for i in self._named_by.get(name, ()))
            yield names, tuple(named), "numbers", None

    @cached_property
    def _named_by(self) -> dict[str, list[int]]:
        """Finding -> conditions that a code or number with this meaning names: of phrases looked for in `coded`."""
        found: dict[str, list[int]] = {}
        for (i, number), concept in zip(self.phrase_of, self.reader.anchor_concepts.tolist(), strict=True):
            condition = self.anchors.conditions[i]
            if concept >= 0 and "coded" in condition.anchors[number].fields:
                name = self.reader.concepts[concept]
                for form in (name, f"hx:{name}") if condition.kind == "history" else (name,):
                    found.setdefault(form, []).append(i)
        return found

    @cached_property
    def anchor_concepts(self) -> frozenset[str]:
        """Concepts that an anchor names: they leave."""
        return frozenset(self.reader.concepts[c] for c in self.reader.anchor_concepts if c >= 0)

    def leaves(self, word: str) -> bool:
        """Whether a word, joined or not, is left out because an anchor is made of it. Never a `neg:` word."""
        if word.startswith("neg:"):
            return False
        parts = tuple(word.split("_"))
        if len(parts) == 1:
            return word in self._words
        if any(parts[i:j] in self._phrases for i in range(len(parts)) for j in range(i + 1, len(parts) + 1)):
            return True
        size = len(parts)
        return any(parts == phrase[i : i + size] for phrase in self._phrases for i in range(len(phrase) - size + 1))
