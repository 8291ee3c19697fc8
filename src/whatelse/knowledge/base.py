"""Knowledge: the whole base as one value, read from the shipped YAML files and from files of one's own.

A file of one's own (an overlay) has up to three parts, each of the form of the shipped files:

    concepts:   {pallor: {kind: sign, rate: 0.01, same: [pale, pallor]}}
    conditions: {migraine: {share: 0.02}}
    drugs:      {warfarin: {same: [coumadin, marevan]}}

An entry that the base knows is changed field by field; any other entry is added.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property, lru_cache
from importlib.resources import files
from pathlib import Path
from typing import Any

import yaml

from whatelse.errors import ConditionError, InputError
from whatelse.io.limits import LOADER, read_yaml, yaml_problem
from whatelse.knowledge.entries import (
    Concept,
    Condition,
    Drug,
    all_wider,
    plain,
    read_concept,
    read_condition,
    read_drug,
    title_of,
)

HEADS_KIND, SITE_KIND = "head", "site"
MENTIONED = 5  # times as many records mention a chronic condition as are about it
Table = dict[str, tuple[dict[str, Any], str]]  # name -> (fields, file)


@dataclass(frozen=True)
class Knowledge:
    """Concepts, drugs, drug classes and conditions, by name.

    concepts    what a record can mention, without the conditions' own names (`concept` knows those too)
    drugs       drug ingredients
    classes     drug class -> phrases that name the class
    conditions  in the order of the files
    """

    concepts: Mapping[str, Concept]
    drugs: Mapping[str, Drug]
    classes: Mapping[str, tuple[str, ...]]
    conditions: Mapping[str, Condition]
    composed: dict[str, Concept] = field(default_factory=dict, repr=False, compare=False)

    def concept(self, name: str) -> Concept | None:
        """A concept by name: written, a condition's own name, or composed of a site and a head (`wrist_pain`)."""
        found = self.concepts.get(name)
        if found is not None:
            return found
        if condition := self.conditions.get(name):
            lasting = condition.kind in ("chronic", "social")
            kind = "social" if condition.kind == "social" else "disease"
            rate = min(MENTIONED * condition.share, 0.3) if lasting else condition.share
            wider: tuple[str, ...] = (f"{name}_value",) if f"{name}_value" in self.concepts else ()
            composed = self._compose(name)
            wider += composed.is_a if composed else ()
            return Concept(name, condition.title, kind, wider, lasting, rate, condition.names)
        return self._compose(name)

    @cached_property
    def phrases(self) -> dict[str, str]:
        """Phrase (`plain`) -> the condition it names, else the concept."""
        out: dict[str, str] = {}
        for condition in self.conditions.values():
            concept = self.concepts.get(condition.name)
            same = concept.same if concept else ()
            for phrase in (condition.name, condition.title, *condition.names, *same):
                out.setdefault(plain(phrase), condition.name)
        for own in self.concepts.values():
            for phrase in (own.name, own.prefix or own.name, own.title, *own.same):
                out.setdefault(plain(phrase), own.name)
        return out

    def _compose(self, name: str) -> Concept | None:
        """`<site>_<head>` of a body site and a head, with the parents it implies, or None."""
        if name in self.composed:
            return self.composed[name]
        prefix = self.site_of(name)
        if not prefix:
            return None
        site, head = self._sites[prefix], self.concepts[name[len(prefix) + 1 :]]
        wider = [f"{self._prefix(parent)}_{head.name}" for parent in site.is_a]
        parents = [parent for parent in wider if parent != name] or [head.name]
        parents += [
            f"{prefix}_{up}" for up in head.is_a if up in self.concepts and self.concepts[up].kind == HEADS_KIND
        ]
        concept = Concept(name, title_of(name), "symptom", tuple(parents), False, 0.1 * head.rate)
        self.composed[name] = concept
        return concept

    def site_of(self, name: str) -> str:
        """The body site of a name that is made of a site and a head (`wrist` of `wrist_pain`), or nothing."""
        for prefix in self._sites:
            head = self.concepts.get(name[len(prefix) + 1 :]) if name.startswith(f"{prefix}_") else None
            if head is not None and head.kind == HEADS_KIND:
                return prefix
        return ""

    @cached_property
    def _sites(self) -> dict[str, Concept]:
        return {c.prefix or c.name: c for c in self.concepts.values() if c.kind == SITE_KIND}

    def _prefix(self, site: str) -> str:
        found = self.concepts.get(site)
        return (found.prefix if found else "") or site

    def is_drug(self, name: str) -> bool:
        """Whether a name is a drug or a drug class."""
        return name in self.drugs or name in self.classes

    def parents(self, name: str) -> tuple[str, ...]:
        """All wider concepts of a concept, nearest first. A concept is never its own parent."""
        return all_wider(name, lambda one: concept.is_a if (concept := self.concept(one)) else ())

    def wider(self, name: str) -> tuple[str, ...]:
        """Wider conditions of a condition: written (`is_a`), by body site, or of the same kind with all its codes."""
        condition = self.conditions[name]
        written = all_wider(name, lambda one: self.conditions[one].is_a if one in self.conditions else ())
        out = dict.fromkeys(up for up in (*written, *self.parents(name)) if up in self.conditions)
        codes = condition.codes.get("icd10", ())
        for other in self.conditions.values() if codes else ():
            wide = other.codes.get("icd10", ())
            comparable = other.kind == condition.kind and other.name != name and wide and set(wide) != set(codes)
            if comparable and all(code.startswith(wide) for code in codes):
                out[other.name] = None
        return tuple(out)

    def title(self, name: str) -> str:
        """What a person reads for a finding: `hx:stroke` is "History of stroke"."""
        prefix, _, rest = name.rpartition(":")
        concept, condition = self.concept(rest), self.conditions.get(rest)
        title = concept.title if concept and not (condition and condition.kind == "symptom") else title_of(rest)
        low = title if title[1:2].isupper() else title[:1].lower() + title[1:]
        forms = {"neg": f"No {low}", "possible": f"Possible {low}", "family": f"Family history of {low}"}
        forms |= {"rx": f"{title} given", "anchor": f"{title} named"}
        forms |= {"hx": f"{title} at home" if self.is_drug(rest) else f"History of {low}"}
        return forms.get(prefix, title)

    def find(self, words: str) -> list[Condition]:
        """Conditions whose name, title or names hold all the words, or whose codes begin with them."""
        wanted = words.lower().replace("_", " ").split()
        code = words.strip().upper().replace(".", "")
        found = []
        for condition in self.conditions.values():
            text = " ".join([condition.name.replace("_", " "), condition.title, *condition.names]).lower()
            coded = len(code) >= 3 and any(c.startswith(code) for some in condition.codes.values() for c in some)
            if coded or all(word in text for word in wanted):
                found.append(condition)
        return found

    def only(self, names: Iterable[str]) -> Knowledge:
        """The same base with the named conditions alone, in the order given."""
        names = list(names)
        if unknown := [name for name in names if name not in self.conditions]:
            raise ConditionError(f"the knowledge base has no condition {unknown[0]!r}; see 'whatelse conditions list'")
        return replace(self, conditions={name: self.conditions[name] for name in names})


