"""tokenize: a note -> its words, each with its place in the note and whether it is negated, and by what."""

from __future__ import annotations

from itertools import accumulate, chain, compress
from operator import itemgetter
from pathlib import Path
from typing import NamedTuple

from whatelse.text.pieces import SIGN, WORD, lower
from whatelse.text.rules import (
    AFTER,
    ANSWER,
    BEFORE,
    NEGATES,
    NEXT_WORD,
    STOP,
    Entry,
    Piece,
    Rules,
    load_rules,
)


class Token(NamedTuple):
    """A word of a note.

    `text` is lower case and normalised (see `pieces.py`); the note's own characters are `note[start:end]`.
    `trigger` is the phrase that negated it, as a token over the whole phrase ("no", "negative for"), or None.
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


_new = tuple.__new__  # Token(...) without the Python frame of a named tuple's constructor
_text, _width = itemgetter(0), itemgetter(4)  # of a Piece


def tokenize(text: str, rules: str | Path | Rules = "default") -> list[Token]:
    """The words and numbers of `text` in order; signs end negations but are not tokens themselves.

    `rules` is `default`, `paper`, a path to a rules file or loaded `Rules`. Time and memory are O(len(text)).
    """
    if not isinstance(rules, Rules):
        rules = load_rules(rules)
    cut = list(chain.from_iterable(map(rules.memo.__getitem__, lower(text).split(" "))))
    places = list(accumulate(map(_width, cut), initial=0))
    if not all(map(_text, cut)):  # two spaces in a row, a tab: blanks have no part in what follows
        keep = [piece[0] != "" for piece in cut]
        cut, places = list(compress(cut, keep)), list(compress(places, keep))
    triggers = _triggers(cut, places, rules.opens)
    tokens: list[Token] = []
    opens = False
    for (word, what, offset, length, _, _), place, trigger in zip(cut, places, triggers, strict=False):
        if what == WORD:
            start = place + offset
            tokens.append(_new(Token, (word, start, start + length, trigger is not None, trigger, opens)))
            opens = False
        elif what == SIGN:
            opens = True
    return tokens


def words(tokens: list[Token]) -> list[str]:
    """The vocabulary word of each token: `neg:` before the negated ones."""
    return ["neg:" + token.text if token.negated else token.text for token in tokens]


def _triggers(cut: list[Piece], places: list[int], opens: frozenset[str]) -> list[Token | None]:
    """What negates each piece, or None. One pass over the pieces that may start a phrase.

    A `before` phrase negates from its end to the next stop or phrase that negates; an `after` phrase from its start
    back to the last stop, word of `opens` or phrase that negates. Scopes of one kind do not overlap: linear time.
    """
    n = len(cut)
    triggers: list[Token | None] = [None] * n
    trigger: Token | None = None  # the `before` phrase whose scope is open
    begin = 0  # where that scope begins
    back = 0  # how far back an `after` phrase may reach
    done = 0  # end of the last phrase: phrases do not overlap
    for i, piece in enumerate(cut):
        entry = piece[5]
        if entry is None or i < done:
            continue
        kinds, longer = entry
        done = i + 1
        if longer and done < n and cut[done][0] in longer:
            kinds, done = _longest(cut, i, entry, opens)
        elif kinds & ANSWER:
            kinds = _answer(cut, done, kinds, opens)
        if trigger is not None and kinds & (STOP | BEFORE | AFTER):
            triggers[begin:i] = [trigger] * (i - begin)
            trigger = None
        if kinds & STOP:
            back = done
        if kinds & NEGATES:
            last = cut[done - 1]
            start, end = places[i] + piece[2], places[done - 1] + last[2] + last[3]
            after_sign = i > 0 and cut[i - 1][1] == SIGN
            cue = _new(Token, (" ".join([p[0] for p in cut[i:done]]), start, end, False, None, after_sign))
            if kinds & BEFORE:
                trigger = cue
                begin = back = done
            elif kinds & AFTER:
                first = i
                while first > back and cut[first - 1][0] not in opens:
                    first -= 1
                triggers[first:i] = [cue] * (i - first)
                back = done
            elif done < n and (kinds & NEXT_WORD or places[done] + cut[done][2] == end):
                triggers[done] = cue
    if trigger is not None:
        triggers[begin:] = [trigger] * (n - begin)
    return triggers


def _longest(cut: list[Piece], i: int, entry: Entry, opens: frozenset[str]) -> tuple[int, int]:
    """The kinds and the end of the longest phrase at piece i, whose next piece is the second word of one."""
    alone, longer = entry
    for tail, kinds in longer[cut[i + 1][0]]:
        end = i + 1 + len(tail)
        if tuple([piece[0] for piece in cut[i + 1 : end]]) == tail:
            kinds = _answer(cut, end, kinds, opens)
            if kinds:
                return kinds, end
    return _answer(cut, i + 1, alone, opens), i + 1


def _answer(cut: list[Piece], end: int, kinds: int, opens: frozenset[str]) -> int:
    """`kinds` of a phrase that ends before piece `end`: ANSWER is AFTER where an answer can be, else nothing."""
    if not kinds & ANSWER:
        return kinds
    if end < len(cut):
        text, what, _, _, _, entry = cut[end]
        stops = entry is not None and entry[0] & STOP
        if not stops and (what == WORD or text not in opens):
            return kinds & ~ANSWER
    return AFTER
