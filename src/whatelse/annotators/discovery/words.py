"""What the words of a candidate say about a condition: forms of its anchors, and what the lexicon knows.

Each says so much in log odds, as a person would who has never seen the records; `suggest.py` adds what the records say.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from whatelse.annotators import Condition
from whatelse.annotators.discovery.forms import initials_of, misspelled, shortens, stem, stems
from whatelse.annotators.discovery.lexicon import NEAR, SAME, Lexicon, plain_words
from whatelse.text.bigrams import LINKING_WORDS

Words = tuple[str, ...]

# Log odds of each kind of relation.
WEIGHTS = {
    "form": 3.5,  # the same stems as an anchor, or as the condition's name
    "misspelling": 2.5,
    "shortening": 1.5,
    "initials": 1.5,
    "part": 1.0,  # a content word of an anchor of several words
    "same": 3.5,  # the lexicon says that it means what an anchor means
    "near": 1.0,  # … that it goes with it
    "holds": 2.0,  # words around a phrase that the lexicon says means it
    "other": -2.5,  # the lexicon knows it, as something else
}


@dataclass(frozen=True)
class Reason:
    """One source that speaks for or against a candidate: which, how much in log odds, and a sentence for a person."""

    source: str
    log_odds: float
    says: str


@dataclass(frozen=True, slots=True)
class Read:
    """A candidate's words, read once for all conditions: their stems, and what they and runs inside them mean."""

    words: Words
    stems: Words
    means: Mapping[str, str]
    inside: tuple[Mapping[str, str], ...]


def read(words: Words, lexicon: Lexicon) -> Read:
    """Look the words up. O(runs inside them)."""
    inside = tuple(meaning for run in _runs_inside(words) if (meaning := lexicon.meaning(run)))
    return Read(words, stems(words), lexicon.meaning(words), inside)


class Knowledge:
    """A condition's anchors as words, and the concepts of the lexicon that they mean.

    A concept counts if an anchor or the condition's name or title means it. Name and title are read as anchors are: a
    condition called "Somnolence" is anchored by "somnolent" as well as one whose anchor that is.
    `counts` says how many visits have a phrase: a misspelling is rarer than the word.
    """

    def __init__(self, condition: Condition, lexicon: Lexicon, counts: Mapping[Words, int]) -> None:
        spoken = [a.value for a in condition.anchors if a.how in ("phrase", "drug", "label")]
        phrases = list(dict.fromkeys(map(plain_words, [*spoken, condition.name, condition.title])))
        self.concepts = lexicon.concepts_of(" ".join(words) for words in phrases)
        self._counts = counts
        self._stems = {stems(words): words for words in reversed(phrases)}
        self._orders = {tuple(sorted(mine)): words for mine, words in self._stems.items() if len(mine) > 1}
        self._single = [words[0] for words in phrases if len(words) == 1]
        self._part = {stem(w) for words in phrases if len(words) > 1 for w in words if w not in LINKING_WORDS}
        self._long = sorted({w for words in phrases for w in words if len(w) >= 5})
        meant = [concept for concept, this in self.concepts.items() if this]
        known = [plain_words(p) for concept in meant for p in lexicon.concepts[concept][SAME]]
        self._initials = {short: words for words in (*known, *phrases) for short in initials_of(words)}

    def reasons(self, said: Read) -> list[Reason]:
        """At most one reason of each of "forms" and "lexicon". The lexicon does not speak against a plain form."""
        form, lexicon = self._form(said), self._lexicon(said)
        if form is not None and form.log_odds >= WEIGHTS["form"] and lexicon is not None and lexicon.log_odds < 0:
            lexicon = None
        return [reason for reason in (form, lexicon) if reason is not None]

    def _form(self, said: Read) -> Reason | None:
        anchor = self._stems.get(said.stems) or self._orders.get(tuple(sorted(said.stems)))
        if anchor is not None:
            return _reason("forms", "form", f"a form of {' '.join(anchor)!r}")
        if len(said.words) > 1:
            return None
        (word,) = said.words
        if len(word) >= 5 and not said.means:
            count = self._counts.get(said.words, 0)
            for right in self._single:
                if misspelled(word, right) and count < self._counts.get((right,), 0):
                    return _reason("forms", "misspelling", f"looks like {right!r} misspelled")
        if (phrase := self._initials.get(word.replace("/", ""))) is not None:
            return _reason("forms", "initials", f"the initials of {' '.join(phrase)!r}")
        for long in self._long:
            if shortens(word, long):
                return _reason("forms", "shortening", f"short for {long!r}")
        return _reason("forms", "part", "a word of an anchor") if said.stems[0] in self._part else None

    def _lexicon(self, said: Read) -> Reason | None:
        meant = {how: concept for concept, how in said.means.items() if self.concepts.get(concept)}
        if SAME in meant:
            return _reason("lexicon", "same", f"means {meant[SAME]!r}")
        if NEAR in meant:
            return _reason("lexicon", "near", f"goes with {meant[NEAR]!r}")
        for concept, how in said.means.items():
            if how == SAME and concept in self.concepts:
                return _reason("lexicon", "near", f"means {concept!r}, which the anchor goes with")
        if (other := _first_same(said.means)) is not None:
            return _reason("lexicon", "other", f"means {other!r}")
        for meaning in said.inside:
            for concept, how in meaning.items():
                if how == SAME and self.concepts.get(concept):
                    return _reason("lexicon", "holds", f"holds a phrase that means {concept!r}")
        for meaning in said.inside:
            if (other := _first_same(meaning)) is not None:
                return _reason("lexicon", "other", f"holds a phrase that means {other!r}")
        return None


def _first_same(meaning: Mapping[str, str]) -> str | None:
    return next((concept for concept, how in meaning.items() if how == SAME), None)


def _runs_inside(words: Words) -> Iterable[Words]:
    """Shorter runs of words in a phrase, longest first."""
    for length in range(len(words) - 1, 0, -1):
        for first in range(len(words) - length + 1):
            run = words[first : first + length]
            if run[0] not in LINKING_WORDS and run[-1] not in LINKING_WORDS:
                yield run


def _reason(source: str, kind: str, says: str) -> Reason:
    return Reason(source, WEIGHTS[kind], says)
