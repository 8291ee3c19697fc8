"""What the words of a candidate say about a condition: forms of its anchors, and what the lexicon knows.

Each says so much in log odds, as a person would who has never seen the records; `suggest.py` adds what the records say.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from whatelse.anchorhunt.forms import initials, misspelled, shortens, stem, stems
from whatelse.anchorhunt.lexicon import NEAR, SAME, Lexicon, phrase_stems
from whatelse.anchors import Condition
from whatelse.text.bigrams import FUNCTION_WORDS

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


class Knowledge:
    """A condition's anchors as words, and the concepts of the lexicon that they mean.

    A concept counts if an anchor or the condition's name or title means it. Name and title are read as anchors are: a
    condition called "Somnolence" is anchored by "somnolent" as well as one whose anchor that is.
    """

    def __init__(self, condition: Condition, lexicon: Lexicon, counts: Mapping[Words, int]) -> None:
        spoken = [a.value.lower() for a in condition.anchors if a.how in ("phrase", "drug", "label")]
        self.phrases = [tuple(p.replace("-", " ").split()) for p in dict.fromkeys([*spoken, condition.name.lower()])]
        self.phrases += [w for w in [tuple(condition.title.lower().split())] if 0 < len(w) <= 4]
        self.stems = {stems(words): words for words in reversed(self.phrases)}
        self.lexicon = lexicon
        self.concepts = lexicon.concepts_of(" ".join(words) for words in self.phrases)
        self.counts = counts
        self._singles = sorted({words[0] for words in self.phrases if len(words) == 1})
        self._parts = {stem(w) for words in self.phrases if len(words) > 1 for w in words if w not in FUNCTION_WORDS}
        self._long = sorted({w for words in self.phrases for w in words if len(w) >= 5})
        self._known = [
            tuple(p.lower().replace("-", " ").split())
            for c in self.concepts
            for p in lexicon.concepts[c][SAME]
            if " " in p
        ]

    def reasons(self, words: Words) -> list[Reason]:
        """What the words say: at most one reason of each of "forms" and "lexicon"."""
        found = [reason for reason in (self._form(words), self._lexicon(words)) if reason is not None]
        if {r.source for r in found if r.log_odds > 0} == {"forms"}:
            return [r for r in found if r.log_odds > 0] if found[0].log_odds >= WEIGHTS["form"] else found
        return found

    def _form(self, words: Words) -> Reason | None:
        mine = stems(words)
        for theirs, anchor in self.stems.items():
            if mine == theirs or (len(mine) > 1 and sorted(mine) == sorted(theirs)):
                return _reason("forms", "form", f"a form of {' '.join(anchor)!r}")
        if len(words) > 1:
            return None
        (word,) = words
        count = self.counts.get(words, 0)
        for anchor_word in self._singles:
            if misspelled(word, anchor_word) and count < self.counts.get((anchor_word,), 0) and not self._means(words):
                return _reason("forms", "misspelling", f"looks like {anchor_word!r} misspelled")
        for phrase in (*self.phrases, *self._known):
            if initials(word, phrase):
                return _reason("forms", "initials", f"the initials of {' '.join(phrase)!r}")
        for long in self._long:
            if shortens(word, long):
                return _reason("forms", "shortening", f"short for {long!r}")
        if mine[0] in self._parts:
            return _reason("forms", "part", "a word of an anchor")
        return None

    def _means(self, words: Words) -> Mapping[str, str]:
        return self.lexicon.meaning(words)

    def _lexicon(self, words: Words) -> Reason | None:
        meaning = self._means(words)
        ours = {concept: how for concept, how in meaning.items() if concept in self.concepts}
        for how in (SAME, NEAR):
            for concept, said in ours.items():
                if said == how:
                    verb = "means" if how == SAME else "goes with"
                    return _reason("lexicon", how, f"{verb} {concept!r}")
        if any(how == SAME for how in meaning.values()):
            other = next(concept for concept, how in meaning.items() if how == SAME)
            return _reason("lexicon", "other", f"means {other!r}")
        inside = [self._means(run) for run in _runs_inside(words)]
        for meant in inside:
            for concept, how in meant.items():
                if how == SAME and concept in self.concepts:
                    return _reason("lexicon", "holds", f"holds a phrase that means {concept!r}")
        for meant in inside:
            if SAME in meant.values():
                return _reason("lexicon", "other", f"holds a phrase that means {next(iter(meant))!r}")
        return None


def _runs_inside(words: Words) -> Iterable[Words]:
    """Shorter runs of words in a phrase, longest first."""
    for length in range(len(words) - 1, 0, -1):
        for first in range(len(words) - length + 1):
            run = words[first : first + length]
            if run[0] not in FUNCTION_WORDS and run[-1] not in FUNCTION_WORDS:
                yield run


def _reason(source: str, kind: str, says: str) -> Reason:
    return Reason(source, WEIGHTS[kind], says)


def plain_words(phrase: str) -> Words:
    """The words of a phrase as it is written."""
    return tuple(phrase.lower().replace("-", " ").split())


__all__ = ["WEIGHTS", "Knowledge", "Reason", "phrase_stems", "plain_words"]
