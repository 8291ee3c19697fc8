"""Bigrams token by token, in plain Python: what the compiled reading must count and join. For tests."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable
from itertools import pairwise

from whatelse.text import Bigram, BigramCounts, Token


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


def count_bigrams(counts: BigramCounts, tokens: list[Token]) -> None:
    """Add the words and neighbouring pairs of one note."""
    pairs = [(a.text, b.text) for a, b in pairwise(tokens) if not b.opens and a.negated == b.negated]
    counts.add(Counter(t.text for t in tokens), Counter(pairs))


def learn_bigrams(notes: Iterable[list[Token]], min_count: int, max_bigrams: int = 1_000) -> frozenset[Bigram]:
    """The bigrams of tokenised notes."""
    counts = BigramCounts()
    for tokens in notes:
        count_bigrams(counts, tokens)
    return counts.learn(min_count, max_bigrams=max_bigrams)
