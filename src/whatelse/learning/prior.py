"""Prior: what the knowledge base says about the parameters of a cohort's conditions and findings.

    weight_ij    log of how many times as common finding j is among cases of condition i as among all visits
    coupling_ik  log of how many times as often conditions i and k occur together as by chance
    share_i      share of emergency visits with condition i

A condition of the cohort stands for entries of the base by its name, its codes, its title read as text, or its phrases
(`knowledge/matching.py`). A column stands for findings of the base by `cohort.concepts`.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from whatelse.cohort import Vocabulary
from whatelse.cohort.concepts import concepts_of_findings
from whatelse.knowledge import Knowledge
from whatelse.knowledge.entries import Condition
from whatelse.knowledge.matching import match, merged
from whatelse.learning.knowledge_model import SMALLEST_RATE, finding_rate, frequencies
from whatelse.types import Bools, Floats

STRONGEST = 4.0  # log of the largest lift that is believed
STRONGEST_PAIR = 3.0
NAMED_BY_CASES = 0.5  # share of cases whose record mentions the condition by name, where no anchor does
RECALLED = 0.7  # of the weight of a condition's name: its name as history, or as a possibility


@dataclass(frozen=True, eq=False)
class Prior:
    """Prior means of m conditions and n findings.

    weight    (m, n) log lift of each finding; 0 where the base says nothing
    known     (m, n) bool: where the base says something
    coupling  (m, m) log lift of each pair, symmetric
    share     (m,) share of emergency visits; NaN where the base does not know the condition
    entries   (m,) names of the entries that each condition stands for
    """

    weight: Floats
    known: Bools
    coupling: Floats
    share: Floats
    entries: tuple[tuple[str, ...], ...]

    @classmethod
    def flat(cls, m: int, n: int) -> Prior:
        """Nothing is known: all means are zero."""
        return cls(np.zeros((m, n)), np.zeros((m, n), bool), np.zeros((m, m)), np.full(m, np.nan), ((),) * m)


def prior_of(vocabulary: Vocabulary, base: Knowledge) -> Prior:
    """The prior of a cohort's vocabulary. O(conditions x findings)."""
    conditions, names = vocabulary.anchors.conditions, vocabulary.names
    m, n = len(conditions), len(names)
    concepts_read = concepts_of_findings([*(c.title.lower() for c in conditions), *names])
    read, columns = concepts_read[:m], concepts_read[m:]
    own, entries = list[frozenset[str]](), list[tuple[str, ...]]()
    for condition, concepts in zip(conditions, read, strict=True):
        found = _entries(base, condition, concepts)
        entries.append(found)
        own.append(frozenset(found) | frozenset(concepts))
    weight, known = np.zeros((m, n)), np.zeros((m, n), bool)
    share = np.full(m, np.nan)
    whole = [merged(base, c.name, c.title, e) if e else None for c, e in zip(conditions, entries, strict=True)]
    for i, entry in enumerate(whole):
        row = frequencies(base, [entry])[0] if entry else {}
        share[i] = entry.share if entry else np.nan
        for j in range(n - m):
            lifts = [v for name in columns[j] if (v := _lift(base, name, entry, row, own[i])) is not None]
            if lifts:
                weight[i, j], known[i, j] = max(lifts, key=abs), True
    coupling = _couplings(whole, entries)
    return Prior(np.clip(weight, -STRONGEST, STRONGEST), known, coupling, share, tuple(entries))


def _entries(base: Knowledge, condition: object, concepts: tuple[str, ...]) -> tuple[str, ...]:
    """Entries that a condition stands for: by name or codes; else by its title; else by its phrases."""
    name, codes = condition.name, condition.codes  # type: ignore[attr-defined]
    found = match(base, name, (), codes)
    if not found:
        titled = set(concepts)
        found = tuple(e for e in base.conditions if e in titled or titled & set(base.parents(e)))
    if found:
        return found
    phrases = [anchor.value for anchor in condition.anchors if anchor.how == "phrase"]  # type: ignore[attr-defined]
    return () if concepts else match(base, name, phrases, {})


def _lift(
    base: Knowledge, name: str, entry: Condition | None, row: dict[str, tuple[float, float]], own: frozenset[str]
) -> float | None:
    """Log lift of a finding of the base for an entry, or None where the entry does not speak of it."""
    prefix, _, rest = name.rpartition(":")
    if rest in own and prefix in ("", "hx", "possible"):
        times = NAMED_BY_CASES / _rate(base, rest if prefix == "possible" else name)
        return float(np.log(times)) * (1.0 if not prefix else RECALLED)
    if entry is None:
        return None
    if prefix in ("age", "sex"):
        factors = entry.age if prefix == "age" else entry.sex
        return float(np.log(max(factors.get(rest, 1.0), 0.01))) if factors else None
    if prefix == "neg" and rest in row:
        absent = max(1 - row[rest][0], 0.05) / max(1 - _rate(base, rest), 0.05)
        return float(np.log(absent))
    if name in row:
        return float(np.log(max(row[name][0], 1e-4) / _rate(base, name)))
    if name in entry.against:
        return float(np.log(max(entry.against[name], 0.01)))
    return None


def _rate(base: Knowledge, name: str) -> float:
    return max(finding_rate(base, name), SMALLEST_RATE)


def _couplings(whole: list[Condition | None], entries: list[tuple[str, ...]]) -> Floats:
    """(m, m) the mean of what the two entries of a pair say, or what one of them says."""
    m = len(whole)
    owners: dict[str, list[int]] = {}
    for i, names in enumerate(entries):
        for name in names:
            owners.setdefault(name, []).append(i)
    total, said = np.zeros((m, m)), np.zeros((m, m))
    for i, entry in enumerate(whole):
        for other, times in (entry.goes_with if entry else {}).items():
            for k in owners.get(other, []):
                if k != i:
                    value = float(np.clip(np.log(max(times, 0.01)), -STRONGEST_PAIR, STRONGEST_PAIR))
                    total[[i, k], [k, i]] += value
                    said[[i, k], [k, i]] += 1
    return np.divide(total, said, out=np.zeros((m, m)), where=said > 0)
