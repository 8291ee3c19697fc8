"""Consistency of a knowledge base: every problem as one line that names the entry and what to do."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator

from whatelse.knowledge.base import Knowledge
from whatelse.knowledge.entries import BAND_SHARES, Condition

SHARES_IN_ALL = 3.0  # tags a visit can have on average; more is a slip in some share
ALIKE = 0.9  # overlap of findings above which two conditions are not told apart
FINDING_PARTS = ("findings", "risk", "proof", "against")


def problems(base: Knowledge) -> list[str]:
    """All inconsistencies of a base, in the order of its entries. O(entries + phrases)."""
    found = [
        line
        for check in (_phrases, _unknown_names, _shares, _rates, _one_sided, _both_sides, _alike, _codes)
        for line in check(base)
    ]
    return list(dict.fromkeys(found))


def _phrases(base: Knowledge) -> Iterator[str]:
    """A phrase that names two concepts or conditions."""
    owner: dict[str, str] = {}
    named = [(c.name, c.same) for c in base.concepts.values()] + [(c.name, c.names) for c in base.conditions.values()]
    named += [(d.name, (d.name.replace("_", " "), *d.same)) for d in base.drugs.values()]
    named += list(base.classes.items())
    for name, phrases in named:
        for phrase in phrases:
            first = owner.setdefault(phrase.replace("-", " "), name)
            if first != name:
                yield f"{name}: the phrase {phrase!r} also names {first}; a phrase names one entry"


def _unknown_names(base: Knowledge) -> Iterator[str]:
    """A finding that no concept knows, a drug or a condition that has no entry."""
    for condition in base.conditions.values():
        for part in FINDING_PARTS:
            for name in getattr(condition, part):
                if base.concept(name.rpartition(":")[2]) is None and not base.is_drug(name.rpartition(":")[2]):
                    yield f"{condition.name}: {part} names {name!r}, which no concept knows"
        for part in ("home_drugs", "given"):
            for name in getattr(condition, part):
                if not base.is_drug(name) and base.concept(name) is None:
                    yield f"{condition.name}: {part} names {name!r}, which is no drug, drug class or procedure"
        for part in ("goes_with", "mistaken_for", "is_a"):
            for name in getattr(condition, part):
                if name not in base.conditions:
                    yield f"{condition.name}: {part} names {name!r}, which is no condition"
        if not condition.names and condition.name not in base.concepts:
            yield f"{condition.name}: has no names; give phrases that name the diagnosis"
    for drug in base.drugs.values():
        for name in drug.classes:
            if name not in base.classes:
                yield f"{drug.name}: its class {name!r} is not listed under 'classes'"


def _shares(base: Knowledge) -> Iterator[str]:
    """Shares that do not add up, ages and sexes that contradict."""
    total = sum(condition.share for condition in base.conditions.values())
    if total > SHARES_IN_ALL:
        yield f"the shares of all conditions add up to {total:.1f}; a visit has at most {SHARES_IN_ALL:g} on average"
    for condition in base.conditions.values():
        mean = sum(weight * condition.age.get(band, 1.0) for band, weight in BAND_SHARES.items())
        if not 0.6 < mean < 1.6:
            yield f"{condition.name}: its age factors average {mean:.2f} over all visits; they should average 1"
        for band, factor in condition.age.items():
            if condition.share * factor > 1:
                yield f"{condition.name}: its share among age band {band!r} is above 1"
        if condition.sex and not any(condition.sex.values()):
            yield f"{condition.name}: it is impossible in both sexes"


def _rates(base: Knowledge) -> Iterator[str]:
    """A finding that conditions bring more often than its rate says."""
    brought: Counter[str] = Counter()
    for condition in base.conditions.values():
        for name, frequency in condition.findings.items():
            brought[name] += condition.share * frequency  # type: ignore[assignment]
    for name, share in brought.items():
        concept = base.concepts.get(name)
        if concept is not None and share > 1.3 * concept.rate:
            yield f"{name}: its rate is {concept.rate:g}, but the conditions alone bring it to {share:.4f} of visits"


def _one_sided(base: Knowledge) -> Iterator[str]:
    """A pair whose two entries contradict each other: together more often in one, less often in the other."""
    for condition in base.conditions.values():
        for other, times in condition.goes_with.items():
            back = base.conditions[other].goes_with.get(condition.name) if other in base.conditions else None
            if back is not None and condition.name < other and (times > 1) != (back > 1):
                yield f"{condition.name}: goes with {other} {times:g} times as often, {other} says {back:g} times"


def _both_sides(base: Knowledge) -> Iterator[str]:
    """A finding of a condition that also speaks against it."""
    for condition in base.conditions.values():
        for name in condition.findings.keys() & condition.against.keys():
            yield f"{condition.name}: {name} is one of its findings and speaks against it; keep one"


def _alike(base: Knowledge) -> Iterator[str]:
    """Two conditions that no finding tells apart."""
    holders: dict[str, list[Condition]] = defaultdict(list)
    for condition in base.conditions.values():
        for name in condition.findings:
            holders[name].append(condition)
    shared: Counter[tuple[str, str]] = Counter()
    for some in holders.values():
        for k, a in enumerate(some):
            for b in some[k + 1 :]:
                shared[a.name, b.name] += 1
    for (first, second), count in shared.items():
        either = len(base.conditions[first].findings.keys() | base.conditions[second].findings.keys())
        if either >= 4 and count / either >= ALIKE:
            yield f"{first}: shares {count} of {either} findings with {second}; nothing tells them apart"


def _codes(base: Knowledge) -> Iterator[str]:
    """Two conditions with exactly the same ICD-10-CM prefixes: no record's codes tell them apart. Symptoms may."""
    owner: dict[frozenset[str], str] = {}
    for condition in (c for c in base.conditions.values() if c.kind != "symptom"):
        codes = frozenset(condition.codes.get("icd10", ()))
        if codes and (first := owner.setdefault(codes, condition.name)) != condition.name:
            yield f"{condition.name}: has the same icd10 codes as {first} ({', '.join(sorted(codes))})"
