"""tokenize: a note -> its words, each with its place in the note, its assertion and the cue that set the assertion."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from itertools import accumulate, chain, compress
from operator import add, itemgetter
from pathlib import Path
from typing import NamedTuple

import numpy as np

from whatelse.text.assertion import ASSERTIONS, assert_pieces
from whatelse.text.pieces import SIGN, WORD, lower
from whatelse.text.rules import Rules, load_rules


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
    negated: bool = False
    cue: Token | None = None
    opens: bool = False
    assertion: str = "present"

    @property
    def trigger(self) -> Token | None:
        """The cue of a negated word, else None."""
        return self.cue if self.negated else None

    @property
    def word(self) -> str:
        """The word of the vocabulary it stands for: its text, after `neg:` if it is negated."""
        return "neg:" + self.text if self.negated else self.text


_new = partial(tuple.__new__, Token)  # Token(...) without the Python frame of a named tuple's constructor
_width = itemgetter(4)  # of a Piece


def tokenize(text: str, rules: str | Path | Rules = "default") -> list[Token]:
    """The words and numbers of `text` in order; signs end scopes but are not tokens themselves.

    `rules` is `default`, `paper`, a path to a rules file or loaded `Rules`. Time and memory are O(len(text)).
    """
    if not isinstance(rules, Rules):
        rules = load_rules(rules)
    cut = list(chain.from_iterable(map(rules.memo.__getitem__, lower(text).split(" "))))
    places = list(accumulate(map(_width, cut), initial=0))
    if not all(piece[0] for piece in cut):  # two spaces in a row, a tab: blanks have no part in what follows
        keep = [piece[0] != "" for piece in cut]
        cut, places = list(compress(cut, keep)), list(compress(places, keep))
    if not cut:
        return []
    texts, kinds, offsets, lengths, _, cue_words = zip(*cut, strict=True)
    starts = list(map(add, places, offsets))
    ends = list(map(add, starts, lengths))
    after_sign = [False, *map(SIGN.__eq__, kinds[:-1])]
    cues: list[Token | None] = [None] * len(cut)
    names = ["present"] * len(cut)
    if max(cue_words) >= 0:
        _assert(texts, kinds, starts, ends, after_sign, cue_words, rules, names, cues)
    negated = map("negated".__eq__, names)
    values = zip(texts, starts, ends, negated, cues, after_sign, names, strict=True)
    return list(map(_new, compress(values, map(WORD.__eq__, kinds))))


def words(tokens: list[Token]) -> list[str]:
    """The vocabulary word of each token: `neg:` before the negated ones."""
    return ["neg:" + token.text if token.negated else token.text for token in tokens]


def _assert(
    texts: Sequence[str],
    kinds: Sequence[int],
    starts: Sequence[int],
    ends: Sequence[int],
    after_sign: Sequence[bool],
    cue_words: Sequence[int],
    rules: Rules,
    names: list[str],
    cues: list[Token | None],
) -> None:
    """Assertion and cue of each piece into `names` and `cues`."""
    count = len(texts)
    glued = np.zeros(count, np.bool_)
    glued[1:] = np.array(starts[1:], np.int64) == np.array(ends[:-1], np.int64)
    assertion, first, last = np.empty(count, np.int8), np.empty(count, np.int32), np.empty(count, np.int32)
    pieces = np.array(cue_words, np.int64), np.array(kinds, np.int64), glued, np.zeros(count, np.int8)
    assert_pieces(*pieces, count, rules.tables, assertion, first, last)
    marked = np.flatnonzero(assertion)
    known: dict[tuple[int, int], Token | None] = {(-1, -1): None}
    columns = marked.tolist(), assertion[marked].tolist(), first[marked].tolist(), last[marked].tolist()
    for place, code, i, k in zip(*columns, strict=True):
        names[place] = ASSERTIONS[code]
        if (i, k) not in known:
            phrase = " ".join(texts[i : k + 1])
            known[i, k] = _new((phrase, starts[i], ends[k], False, None, after_sign[i], "present"))
        cues[place] = known[i, k]
