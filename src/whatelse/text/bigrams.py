"""Bigrams: pairs of words that come together far more often than chance become one token, `chest_pain`.

The criterion is normalised pointwise mutual information. With n(a) the times a was seen, n(ab) the times b followed
a, N the number of words, and p = n / N,

    npmi(a, b) = log(p(ab) / (p(a) p(b))) / -log p(ab)          below 0: apart; 0: as by chance; 1: always together

which is at most 1 because n(ab) <= min(n(a), n(b)). A pair is joined if it was seen at least `min_count` times and
its npmi is at least `min_npmi`. Two words are neighbours if only blanks or a hyphen stand between them and both are
negated or neither is. Numbers and function words take no part in a pair: they would give `history_of` and `is_normal`,
which say no more than their other word. Counts are sums over notes: those of parts add up.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from math import log

from whatelse.text.function_words import LINKING_WORDS

Bigram = tuple[str, str]
MIN_COUNT = 50  # times that a pair must be seen to be joined


@dataclass
class BigramCounts:
    """Counts of words and of neighbouring pairs, in bounded memory.

    When more than `max_pairs` different pairs are held, those seen least are dropped ("lossy counting"): counts are
    then too low by at most `floor`, which stays 0 as long as nothing was dropped. About 150 bytes a pair.
    """

    max_pairs: int = 1_000_000
    words: Counter[str] = field(default_factory=Counter)
    pairs: Counter[Bigram] = field(default_factory=Counter)
    n_words: int = 0
    floor: int = 0

    def add(self, words: Mapping[str, int], pairs: Mapping[Bigram, int]) -> None:
        """Add counts of words and of neighbouring pairs."""
        self.words.update(words)
        self.pairs.update({pair: n for pair, n in pairs.items() if _counts(pair[0]) and _counts(pair[1])})
        self.n_words += sum(words.values())
        while len(self.pairs) > self.max_pairs:
            self.floor += 1
            self.pairs = Counter({pair: count for pair, count in self.pairs.items() if count > self.floor})

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


def _counts(text: str) -> bool:
    return text not in LINKING_WORDS and "#" not in text
