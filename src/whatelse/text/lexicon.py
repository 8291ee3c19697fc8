"""Lexicon: the concepts that a note can mention and the terms that mean them, as one value that a vocabulary keeps.

A lexicon is made of the knowledge base (`Lexicon.from_knowledge`) and holds everything that decides how a note is
read besides the rules of assertion: terms, what is a kind of what, shorthand with several meanings (`shorthand.yaml`),
words that build phrases (`grammar.yaml`) and English words that must not be taken for misspellings.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property, lru_cache
from graphlib import CycleError, TopologicalSorter
from hashlib import sha256
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml

from whatelse.errors import InputError
from whatelse.knowledge.entries import all_wider
from whatelse.text.measurements import load_measures
from whatelse.text.pieces import WORD, cut
from whatelse.text.spelling import SHORTEST, Corrector, english

if TYPE_CHECKING:
    from whatelse.knowledge import Knowledge
    from whatelse.text.tables import CompiledLexicon

Words = tuple[str, ...]
HEAD, SITE, DRUG, DRUG_CLASS, QUALITY, IDIOM = "head", "site", "drug", "drug class", "quality", "idiom"
RUN_TOGETHER = range(7, 14)  # letters of two words of a term that are read without the blank between them
ROLES = ("articles", "links", "verbs", "modifiers", "conjunctions", "commas", "given", "allergy", "with_site")
GRAMMAR = (*ROLES, "inherit", "combinations", "states")


@dataclass(frozen=True, slots=True)
class Entry:
    """A concept, drug or drug class with its terms.

    kind     as in the knowledge base, or `drug`, `drug class`
    is_a     wider entries, which a mention of this one implies; of a drug, its classes
    lasting  a fact that stays true: a historical mention counts as present
    prefix   of a body site: the first part of composed names (`abdominal` in `abdominal_pain`)
    """

    name: str
    kind: str
    terms: tuple[str, ...]
    is_a: tuple[str, ...] = ()
    lasting: bool = False
    prefix: str = ""


@dataclass(frozen=True, slots=True)
class Sense:
    """One meaning of a shorthand and the neighbours that tell it; see `shorthand.yaml`."""

    means: str
    next: tuple[str, ...] = ()
    previous: tuple[str, ...] = ()
    near: tuple[str, ...] = ()
    alone: bool = False


@dataclass(frozen=True)
class Lexicon:
    """Everything that decides how notes and codes are read, besides the rules of assertion.

    leave      English words that are one slip away from a word of a term
    codes      code system -> code prefix -> entry
    measures   the table of measures (`measurements.py`)
    labels     whether labels of codes are read as text; else a code is its label (cohorts without notes)

    Equal lexicons read notes alike. The empty lexicon finds no concept: notes are words alone.
    """

    entries: tuple[Entry, ...] = ()
    shorthand: Mapping[str, tuple[Sense, ...]] = field(default_factory=dict)
    grammar: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    leave: tuple[str, ...] = ()
    codes: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    measures: Mapping[str, Any] = field(default_factory=dict)
    labels: bool = True

    @classmethod
    def of(cls, entries: Iterable[Entry], codes: Mapping[str, Mapping[str, str]] | None = None) -> Lexicon:
        """A lexicon of entries, checked, with the shipped shorthand, grammar and measures."""
        lexicon = cls(tuple(entries), load_shorthand(), load_grammar())
        lexicon.check()
        corrector = Corrector(word for word in lexicon.words if len(word) >= SHORTEST)
        leave = tuple(sorted(w for w in english() if w not in lexicon.words and corrector.correct(w) is not None))
        measures = json.loads(json.dumps(load_measures().content))
        whole = replace(lexicon, leave=leave, codes=codes or {}, measures=measures)
        whole.__dict__["phrases"] = lexicon.phrases  # not made again
        return whole

    @classmethod
    def from_knowledge(cls, knowledge: Knowledge) -> Lexicon:
        """The lexicon of a knowledge base: its concepts, its conditions by their names, drugs and drug classes."""
        entries: dict[str, Entry] = {}
        for name, concept in knowledge.concepts.items():
            names = knowledge.conditions[name].names if name in knowledge.conditions else ()
            terms = tuple(dict.fromkeys((*concept.same, *names)))
            entries[name] = Entry(name, concept.kind, terms, concept.is_a, concept.lasting, concept.prefix)
        for name in knowledge.conditions:
            if name not in entries and (own := knowledge.concept(name)) is not None:
                entries[name] = Entry(name, own.kind, own.same, own.is_a, own.lasting)
        for name, drug in knowledge.drugs.items():
            terms = tuple(dict.fromkeys((name.replace("_", " "), *drug.same)))
            entries[name] = Entry(name, DRUG, terms, drug.classes)
        for name, terms in knowledge.classes.items():
            if name not in entries and terms:
                entries[name] = Entry(name, DRUG_CLASS, tuple(terms))
        for name in dict.fromkeys(c for drug in knowledge.drugs.values() for c in drug.classes):
            entries.setdefault(name, Entry(name, DRUG_CLASS, ()))
        known, ordinary = {term for entry in entries.values() for term in entry.terms}, english()
        for name, entry in entries.items():  # "chestpain": two words run together that are no word of their own
            joined = dict.fromkeys(t.replace(" ", "") for t in entry.terms if t.count(" ") == 1)
            new = [t for t in joined if t.isalpha() and len(t) in RUN_TOGETHER and t not in ordinary and t not in known]
            entries[name], known = replace(entry, terms=(*entry.terms, *new)), known.union(new) if new else known
        codes: dict[str, dict[str, str]] = {}
        for condition in knowledge.conditions.values():
            for system, prefixes in condition.codes.items():
                codes.setdefault(system, {}).update((prefix, condition.name) for prefix in prefixes)
        return cls.of(entries.values(), codes)

    def without_labels(self) -> Lexicon:
        """The same lexicon, which leaves codes as they are."""
        other = replace(self, labels=False)
        other.__dict__.update({key: value for key, value in self.__dict__.items() if key not in other.__dict__})
        return other

    @cached_property
    def by_name(self) -> dict[str, Entry]:
        """Name -> entry."""
        return {entry.name: entry for entry in self.entries}

    @cached_property
    def phrases(self) -> dict[Words, int]:
        """Term as words and signs -> number of its entry. InputError for a term of two entries or without a word."""
        found: dict[Words, int] = {}
        for number, entry in enumerate(self.entries):
            for term in entry.terms:
                words = cut_term(term)
                if not words:
                    raise InputError(f"{entry.name!r}: the term {term!r} has no word in it")
                other = self.entries[found.setdefault(words, number)].name
                if other != entry.name:
                    raise InputError(f"the term {term!r} is in two concepts, {other!r} and {entry.name!r}: keep one")
        return found

    @cached_property
    def compiled(self) -> CompiledLexicon:
        """The lexicon as arrays, made once."""
        from whatelse.text.tables import compile_lexicon

        return compile_lexicon(self)

    @cached_property
    def words(self) -> frozenset[str]:
        """Every word of every term."""
        return frozenset(word for words in self.phrases for word in words)

    def check(self) -> None:
        """InputError for a name or a term of two entries, a term without a word, an unknown parent and a cycle."""
        if len(self.by_name) < len(self.entries):
            names = [entry.name for entry in self.entries]
            twice = next(name for name in names if names.count(name) > 1)
            raise InputError(f"the lexicon defines {twice!r} twice")
        self.phrases  # noqa: B018 (which refuses terms)
        for entry in self.entries:
            for parent in entry.is_a:
                if parent not in self.by_name and self.composed(parent) is None:
                    raise InputError(f"{entry.name!r}: the wider concept {parent!r} is not defined")
        try:
            TopologicalSorter({entry.name: self._is_a(entry.name) for entry in self.entries}).prepare()
        except CycleError as problem:
            raise InputError(f"{problem.args[1][0]!r} is a kind of itself by its wider concepts") from None

    def _is_a(self, name: str) -> tuple[str, ...]:
        entry = self.by_name.get(name)
        if entry is not None:
            return entry.is_a
        found = self.composed(name)
        return () if found is None else self.composed_parents(*found)

    # ---- composition

    @cached_property
    def heads(self) -> tuple[Entry, ...]:
        """What composes with body sites: pain, fracture, swelling."""
        return tuple(entry for entry in self.entries if entry.kind == HEAD)

    @cached_property
    def sites(self) -> tuple[Entry, ...]:
        """Body sites."""
        return tuple(entry for entry in self.entries if entry.kind == SITE)

    def composed(self, name: str) -> tuple[Entry, Entry] | None:
        """The (site, head) that a composed name is made of, or None."""
        for head in self.heads:
            if name.endswith(f"_{head.name}"):
                site = self._by_prefix.get(name[: -len(head.name) - 1])
                if site is not None:
                    return site, head
        return None

    def composed_parents(self, site: Entry, head: Entry) -> tuple[str, ...]:
        """Direct parents of a site with a head: the head at the wider sites, the wider heads at the site, the head."""
        own = compose(site, head)
        names = [compose(self.by_name[wider], head) for wider in site.is_a]
        names += [compose(site, w) for w in map(self.by_name.__getitem__, head.is_a) if w.kind == HEAD]
        return (*dict.fromkeys(name for name in names if name != own), head.name)

    @cached_property
    def _by_prefix(self) -> dict[str, Entry]:
        return {site.prefix or site.name: site for site in reversed(self.sites)} | {s.name: s for s in self.sites}

    def members(self, name: str) -> tuple[str, ...]:
        """What a combination is made of: `nausea` and `vomiting` of `nausea_and_vomiting`; nothing of others."""
        combinations = self.grammar.get("combinations", ())
        if name not in combinations:
            return ()
        parts = [self.members(part) or (part,) for part in self._is_a(name)]
        return tuple(dict.fromkeys(part for some in parts for part in some))

    def ancestors(self, name: str) -> tuple[str, ...]:
        """All wider concepts of a concept or composed name, nearest first, without itself."""
        return all_wider(name, self._is_a)

    # ---- JSON

    def to_json(self) -> dict[str, Any]:
        """The lexicon as JSON values; an entry is [name, kind, terms, is_a, lasting, prefix]."""
        return {
            "entries": [[e.name, e.kind, list(e.terms), list(e.is_a), e.lasting, e.prefix] for e in self.entries],
            "shorthand": {word: list(map(asdict, senses)) for word, senses in self.shorthand.items()},
            "grammar": {role: list(words) for role, words in self.grammar.items()},
            "leave": list(self.leave),
            "codes": {system: dict(prefixes) for system, prefixes in self.codes.items()},
            "measures": dict(self.measures),
            "labels": self.labels,
        }

    @classmethod
    def from_json(cls, value: Any) -> Lexicon:
        """What `to_json` wrote; opens no file."""
        digest = sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()
        if digest not in _read:
            if len(_read) >= KEPT:
                _read.clear()
            _read[digest] = cls._from_json(value)
        return _read[digest]

    @classmethod
    def _from_json(cls, value: Any) -> Lexicon:
        try:
            entries = tuple(
                Entry(_text(name), _text(kind), _texts(terms), _texts(is_a), bool(lasting), _text(prefix))
                for name, kind, terms, is_a, lasting, prefix in value["entries"]
            )
            lexicon = cls(
                entries,
                _senses(value["shorthand"]),
                _lists(value["grammar"]),
                _texts(value["leave"]),
                {_text(s): {_text(p): _text(n) for p, n in some.items()} for s, some in value["codes"].items()},
                dict(value["measures"]),
                bool(value.get("labels", True)),
            )
        except (KeyError, TypeError, ValueError, AttributeError):
            raise InputError("the lexicon is damaged") from None
        lexicon.check()
        return lexicon


KEPT = 4  # lexicons read from JSON that are kept: models of one department share theirs
_read: dict[str, Lexicon] = {}
EMPTY = Lexicon()


def compose(site: Entry, head: Entry) -> str:
    """The name of a head at a body site."""
    return f"{site.prefix or site.name}_{head.name}"


def cut_term(term: str, exact: bool = False) -> Words:
    """A term as the words and signs of a note; numbers keep their digits. Signs at its ends go, not "+" and "@".

    exact   digits are written "#", and every sign at the ends goes

    >>> cut_term("type-2 Diabetes")
    ('type', '2', 'diabetes')
    """
    kept = () if exact else ("+", "@")
    found = [(word if exact else raw, kind == WORD or word in kept) for word, kind, raw in cut(term)]
    while found and not found[-1][1]:
        found.pop()
    while found and not found[0][1]:
        found.pop(0)
    return tuple(word for word, _ in found)


def load_lexicon(lexicon: str | Path | Lexicon = "default") -> Lexicon:
    """`default`: the shipped one; `none`: no concepts; a path: the shipped one with a knowledge file of one's own.

    InputError names the file if it is not YAML, has a term of two concepts, an unknown wider concept or a cycle.
    """
    if isinstance(lexicon, Lexicon):
        return lexicon
    if lexicon == "none":
        return EMPTY
    if lexicon == "default":
        return _shipped()
    from whatelse.knowledge import load_knowledge

    knowledge = load_knowledge(lexicon)
    try:
        return Lexicon.from_knowledge(knowledge)
    except InputError as problem:
        raise InputError(str(problem), file=lexicon) from None


@lru_cache(maxsize=1)
def _shipped() -> Lexicon:
    from whatelse.knowledge import load_knowledge

    return Lexicon.from_knowledge(load_knowledge())


@lru_cache(maxsize=1)
def load_shorthand() -> Mapping[str, tuple[Sense, ...]]:
    """The shipped shorthand."""
    return _senses(yaml.safe_load((files("whatelse.text") / "shorthand.yaml").read_text("utf-8")))


@lru_cache(maxsize=1)
def load_grammar() -> Mapping[str, tuple[str, ...]]:
    """The shipped grammar words."""
    return _lists(yaml.safe_load((files("whatelse.text") / "grammar.yaml").read_text("utf-8")))


def _senses(value: Any) -> Mapping[str, tuple[Sense, ...]]:
    def sense(given: Any) -> Sense:
        if not isinstance(given, dict) or not set(given) <= {"means", "next", "previous", "near", "alone"}:
            raise ValueError("not a sense")
        following, previous, near = (_texts(given.get(key, ())) for key in ("next", "previous", "near"))
        return Sense(_text(given["means"]), following, previous, near, bool(given.get("alone", False)))

    return {_text(word): tuple(map(sense, senses)) for word, senses in value.items()}


def _lists(value: Any) -> Mapping[str, tuple[str, ...]]:
    if not set(value) <= set(GRAMMAR):
        raise ValueError("unknown list of words")
    return {key: _texts(value.get(key, ())) for key in GRAMMAR}


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError("not text")
    return value


def _texts(value: Any) -> tuple[str, ...]:
    if isinstance(value, str):
        raise TypeError("not a list")
    return tuple(map(_text, value))
