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
    from symspellpy.editdistance import DistanceAlgorithm, EditDistance

    found = EditDistance(DistanceAlgorithm.DAMERAU_OSA).compare(a, b, limit)  # made anew: it keeps its working memory
    return found if found >= 0 else limit + 1


def _plain(name: str) -> str:
    return " ".join("".join(c if c.isalnum() else " " for c in name.casefold()).split())
