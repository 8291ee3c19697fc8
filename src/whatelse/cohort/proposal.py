"""Proposes conditions for `build`: those of the knowledge base that occur often enough in the records to learn from.

A condition occurs in a visit if a note names it as present or a billing code is one of its own.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from whatelse.annotators import AnchorSet
from whatelse.annotators.anchors import Anchor, Condition, Kind, plain_code
from whatelse.cohort.build import build_cohort
from whatelse.knowledge import Knowledge
from whatelse.knowledge.entries import plain
from whatelse.text.lexicon import load_lexicon
from whatelse.visits import TEXT_FIELDS, Visit

SAMPLE = 20_000  # visits that are looked at
FEWEST = 30  # visits that name a condition: with fewer, little can be learned
SHARE = 0.003  # of the visits
MOST_COMMON = 0.5  # share of the visits; a condition of most visits says little
MOST = 40  # conditions
UNREAD = 0.2  # share of visits with notes that name a condition, below which the notes are in another language


@dataclass(frozen=True)
class Proposal:
    """Conditions that occur often enough, the most common first. visits: visits with each; looked_at: of how many."""

    anchors: AnchorSet
    visits: tuple[int, ...]
    looked_at: int


def anchored_condition(base: Knowledge, name: str, fields: tuple[str, ...] = TEXT_FIELDS) -> Condition:
    """A condition of the knowledge base with its own names as anchors; fields: where they are looked for."""
    entry, concept = base.conditions[name], base.concepts.get(name)
    phrases = dict.fromkeys((*entry.names, *(concept.same if concept else ())))
    anchors = tuple(Anchor("phrase", phrase, fields) for phrase in phrases)
    kind: Kind = "history" if entry.kind in ("chronic", "social") else "acute"
    return Condition(name, entry.title, kind, entry.codes, anchors)


def propose_conditions(visits: Sequence[Visit], base: Knowledge) -> Proposal | None:
    """The conditions that occur often enough in these visits. None: fewer than two do.

    A condition that the truth of the visits names is spelled as there. O(length of the notes).
    """
    spelled = {plain(name): name for visit in visits for name in visit.truth or ()}
    visits = [replace(visit, truth=None) if visit.truth else visit for visit in visits]
    everything = AnchorSet(tuple(anchored_condition(base, name) for name in base.conditions)).anchored()
    fires = build_cohort(visits, everything, max_terms=0, bigrams=False).A
    coded = _coded(visits, base)
    fewest, most = max(FEWEST, SHARE * len(visits)), MOST_COMMON * len(visits)
    counts = zip(everything.names, fires.sum(0).tolist(), strict=True)
    often = [(max(count, coded[name]), name) for name, count in counts if fewest <= count <= most]
    often = _told_apart(often, {name: fires[:, i].tobytes() for i, name in enumerate(everything.names)})
    written = any(getattr(visit, field) for visit in visits for field in TEXT_FIELDS)
    if len(often) < 2 and written and fires.any(1).mean() < UNREAD:
        names = everything.names  # notes in another language: billing codes say what occurs
        often = [(coded[name], name) for name in names if fewest <= coded[name] <= most]
    chosen = sorted(often, key=lambda pair: (-pair[0], pair[1]))[:MOST]
    if len(chosen) < 2:
        return None
    found = everything.only(name for _, name in chosen).conditions
    anchors = AnchorSet(tuple(replace(c, name=spelled.get(plain(c.name), c.name)) for c in found))
    return Proposal(anchors, tuple(count for count, _ in chosen), len(visits))


def _told_apart(often: list[tuple[int, str]], fires: Mapping[str, bytes]) -> list[tuple[int, str]]:
    """Conditions without those that are named in the same visits as a narrower condition: nothing tells them apart."""
    wider = load_lexicon().ancestors
    first = {fires[name]: name for _, name in sorted(often, key=lambda pair: (len(wider(pair[1])), pair[1]))}
    return [pair for pair in often if first[fires[pair[1]]] == pair[1]]


def _coded(visits: Sequence[Visit], base: Knowledge) -> Counter[str]:
    """Visits with a billing code of each condition."""
    owners: dict[tuple[str, str], list[str]] = {}
    for entry in base.conditions.values():
        for system, prefixes in entry.codes.items():
            for prefix in prefixes:
                owners.setdefault((system, prefix), []).append(entry.name)
    found: Counter[str] = Counter()
    for visit in visits:
        codes = [(code.system, plain_code(code)) for code in visit.billing or ()]
        starts = {(system, code[:length]) for system, code in codes for length in range(3, len(code) + 1)}
        found.update({name for start in starts for name in owners.get(start, ())})
    return found
