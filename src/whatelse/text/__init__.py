"""Notes: from text to words, with negation, bigrams and numbers normalised. See docs/text.md."""

from whatelse.text.bigrams import Bigram, BigramCounts, join_bigrams, learn_bigrams
from whatelse.text.rules import Rules, load_rules
from whatelse.text.tokens import Token, tokenize, words

__all__ = [
    "Bigram",
    "BigramCounts",
    "Rules",
    "Token",
    "join_bigrams",
    "learn_bigrams",
    "load_rules",
    "tokenize",
    "words",
]
