"""Vocabulary: the findings of a model by name, and how to find them in a visit."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from whatelse.anchors import AnchorSet
from whatelse.cohort.bands import Bands, band, band_names
from whatelse.cohort.findings import Finder
from whatelse.errors import CohortError, InputError, WhatelseError
from whatelse.text import Rules, join_bigrams, load_rules
from whatelse.text.rules import SHIPPED
from whatelse.visits import TEXT_FIELDS, Code, Visit

Ints = NDArray[np.int32]
ASKED_SYSTEMS = ("rfv", "vital", "chronic", "visit")  # coded findings that a person can answer for
SCHEMA = 2  # of the JSON form; 1 had the name or path of the rules instead of the rules themselves


class Found(NamedTuple):
    """One place where a finding was found: `text[start:end]` of a note's field, or a code, or neither (age, sex)."""

    finding: int
    field: str
    start: int | None = None
    end: int | None = None
    negated: bool = False
    code: Code | None = None


@dataclass(frozen=True, eq=False)
class Vocabulary:
    """n findings in order: ordinary ones, then `anchor:<condition>` for each of the m conditions.

    names    n names, as described in `findings.py`
    counts   (n,) visits of the cohort it was made from that have the finding
    visits   how many visits that cohort had
    anchors  the conditions
    rules    the negation rules themselves; a shipped name or a path is loaded
    bigrams  pairs of words that are joined
    bands    the cuts between the bands of each number (`bands.py`)
    source   how the files were read that it was made from, as JSON values: `read_visits(…, like=vocabulary.source)`
             reads files like them. It names columns, never a path
    """

    names: tuple[str, ...]
    counts: NDArray[np.int64]
    visits: int
    anchors: AnchorSet
    rules: Rules = "default"  # type: ignore[assignment]
    bigrams: frozenset[tuple[str, str]] = frozenset()
    bands: Bands = field(default_factory=dict)
    source: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        object.__setattr__(self, "rules", load_rules(self.rules))
        m = len(self.anchors.names)
        if self.names[len(self.names) - m :] != tuple(f"anchor:{c}" for c in self.anchors.names):
            raise CohortError(f"a vocabulary must end with the anchors of its {m} conditions, in their order")
        if len(set(self.names)) != len(self.names):
            raise CohortError("a vocabulary must not name a finding twice")
        if self.counts.shape != (len(self.names),):
            raise CohortError(f"a vocabulary of {len(self.names)} findings has {self.counts.size} counts")

    @property
    def conditions(self) -> tuple[str, ...]:
        """The m conditions' names."""
        return self.anchors.names

    @property
    def anchor_columns(self) -> NDArray[np.intp]:
        """(m,) which finding is the anchor of each condition."""
        return np.arange(len(self.names) - len(self.conditions), len(self.names), dtype=np.intp)

    def check_same(self, other: Vocabulary) -> None:
        """CohortError unless `other` has the same findings, column by column, and the same conditions."""
        if self.names == other.names:
            return
        if self.conditions != other.conditions:
            raise CohortError(
                f"the cohort is about other conditions ({len(other.conditions)}) than the model "
                f"({len(self.conditions)}): build it with 'whatelse build --like' the cohort that was learned from"
            )
        differ = sum(a != b for a, b in zip(self.names, other.names, strict=False))
        differ += abs(len(self.names) - len(other.names))
        raise CohortError(
            f"{differ:,} of the cohort's {len(other.names):,} columns mean other findings than the model's "
            f"{len(self.names):,}: build it with 'whatelse build --like' the cohort that was learned from"
        )

    @cached_property
    def index(self) -> dict[str, int]:
        """Name -> finding."""
        return {name: j for j, name in enumerate(self.names)}

    def find(self, visit: Visit) -> list[Found]:
        """Every mention of every finding, note by note in reading order, then codes. O(length of the record)."""
        finder, index, first = self._finder, self.index, len(self.names) - len(self.conditions)
        found: list[Found] = []
        for note in TEXT_FIELDS:
            text = getattr(visit, note)
            if not text:
                continue
            tokens = finder.tokens(text)
            phrases = finder.phrases(note, text, tokens)
            for condition, a, b in phrases:
                found.append(Found(first + condition, note, tokens[a].start, tokens[b].end))
            for token in join_bigrams(finder.rest(tokens, phrases), self.bigrams):
                j = index.get(token.word)
                if j is not None:
                    found.append(Found(j, note, token.start, token.end, token.negated))
        for name, conditions, where, code in finder.facts(visit):
            found.extend(Found(first + i, where, code=code) for i in conditions)
            j = index.get(name)
            if j is not None:
                found.append(Found(j, where, code=code))
        for name, value in visit.numbers or ():
            j = index.get(self._band_names[name][band(self.bands[name], value)]) if name in self._band_names else None
            if j is not None:
                found.append(Found(j, "numbers"))
        return found

    def unknown_words(self, visit: Visit) -> tuple[int, int]:
        """How many words of the notes are neither findings nor part of an anchor, and how many words there are."""
        unknown = words = 0
        for note in TEXT_FIELDS:
            if text := getattr(visit, note):
                tokens = self._finder.tokens(text)
                rest = self._finder.rest(tokens, self._finder.phrases(note, text, tokens))
                words += len(tokens)
                unknown += sum(token.word not in self.index for token in join_bigrams(rest, self.bigrams))
        return unknown, words

    def present(self, visit: Visit) -> Ints:
        """The findings that a visit has: sorted, distinct."""
        return np.unique(np.array([f.finding for f in self.find(visit)], dtype=np.int32))

    def unobserved(self, visit: Visit) -> Ints:
        """The findings that nobody looked for, sorted: those of fields that are None.

        A word is unobserved if the visit has no note at all; an anchor, if the visit has none of the fields
        it is looked for in; a band of a number, if the visit does not have that number.
        """
        measured = {f"number {name}" for name, _ in visit.numbers or ()}
        missing = {name for name in self._fields if name not in measured and getattr(visit, name, None) is None}
        if not missing:
            return np.empty(0, dtype=np.int32)
        return np.array([j for j, fields in enumerate(self._sources) if fields <= missing], dtype=np.int32)

    @cached_property
    def askable(self) -> NDArray[np.int64]:
        """Findings a person can be asked about: words that notes also deny (`neg:` word), and coded observations.

        A word that is denied at least once for every 20 times it is said is a symptom or a sign; "patient" is not.
        """
        asked = [
            j
            for j, name in enumerate(self.names)
            if ((k := self.index.get(f"neg:{name}")) is not None and 20 * self.counts[k] >= self.counts[j])
            or name.partition(":")[0] in ASKED_SYSTEMS
        ]
        return np.array(asked, np.int64)

    @cached_property
    def parts(self) -> dict[str, NDArray[np.intp]]:
        """The parts of a record -> the ordinary findings that come from each."""
        ordinary = len(self.names) - len(self.conditions)
        part = [_PARTS.get(next(iter(fields), ""), "other") for fields in self._sources[:ordinary]]
        return {name: np.flatnonzero([p == name for p in part]) for name in dict.fromkeys(part)}

    # ---- JSON

    def to_json(self) -> dict[str, Any]:
        """The vocabulary as JSON values."""
        return {
            "schema": SCHEMA,
            "names": list(self.names),
            "counts": self.counts.tolist(),
            "visits": self.visits,
            "rules": self.rules.to_json(),
            "bigrams": sorted(map(list, self.bigrams)),
            "bands": {name: list(cuts) for name, cuts in self.bands.items()},
            "source": dict(self.source),
            **self.anchors.to_json(),
        }

    @classmethod
    def from_json(cls, value: Any) -> Vocabulary:
        """What `to_json` wrote, in this schema or an older one; CohortError if it is anything else. Opens no file."""
        schema = value.get("schema", 1) if isinstance(value, dict) else 0
        if not isinstance(schema, int) or schema > SCHEMA:
            raise CohortError(f"the vocabulary is of schema {schema}, this whatelse reads {SCHEMA}: upgrade whatelse")
        rules = _rules(value.get("rules"))
        try:
            return cls(
                names=tuple(_strings(value["names"])),
                counts=np.array(value["counts"], dtype=np.int64),
                visits=int(value["visits"]),
                anchors=AnchorSet.from_json({"conditions": value["conditions"]}, source="vocabulary"),
                rules=rules,
                bigrams=frozenset((a, b) for a, b in map(_strings, value["bigrams"])),
                bands={str(name): _cuts(cuts) for name, cuts in dict(value.get("bands", {})).items()},
                source=dict(value.get("source", {})),
            )
        except (KeyError, TypeError, ValueError) as problem:
            said = f": {problem}" if isinstance(problem, WhatelseError) else ""
            raise CohortError(f"the vocabulary is damaged{said}") from None

    # ---- made once

    @cached_property
    def _finder(self) -> Finder:
        return Finder(self.anchors, self.rules)

    @cached_property
    def _band_names(self) -> dict[str, list[str]]:
        return {name: band_names(name, cuts) for name, cuts in self.bands.items() if cuts}

    @cached_property
    def _sources(self) -> list[frozenset[str]]:
        """The fields each finding can come from; of a band, the name of its number (after "number ")."""
        anchors = {
            f"anchor:{c.name}": frozenset(f for a in c.anchors for f in a.fields) for c in self.anchors.conditions
        }
        numbers = {f: frozenset([f"number {name}"]) for name, bands in self._band_names.items() for f in bands}
        named = numbers | anchors
        return [named[name] if name in named else _fields_of(name) for name in self.names]

    @cached_property
    def _fields(self) -> frozenset[str]:
        return frozenset().union(*self._sources)