def load_knowledge(*overlays: str | Path) -> Knowledge:
    """The shipped base, changed and extended by files of one's own, in their order."""
    if not overlays:
        return _shipped()
    own = [_overlay(Path(path)) for path in overlays]  # first: a broken file is told at once
    return _assemble(_merge({part: dict(table) for part, table in _shipped_tables().items()}, own))


@lru_cache(maxsize=1)
def _shipped() -> Knowledge:
    return _assemble(_shipped_tables())


@lru_cache(maxsize=1)
def _shipped_tables() -> dict[str, Table]:
    """The shipped YAML as {part: {name: (fields, file)}}. It takes two seconds to read, so it is read once."""
    folder = files("whatelse.knowledge")
    tables: dict[str, Table] = {"concepts": {}, "conditions": {}, "drugs": {}, "classes": {}}
    for part in ("concepts", "conditions"):
        for file in sorted((folder / part).iterdir(), key=lambda entry: entry.name):
            if file.name.endswith(".yaml"):
                content = yaml.load(file.read_text("utf-8"), Loader=LOADER) or {}
                _add(tables[part], content, f"{part}/{file.name}")
    drugs = yaml.load((folder / "drugs.yaml").read_text("utf-8"), Loader=LOADER)
    classes = drugs.pop("classes", {})
    _add(tables["drugs"], drugs, "drugs.yaml")
    _add(tables["classes"], {name: {"same": phrases} for name, phrases in classes.items()}, "drugs.yaml")
    return tables


@lru_cache(maxsize=1)
def asked_of() -> dict[str, tuple[float, float]]:
    """Finding -> the age from which, and below which, it is asked about; without an entry, at any age."""
    rows = yaml.load((files("whatelse.knowledge") / "asked_of.yaml").read_text("utf-8"), Loader=LOADER)
    return {f: (float(row.get("from", 0)), float(row.get("until", 200))) for row in rows for f in row["findings"]}


def _add(table: Table, content: Mapping[str, Any], file: str) -> None:
    for name, value in content.items():
        if name in table:
            raise InputError(f"{name!r} is defined again; the first is in {table[name][1]}", file=file)
        table[name] = (value or {}, file)


def _overlay(path: Path) -> dict[str, Table]:
    try:
        content = read_yaml(path)
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as problem:
        raise InputError(yaml_problem(problem), file=path) from None
    parts = {"concepts", "conditions", "drugs", "classes"}
    if not isinstance(content, dict) or not set(content) <= parts:
        raise InputError(f"a knowledge file has parts among {', '.join(sorted(parts))}", file=path)
    tables: dict[str, Table] = {part: {} for part in parts}
    for part, entries in content.items():
        if not isinstance(entries, dict):
            raise InputError(f"{part!r} must map names to entries", file=path)
        _add(tables[part], entries, str(path))
    return tables


def _merge(tables: dict[str, Table], overlays: list[dict[str, Table]]) -> dict[str, Table]:
    for overlay in overlays:
        for part, table in overlay.items():
            for name, (fields, file) in table.items():
                known = tables[part].get(name, ({}, file))[0]
                if not isinstance(fields, dict):
                    raise InputError(f"{name!r}: an entry is a mapping of fields", file=file)
                tables[part][name] = ({**known, **fields}, file)
    return tables


def _assemble(tables: dict[str, Table]) -> Knowledge:
    concepts = {name: read_concept(name, *entry) for name, entry in tables["concepts"].items()}
    drugs = {name: read_drug(name, *entry) for name, entry in tables["drugs"].items()}
    conditions = {name: read_condition(name, *entry) for name, entry in tables["conditions"].items()}
    classes = {name: tuple(p.lower() for p in fields["same"]) for name, (fields, _) in tables["classes"].items()}
    base = Knowledge(concepts, drugs, classes, conditions)
    for name, concept in concepts.items():
        file = tables["concepts"][name][1]
        if unknown := [parent for parent in concept.is_a if base.concept(parent) is None]:
            raise InputError(f"{name!r}: the wider concept {unknown[0]!r} is not defined", file=file)
        if name in {up for parent in concept.is_a for up in (parent, *base.parents(parent))}:
            raise InputError(f"{name!r} is a kind of itself by its 'is_a'", file=file)
    return base
