"""tokenize: a note -> its words, each with its place in the note and whether it is negated, and by what."""

from __future__ import annotations

from functools import partial
from itertools import accumulate, compress
from operator import add, not_
from pathlib import Path
from typing import NamedTuple

from whatelse.text.pieces import pieces
from whatelse.text.rules import AFTER, ANSWER, BEFORE, NEGATES, NEXT_WORD, OPEN, STOP, Phrases, Rules, load_rules


class Token(NamedTuple):
    """A word of a note.

    `text` is lower case and normalised (see `pieces.py`); the note's own characters are `note[start:end]`.
    `trigger` is the phrase that negated it, as a token over the whole phrase ("negative for"), or None.
    `opens` says that a sign or a line break, not just blanks, stands between it and the word before.
    """

    text: str
    start: int
    end: int
    negated: bool = False
    trigger: Token | None = None
    opens: bool = False

    @property
    def word(self) -> str:
        """The word of the vocabulary it stands for: its text, after `neg:` if it is negated."""
        return "neg:" + self.text if self.negated else self.text


_make = partial(tuple.__new__, Token)  # Token._make without its Python frame


def tokenize(text: str, rules: str | Path | Rules = "default") -> list[Token]:
    """The words and numbers of `text` in order; signs end negations but are not tokens themselves.

    `rules` is `default`, `paper`, a path to a rules file or loaded `Rules`. Time and memory are O(len(text)).
    """
    if rules.__class__ is not Rules:
        rules = load_rules(rules)
    cut = pieces(text)
    if not cut:
        return []
    # Columns, not a loop over pieces: everything that is the same for each piece runs in C.
    texts, is_word, offsets, lengths, widths, phrases = zip(*map(rules.memo.__getitem__, cut), strict=True)
    starts = list(map(add, accumulate(widths, initial=0), offsets))
    ends = list(map(add, starts, lengths))
    triggers = _mark(texts, is_word, starts, ends, phrases)
    opens = (False, *map(not_, is_word))
    columns = zip(texts, starts, ends, map(bool, triggers), triggers, opens, strict=False)
    return list(map(_make, compress(columns, is_word)))


def words(tokens: list[Token]) -> list[str]:
    """The vocabulary word of each token: `neg:` before the negated ones."""
    return ["neg:" + text if negated else text for text, _, _, negated, _, _ in tokens]


def _mark(
    texts: tuple[str, ...],
    is_word: tuple[bool, ...],
    starts: list[int],
    ends: list[int],
    phrases: tuple[Phrases | None, ...],
) -> list[Token | None]:
    """What negates each piece, or None. One pass over the pieces that may start a phrase.

    A `before` phrase negates from its end to the next stop or phrase that negates; an `after` phrase from its start
    back to the last stop, `open` or phrase that negates. Scopes of one kind do not overlap: linear time.
    """
    n = len(texts)
    triggers: list[Token | None] = [None] * n
    trigger: Token | None = None  # the `before` phrase whose scope is open
    begin = 0  # where that scope begins
    back = 0  # how far back an `after` phrase may reach
    done = 0  # end of the last phrase: phrases do not overlap
    for i in compress(range(n), phrases):
        if i < done:
            continue
        for tail, kinds in phrases[i] or ():
            j = i + 1 + len(tail)
            if tail and texts[i + 1 : j] != tail:
                continue
            if kinds & ANSWER:
                if j == n or not is_word[j] or _is_stop(phrases[j]):
                    kinds = AFTER
                elif kinds == ANSWER:
                    continue
            break
        else:
            continue
        done = j
        if kinds == OPEN:
            back = j
            continue
        if trigger is not None and kinds & (STOP | BEFORE | AFTER):
            triggers[begin:i] = [trigger] * (i - begin)
            trigger = None
        if kinds & STOP:
            back = j
        if kinds & NEGATES:
            cue = Token(" ".join(texts[i:j]), starts[i], ends[j - 1])
            if kinds & BEFORE:
                trigger = cue
                begin = back = j
            elif kinds & AFTER:
                triggers[back:i] = [cue] * (i - back)
                back = j
            elif j < n and is_word[j] and (kinds & NEXT_WORD or starts[j] == ends[i]):
                triggers[j] = cue
    if trigger is not None:
        triggers[begin:] = [trigger] * (n - begin)
    return triggers


def _is_stop(phrases: Phrases | None) -> bool:
    return phrases is not None and any(not tail and kinds & STOP for tail, kinds in phrases)
