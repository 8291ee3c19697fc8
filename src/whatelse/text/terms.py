"""Terms: the words of a lexicon by number, and its phrases as a trie over these numbers.

`TermTable.number(word)` is what a word of a note is to the lexicon: the word itself, its American spelling, its
singular or plural, inside a phrase another form of the same verb, or the word that it is a misspelling of. The answer
is computed once for each different word.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from copy import copy
from itertools import chain, islice, product

import numpy as np

from whatelse.text.lexicon import ROLES, Lexicon, Words, cut_term
from whatelse.text.spelling import Corrector, american, base_form, stem
from whatelse.text.trie import Trie, build_trie
from whatelse.types import Int32s

ARTICLE, LINK, VERB, MODIFIER, AND, COMMA, GIVEN, ALLERGY, WITH_SITE = (1 << i for i in range(len(ROLES)))
ROLE_BITS = dict(zip(ROLES, (ARTICLE, LINK, VERB, MODIFIER, AND, COMMA, GIVEN, ALLERGY, WITH_SITE), strict=True))
LONGEST = 40  # letters of a word that other spellings are looked for
VARIANTS = 32  # of one phrase, at most
BE, BE_NUMBER = "is", 0  # stands for every run of linking verbs in "urine is cloudy"
# Left out of phrases at compile time. "a" is not: "vitamin a deficiency".
_DROPPED = frozenset({"the", "his", "her", "their", "my", "your", "its"})
_LETTERED = frozenset({"hepatitis", "hep", "vitamin", "vit", "type", "group", "influenza", "flu", "protein", "strep"})


class TermTable:
    """Words of a lexicon, numbered.

    exact   of the empty lexicon: a number stands for the written word alone, in no other spelling
    """

    def __init__(self, lexicon: Lexicon) -> None:
        self.exact = not lexicon.entries
        senses = [sense for some in lexicon.shorthand.values() for sense in some]
        around = (word for sense in senses for some in (sense.next, sense.previous, sense.near) for word in some)
        grammar = chain.from_iterable(lexicon.grammar.get(role, ()) for role in ROLES)
        known = chain(chain.from_iterable(lexicon.phrases), lexicon.shorthand, around, grammar)
        self.numbers: dict[str, int] = {}
        self._by_base: dict[str, list[str]] = {}
        self._states, self._verbs, self._articles = (
            frozenset(lexicon.grammar.get(part, ())) for part in ("states", "verbs", "articles")
        )
        self._stem_of: dict[str, str] = {}
        self._heads = {cut_term(term) for entry in lexicon.heads for term in entry.terms}
        self._sites = {cut_term(term) for entry in lexicon.sites for term in entry.terms}
        self._add([BE, *known])
        self.role = np.zeros(len(self.numbers), np.int32)
        for role, bit in ROLE_BITS.items():
            self.role[[self.numbers[word] for word in lexicon.grammar.get(role, ())]] |= bit
        self._corrector = Corrector(() if self.exact else lexicon.words, frozenset(lexicon.leave))

    def _add(self, words: Iterable[str]) -> None:
        for word in dict.fromkeys(words):
            if word not in self.numbers:
                self.numbers[word] = len(self.numbers)
                if word.isalpha() and not self.exact:
                    self._by_base.setdefault(base_form(word), []).append(word)
                    root = f"~{stem(word)}"  # a form that no phrase has written out
                    self.numbers.setdefault(root, len(self.numbers))

    def with_phrases(self, phrases: Iterable[Words]) -> TermTable:
        """The same numbers, and numbers for the words of further phrases."""
        other = copy(self)
        other.numbers = dict(self.numbers)
        other._by_base = {base: [*some] for base, some in self._by_base.items()}
        other._add(chain.from_iterable(phrases))
        return other

    def number(self, text: str, raw: str) -> int:
        """Number of a word or sign of a note, -1 if it is no word of the lexicon.

        text   normalised: digits are written "#"; raw: the same with its digits
        """
        numbers = self.numbers
        if self.exact:
            return numbers.get(text, -1)
        found = numbers.get(raw, -1)
        if found < 0 and raw != text:
            found = numbers.get(text, -1)
        if found >= 0 or not 4 <= len(raw) <= LONGEST or not raw.isalpha():
            return found
        form = american(raw)
        if form in numbers:
            return numbers[form]
        alike = self._by_base.get(base_form(raw))
        if alike:
            return numbers[alike[0]]
        right = self._corrector.correct(raw)
        return numbers[right] if right is not None else numbers.get(f"~{stem(raw)}", -1)

    def stems(self) -> Int32s:
        """Number of a word -> number of what the forms of its verb share; of words of grammar and signs their own."""
        found = np.arange(len(self.numbers), dtype=np.int32)
        for word, number in self.numbers.items():
            found[number] = self.numbers[self._stemmed(word)]
        return found

    def _stemmed(self, word: str) -> str:
        found = self._stem_of.get(word)
        if found is None:
            own = word in self._verbs or word in self._articles or not word.isalpha() or len(word) < 3
            found = self._stem_of[word] = word if own else f"~{stem(word)}"
        return found

    def variants(self, words: Words) -> list[Words]:
        """A phrase in every spelling and number that the lexicon has words for, without articles inside; "cloudy urine"
        as "urine is cloudy"; a phrase of several words by the stems of its words."""
        if self.exact:
            return [words]
        inner = [w for k, w in enumerate(words) if not (0 < k < len(words) - 1 and w in _DROPPED)]
        some = [[w, *(o for o in self._by_base.get(base_form(w), ()) if o != w)] if w.isalpha() else [w] for w in inner]
        found = list(islice(product(*some), VARIANTS))
        for k in range(1, len(inner) - 1):
            if inner[k] in ("a", "an") and inner[k - 1] not in _LETTERED:
                found += [(*v[:k], *v[k + 1 :]) for v in found]
                break
        composed = (inner[0],) in self._heads and tuple(inner[1:]) in self._sites  # "swollen ankle"
        if 2 <= len(inner) <= 3 and inner[0] in self._states and not composed:
            found += [(*v[1:], BE, v[0]) for v in found]
        if len(inner) > 1:
            found += dict.fromkeys(tuple(map(self._stemmed, v)) for v in found)
        return [*found, *dict.fromkeys(linked for v in found if (linked := self._linked(v)) != v)]

    def _linked(self, words: Words) -> Words:
        """A phrase with one "is" for each run of linking verbs after its first word."""
        if self._verbs.isdisjoint(words[1:-1]):
            return words
        out = list(words[:1])
        for k, word in enumerate(words[1:], 1):
            verb = k < len(words) - 1 and word in self._verbs
            if not (verb and out[-1] == BE):
                out.append(BE if verb else word)
        return tuple(out)

    def trie(self, phrases: Mapping[Words, int]) -> Trie:
        """The trie of phrases, with their variants. A phrase as written wins over a variant of another."""
        every = dict(phrases)
        for words, value in phrases.items():
            for variant in self.variants(words):
                every.setdefault(variant, value)
        numbered = (([self.numbers[word] for word in words], value) for words, value in every.items())
        return build_trie(numbered, len(self.numbers) + 1)
