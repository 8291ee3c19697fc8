"""tokenize: a note -> its words, each with its place in the note and whether it is negated, and by what."""

from __future__ import annotations

from functools import partial
from itertools import accumulate, compress, repeat
from operator import add
from pathlib import Path
from typing import NamedTuple

from whatelse.text.pieces import pieces
from whatelse.text.rules import AFTER, ANSWER, BEFORE, NEXT_WORD, OPEN, STOP, Phrases, Rules, load_rules


class Token(NamedTuple):
    """A word of a note.

    `text` is lower case and normalised (see `pieces.py`); the note's own characters are `note[start:end]`.
    `trigger` is the phrase that negated it, as a token over the whole phrase ("no evidence of"), or None.
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
    texts, is_word, offsets, lengths, widths, phrases = zip(*map(rules.memo.__getitem__, cut), strict=True)
    starts = list(map(add, accumulate(widths, initial=0), offsets))
    ends = list(map(add, starts, lengths))
    triggers: list[Token | None] = [None] * len(texts)
    if any(phrases):
        _mark(texts, is_word, starts, ends, phrases, rules.reach, triggers)
    opens = (False, *map(bool.__xor__, is_word, repeat(True)))
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
    reach: int | None,
    triggers: list[Token | None],
) -> None:
    """Write into `triggers` what negates each piece. One pass over the pieces that may start a phrase.

    A `before` phrase negates from its end to the next stop or `before` phrase; an `after` phrase from its start back to
    the last stop, `open` or phrase that negates. Each piece lies in at most one scope of either kind: linear time.
    """
    n = len(texts)
    trigger: Token | None = None  # the `before` phrase whose scope is open
    begin = 0  # where that scope begins
    back = 0  # how far back an `after` phrase may reach
    done = 0  # end of the last phrase matched: matches do not overlap

    def close(at: int) -> None:
        if trigger is not None:
            stop = at if reach is None else _reach(is_word, begin, at, reach)
            for k in range(begin, stop):
                if triggers[k] is None:
                    triggers[k] = trigger

    for i in compress(range(n), phrases):
        if i < done:
            continue
        for tail, kinds in phrases[i] or ():
            j = i + 1 + len(tail)
            if not tail or list(texts[i + 1 : j]) == tail:
                break
        else:
            continue
        done = j
        if kinds & STOP:
            close(i)
            trigger, back = None, j
        if kinds & BEFORE:
            close(i)
            trigger = Token(" ".join(texts[i:j]), starts[i], ends[j - 1])
            begin = back = j
        elif kinds & NEXT_WORD:
            if j < n and is_word[j]:
                triggers[j] = Token(" ".join(texts[i:j]), starts[i], ends[j - 1])
        elif kinds & AFTER:
            close(i)
            trigger = None
            cue = Token(" ".join(texts[i:j]), starts[i], ends[j - 1])
            for k in range(back, i):
                if triggers[k] is None:
                    triggers[k] = cue
            back = j
        elif kinds & OPEN:
            back = j
    close(n)


def _reach(is_word: tuple[bool, ...], begin: int, stop: int, reach: int) -> int:
    """The end of the first `reach` words of pieces[begin:stop]."""
    left = reach
    for k in range(begin, stop):
        left -= is_word[k]
        if not left:
            return k + 1
    return stop
