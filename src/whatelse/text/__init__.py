"""Notes: from text to words and mentions of concepts, each with its assertion. See docs/text.md."""

from whatelse.text.assertion import ASSERTIONS
from whatelse.text.bigrams import Bigram, BigramCounts
from whatelse.text.lexicon import Lexicon, load_lexicon
from whatelse.text.note import Mention, ReadNote
from whatelse.text.reader import NoteReader
from whatelse.text.rules import Rules, load_rules
from whatelse.text.tokens import Token, tokenize

__all__ = [
    "ASSERTIONS",
    "Bigram",
    "BigramCounts",
    "Lexicon",
    "Mention",
    "NoteReader",
    "ReadNote",
    "Rules",
    "Token",
    "load_lexicon",
    "load_rules",
    "tokenize",
]
