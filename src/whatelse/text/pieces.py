"""A note cut into pieces: words, numbers and signs, each with the blanks before it.

The pieces tile the text: put end to end they are the text again, so offsets are running sums of lengths and
need no per-match bookkeeping. What a piece is:

- a *word*: letters, with digits after them (`o2`, `aox3`) and an apostrophe inside (`doesn't`; a final `'s` is
  dropped). Abbreviations of single letters keep their slashes (`s/p`, `n/v/d`, and `w/`) and lose their dots
  (`p.o.` is `po`);
- a *number*: digits with `. , : / -` inside and letters after (`101.5`, `120/80`, `12:30`, `3-4`, `45yo`), or `x`
  and digits (`x3`). Each digit is written `#` (`###.#`, `###/##`, `##:##`, `#-#`, `##yo`, `x#`): a number keeps
  its form and its order of magnitude, not its value;
- a *sign*: any other single character; every kind of line break is the sign "\\n", blanks at the end are "".

A hyphen or underscore between two words is neither a sign nor part of a word: `follow-up` is `follow`, `up`.
"""

from __future__ import annotations

import re

_BREAKS = "\n\r\v\f\x1c\x1d\x1e\x85\u2028\u2029"  # what str.splitlines breaks at


def _compile(letter: str, alnum: str, blank: str, accents: str) -> re.Pattern[str]:
    """The pattern of one piece over the given character classes.

    Words of two letters or more come first because they are most of a note. Quantifiers are possessive
    (`++`, `?+`): nothing is given back, so the time is linear in the text.
    """
    return re.compile(
        rf"""
        {blank}*+
        (?:
          (?: {letter}{letter}{alnum}*+{accents}(?:['’]{letter}++)?+
            | \d++(?:[.,:/-]\d++)*+{letter}*+
            | w/(?!o(?!{alnum}))
            | {letter}(?:/{letter}(?!{alnum}))++
            | {letter}(?:\.{letter}(?!{alnum}))++\.?+
            | {letter}{alnum}*+{accents}(?:['’]{letter}++)?+
          )
          (?:[-_](?={alnum}))?+            # the hyphen inside a compound goes with the part before it
        | \r\n
        | .
        )
        """,
        re.VERBOSE | re.DOTALL,
    )


_UNICODE = _compile(r"[^\W\d_]", r"[^\W_]", rf"[^\S{_BREAKS}]", r"(?:[\u0300-\u036f]++[^\W_]*+)*+")
_ASCII = _compile("[a-z]", "[a-z0-9]", r"[ \t\x1f]", "")  # the same on ASCII text, and twice as fast

_NUMBER = re.compile(r"x?\d")
_DIGIT = re.compile(r"\d")


def pieces(text: str) -> list[str]:
    """The pieces of `text` in lower case; their lengths sum to len(text). O(len(text)).

    Lowering keeps offsets: the one character that becomes two when lowered, the dotted capital I, is left alone.
    """
    low = text.lower()
    if low.isascii():
        return _ASCII.findall(low)
    if len(low) != len(text):
        low = "".join(c.lower() if len(c.lower()) == 1 else c for c in text)
    return _UNICODE.findall(low)


def read(piece: str) -> tuple[str, bool, int, int]:
    """A piece as (normalised text, is it a word or number, offset of its first character, length)."""
    if piece[-1] in _BREAKS:
        return "\n", False, len(piece) - 1, 1
    body = piece.lstrip()
    start = len(piece) - len(body)
    if not body[:1].isalnum():
        return body, False, start, len(body)
    if body[-1] in "-_":
        body = body[:-1]
    length = len(body)
    if _NUMBER.match(body):
        return _DIGIT.sub("#", body), True, start, length
    if body[1:2] == ".":
        body = body.replace(".", "")
    return body.replace("’", "'").removesuffix("'s"), True, start, length
