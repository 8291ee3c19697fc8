"""Misspelled names: suggests 'fall' for 'Falls' and 'abdominal pain' for 'abdominal_pian'."""

from __future__ import annotations

from collections.abc import Iterable


def meant(name: str, known: Iterable[str]) -> str | None:
    """The known name that `name` is a misspelling of, or None if it is one of them or like none of them.

    A misspelling differs in case, blanks and signs only, or by one letter (two where the name has eight or more)
    added, left out, changed or swapped with its neighbour.
    """
    names = list(known)
    if name in names:
        return None
    plain = _plain(name)
    best = min(names, key=lambda other: (distance(plain, _plain(other)), other), default=None)
    if best is None:
        return None
    shorter = min(len(plain), len(_plain(best)))
    allowed = 0 if shorter < 3 else 1 if shorter < 8 else 2
    return best if distance(plain, _plain(best)) <= allowed else None


def distance(a: str, b: str, limit: int = 2) -> int:
    """Letters to add, leave out, change or swap with a neighbour to make `b` of `a`; `limit + 1` if more."""
    if abs(len(a) - len(b)) > limit:
        return limit + 1
    before: list[int] = []
    last = list(range(len(b) + 1))
    for i, x in enumerate(a, start=1):
        row = [i]
        for j, y in enumerate(b, start=1):
            best = min(last[j] + 1, row[-1] + 1, last[j - 1] + (x != y))
            if i > 1 and j > 1 and x == b[j - 2] and a[i - 2] == y:
                best = min(best, before[j - 2] + 1)
            row.append(best)
        if min(row) > limit:
            return limit + 1
        before, last = last, row
    return min(last[-1], limit + 1)


def _plain(name: str) -> str:
    return " ".join("".join(c if c.isalnum() else " " for c in name.casefold()).split())
