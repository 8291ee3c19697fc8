"""Anchor uses: in how many visits each phrase, drug or code fires, with examples from the records.

A cohort keeps only whether any anchor of a condition fired; what fired is read from the records again. Examples quote
the records: they are for the eyes of whoever may read those.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, dataclass, field
from typing import Any

from whatelse.annotators.anchors import Anchor
from whatelse.cohort import Vocabulary
from whatelse.cohort.findings import Finder
from whatelse.text import tokenize
from whatelse.visits import CODE_FIELDS, Code, Visit

AROUND = 30  # characters of a note shown on either side


@dataclass(frozen=True)
class Excerpt:
    """A mention in its note: text[start:end] is the phrase. A code has its name for a text."""

    visit: str
    field: str
    text: str
    start: int
    end: int


@dataclass
class AnchorUse:
    """One anchor: in how many visits it fired, and in how many it was the only one of its condition."""

    condition: str
    how: str
    value: str
    fields: tuple[str, ...]
    visits: int = 0
    alone: int = 0
    problem: str | None = None
    examples: list[Excerpt] = field(default_factory=list)

    def to_json(self) -> dict[str, Any]:
        """As JSON values; of the examples, only which visit and field: no text of a record."""
        return asdict(self) | {"examples": [{"visit": e.visit, "field": e.field} for e in self.examples]}


def anchor_uses(vocabulary: Vocabulary, visits: Iterable[Visit], examples: int = 2) -> list[AnchorUse]:
    """Every anchor of the vocabulary's conditions, in order, counted over the visits. O(length of the records)."""
    anchors, finder = vocabulary.anchors, vocabulary.reader.finder
    uses = {
        (i, k): AnchorUse(c.name, a.how, a.value, a.fields, problem=_problem(a, finder))
        for i, c in enumerate(anchors.conditions)
        for k, a in enumerate(c.anchors)
    }
    codes: dict[tuple[str, Code], list[tuple[int, int]]] = {}
    for visit in visits:
        places: dict[tuple[int, int], Excerpt] = {}
        for found in finder.anchor_mentions([visit]):
            key = found.condition, found.anchor
            if key not in places:
                text = getattr(visit, found.field)
                places[key] = cut_excerpt(visit.id, found.field, text, found.start, found.end, AROUND)
        for name in CODE_FIELDS:
            for code in getattr(visit, name) or ():
                if (name, code) not in codes:
                    codes[name, code] = [
                        (i, k)
                        for i, c in enumerate(anchors.conditions)
                        for k, anchor in enumerate(c.anchors)
                        if name in anchor.fields and anchor.matches(code)
                    ]
                for key in codes[name, code]:
                    shown = code.name or f"{code.system} {code.code}"
                    places.setdefault(key, Excerpt(visit.id, name, shown, 0, len(shown)))
        conditions = [i for i, _ in places]
        for key, example in places.items():
            use = uses[key]
            use.visits += 1
            use.alone += conditions.count(key[0]) == 1
            if len(use.examples) < examples:
                use.examples.append(example)
    for use in uses.values():
        if not use.visits and use.problem is None:
            use.problem = "never fires"
    return list(uses.values())


def _problem(anchor: Anchor, finder: Finder) -> str | None:
    """Why an anchor cannot fire, whatever the records are."""
    if anchor.how != "phrase":
        return None
    tokens = tokenize(anchor.value, finder.rules)
    words = tuple(token.text for token in tokens)
    if any(token.negated for token in tokens) and words not in finder.lexicon.phrases:
        return "cannot fire: its own words negate it, and a negated mention is no anchor"
    return None


def cut_excerpt(visit: str, note: str, text: str, start: int, end: int, around: int) -> Excerpt:
    """text[start:end] with up to so many characters of the note on either side; "…" where the note goes on."""
    first, last = max(start - around, 0), min(end + around, len(text))
    before, after = "…" * (first > 0), "…" * (last < len(text))
    offset = len(before) - first
    return Excerpt(visit, note, before + text[first:last] + after, start + offset, end + offset)
