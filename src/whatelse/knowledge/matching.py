"""Conditions of one's own and the knowledge base: which entries, or which concepts, a condition stands for.

A condition of one's own may be wider than an entry ("asthma-copd", "wrist or hand sprain"): it is then matched with
several entries, which `merged` joins to one. A concept that is no condition of the base can be one too ("chills",
"facial contusion"): `entry` makes its condition.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from whatelse.knowledge.base import HEADS_KIND, SITE_KIND, Knowledge
from whatelse.knowledge.entries import Condition, plain

FILLERS = ("of", "the", "a", "an", "involved", "history", "acute")
OTHER_WORDS = {"wound": "laceration"}
WIDER = 0.97  # share of cases of a symptom at a site whose record has the symptom: "redness" of the injection site
AS_TAG = 1 / 6  # visits about a symptom, of those that mention it: the median of the base's symptoms
COMPANY, LIFT = 12, 1.5  # findings that go with a concept: at most so many, at least so many times the usual


def stands_for(
    base: Knowledge,
    name: str,
    phrases: Iterable[str] = (),
    codes: Mapping[str, Sequence[str]] | None = None,
    title: str = "",
) -> tuple[str, ...]:
    """Entries and concepts of the base that a condition with this name, title, phrases and code prefixes stands for.

    1. The entry of that name or title, or with it among its names; with codes, also every entry whose codes they cover.
    2. Else the entries with codes that the given prefixes cover.
    3. Else what the parts of an "or" name stand for ("elbow or upper arm fracture" is two fractures). A kind of injury
       at a site is its entry, the entries of narrower sites, or the composed concept.
    4. Else the concept of that name; else what the phrases name.
    """
    known = base.phrases
    covered = _covered(base, codes or {})
    forms = list(dict.fromkeys(form for text in (name, title) if text for form in (plain(text), _short(plain(text)))))
    own = next((known[form] for form in forms if known.get(form) in base.conditions), None)
    if own is not None:
        return tuple(dict.fromkeys([own, *covered]))
    if covered:
        return covered
    for text in filter(None, (name, title)):
        whole = _short(plain(text))
        parts = [_short(part) for part in _alternatives(whole) or [whole]]
        if found := [found for part in parts for found in _named(base, known, part)]:
            return tuple(dict.fromkeys(found))
    for form in (*forms, *(form.partition(" ")[2] for form in forms)):
        if form in known:
            return (known[form],)
    found = [form for phrase in phrases if (form := plain(phrase)) in known]
    exact = [form for form in found if known[form] == form.replace(" ", "_")]  # names of entries tell more
    return tuple(dict.fromkeys(known[form] for form in exact or found))


def _short(text: str) -> str:
    """A name without words that say nothing: "fracture of the skull" is "skull fracture"."""
    before, of, after = text.partition(" of ")
    words = f"{after} {before}" if of and " or " not in before else text
    return " ".join(word for word in words.split() if word not in FILLERS)


def _alternatives(name: str) -> list[str]:
    """What a name with "or" stands for: "wrist or hand sprain" is a wrist sprain or a hand sprain."""
    parts = name.split(" or ")
    if len(parts) == 1:
        return []
    first, last = parts[0].split()[0], parts[-1].split()[-1]
    return [form for part in parts for form in (part, f"{part} {last}", f"{first} {part}")]


def _named(base: Knowledge, known: Mapping[str, str], form: str) -> list[str]:
    """What one name stands for: an entry, the entries of an injury at a site, or the composed concept."""
    heads = {c.name for c in base.concepts.values() if c.kind == HEADS_KIND}
    if known.get(form) in base.conditions and form.replace(" ", "_") not in heads:
        return [known[form]]
    site, _, head = form.rpartition(" ")
    place, kind = base.concepts.get(known.get(site, "")), known.get(OTHER_WORDS.get(head, head))
    if place is None or place.kind != SITE_KIND or kind not in heads:
        return []
    name = f"{place.prefix or place.name}_{kind}"
    if name in base.conditions:
        return [name]
    narrower = [c.name for c in base.conditions.values() if name in base.parents(c.name)]
    return narrower or ([name] if base.concept(name) is not None else [])


def _covered(base: Knowledge, codes: Mapping[str, Sequence[str]]) -> tuple[str, ...]:
    """Conditions at least half of whose codes of a system begin with one of the given prefixes."""
    found = []
    for condition in base.conditions.values():
        for system, prefixes in codes.items():
            own = condition.codes.get(system, ())
            if own and 2 * sum(code.startswith(tuple(prefixes)) for code in own) >= len(own) and prefixes:
                found.append(condition.name)
                break
    return tuple(found)


def entry(base: Knowledge, name: str) -> Condition:
    """The entry of a condition; of a concept that is none, the condition that it amounts to.

    An injury at a site is the entry of that kind of injury, with the concept's rate as share. A symptom or sign has
    AS_TAG of its rate as share, and the findings that conditions bring together with it.
    """
    if name in base.conditions:
        return base.conditions[name]
    concept = base.concept(name)
    assert concept is not None, name
    kind = next((k for k in base.parents(name) if k in base.concepts and base.concepts[k].kind == HEADS_KIND), "")
    if kind in base.conditions and name.endswith(f"_{kind}"):
        whole = base.conditions[kind]
        return replace(
            whole, name=name, title=concept.title, share=concept.rate, codes={}, names=(plain(name),), findings={},
            is_a=(),
        )  # fmt: skip
    findings = _company(base, name) | dict.fromkeys(base.parents(name), WIDER)
    share, names = max(AS_TAG * concept.rate, 1e-6), (plain(name), *concept.same)
    return Condition(name, concept.title, "symptom", 0, share, names=names, findings=findings)


def _company(base: Knowledge, name: str) -> dict[str, float]:
    """Findings that conditions bring together with a concept -> share of its visits that have them.

    P(j | concept) = sum_i s_i p_i p_ij / sum_i s_i p_i over the conditions i that have both.
    """
    holders = [(c.share * c.findings[name], c) for c in base.conditions.values() if name in c.findings]
    total = sum(weight for weight, _ in holders)
    shares: dict[str, float] = {}
    for weight, condition in holders:
        for finding, frequency in condition.findings.items():
            shares[finding] = shares.get(finding, 0.0) + weight * frequency / total
    related = {name, *base.parents(name)}
    some = {
        finding: share
        for finding, share in shares.items()
        if finding not in related
        and name not in base.parents(finding)
        and (concept := base.concept(finding)) is not None
        and share >= max(0.05, LIFT * concept.rate)
    }
    return dict(sorted(some.items(), key=lambda item: -item[1])[:COMPANY])


def merged(base: Knowledge, name: str, title: str, parts: Sequence[str]) -> Condition:
    """Several conditions as one: shares add up, frequencies and factors are averages by share, names are joined."""
    entries = [entry(base, part) for part in parts]
    if len(entries) == 1:
        return replace(entries[0], name=name, title=title, names=_names(base, entries))
    total = sum(entry.share for entry in entries)
    weights = [entry.share / total for entry in entries]

    def average(part: str, missing: float) -> dict[str, float]:
        keys = dict.fromkeys(key for entry in entries for key in getattr(entry, part))
        return {
            key: sum(w * getattr(e, part).get(key, missing) for w, e in zip(weights, entries, strict=True))
            for key in keys
            if key not in parts or key not in base.conditions
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
