"""Bigrams: pairs of words that come together far more often than chance become one token, `chest_pain`.

The criterion is normalised pointwise mutual information. With n(a) the times a was seen, n(ab) the times b followed
a, N the number of words, and p = n / N,

    npmi(a, b) = log(p(ab) / (p(a) p(b))) / -log p(ab)          below 0: apart; 0: as by chance; 1: always together

which is at most 1 because n(ab) <= min(n(a), n(b)). A pair is joined if it was seen at least `min_count` times and
its npmi is at least `min_npmi`. Two words are neighbours if only blanks or a hyphen stand between them and both are
negated or neither is. Numbers and function words take no part in a pair: they would give `history_of` and `is_normal`,
which say no more than their other word. The counts are sums over notes, so they can be gathered in parts and merged.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from itertools import pairwise
from math import log

from whatelse.text.tokens import Token

Bigram = tuple[str, str]
MIN_COUNT = 50  # times that a pair must be seen to be joined

# never half of a bigram nor the edge of a phrase; fewer than those that are no findings (`function_words.py`)
LINKING_WORDS = frozenset(
    """a an the this that these those some any all each other no not and or but nor as if than then so because while
    of in on at to from with without for by per into onto over under about after before during since until via w/ w/o
    i he she it they we you his her its their our your him them me my who whom which what when where there here
    is are was were be been being am has have had having do does did will would can could may might should shall must
    also very more most well s/p h/o c/o r/o pt patient""".split()  # noqa: SIM905 (a hundred quotes say less)
)


def join_bigrams(tokens: list[Token], bigrams: Collection[Bigram]) -> list[Token]:
    """`tokens` with each neighbouring pair that is in `bigrams` made one token over both. O(len(tokens)) with a set.

    Pairs are taken from left to right and do not overlap. The joined token is negated if its words are, by the
    first word's trigger. A pair is never joined across a sign, a line break or the edge of a negation.
    """
    joined: list[Token] = []
    done = 0
    for k, pair in enumerate(pairwise([t.text for t in tokens])):
        if pair in bigrams and k >= done:
            a, b = tokens[k], tokens[k + 1]
            if a.negated == b.negated and not b.opens:
                joined += tokens[done:k]
                joined.append(a._replace(text="_".join(pair), end=b.end))
                done = k + 2
    return joined + tokens[done:]


@dataclass
class BigramCounts:
    """Counts of words and of neighbouring pairs, gathered note by note in bounded memory.

    When more than `max_pairs` different pairs are held, those seen least are dropped ("lossy counting"): counts are
    then too low by at most `floor`, which stays 0 as long as nothing was dropped. About 150 bytes a pair.
    """

    max_pairs: int = 1_000_000
    words: Counter[str] = field(default_factory=Counter)
    pairs: Counter[Bigram] = field(default_factory=Counter)
    n_words: int = 0
    floor: int = 0

    def add(self, tokens: list[Token]) -> None:
        """Count one note's tokens, as `tokenize` gives them."""
        texts = [t.text for t in tokens]
        pairs = [
            (a.text, b.text)
            for a, b in pairwise(tokens)
            if not b.opens and a.negated == b.negated and _counts(a.text) and _counts(b.text)
        ]
        self.words.update(texts)
        self.pairs.update(pairs)
        self.n_words += len(texts)
        self._prune()

    def add_counts(self, words: Mapping[str, int], pairs: Mapping[Bigram, int]) -> None:
        """Add counts of words and of neighbouring pairs that somebody else made."""
        self.words.update(words)
        self.pairs.update({pair: n for pair, n in pairs.items() if _counts(pair[0]) and _counts(pair[1])})
        self.n_words += sum(words.values())
        self._prune()

    def merge(self, other: BigramCounts) -> None:
        """Add the counts of other notes. Exact, and in any order, as long as nothing was dropped."""
        self.words.update(other.words)
        self.pairs.update(other.pairs)
        self.n_words += other.n_words
        self.floor += other.floor
        self._prune()

    def npmi(self, a: str, b: str) -> float:
        """Normalised pointwise mutual information of the pair, in [-1, 1]; -1 if it was never seen."""
        together = self.pairs[a, b]
        if not together:
            return -1.0
        p = together / self.n_words
        chance = (self.words[a] / self.n_words) * (self.words[b] / self.n_words)
        return log(p / chance) / -log(p)

    def learn(self, min_count: int = MIN_COUNT, min_npmi: float = 0.5, max_bigrams: int = 1_000) -> frozenset[Bigram]:
        """The pairs that meet the criterion, at most the `max_bigrams` most common. O(pairs)."""
        frequent = (pair for pair, count in self.pairs.items() if count >= min_count)
        good = [pair for pair in frequent if self.npmi(*pair) >= min_npmi]
        return frozenset(sorted(good, key=lambda pair: (-self.pairs[pair], pair))[:max_bigrams])

    def _prune(self) -> None:
        while len(self.pairs) > self.max_pairs:
            self.floor += 1
            self.pairs = Counter({pair: count for pair, count in self.pairs.items() if count > self.floor})


def _counts(text: str) -> bool:
    return text not in LINKING_WORDS and "#" not in text


def learn_bigrams(
    notes: Iterable[list[Token]], min_count: int = MIN_COUNT, min_npmi: float = 0.5, max_bigrams: int = 1_000
) -> frozenset[Bigram]:
    """The bigrams of a stream of tokenised notes: `BigramCounts` over them, then `learn`."""
    counts = BigramCounts()
    for tokens in notes:
        counts.add(tokens)
    return counts.learn(min_count, min_npmi, max_bigrams)
