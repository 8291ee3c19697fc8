"""Finder: what a visit's fields say, by name, and which of it stands for a condition.

A finding's name says where it comes from: a bare word (`chest_pain`) or `neg:` word from the notes, `age:40-50`,
`sex:F`, `hx:` a drug of the medication history, `rx:` a drug dispensed, and `system:label` for any other code.

**What leaves.** A finding that an anchor is made of must not stay an ordinary finding: it would be on whenever the
anchor is, whatever the condition. So these leave:
- every word of an anchor's phrase ("s/p fall" takes `s/p` and `fall` with it, in every field);
- a joined word that holds a whole anchor (`etoh_abuse`) or is part of one (`urinary_tract`); `chest_pain` stays though
  "abd pain" takes `pain`. The words of a mention that fires an anchor are not joined with their neighbours: "chronic
  abd pain" is the anchor and `chronic`, not `chronic_abd`;
- a drug or code that is an anchor, in the field where it is one. Tamsulosin dispensed is an anchor of kidney stones, so
  `rx:tamsulosin` leaves; tamsulosin taken at home is not, so `hx:tamsulosin` stays.
A negated mention (`neg:etoh`) neither fires the anchor nor leaves: it is a finding of its own, as in the paper.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

from whatelse.anchors import AnchorSet
from whatelse.errors import ConditionError
from whatelse.text import Rules, Token, load_rules, tokenize
from whatelse.visits import CODE_FIELDS, Code, Visit

Words = tuple[str, ...]
Signs = tuple[str, ...]
_PREFIX = {"medication_history": "hx:", "dispensed": "rx:"}
REMEMBERED = 100_000  # codes; drug names are typed by people, so there is no end to them


class Finder:
    """An AnchorSet made ready for matching. `rules` are negation rules: a shipped name, a path, or loaded ones."""

    def __init__(self, anchors: AnchorSet, rules: str | Path | Rules = "default") -> None:
        self.anchors = anchors
        self.rules = load_rules(rules)
        self._starts: dict[str, list[tuple[Words, Signs, int, int, tuple[str, ...]]]] = {}
        self._phrases: set[Words] = set()
        for i, condition in enumerate(anchors.conditions):
            for number, anchor in enumerate(condition.anchors):
                if anchor.how != "phrase":
                    continue
                tokens = tokenize(anchor.value, self.rules)
                words = tuple(t.text for t in tokens)
                if not words:
                    raise ConditionError(f"condition {condition.name!r}: anchor {anchor.value!r} has no word in it")
                self._phrases.add(words)
                signs = tuple(_between(anchor.value, a, b) for a, b in pairwise(tokens))
                self._starts.setdefault(words[0], []).append((words, signs, i, number, anchor.fields))
        self._words = {word for phrase in self._phrases for word in phrase}
        self._coded = [
            (i, anchor, field)
            for i, condition in enumerate(anchors.conditions)
            for anchor in condition.anchors
            if anchor.how != "phrase"
            for field in anchor.fields
        ]
        self._memo: dict[tuple[str, Code], tuple[str, tuple[int, ...]]] = {}

    def all_phrases(self) -> list[tuple[Words, Signs, int, tuple[str, ...]]]:
        """(words, the signs between them, condition, fields) of every anchor that is a phrase."""
        return [(words, signs, i, fields) for some in self._starts.values() for words, signs, i, _, fields in some]

    def tokens(self, text: str) -> list[Token]:
        """The words of a note, before bigrams are joined."""
        return tokenize(text, self.rules)

    def phrases(self, field: str, text: str, tokens: list[Token]) -> list[tuple[int, int, int]]:
        """(condition, first token, last token) of every anchor phrase in a note `text`, given its tokens. O(tokens)."""
        return [(condition, a, b) for condition, _, a, b in self.mentions(field, text, tokens)]

    def mentions(self, field: str, text: str, tokens: list[Token]) -> list[tuple[int, int, int, int]]:
        """(condition, number of its anchor, first token, last token) of every anchor phrase in a note.

        Its words follow one another, none is negated, and between them stand blanks or a hyphen and the signs that the
        phrase has there: "abd. pain" is "abd. pain", not "abd pain" nor "abd; pain".
        """
        found = []
        starts = self._starts
        for k, token in enumerate(tokens):
            if token.text in starts:
                for words, signs, condition, number, fields in starts[token.text]:
                    run = tokens[k : k + len(words)]
                    if field in fields and _follows(text, run, words, signs):
                        found.append((condition, number, k, k + len(words) - 1))
        return found

    def rest(self, tokens: list[Token], found: list[tuple[int, int, int]]) -> list[Token]:
        """`tokens` without those of the anchor phrases `found` among them; nothing is joined over the gaps."""
        if not found:
            return tokens
        taken = {k for _, first, last in found for k in range(first, last + 1)}
        return [t._replace(opens=t.opens or k - 1 in taken) for k, t in enumerate(tokens) if k not in taken]

    def code(self, field: str, code: Code) -> tuple[str, tuple[int, ...]]:
        """A code's finding name and the conditions it is an anchor of (usually none). Remembered: O(1)."""
        known = self._memo.get((field, code))
        if known is None:
            conditions = dict.fromkeys(i for i, anchor, f in self._coded if f == field and anchor.matches(code))
            known = code_name(field, code), tuple(conditions)
            if len(self._memo) >= REMEMBERED:
                self._memo.clear()
            self._memo[field, code] = known
        return known

    def facts(self, visit: Visit) -> Iterator[tuple[str, tuple[int, ...], str, Code | None]]:
        """What a visit holds besides its notes: (finding name, conditions it anchors, field, code)."""
        if visit.age is not None:
            decade = int(visit.age // 10) * 10
            yield f"age:{decade}-{decade + 10}", (), "age", None
        if visit.sex is not None:
            yield f"sex:{visit.sex}", (), "sex", None
        for field in CODE_FIELDS:
            for code in getattr(visit, field) or ():
                yield *self.code(field, code), field, code

    def leaves(self, word: str) -> bool:
        """Whether a word, joined or not, is left out because an anchor is made of it. Never a `neg:` word."""
        if word.startswith("neg:"):
            return False
        parts = tuple(word.split("_"))
        if len(parts) == 1:
            return word in self._words
        if any(parts[i:j] in self._phrases for i in range(len(parts)) for j in range(i + 1, len(parts) + 1)):
            return True
        size = len(parts)
        return any(parts == phrase[i : i + size] for phrase in self._phrases for i in range(len(phrase) - size + 1))


def code_name(field: str, code: Code) -> str:
    """The name of the finding that a code is: its label where it has one, else the code itself.

    Drug names as hospitals dispense them lose their brand and strength ("Aspirin 81mg TAB" is `rx:aspirin`);
    the labels of a drug classification (code system "drug") are taken whole.
    """
    label = (code.name or "").strip().lower()
    if field in _PREFIX:
        if label and code.system != "drug":
            label = re.split(r"\s*[\[(]|\s+\d", label)[0].strip(" *,") or label
        return _PREFIX[field] + (label or f"{code.system} {code.code}")
    return f"{code.system}:{label or code.code}"


def _follows(text: str, run: list[Token], words: Words, signs: Signs) -> bool:
    if len(run) != len(words) or run[0].negated:
        return False
    for k, sign in enumerate(signs, start=1):
        token = run[k]
        if token.text != words[k] or token.negated or token.opens != bool(sign):
            return False
        if sign and _between(text, run[k - 1], token) != sign:
            return False
    return True


def _between(text: str, a: Token, b: Token) -> str:
    """The signs between two words that follow one another: "" where only blanks or a hyphen are."""
    return "".join(text[a.end : b.start].split(" ")).replace("\t", "") if b.opens else ""
