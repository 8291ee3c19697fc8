"""Removes names, dates and numbers from a text before it is sent.

Rules, not a guarantee: a name in lower case, or one that is also a medical word, stays. What is removed leaves a mark
of its kind, so that the sentence still reads.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

_MONTH = r"(?:jan|feb|mar|apr|may|june?|july?|aug|sept?|oct|nov|dec)[a-z]*\.?"
_DATE = re.compile(
    rf"\b\d{{1,4}}[/.-]\d{{1,2}}[/.-]\d{{1,4}}\b|\b\d{{1,2}}/\d{{1,2}}\b"
    rf"|\b\d{{1,2}}(?:st|nd|rd|th)?\s+(?:of\s+)?{_MONTH}(?:,?\s+\d{{2,4}})?\b"
    rf"|\b{_MONTH}\s+\d{{1,2}}(?:st|nd|rd|th)?(?:,?\s+\d{{2,4}})?\b",
    re.IGNORECASE,
)
_ADDRESS = re.compile(r"\b[\w.+-]+@[\w-]+\.[\w.-]+|\bhttps?://\S+")
_TITLED = re.compile(r"\b(?:Mr|Mrs|Ms|Miss|Dr|Doctor|Prof|Nurse|Sister)\b\.?(?:\s+[A-Z][\w'’-]+){1,3}")
_CAPITALISED = re.compile(r"[A-Z][A-Za-z'’-]+(?:[ \t]+[A-Z][A-Za-z'’-]+)*")
_NUMBER = re.compile(r"\d[\d.,:/ -]*\d|\d")


class Redactor:
    """Replaces names by NAME, dates by DATE and numbers by #. A word of `known` (lower case) is no name.

    A name is what follows a title, and a capitalised word that is not known and does not begin a sentence, with the
    capitalised words after it.
    """

    def __init__(self, known: Iterable[str]) -> None:
        self._known = frozenset(known)

    def __call__(self, text: str) -> str:
        text = _ADDRESS.sub("NAME", text)
        text = _TITLED.sub("NAME", text)
        text = _DATE.sub("DATE", text)
        if not text.isupper():  # in a note in capitals every word looks like a name
            text = _CAPITALISED.sub(self._name, text)
        return _NUMBER.sub("#", text)

    def _name(self, found: re.Match[str]) -> str:
        before = found.string[: found.start()].rstrip(" \t\"'(")
        words = found[0].split()
        begins = not before or before[-1] in ".!?:;\n"
        for at in range(int(begins), len(words)):
            plain = words[at].lower().removesuffix("'s").removesuffix("’s")
            abbreviation = words[at].isupper() and len(words[at]) <= 5  # or a mark of this class
            if plain not in self._known and not abbreviation:
                return " ".join([*words[:at], "NAME"])
        return found[0]
