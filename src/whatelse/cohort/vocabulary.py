"""Vocabulary: the findings of a model by name, and how to find them in a visit."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import pairwise, zip_longest
from typing import Any

import numpy as np
from numpy.typing import NDArray

from whatelse.annotators import AnchorSet
from whatelse.cohort.bands import Bands, band_names
from whatelse.cohort.batches import BatchReader, Found
from whatelse.cohort.concepts import concepts_of_findings
from whatelse.cohort.fields import given_fields
from whatelse.cohort.findings import Finder
from whatelse.errors import CohortError, InputError, WhatelseError
from whatelse.text import Rules, load_rules
from whatelse.text.lexicon import DRUG, DRUG_CLASS, EMPTY, Lexicon
from whatelse.text.rules import SHIPPED, load_named_rules
from whatelse.types import Int32s
from whatelse.visits import TEXT_FIELDS, Visit

ASKED_SYSTEMS = ("rfv", "vital", "chronic", "visit")  # coded findings that a person can answer for
SCHEMA = 3  # of the JSON form; 2 had no lexicon, 1 had the name or path of the rules instead of the rules themselves


@dataclass(frozen=True, eq=False)
class Vocabulary:
    """n findings in order: ordinary ones, then `anchor:<condition>` for each of the m conditions.

    names    n names, as described in `findings.py`
    counts   (n,) visits of the cohort it was made from that have the finding
    visits   how many visits that cohort had
    anchors  the conditions
    rules    the assertion rules themselves; a shipped name or a path is loaded
    bigrams  pairs of words that are joined
    bands    the cuts between the bands of each number (`bands.py`)
    lexicon  the concepts that notes and codes are read for; EMPTY: notes are words alone
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
    lexicon: Lexicon = EMPTY

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
        advice = "build it with 'whatelse build --vocabulary-from' the cohort that was learned from"
        if self.conditions != other.conditions:
            counts = f"({len(other.conditions)}) than the model ({len(self.conditions)})"
            raise CohortError(f"the cohort is about other conditions {counts}: {advice}")
        differ = sum(a != b for a, b in zip_longest(self.names, other.names))
        columns = f"{differ:,} of the cohort's {len(other.names):,} columns"
        raise CohortError(f"{columns} mean other findings than the model's {len(self.names):,}: {advice}")

    @cached_property
    def index(self) -> dict[str, int]:
        """Name -> finding."""
        return {name: j for j, name in enumerate(self.names)}

    @cached_property
    def concepts(self) -> tuple[tuple[str, ...], ...]:
        """n: the findings of the knowledge base that each finding corresponds to (`concepts.py`)."""
        return tuple(concepts_of_findings(self.names, self.lexicon if self.lexicon.entries else None))

    @cached_property
    def columns(self) -> dict[str, int]:
        """`index`, and where codes are findings by their labels also the concept that a label means -> its column.

        So "burning urination" typed in a note is `rfv:painful urination`.
        """
        if not self.lexicon.entries or self.lexicon.labels:
            return self.index
        found: dict[str, int] = {}
        for j, concepts in enumerate(self.concepts):
            if len(concepts) == 1:
                found.setdefault(concepts[0], j)
        return found | self.index

    def find(self, visit: Visit) -> list[Found]:
        """Every mention of every finding, note by note in reading order, then codes. O(length of the record)."""
        return self.reader.find(visit)

    def present(self, visit: Visit) -> Int32s:
        """The findings that a visit has: sorted, distinct."""
        found: Int32s = self.reader.present([visit]).indices
        return found

    def unobserved(self, visit: Visit) -> Int32s:
        """The unobserved findings, sorted: all fields that they come from are None.

        A word is unobserved if the visit has no note at all; an anchor, if the visit has none of the fields
        it is looked for in; a band of a number, if the visit does not have that number.
        """
        return self.reader.hidden(given_fields(visit))

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
        part = [next((p for f, p in _PARTS.items() if f in fields), "other") for fields in self._sources[:ordinary]]
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
            "lexicon": self.lexicon.to_json() if self.lexicon.entries else None,
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
                lexicon=EMPTY if value.get("lexicon") is None else Lexicon.from_json(value["lexicon"]),
            )
        except (KeyError, TypeError, ValueError) as problem:
            said = f": {problem}" if isinstance(problem, WhatelseError) else ""
            raise CohortError(f"the vocabulary is damaged{said}") from None

    # ---- made once

    def __getstate__(self) -> dict[str, Any]:
        return {key: value for key, value in self.__dict__.items() if key not in ("reader", "_finder")}

    @cached_property
    def reader(self) -> BatchReader:
        """What reads visits: one, or many at once."""
        return BatchReader(self)

    @cached_property
    def _finder(self) -> Finder:
        return Finder(self.anchors, self.rules, self.lexicon)

    @cached_property
    def _band_names(self) -> dict[str, list[str]]:
        return {name: band_names(name, cuts) for name, cuts in self.bands.items() if cuts}

    @cached_property
    def _sources(self) -> list[frozenset[str]]:
        """The fields each finding can come from; of a band, the name of its number (after "number ")."""
        of = {c.name: frozenset(f for a in c.anchors for f in a.fields) for c in self.anchors.conditions}
        anchors = {f"anchor:{name}": fields for name, fields in of.items()}
        numbers = {f: frozenset([f"number {name}"]) for name, bands in self._band_names.items() for f in bands}
        named = {name: fields for name, fields in (numbers | anchors).items() if name in self.index}
        fields = {name: _fields_of(name, self.lexicon) for name in self.names}
        typed = {self.names[j] for name, j in self.columns.items() if name != self.names[j]}
        fields |= {name: fields[name].union(TEXT_FIELDS) for name in typed}
        return list((fields | named).values())

    @cached_property
    def fields(self) -> frozenset[str]:
        """All fields that findings come from."""
        return frozenset().union(*self._sources)


