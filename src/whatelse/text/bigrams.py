"""Bigrams: pairs of words that come together far more often than chance become one token, `chest_pain`.

The criterion is normalised pointwise mutual information. With p(a) the share of words that are a, and p(ab) the
share of neighbouring pairs that are a, b,

    npmi(a, b) = log(p(ab) / (p(a) p(b))) / -log p(ab)          from -1 (never together) over 0 (chance) to 1 (always)

A pair is joined if it was seen at least `min_count` times and its npmi is at least `min_npmi`. Two words are
neighbours if only blanks or a hyphen stand between them and both are negated or neither is; pairs with a number are not
counted. The counts are sums over notes, so they can be gathered in parts and merged.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable
from dataclasses import dataclass, field
from itertools import pairwise
from math import log

from whatelse.text.tokens import Token

Bigram = tuple[str, str]


def join_bigrams(tokens: list[Token], bigrams: Collection[Bigram]) -> list[Token]:
    """`tokens` with each neighbouring pair that is in `bigrams` made one token over both. O(len(tokens)) with a set.

    Pairs are taken from left to right and do not overlap. The joined token is negated if its words are, by the
    first word's trigger. A pair is never joined across a sign, a line break or the edge of a negation.
    """
    joined: list[Token] = []
    skip = False
    for a, b in zip(tokens, [*tokens[1:], None], strict=True):
        if skip:
            skip = False
        elif b is not None and (a.text, b.text) in bigrams and not b.opens and a.negated == b.negated:
            joined.append(Token(f"{a.text}_{b.text}", a.start, b.end, a.negated, a.trigger, a.opens))
            skip = True
        else:
            joined.append(a)
    return joined


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
    n_pairs: int = 0
    floor: int = 0

    def add(self, tokens: list[Token]) -> None:
        """Count one note's tokens, as `tokenize` gives them."""
        texts = [t.text for t in tokens]
        pairs = [
            (a.text, b.text)
            for a, b in pairwise(tokens)
            if not b.opens and a.negated == b.negated and "#" not in a.text and "#" not in b.text
        ]
        self.words.update(texts)
        self.pairs.update(pairs)
        self.n_words += len(texts)
        self.n_pairs += len(pairs)
        self._prune()

    def merge(self, other: BigramCounts) -> None:
        """Add the counts of other notes. Exact, and in any order, as long as nothing was dropped."""
        self.words.update(other.words)
        self.pairs.update(other.pairs)
        self.n_words += other.n_words
        self.n_pairs += other.n_pairs
        self.floor += other.floor
        self._prune()

    def npmi(self, a: str, b: str) -> float:
        """Normalised pointwise mutual information of the pair, in [-1, 1]; -1 if it was never seen."""
        together = self.pairs[a, b]
        if not together:
            return -1.0
        p = together / self.n_pairs
        if p == 1.0:
            return 1.0
        chance = (self.words[a] / self.n_words) * (self.words[b] / self.n_words)
        return min(1.0, log(p / chance) / -log(p))

    def learn(self, min_count: int = 50, min_npmi: float = 0.5, max_bigrams: int = 1_000) -> frozenset[Bigram]:
        """The pairs that meet the criterion, at most the `max_bigrams` most common. O(pairs)."""
        frequent = (pair for pair, count in self.pairs.items() if count >= min_count)
        good = [pair for pair in frequent if self.npmi(*pair) >= min_npmi]
        return frozenset(sorted(good, key=lambda pair: (-self.pairs[pair], pair))[:max_bigrams])

    def _prune(self) -> None:
        while len(self.pairs) > self.max_pairs:
            self.floor += 1
            self.pairs = Counter({pair: count for pair, count in self.pairs.items() if count > self.floor})


def learn_bigrams(
    notes: Iterable[list[Token]], min_count: int = 50, min_npmi: float = 0.5, max_bigrams: int = 1_000
) -> frozenset[Bigram]:
    """The bigrams of a stream of tokenised notes: `BigramCounts` over them, then `learn`."""
    counts = BigramCounts()
    for tokens in notes:
        counts.add(tokens)
    return counts.learn(min_count, min_npmi, max_bigrams)
