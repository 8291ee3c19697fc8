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

WORD, SIGN, BLANK = 0, 1, 2

_BREAKS = "\n\r\v\f\x1c\x1d\x1e\x85\u2028\u2029"  # what str.splitlines breaks at


_BLANK = rf"[^\S{_BREAKS}]"
_LETTER = r"[^\W\d_]"
_ALNUM = r"[^\W_]"
_REST = rf"{_ALNUM}*+(?:[\u0300-\u036f]++{_ALNUM}*+)*+(?:['’]{_LETTER}++)?+"  # accents may be characters of their own

# Words of two letters or more come first because they are most of a note. Quantifiers are possessive (`++`, `?+`):
# nothing is given back, so the time is linear in the text.
_PIECE = re.compile(
    rf"""
    {_BLANK}*+
    (?:
      (?: {_LETTER}{_LETTER}{_REST}
        | \d++(?:[.,:/-]\d++)*+{_LETTER}*+
        | w/(?!o(?!{_ALNUM}))
        | {_LETTER}(?:/{_LETTER}(?!{_ALNUM}))++
        | {_LETTER}(?:\.{_LETTER}(?!{_ALNUM}))++\.?+
        | {_LETTER}{_REST}
      )
      (?:[-_](?={_ALNUM}))?+               # the hyphen inside a compound goes with the part before it
    | \r\n
    | .
    )
    | {_BLANK}++                             # blanks at the end
    """,
    re.VERBOSE | re.DOTALL,
)
_NUMBER = re.compile(r"x?\d")
_DIGIT = re.compile(r"\d")


def lower(text: str) -> str:
    """`text` in lower case, character for character, so that an offset means the same in both.

    The one character that becomes two when lowered, the dotted capital I, is left as it is.
    """
    low = text.lower()
    return low if len(low) == len(text) else "".join(c.lower() if len(c.lower()) == 1 else c for c in text)


def pieces(text: str) -> list[str]:
    """The pieces of lower-case `text`; their lengths sum to len(text). O(len(text)).

    No piece ends in a space and goes on after it: the pieces of a text are those of its parts between spaces,
    but for the blanks.
    """
    return _PIECE.findall(text)


def read(piece: str) -> tuple[str, int, int, int]:
    """A piece as (normalised text, WORD or SIGN or BLANK, offset of its first character, length)."""
    body = piece.lstrip()
    start = len(piece) - len(body)
    if not body:
        broken = piece[-1:] in _BREAKS and piece != ""
        return ("\n", SIGN, start - 1, 1) if broken else ("", BLANK, start, 0)
    if not body[0].isalnum():
        return body, SIGN, start, len(body)
    if body[-1] in "-_":
        body = body[:-1]
    length = len(body)
    if _NUMBER.match(body):
        return _DIGIT.sub("#", body), WORD, start, length
    if body[1:2] == ".":
        body = body.replace(".", "")
    return body.replace("’", "'").removesuffix("'s"), WORD, start, length


def cut(text: str) -> list[tuple[str, int, str]]:
    """Words and signs of a text as (normalised, WORD or SIGN, with its digits). Blanks are left out."""
    found = []
    for piece in pieces(lower(text)):
        word, kind, offset, length = read(piece)
        if word:
            found.append((word, kind, piece[offset : offset + length] if "#" in word else word))
    return found
