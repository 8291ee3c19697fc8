"""Findings of words alone, token by token and in plain Python: what vocabularies without a lexicon find. For tests."""

from __future__ import annotations

from itertools import pairwise

from tests.support.bigrams import join_bigrams
from whatelse.cohort import Vocabulary
from whatelse.cohort.bands import band_names, bands_of
from whatelse.cohort.coded import code_name
from whatelse.text import Token, tokenize
from whatelse.visits import CODE_FIELDS, TEXT_FIELDS, Visit

BREAKS = "\n\r\v\f\x1c\x1d\x1e\x85\u2028\u2029"


def present(vocabulary: Vocabulary, visit: Visit) -> set[str]:
    """The names of the findings of a visit that the vocabulary has."""
    found: set[str] = set()
    conditions = vocabulary.anchors.conditions
    for field in TEXT_FIELDS:
        text = getattr(visit, field) or ""
        tokens = tokenize(text, vocabulary.rules)
        taken: set[int] = set()
        for condition in conditions:
            for anchor in condition.anchors:
                if anchor.how == "phrase" and field in anchor.fields:
                    good = {"present"} | ({"historical"} if condition.kind == "history" else set())
                    for first, last in runs(text, tokens, anchor.value, vocabulary, good):
                        found.add(f"anchor:{condition.name}")
                        taken |= set(range(first, last + 1))
        said = ("present", "negated", "historical")
        out = {k for k, t in enumerate(tokens) if k in taken or t.assertion not in said}
        rest = [t._replace(opens=t.opens or k - 1 in out) for k, t in enumerate(tokens) if k not in out]
        found |= {token.word for token in join_bigrams(rest, vocabulary.bigrams)}
    for field in CODE_FIELDS:
        for code in getattr(visit, field) or ():
            found.add(code_name(field, code))
            for condition in conditions:
                if any(field in a.fields and a.matches(code) for a in condition.anchors if a.how != "phrase"):
                    found.add(f"anchor:{condition.name}")
    if visit.age is not None:
        decade = int(visit.age // 10) * 10
        found.add(f"age:{decade}-{decade + 10}")
    if visit.sex is not None:
        found.add(f"sex:{visit.sex}")
    for name, value in visit.numbers or ():
        if cuts := vocabulary.bands.get(name):
            found.add(band_names(name, cuts)[bands_of(cuts, value)])
    return found & set(vocabulary.names)


def runs(text: str, tokens: list[Token], phrase: str, vocabulary: Vocabulary, good: set[str]) -> list[tuple[int, int]]:
    """First and last token of every place where the words of a phrase follow one another with its signs between."""
    wanted = tokenize(phrase, vocabulary.rules)
    signs = [between(phrase, a, b) for a, b in pairwise(wanted)]
    found = []
    for k in range(len(tokens) - len(wanted) + 1):
        run = tokens[k : k + len(wanted)]
        words = [t.text for t in run] == [t.text for t in wanted] and {t.assertion for t in run} <= good
        if words and [between(text, a, b) for a, b in pairwise(run)] == signs:
            found.append((k, k + len(wanted) - 1))
    return found


def between(text: str, a: Token, b: Token) -> str:
    """The signs between two tokens, "" where only blanks or a hyphen are."""
    if not b.opens:
        return ""
    signs = text[a.end : b.start].replace("\r\n", "\n")
    return "".join("\n" if c in BREAKS else c for c in signs if c in BREAKS or not c.isspace())