_PARTS = {  # the first field of a finding in this order says its part
    "age": "age and sex",
    "sex": "age and sex",
    "medication_history": "home drugs",
    "dispensed": "drugs given",
    **dict.fromkeys(TEXT_FIELDS, "notes"),
    "coded": "codes and vital signs",
}
_BY_PREFIX = {"age": "age", "sex": "sex", "hx": "medication_history", "rx": "dispensed"}


def _fields_of(name: str, lexicon: Lexicon) -> frozenset[str]:
    """The fields an ordinary finding comes from, read off its name. A time of day ("##:##") is a word.

    With a lexicon, labels of codes are read as text: a concept comes from notes or from codes.
    """
    if lexicon.entries:
        prefix, colon, rest = name.rpartition(":")
        entry = lexicon.by_name.get(rest)
        if prefix in ("hx", "rx") and (entry is None or entry.kind in (DRUG, DRUG_CLASS)):
            return frozenset([*TEXT_FIELDS, _BY_PREFIX[prefix]])
        if not colon or prefix in ("neg", "possible", "family", "hx") or prefix.startswith("#"):
            return frozenset([*TEXT_FIELDS, "coded", "numbers"])
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
        found = "the vocabulary names a file of negation rules, as older versions did, and that file is not opened"
        raise CohortError(f"{found}: build the cohort again with '--setting rules=FILE', then fit again")
    return load_named_rules(value)


def _strings(value: Iterable[Any]) -> Sequence[str]:
    items = list(value)
    if isinstance(value, str) or not all(isinstance(item, str) for item in items):
        raise TypeError("needs a list of text")
    return items


class HasVocabulary:
    """Base of cohorts in memory and in Spark: conditions and anchors of the vocabulary."""

    vocabulary: Vocabulary

    @property
    def conditions(self) -> tuple[str, ...]:
        """The m conditions' names."""
        return self.vocabulary.conditions

    @property
    def anchor_columns(self) -> NDArray[np.intp]:
        """(m,) which findings are the anchors: columns of X."""
        return self.vocabulary.anchor_columns
