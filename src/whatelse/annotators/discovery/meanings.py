"""Meanings of phrases by the knowledge base: the concept that a phrase names, and conditions whose cases have it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from whatelse.annotators.discovery.forms import stems
from whatelse.knowledge import Knowledge, load_knowledge

SAME, NEAR = "same", "near"
USUAL, TELLING = 0.5, 20.0  # a drug or finding goes with a condition from this share of cases (and this lift) on
NO_FINDING = ("site", "quality")  # kinds of concepts that are only part of a finding
Stems = tuple[str, ...]


@dataclass(frozen=True)
class Meanings:
    """Phrases and the concepts of a knowledge base.

    by_stems  stems of a phrase -> {concept: "same" if the phrase names it, "near" if it goes with it}
    phrases   concept -> phrases that name it
    wider     concept -> concepts that it implies
    tells     concept -> conditions whose cases have it often, and far more often than other visits
    """

    by_stems: Mapping[Stems, Mapping[str, str]]
    phrases: Mapping[str, tuple[str, ...]]
    wider: Mapping[str, tuple[str, ...]]
    tells: Mapping[str, tuple[str, ...]]

    @classmethod
    @lru_cache(maxsize=2)
    def of(cls, own: Path | None = None) -> Meanings:
        """Phrases of the shipped knowledge base; own: a knowledge file that is added to it."""
        bases = [load_knowledge(), *([load_knowledge(own)] if own is not None else ())]
        found: dict[Stems, dict[str, str]] = {}
        named: dict[str, tuple[str, ...]] = {}
        for how, concept, phrase in sorted({entry for base in bases for entry in _entries(base)}):
            found.setdefault(phrase_stems(phrase), {})[concept] = how  # "same" after "near"
            if how == SAME:
                named[concept] = (*named.get(concept, ()), phrase)
        wider = {concept: bases[-1].parents(concept) for concept in named}
        tells: dict[str, tuple[str, ...]] = {}
        for condition in bases[-1].conditions.values():
            for name, share in {**condition.findings, **condition.proof}.items():
                concept = bases[-1].concept(name)
                if concept is not None and share >= max(USUAL, TELLING * concept.rate):
                    tells[name] = (*tells.get(name, ()), condition.name)
        return cls(found, named, wider, tells)

    def concepts_of(self, phrases: Iterable[str]) -> set[str]:
        """Concepts that phrases name: those whose own name is one of the phrases, else those that most of them name.

        "Hives" names urticaria, and is a word of an allergic reaction.
        """
        votes: dict[str, int] = {}
        called = set()
        for phrase in map(phrase_stems, phrases):
            for concept, how in self.by_stems.get(phrase, {}).items():
                if how == SAME:
                    votes[concept] = votes.get(concept, 0) + 1
                    called |= {concept} if phrase_stems(concept) == phrase else set()
        most = max(votes.values(), default=0)
        return called or {concept for concept, count in votes.items() if count == most}

    def meaning(self, words: Iterable[str]) -> Mapping[str, str]:
        """{concept: "same" or "near"} of a phrase given by its words, with what its concepts imply and tell of."""
        own = self.by_stems.get(stems(tuple(words)), {})
        named = [concept for concept, how in own.items() if how == SAME]
        named += [wider for concept in named for wider in self.wider[concept]]
        told = dict.fromkeys((condition for concept in named for condition in self.tells.get(concept, ())), NEAR)
        return {**told, **own, **dict.fromkeys(named, SAME)}


def _entries(base: Knowledge) -> Iterator[tuple[str, str, str]]:
    """("same" or "near", concept, phrase) of every phrase of a base."""
    drugs = {name: [name.replace("_", " "), *phrases] for name, phrases in base.classes.items()}  # or class -> phrases
    for drug in base.drugs.values():
        for name in (drug.name, *drug.classes):
            drugs.setdefault(name, []).extend((drug.name.replace("_", " "), *drug.same))
    for name in dict.fromkeys((*base.concepts, *base.conditions)):
        concept = base.concept(name)
        if concept is None or concept.kind in NO_FINDING:
            continue
        yield SAME, name, name
        yield from ((SAME, name, phrase) for phrase in concept.same)
        yield from ((NEAR, name, phrase) for phrase in concept.near)
        if condition := base.conditions.get(name):
            yield from ((SAME, name, phrase) for phrase in condition.names)
            for given, share in (*condition.home_drugs.items(), *condition.given.items()):
                yield from ((NEAR, name, phrase) for phrase in drugs.get(given, ()) if share >= USUAL)


def phrase_stems(phrase: str) -> Stems:
    """The stems of a phrase, or of a concept's name."""
    return stems(plain_words(phrase))


def plain_words(phrase: str) -> tuple[str, ...]:
    """The words of a phrase as it is written, in lower case; a hyphen or `_` stands for a blank."""
    return tuple(phrase.lower().replace("-", " ").replace("_", " ").split())
