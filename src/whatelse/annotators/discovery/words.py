"""What the words of a candidate say about a condition: forms of its anchors, and what the knowledge base knows.

Each gives log odds that do not depend on the records; `suggest.py` adds the evidence of the records.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from whatelse.annotators import Condition
from whatelse.annotators.discovery.forms import initials_of, misspelled, shortens, stem, stems
from whatelse.annotators.discovery.meanings import NEAR, SAME, Meanings, plain_words
from whatelse.text.function_words import LINKING_WORDS

Words = tuple[str, ...]

# Log odds of each kind of relation.
WEIGHTS = {
    "form": 3.5,  # the same stems as an anchor, or as the condition's name
    "misspelling": 2.5,
    "shortening": 1.5,
    "initials": 1.5,
    "part": 1.0,  # a content word of an anchor of several words
    "same": 3.5,  # the knowledge base says that it means what an anchor means
    "near": 1.0,  # … that it goes with it
    "holds": 2.0,  # words around such a phrase
    "other": -2.5,  # it means something else
}


@dataclass(frozen=True)
class Reason:
    """One source's evidence for or against a candidate: log odds, and a sentence for a person."""

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


def read(words: Words, meanings: Meanings) -> Read:
    """Look the words up. O(runs inside them)."""
    inside = tuple(meaning for run in _runs_inside(words) if (meaning := meanings.meaning(run)))
    return Read(words, stems(words), meanings.meaning(words), inside)


class ConditionWords:
    """A condition's anchors as words, and the concepts of the knowledge base that they mean.

    A concept counts if an anchor or the condition's name or title means it. Name and title are read as anchors are: a
    condition called "Somnolence" is anchored by "somnolent" as well as one whose anchor that is.
    `counts` says how many visits have a phrase: a misspelling is rarer than the word.
    """

    def __init__(self, condition: Condition, meanings: Meanings, counts: Mapping[Words, int]) -> None:
        spoken = [a.value for a in condition.anchors if a.how in ("phrase", "drug", "label")]
        phrases = list(dict.fromkeys(map(plain_words, [*spoken, condition.name, condition.title])))
        self.concepts = meanings.concepts_of(" ".join(words) for words in phrases)
        self._counts = counts
        self._stems = {stems(words): words for words in reversed(phrases)}
        self._orders = {tuple(sorted(mine)): words for mine, words in self._stems.items() if len(mine) > 1}
        self._single = [words[0] for words in phrases if len(words) == 1]
        self._part = {stem(w) for words in phrases if len(words) > 1 for w in words if w not in LINKING_WORDS}
        self._long = sorted({w for words in phrases for w in words if len(w) >= 5})
        known = [plain_words(p) for concept in sorted(self.concepts) for p in meanings.phrases[concept]]
        self._initials = {short: words for words in (*known, *phrases) for short in initials_of(words)}

    def reasons(self, said: Read) -> list[Reason]:
        """At most one reason of each of "forms" and "knowledge". Knowledge does not speak against a plain form."""
        form, known = self._form(said), self._known(said)
        if form is not None and form.log_odds >= WEIGHTS["form"] and known is not None and known.log_odds < 0:
            known = None
        return [reason for reason in (form, known) if reason is not None]

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

    def _known(self, said: Read) -> Reason | None:
        meant = {how: concept for concept, how in said.means.items() if concept in self.concepts}
        if SAME in meant:
            return _reason("knowledge", "same", f"means {_shown(meant[SAME])}")
        if NEAR in meant:
            return _reason("knowledge", "near", f"goes with {_shown(meant[NEAR])}")
        for concept in _named([said.means]):
            return _reason("knowledge", "other", f"means {_shown(concept)}")
        inside = _named(said.inside)
        for concept in (concept for concept in inside if concept in self.concepts):
            return _reason("knowledge", "holds", f"holds a phrase that means {_shown(concept)}")
        for concept in inside:
            return _reason("knowledge", "other", f"holds a phrase that means {_shown(concept)}")
        return None


def _shown(concept: str) -> str:
    return repr(concept.replace("_", " "))


def _named(meanings: Iterable[Mapping[str, str]]) -> list[str]:
    """The concepts that phrases name, in order."""
    return [concept for meaning in meanings for concept, how in meaning.items() if how == SAME]


def _runs_inside(words: Words) -> Iterable[Words]:
    """Shorter runs of words in a phrase, longest first."""
    for length in range(len(words) - 1, 0, -1):
        for first in range(len(words) - length + 1):
            run = words[first : first + length]
            if run[0] not in LINKING_WORDS and run[-1] not in LINKING_WORDS:
                yield run


def _reason(source: str, kind: str, says: str) -> Reason:
    return Reason(source, WEIGHTS[kind], says)
