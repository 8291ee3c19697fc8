"""Slow reference of the assertion pass: for each piece and class, look for the cue that covers it. O(pieces^2).

Written from the description of the lists in `text/rules.py`, with Python lists and no arrays.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from whatelse.text.assertion import ASSERTIONS, LIST
from whatelse.text.pieces import BLANK, WORD, lower, pieces, read
from whatelse.text.rules import KINDS, Rules, _expand

ORDER = ("possible", "historical", "present", "other", "negated", "hypothetical")


class Piece(NamedTuple):
    text: str
    word: bool
    start: int
    end: int


class Hit(NamedTuple):
    """A cue phrase over pieces first to end - 1, with the names of the lists it is in (as they count there)."""

    first: int
    end: int
    lists: frozenset[str]


def cut(text: str) -> list[Piece]:
    result, place = [], 0
    for piece in pieces(lower(text)):
        body, what, offset, length = read(piece)
        if what != BLANK:
            result.append(Piece(body, what == WORD, place + offset, place + offset + length))
        place += len(piece)
    return result


def assertions(text: str, rules: Rules) -> list[str]:
    """Assertion of each word of a text."""
    note = cut(text)
    words = rules.phrases.get("words", {})
    result = sections(note, rules.phrases.get("sections", {}), words, set(rules.phrases.get("join", [])))
    for name in ORDER:
        lists: Mapping[str, Any] = rules.phrases if name == "negated" else rules.phrases.get(name, {})
        for k in covered(note, lists, words, set(rules.phrases.get("join", []))):
            result[k] = name
    return [name for name, piece in zip(result, note, strict=True) if piece.word]


def sections(
    note: list[Piece], headings: Mapping[str, list[str]], words: Mapping[str, list[str]], join: set[str]
) -> list[str]:
    names = {cue: key for key, phrases in headings.items() for cue in _expand(phrases, words, "")}
    result, section, k = [], "present", 0
    texts = [piece.text for piece in note]
    while k < len(note):
        joined = texts[k] == "\n" and k > 0 and texts[k - 1] in join
        for size in range(0 if joined else max(map(len, names), default=0), 0, -1):
            cue, after = tuple(texts[k : k + size]), k + size
            if cue not in names or len(cue) < size:
                continue
            following = texts[after] if after < len(texts) else "\n"
            starts_line = k == 0 or texts[k - 1] == "\n"
            colon = after < len(texts) and following == ":"
            if names[cue] == "end" or colon or (starts_line and following in ("\n", "-")):
                section = "present" if names[cue] == "end" else names[cue]
                result += ["present"] * (size + (colon and names[cue] != "end"))
                break
        else:
            result.append(section)
        k = len(result)
    return result


class Scope(NamedTuple):
    start: int
    kind: str  # long, clause (a comma ends it), near (short), tentative (needs a confirming stop)


def covered(note: list[Piece], lists: Mapping[str, Any], words: Mapping[str, list[str]], join: set[str]) -> set[int]:
    """The pieces that the cues of one class cover."""
    open_ = {cue[0] for cue in _expand(lists.get("open", []), words, "")}
    reach = lists.get("reach", len(note))
    named = {key: set(_expand(lists.get(key, []), words, "")) for key in KINDS}
    hits = {hit.first: hit for hit in find(note, named, open_, join)}
    result: set[int] = set()
    scope: Scope | None = None
    outer: Scope | None = None  # the scope that was open at the last bracket
    bracket: int | None = None
    barrier = start = 0  # how far back a scope may reach; start of the last forward scope

    def cover(some: Scope, end: int) -> None:
        left = reach
        for k in range(some.start, end):
            left -= note[k].word
            if some.kind == "near" and (left < 0 or note[k].text in open_):
                break
            result.add(k)

    for k, piece in enumerate(note):
        if scope and scope.kind == "clause" and piece.text == ",":
            if list_goes_on(note, k, named["stop"]):
                continue
            cover(scope, k)
            scope = None
        if piece.text == "(":
            bracket, outer = k, scope if scope and scope.kind in ("long", "clause") else None
        if k not in hits:
            continue
        hit = hits[k]
        does = set(hit.lists)
        closes = "close" in does and bracket is not None and start > bracket
        if closes:
            does.add("stop")
        was_long = scope is not None and scope.kind in ("long", "clause")
        if scope and does & {"stop", "before", "clause", "after", "near", "before_if", "confirm"}:
            if scope.kind != "tentative" or "confirm" in does:
                cover(scope, k)
            scope = None
        if does & {"stop", "confirm"}:
            barrier = hit.end
        if closes and outer:
            scope = Scope(hit.end, outer.kind)
            start = hit.end
        if "close" in does:
            bracket = None
        if "alone" in does:
            result.update(range(k, hit.end))
        if "after" in does and not does & {"before", "clause"}:
            at, left = k, reach
            while at > barrier and note[at - 1].text not in open_:
                left -= note[at - 1].word
                if left < 0:
                    break
                at -= 1
                result.add(at)
            barrier = hit.end
        if does & {"before", "clause", "near", "before_if"}:
            kind = "clause" if "clause" in does else "long"
            if not does & {"before", "clause"}:
                kind = "tentative" if "near" not in does else "near"
                if kind == "near" and was_long and not does & {"stop", "after"}:
                    kind = "long"
            scope = Scope(hit.end, kind)
            barrier = start = hit.end
        elif "after" not in does and hit.end < len(note):
            glued = note[hit.end].start == note[hit.end - 1].end
            if "next_word" in does or ("prefix" in does and glued):
                result.add(hit.end)
    if scope and scope.kind != "tentative":
        cover(scope, len(note))
    return result


def list_goes_on(note: list[Piece], comma: int, stops: set[tuple[str, ...]]) -> bool:
    """Whether an "or" stands between a comma and the next stop."""
    for piece in note[comma + 1 : comma + LIST]:
        if piece.text == "or":
            return True
        if (piece.text,) in stops:
            return False
    return False


def find(note: list[Piece], lists: Mapping[str, set[tuple[str, ...]]], open_: set[str], join: set[str]) -> list[Hit]:
    """Cue phrases from left to right, longest first, that do not overlap."""
    texts = [piece.text for piece in note]
    longest = max((len(cue) for cues in lists.values() for cue in cues), default=0)
    hits, k = [], 0
    while k < len(note):
        if texts[k] == "\n" and k > 0 and texts[k - 1] in join:
            k += 1
            continue
        for size in range(min(longest, len(note) - k), 0, -1):
            cue, end = tuple(texts[k : k + size]), k + size
            named = {key for key, cues in lists.items() if cue in cues}
            if "alone" in named:
                begins = k == 0 or (not note[k - 1].word and texts[k - 1] not in open_)
                if not begins or end == len(note) or (texts[end],) not in lists["stop"]:
                    named -= {"alone"}
            if "suffix" in named:
                named -= {"suffix"}
                if k > 0 and note[k - 1].word and note[k - 1].end == note[k].start:
                    named = {"after"}
            if "answer" in named:
                follows = end == len(note) or (texts[end],) in lists["stop"]
                if follows or (not note[end].word and texts[end] in open_):
                    named = {"after"}
                else:
                    named -= {"answer"}
            if named:
                hits.append(Hit(k, end, frozenset(named)))
                k = end
                break
        else:
            k += 1
    return hits


assert set(ORDER) == set(ASSERTIONS)
