"""Lexicon: concepts and the phrases that mean them or go with them, shipped and from a user's own file."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import Any

import yaml

from whatelse.annotators.discovery.forms import stems
from whatelse.errors import InputError
from whatelse.io.limits import parse_yaml

SAME, NEAR = "same", "near"
Stems = tuple[str, ...]


@dataclass(frozen=True)
class Lexicon:
    """`by_stems`: the stems of a phrase -> {concept: "same" or "near"}."""

    concepts: Mapping[str, Mapping[str, tuple[str, ...]]]
    by_stems: Mapping[Stems, Mapping[str, str]]

    @classmethod
    def shipped(cls, own: str | Path | None = None) -> Lexicon:
        """The lexicon that comes with the package, with a user's own file added to it."""
        table = _parse((files("whatelse.annotators.discovery") / "lexicon.yaml").read_text("utf-8"), "lexicon.yaml")
        if own is not None:
            try:
                text = Path(own).read_text("utf-8")
            except (OSError, UnicodeDecodeError) as problem:
                raise InputError(f"cannot be read as a lexicon ({type(problem).__name__})", file=own) from None
            for concept, entry in _parse(text, str(own)).items():
                known = table.setdefault(concept, {SAME: (), NEAR: ()})
                table[concept] = {how: (*known[how], *entry[how]) for how in (SAME, NEAR)}
        return cls.of(table)

    @classmethod
    def of(cls, table: Mapping[str, Mapping[str, tuple[str, ...]]]) -> Lexicon:
        """From concepts that are parsed already. The name of a concept means the concept."""
        found: dict[Stems, dict[str, str]] = {}
        for concept, entry in table.items():
            for phrase in entry[NEAR]:
                found.setdefault(phrase_stems(phrase), {})[concept] = NEAR
            for phrase in (concept, *entry[SAME]):
                found.setdefault(phrase_stems(phrase), {})[concept] = SAME
        return cls(table, found)

    def concepts_of(self, phrases: Iterable[str]) -> dict[str, bool]:
        """The concepts that phrases mean, and whether each is the one meant rather than one that holds it.

        "Hives" means urticaria and is also a word for an allergic reaction. Concepts that are called what one of the
        phrases is are meant; where there are none, those that most phrases mean.
        """
        votes: dict[str, int] = {}
        called = set()
        for phrase in phrases:
            for concept, how in self.by_stems.get(phrase_stems(phrase), {}).items():
                if how == SAME:
                    votes[concept] = votes.get(concept, 0) + 1
                    if phrase_stems(concept) == phrase_stems(phrase):
                        called.add(concept)
        most = max(votes.values(), default=0)
        return {concept: concept in called if called else count == most for concept, count in votes.items()}

    def meaning(self, words: Iterable[str]) -> Mapping[str, str]:
        """{concept: "same" or "near"} of a phrase given by its words."""
        return self.by_stems.get(stems(tuple(words)), {})


def phrase_stems(phrase: str) -> Stems:
    """The stems of a phrase as it is written: a hyphen stands for a blank."""
    return stems(plain_words(phrase))


def plain_words(phrase: str) -> tuple[str, ...]:
    """The words of a phrase as it is written, in lower case."""
    return tuple(phrase.lower().replace("-", " ").split())


def _parse(text: str, source: str) -> dict[str, dict[str, tuple[str, ...]]]:
    try:
        table: Any = parse_yaml(text, source)
    except yaml.YAMLError:
        raise InputError("is not YAML; a lexicon is a mapping of concepts to lists of phrases", file=source) from None
    if not isinstance(table, dict):
        raise InputError("needs a mapping of concepts to lists of phrases", file=source)
    out = {}
    for concept, entry in table.items():
        lists = entry if isinstance(entry, dict) else {SAME: entry}
        good = isinstance(concept, str) and set(lists) <= {SAME, NEAR}
        if not good or not all(isinstance(v, list) and all(isinstance(p, str) for p in v) for v in lists.values()):
            raise InputError(
                f"concept {str(concept)!r} needs a list of phrases, or a mapping with 'same' and 'near'; put phrases "
                "that YAML reads as numbers or as yes and no in quotes",
                file=source,
            )
        out[concept] = {how: tuple(lists.get(how, ())) for how in (SAME, NEAR)}
    return out