_PARTS = dict.fromkeys(TEXT_FIELDS, "notes") | {
    "age": "age and sex",
    "sex": "age and sex",
    "medication_history": "home drugs",
    "dispensed": "drugs given",
    "coded": "codes and vital signs",
}
_BY_PREFIX = {"age": "age", "sex": "sex", "hx": "medication_history", "rx": "dispensed"}


def _fields_of(name: str) -> frozenset[str]:
    """The fields an ordinary finding comes from, read off its name. A time of day ("##:##") is a word."""
    prefix, colon, _ = name.partition(":")
    if not colon or prefix == "neg" or prefix.startswith("#"):
        return frozenset(TEXT_FIELDS)
    return frozenset([_BY_PREFIX.get(prefix, "coded")])


def _cuts(value: Iterable[Any]) -> tuple[float, ...]:
    cuts = tuple(float(cut) for cut in value)
    if any(not a < b for a, b in pairwise((-np.inf, *cuts, np.inf))):
        raise ValueError("cuts must rise")
    return cuts


def _rules(value: Any) -> Rules:
    """Rules as a vocabulary keeps them. Older ones kept a name; a path is not opened, for the file may come from
    anywhere and the rules may have changed since."""
    if not isinstance(value, str):
        try:
            return Rules.from_json(value)
        except InputError as problem:
            raise CohortError(f"the vocabulary is damaged: {problem}") from None
    if value not in SHIPPED:
        raise CohortError(
            "the vocabulary names a file of negation rules instead of holding the rules, as older versions wrote it; "
            "that file is not opened: build the cohort again with 'whatelse build … --rules FILE', then fit again"
        )
    return load_rules(value)


def _strings(value: Iterable[Any]) -> Sequence[str]:
    items = list(value)
    if isinstance(value, str) or not all(isinstance(item, str) for item in items):
        raise TypeError("needs a list of text")
    return items
