"""Spelling: one form for British and American words and for plurals, and words one slip away from a clinical word."""

from __future__ import annotations

from collections.abc import Container, Iterable
from functools import lru_cache
from importlib.resources import files

SHORTEST = 7  # letters of a word that a misspelling is corrected to

# British ending -> American ending. Longest first.
_ENDINGS = (
    ("isations", "izations"), ("isation", "ization"), ("ising", "izing"), ("ised", "ized"), ("ises", "izes"),
    ("ise", "ize"), ("ysed", "yzed"), ("yse", "yze"), ("ours", "ors"), ("oured", "ored"), ("our", "or"),
    ("litres", "liters"), ("litre", "liter"), ("metres", "meters"), ("metre", "meter"), ("centre", "center"),
)  # fmt: skip


def american(word: str) -> str:
    """The American spelling of a British word: `oedema` is `edema`, `tumour` is `tumor`. Other words may change too:
    the result is only for looking words up."""
    if len(word) > 5:
        word = word.replace("ae", "e").replace("oe", "e")
    if len(word) > 4:
        for british, form in _ENDINGS:
            if word.endswith(british):
                return word[: -len(british)] + form
    return word


def singular(word: str) -> str:
    """A noun without its plural ending: `rashes` is `rash`, `injuries` is `injury`. Short words stay: `gas`, `ms`."""
    if len(word) < 4 or not word.endswith("s") or word.endswith(("ss", "us", "is")):
        return word
    if word.endswith("ies") and len(word) > 4:
        return word[:-3] + "y"
    if len(word) > 6 and word.endswith(("oses", "yses", "eses")):
        return word[:-2] + "is"
    if word.endswith(("sses", "xes", "ches", "shes", "zzes")):
        return word[:-2]
    return word[:-1]


@lru_cache(maxsize=1 << 17)
def base_form(word: str) -> str:
    """The form that spellings and plurals of one word share."""
    return singular(american(word))


_IRREGULAR = {
    form: verb
    for verb, forms in {
        "feel": "felt", "wake": "woke woken", "throw": "threw thrown", "eat": "ate eaten", "fall": "fell fallen",
        "bleed": "bled", "break": "broke broken", "drink": "drank drunk", "sleep": "slept", "lose": "lost",
        "keep": "kept", "get": "got gotten", "go": "went gone goes", "come": "came", "take": "took taken",
        "shake": "shook shaken", "bite": "bit bitten", "sting": "stung", "spin": "spun", "lie": "lay lying lain",
        "sit": "sat sitting", "stand": "stood", "hold": "held", "hear": "heard", "see": "saw seen",
        "run": "ran running",
        "swell": "swelled", "stick": "stuck", "blow": "blew blown", "speak": "spoke spoken", "tear": "tore torn",
        "begin": "began begun", "give": "gave given", "have": "had has having", "do": "did done does doing",
        "be": "is are was were been being am", "leave": "leaves", "breathe": "breath breaths",
    }.items()
    for form in forms.split()
}  # fmt: skip
_OWN = {"cutting", "burning"}  # what one does to oneself, what one feels: neither is the injury


@lru_cache(maxsize=1 << 17)
def stem(word: str) -> str:
    """What the forms of one verb share: `urinates`, `urinating` and `urinated` are `urinat`, `felt` is `feel`."""
    word = _IRREGULAR.get(word, word)
    if word in _OWN:
        return word
    for ending in ("ing", "ed"):
        if word.endswith(ending) and len(word) - len(ending) >= 3:
            word = word[: -len(ending)]
            if word[-1] == word[-2] and word[-1] not in "lsz":
                word = word[:-1]
            break
    else:
        word = base_form(word)
    return word[:-1] if len(word) > 3 and word.endswith("e") else word


class Corrector:
    """Words of at least SHORTEST letters, found again where one letter was added, left out, changed or swapped.

    Never corrected: a word of fewer than SHORTEST - 1 letters, a word in `leave`, a word with another first letter
    than its target ("afebrile" is not "febrile"), and a word with two targets.
    Two words one slip apart have a form in common: one of them, or both, less one letter. Targets are filed under their
    forms, so that a lookup costs one read of a dictionary for each letter.
    """

    def __init__(self, targets: Iterable[str], leave: Container[str] = ()) -> None:
        self.leave = leave
        self._known = {t for t in targets if len(t) >= SHORTEST and t.isalpha()}
        self._by_form: dict[str, list[str]] = {}
        for target in sorted(self._known):
            for form in _forms(target):
                self._by_form.setdefault(form, []).append(target)

    def correct(self, word: str) -> str | None:
        """The word that `word` is a slip of, or None."""
        if len(word) < SHORTEST - 1 or not word.isalpha() or word in self._known or word in self.leave:
            return None
        by_form = self._by_form
        near = {t for form in _forms(word) if form in by_form for t in by_form[form]}
        found = [t for t in near if t[0] == word[0] and one_slip(word, t)]
        return found[0] if len(found) == 1 else None


def _forms(word: str) -> set[str]:
    """A word, and the word less each letter but the first: the first letter of a slip stays."""
    return {word, *(word[:k] + word[k + 1 :] for k in range(1, len(word)))}


def one_slip(a: str, b: str) -> bool:
    """Whether two different words differ by one letter added, left out or changed, or by two neighbours swapped."""
    if a == b or abs(len(a) - len(b)) > 1:
        return False
    i = 0
    while i < min(len(a), len(b)) and a[i] == b[i]:
        i += 1
    if len(a) == len(b):
        swapped = a[i : i + 2] == b[i : i + 2][::-1] and a[i + 2 :] == b[i + 2 :]
        return swapped or a[i + 1 :] == b[i + 1 :]
    return a[i + 1 :] == b[i:] if len(a) > len(b) else a[i:] == b[i + 1 :]


@lru_cache(maxsize=1)
def english() -> frozenset[str]:
    """English words of six letters or more, from the dictionary of symspellpy: words that are no misspellings."""
    lines = (files("symspellpy") / "frequency_dictionary_en_82_765.txt").read_text("utf-8-sig").splitlines()
    return frozenset(word for line in lines if len(word := line.partition(" ")[0]) >= 6)
