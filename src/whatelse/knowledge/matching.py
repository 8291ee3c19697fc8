"""Conditions of one's own and the conditions of the knowledge base: which is which.

A condition of one's own may be wider than an entry ("asthma-copd", "cva"): it is then matched with several entries,
which `merged` joins to one. Matching goes by name, then by the phrases that name the condition, then by codes.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from whatelse.knowledge.base import Knowledge
from whatelse.knowledge.entries import Condition


def plain(text: str) -> str:
    """A name for comparison: lower case, words separated by one space."""
    return " ".join(text.lower().replace("_", " ").replace("-", " ").split())


def match(
    base: Knowledge, name: str, phrases: Iterable[str] = (), codes: Mapping[str, Sequence[str]] | None = None
) -> tuple[str, ...]:
    """Entries of the base that a condition with this name, these phrases and these code prefixes stands for.

    1. The entry of that name or with that name among its names; with codes, also every entry whose codes they cover.
    2. Else the entries with codes that the given prefixes cover.
    3. Else the entries that the parts of an "or" name ("elbow or upper arm fracture" is two), or one of the phrases.
    """
    by_phrase = _phrases(base)
    covered = _covered(base, codes or {})
    own = by_phrase.get(plain(name))
    if own is not None:
        return tuple(dict.fromkeys([own, *covered])) if covered else (own,)
    if covered:
        return covered
    either = [*_alternatives(plain(name)), *map(plain, phrases)]
    return tuple(dict.fromkeys(by_phrase[phrase] for phrase in either if phrase in by_phrase))


def _alternatives(name: str) -> list[str]:
    """What a name with "or" stands for: "wrist or hand sprain" is a wrist sprain or a hand sprain."""
    parts = name.split(" or ")
    if len(parts) == 1:
        return []
    first, last = parts[0].split()[0], parts[-1].split()[-1]
    return [form for part in parts for form in (part, f"{part} {last}", f"{first} {part}")]


def _phrases(base: Knowledge) -> dict[str, str]:
    """Phrase -> the condition it names."""
    out: dict[str, str] = {}
    for condition in base.conditions.values():
        concept = base.concepts.get(condition.name)
        for phrase in (condition.name, condition.title, *condition.names, *(concept.same if concept else ())):
            out.setdefault(plain(phrase), condition.name)
    return out


def _covered(base: Knowledge, codes: Mapping[str, Sequence[str]]) -> tuple[str, ...]:
    """Conditions all of whose codes of a system begin with one of the given prefixes."""
    found = []
    for condition in base.conditions.values():
        for system, prefixes in codes.items():
            own = condition.codes.get(system, ())
            if own and prefixes and all(code.startswith(tuple(prefixes)) for code in own):
                found.append(condition.name)
                break
    return tuple(found)


def merged(base: Knowledge, name: str, title: str, parts: Sequence[str]) -> Condition:
    """Several conditions as one: shares add up, frequencies and factors are averages by share, names are joined."""
    entries = [base.conditions[part] for part in parts]
    if len(entries) == 1:
        return replace(entries[0], name=name, title=title, names=_names(base, entries))
    total = sum(entry.share for entry in entries)
    weights = [entry.share / total for entry in entries]

    def average(part: str, missing: float) -> dict[str, float]:
        keys = dict.fromkeys(key for entry in entries for key in getattr(entry, part))
        return {
            key: sum(w * getattr(e, part).get(key, missing) for w, e in zip(weights, entries, strict=True))
            for key in keys
            if key not in parts
        }

    widest = max(entries, key=lambda entry: entry.share)
    return replace(
        widest,
        name=name,
        title=title,
        danger=max(entry.danger for entry in entries),
        share=min(total, 0.5),
        age=average("age", 1.0),
        sex=average("sex", 1.0),
        codes={s: tuple(dict.fromkeys(c for e in entries for c in e.codes.get(s, ()))) for s in ("icd10", "icd9")},
        names=_names(base, entries),
        against=average("against", 1.0),
        goes_with=average("goes_with", 1.0),
        findings=average("findings", 0.0),
        risk=average("risk", 0.0),
        home_drugs=average("home_drugs", 0.0),
        given=average("given", 0.0),
        proof=average("proof", 0.0),
    )


def _names(base: Knowledge, entries: Sequence[Condition]) -> tuple[str, ...]:
    """All phrases that name one of the conditions."""
    out: dict[str, None] = {}
    for entry in entries:
        concept = base.concepts.get(entry.name)
        out.update(dict.fromkeys((*entry.names, *(concept.same if concept else ()))))
    return tuple(out)
