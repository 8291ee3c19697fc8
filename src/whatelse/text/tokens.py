"""tokenize: a note -> its words, each with its place in the note, its assertion and the cue that set the assertion."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

from whatelse.text.assertion import ASSERTIONS, NEGATED
from whatelse.text.lexicon import EMPTY
from whatelse.text.matcher import APART, FLAGS, START
from whatelse.text.pieces import cut
from whatelse.text.reader import NoteReader
from whatelse.text.rules import Rules, load_rules

KEPT = 8  # readers of different rules


class Token(NamedTuple):
    """A word of a note.

    `text` is lower case and normalised (see `pieces.py`); the note's own characters are `note[start:end]`.
    `assertion` is one of ASSERTIONS. `cue` is the phrase that set it, as a token over the whole phrase ("no",
    "negative for", "pmh:"), or None.
    `opens` says that a sign or a line break, not just blanks, stands between it and the word before.
    """

    text: str
    start: int
    end: int
    cue: Token | None = None
    opens: bool = False
    assertion: str = "present"

    @property
    def negated(self) -> bool:
        """Whether the note denies it."""
        return self.assertion == ASSERTIONS[NEGATED]

    @property
    def word(self) -> str:
        """The word of the vocabulary it stands for: its text, after `neg:` if it is negated."""
        return "neg:" + self.text if self.negated else self.text


def tokenize(text: str, rules: str | Path | Rules = "default") -> list[Token]:
    """The words and numbers of `text` in order; signs end scopes but are not tokens themselves.

    `rules` is `default`, `paper`, a path to a rules file or loaded `Rules`. Time and memory are O(len(text)).
    """
    reader = _reader(load_rules(rules))
    with reader.lock:
        rows, names = reader.items([text]).tolist(), reader.pieces.names
    opens = {row[START]: row[FLAGS] & APART > 0 for row in rows}
    cues: dict[tuple[int, int], Token | None] = {(-1, -1): None}
    tokens = []
    for _, _, word, start, end, code, first, last, _ in rows:
        if (first, last) not in cues:
            phrase = " ".join(word for word, _, _ in cut(text[first:last]))
            cues[first, last] = Token(phrase, first, last, opens=opens.get(first, False))
        tokens.append(Token(names[word], start, end, cues[first, last], opens[start], ASSERTIONS[code]))
    return tokens


_readers: dict[int, NoteReader] = {}  # by the identity of their rules, which they keep alive


def _reader(rules: Rules) -> NoteReader:
    found = _readers.get(id(rules))
    if found is None:
        if len(_readers) >= KEPT:
            _readers.clear()
        found = _readers[id(rules)] = NoteReader(EMPTY, rules)
    return found
