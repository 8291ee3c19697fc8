"""Anchor uses: in how many visits each phrase, drug or code fires, with examples from the records.

A cohort keeps only whether any anchor of a condition fired; what fired is read from the records again. Examples quote
the records: they are for the eyes of whoever may read those.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from itertools import groupby, islice
from typing import Any

from whatelse.annotators.anchors import Anchor, AnchorSet, Condition
from whatelse.cohort import Vocabulary
from whatelse.cohort.findings import AnchorMention, Finder
from whatelse.text import Rules, tokenize
from whatelse.text.lexicon import EMPTY, Lexicon
from whatelse.visits import CODE_FIELDS, Visit

BATCH = 256  # visits whose notes are read at a time: one by one takes half as long again
AROUND, FAR_AROUND = 30, 90  # characters of a note shown on either side: in a list, and to judge by


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
    pairs = [(c.name, anchor) for c in vocabulary.anchors.conditions for anchor in c.anchors]
    finder = vocabulary.reader.finder
    uses = [AnchorUse(c, a.how, a.value, a.fields, problem=_problem(a, finder)) for c, a in pairs]
    found = mentions(visits, [a for _, a in pairs], vocabulary.rules, vocabulary.lexicon, AROUND)
    for _, of_visit in groupby(found, key=lambda mention: mention[1].visit):
        here = list(of_visit)
        conditions = [uses[which].condition for which, _ in here]
        for which, excerpt in here:
            use = uses[which]
            use.visits += 1
            use.alone += conditions.count(use.condition) == 1
            if len(use.examples) < examples:
                use.examples.append(excerpt)
    for use in uses:
        if not use.visits and use.problem is None:
            use.problem = "never fires"
    return uses


def mentions(
    visits: Iterable[Visit],
    anchors: Sequence[Anchor],
    rules: str | Rules,
    lexicon: Lexicon = EMPTY,
    around: int = FAR_AROUND,
) -> Iterator[tuple[int, Excerpt]]:
    """(which anchor, excerpt) for the first mention of each anchor in each visit.

    around  characters of the note on either side of a mention
    """
    conditions = tuple(Condition(str(a), str(a), "acute", {}, (anchor,)) for a, anchor in enumerate(anchors))
    if not conditions:
        return
    finder, phrases = Finder(AnchorSet(conditions), rules, lexicon), any(a.how == "phrase" for a in anchors)
    stream = iter(visits)
    while batch := list(islice(stream, BATCH)):
        in_notes: dict[int, list[AnchorMention]] = {}
        for there in finder.anchor_mentions(batch) if phrases else ():
            in_notes.setdefault(there.row, []).append(there)
        for row, visit in enumerate(batch):
            seen: set[int] = set()
            for there in in_notes.get(row, ()):
                if there.condition not in seen:
                    seen.add(there.condition)
                    yield there.condition, _cut(visit, there.field, there.start, there.end, around)
            for name in CODE_FIELDS:
                for code in getattr(visit, name) or ():
                    shown = code.name or f"{code.system} {code.code}"
                    for which in set(finder.code(name, code)[1]) - seen:
                        seen.add(which)
                        yield which, Excerpt(visit.id, name, shown, 0, len(shown))


def as_anchor(phrase: str, key: str = "notes", system: str | None = None, source: str = "the phrase") -> Anchor:
    """Make an anchor of a phrase, as if it stood under `key` in a conditions file."""
    within: Any = {system: [phrase]} if key == "coded" else [phrase]
    entry = {"conditions": [{"name": "tried", "anchors": {key: within}}]}
    (anchor,) = AnchorSet.from_json(entry, source).conditions[0].anchors
    return anchor


def _problem(anchor: Anchor, finder: Finder) -> str | None:
    """Why an anchor cannot fire, whatever the records are."""
    if anchor.how != "phrase":
        return None
    tokens = tokenize(anchor.value, finder.rules)
    words = tuple(token.text for token in tokens)
    if any(token.negated for token in tokens) and words not in finder.lexicon.phrases:
        return "cannot fire: its own words negate it, and a negated mention is no anchor"
    return None


def _cut(visit: Visit, note: str, start: int, end: int, around: int) -> Excerpt:
    """text[start:end] of a note with up to `around` characters on either side; "…" where the note goes on."""
    text = getattr(visit, note)
    first, last = max(start - around, 0), min(end + around, len(text))
    before, after = "…" * (first > 0), "…" * (last < len(text))
    offset = len(before) - first
    return Excerpt(visit.id, note, before + text[first:last] + after, start + offset, end + offset)
