"""Is one word a form of another? Inflections and derivations, misspellings, shortenings, initials.

`stem` takes clinical endings off a word: "pruritus", "pruritic" and "pruritis" become one, "syncope" and "syncopal",
"irritable" and "irritability", "cyanosis" and "cyanotic"; "arthralgia" and "arthritis" stay two, because -algia and
-itis mean something. It is a key for comparing words and is not itself a word.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

from whatelse.annotators.spelling import distance
from whatelse.io.limits import shipped_yaml
from whatelse.text.function_words import LINKING_WORDS

_DATA = shipped_yaml("whatelse.annotators.discovery", "word_forms.yaml")
_ENDINGS: list[tuple[str, str, int]] = [tuple(entry) for entry in _DATA["endings"]]
_IRREGULAR: dict[str, str] = {
    form: base for base, forms in _DATA["irregular"].items() for form in (base, *forms.split())
}
_NO = frozenset(["no", "not", "without", "w/o"])


@lru_cache(maxsize=1 << 16)
def stem(word: str) -> str:
    """The stem that the forms of a word share. Up to two endings are taken off; British ae, oe are read as e."""
    word = word.lower()
    if word in _IRREGULAR:
        return _IRREGULAR[word]
    if len(word) >= 6:
        word = word.replace("oe", "e").replace("ae", "e")
    if "/" in word or len(word) < 4 or not word.isascii():
        return word
    for _ in range(2):
        shorter = _without_ending(word)
        if shorter == word:
            break
        word = shorter
    if len(word) > 3 and word[-1] == word[-2] and word[-1] not in "aeiou":  # vomitting
        word = word[:-1]
    return word


def _without_ending(word: str) -> str:
    for ending, instead, left in _ENDINGS:
        if word.endswith(ending) and len(word) - len(ending) >= left and not (ending == "s" and word.endswith("ss")):
            left_over = word[: len(word) - len(ending)] + instead
            return left_over + "~" * (len(left_over) <= 3 and ending != "s")  # "hives" are not "hiv"
    return word


def stems(words: Sequence[str]) -> tuple[str, ...]:
    """The stems of a phrase's words in order, function words left out unless there is nothing else.

    A "no" stays: "not eating" must not be taken for "eating".
    """
    content = [w for w in words if w not in LINKING_WORDS or w in _NO]
    return tuple(stem(w) for w in (content or words))


def misspelled(word: str, right: str) -> bool:
    """Whether `word` is within one edit of `right`, or two from nine letters on. Words under five letters are not."""
    if word == right or word[:1] != right[:1] or "/" in word or min(len(word), len(right)) < 5:
        return False
    allowed = 2 if min(len(word), len(right)) >= 9 else 1
    return distance(word, right, allowed) <= allowed


def shortens(word: str, whole: str) -> bool:
    """Whether `word` is the beginning of `whole` (abd, temp, resp) or its consonants (sz is not: seizure has r)."""
    if len(word) < 3 or len(whole) < len(word) + 3:
        return False
    consonants = whole[:1] + "".join(letter for letter in whole[1:] if letter not in "aeiou")  # after the first letter
    return whole.startswith(word) or (len(word) <= 5 and consonants.startswith(word))


def initials_of(phrase: Sequence[str]) -> set[str]:
    """The first letters of a phrase of two words or more, with and without its function words."""
    every = "".join(w[:1] for w in phrase)
    content = "".join(w[:1] for w in phrase if w not in LINKING_WORDS)
    return {short for short in (every, content) if len(short) > 1}
