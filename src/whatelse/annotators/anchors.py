"""Anchors and conditions, as a conditions file defines them.

Definitions come from a YAML file (`emergency.yaml` says what it holds); `anchor_files.py` reads two
other forms. All become an `AnchorSet`: conditions, each with anchors (phrases, drugs and codes that stand in for it in
the record) and with prefixes of billing codes that count as its truth in an evaluation.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import yaml

from whatelse.errors import ConditionError
from whatelse.io.limits import read_yaml, shipped_yaml, yaml_problem
from whatelse.visits import TEXT_FIELDS, Code, Visit

DRUG_FIELDS = ("medication_history", "dispensed")
Kind = Literal["acute", "history"]
How = Literal["phrase", "drug", "label", "code"]


@dataclass(frozen=True, slots=True)
class Anchor:
    """One thing to look for.

    how     "phrase": the words of `value`, one after the other and not negated
            "drug":   a drug whose name, or brand name in brackets, is `value` or begins with it as a whole word
            "label":  a drug whose name is `value`, alone or as the first part before "-"
            "code":   the code `value` of `system`
    fields  the fields of a visit it is looked for in
    """

    how: How
    value: str
    fields: tuple[str, ...]
    system: str | None = None

    def matches(self, code: Code) -> bool:
        """Whether a code of one of its fields is this anchor. Never true of a phrase."""
        if self.how == "code":
            return code.system == self.system and plain_code(code) == plain_code(Code(code.system, self.value))
        if self.how == "phrase" or not code.name:
            return False
        name, value = code.name.strip().lower(), self.value.lower()
        if self.how == "label":
            return name == value or name.startswith(value + "-")
        parts = (part.strip() for part in re.split(r"[\[\]()]", name))  # brand names are in brackets
        return any(part.startswith(value) and not part[len(value) :][:1].isalnum() for part in parts)


@dataclass(frozen=True, slots=True)
class Condition:
    """A condition: `codes` maps a billing code system to the prefixes that count as the condition."""

    name: str
    title: str
    kind: Kind
    codes: Mapping[str, tuple[str, ...]]
    anchors: tuple[Anchor, ...]

    @property
    def phrases(self) -> tuple[str, ...]:
        """Anchors that are words of notes."""
        return tuple(anchor.value for anchor in self.anchors if anchor.how == "phrase")


@dataclass(frozen=True)
class AnchorSet:
    """The conditions in order: condition i is column i of A and Y everywhere."""

    conditions: tuple[Condition, ...]

    def __post_init__(self) -> None:
        if not self.conditions:
            raise ConditionError("no conditions are defined: at least one is needed")
        if twice := [name for name, times in Counter(self.names).items() if times > 1]:
            raise ConditionError(f"condition {twice[0]!r} is defined twice")

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the conditions."""
        return tuple(c.name for c in self.conditions)

    def shared(self) -> dict[str, tuple[str, ...]]:
        """Anchors that stand for more than one condition, which breaks the assumption that they have one parent."""
        owners: dict[Anchor, list[str]] = {}
        for condition in self.conditions:
            for anchor in condition.anchors:
                owners.setdefault(anchor, []).append(condition.name)
        return {anchor.value: tuple(names) for anchor, names in owners.items() if len(names) > 1}

    def only(self, names: Iterable[str]) -> AnchorSet:
        """The named conditions, in the order given."""
        by_name = {c.name: c for c in self.conditions}
        names = list(names)
        if unknown := [n for n in names if n not in by_name]:
            raise ConditionError(f"unknown condition {unknown[0]!r}; known are {', '.join(by_name)}")
        return AnchorSet(tuple(by_name[n] for n in names))

    def anchored(self) -> AnchorSet:
        """The conditions that have an anchor at all: nothing can be learned about the others."""
        return AnchorSet(tuple(c for c in self.conditions if c.anchors))

    def labels(self, visit: Visit) -> tuple[bool | None, ...]:
        """(m,) whether the visit has each condition; None where it is not known.

        `truth` counts where the visit has it; else its billing codes do, by prefix within their own code system.
        Billing says nothing about a condition for which no codes are defined.
        """
        if visit.truth is not None:
            return tuple(c.name in visit.truth for c in self.conditions)
        if visit.billing is None:
            return (None,) * len(self.conditions)
        codes = [(code.system, plain_code(code)) for code in visit.billing]
        return tuple(
            any(code.startswith(c.codes[system]) for system, code in codes if system in c.codes) if c.codes else None
            for c in self.conditions
        )

    # ---- files

    @classmethod
    def shipped(cls) -> AnchorSet:
        """The 23 conditions of an emergency department that come with the package."""
        return cls.from_json(shipped_yaml("whatelse.annotators", "emergency.yaml"), source="emergency.yaml")

    @classmethod
    def load(cls, path: str | Path) -> AnchorSet:
        """Read a YAML file, a JSON file of NHAMCS codes, or a folder of `source|identifier` files."""
        from whatelse.annotators.anchor_files import read_folder, read_nhamcs

        path = Path(path)
        if path.is_dir():
            return cls(read_folder(path))
        try:
            value = read_yaml(path)  # JSON is YAML
        except (OSError, UnicodeDecodeError, yaml.YAMLError) as problem:
            raise ConditionError(f"{path}: {yaml_problem(problem)}") from None
        if isinstance(value, dict) and "conditions" not in value:
            return cls(read_nhamcs(value, str(path)))
        return cls.from_json(value, source=str(path))

    @classmethod
    def from_json(cls, value: Any, source: str = "conditions") -> AnchorSet:
        """From the parsed content of a conditions file. Errors name the source, the condition and the key."""
        if not isinstance(value, dict) or set(value) != {"conditions"} or not isinstance(value["conditions"], list):
            raise ConditionError(f"{source}: needs one key, 'conditions', with a list of conditions")
        entries = [_condition(entry, source, i) for i, entry in enumerate(value["conditions"], start=1)]
        try:
            return cls(tuple(entries))
        except ConditionError as problem:
            raise ConditionError(f"{source}: {problem}") from None

    def to_json(self) -> dict[str, Any]:
        """The content of a conditions file. `from_json` reads it back to an equal object."""
        return {"conditions": [_plain(c) for c in self.conditions]}


def plain_code(code: Code) -> str:
    """A code as it is compared: upper case, without dots and blanks; GSN numbers with all six digits."""
    plain = code.code.replace(".", "").strip().upper()
    return plain.zfill(6) if code.system == "gsn" else plain


# Keys of `anchors` in a conditions file -> how to look, in which fields, and the code system.
_KEYS: dict[str, tuple[How, tuple[str, ...], str | None]] = {
    "notes": ("phrase", TEXT_FIELDS, None),
    "names": ("phrase", (*TEXT_FIELDS, "coded"), None),  # in notes, and as the meaning of a code's label
    **{field: ("phrase", (field,), None) for field in TEXT_FIELDS},
    "drugs": ("drug", DRUG_FIELDS, None),
    **{field: ("drug", (field,), None) for field in DRUG_FIELDS},
    "drug_labels": ("label", DRUG_FIELDS, None),
    "gsn": ("code", ("dispensed",), "gsn"),
    "gsn_history": ("code", ("medication_history",), "gsn"),
}
ANCHOR_KEYS = (*_KEYS, "coded")


def _condition(entry: Any, source: str, number: int) -> Condition:
    if not isinstance(entry, dict) or not isinstance(entry.get("name"), str) or not entry["name"].strip():
        raise ConditionError(f"{source}: condition number {number} needs a 'name'")
    name = entry["name"].strip()
    where = f"{source}: condition {name!r}"
    if unknown := set(entry) - {"name", "title", "kind", "codes", "anchors"}:
        raise ConditionError(f"{where}: unknown key {sorted(map(str, unknown))[0]!r}")
    kind = entry.get("kind", "acute")
    if kind not in ("acute", "history"):
        raise ConditionError(f"{where}: 'kind' must be acute or history")
    title = entry.get("title", name)
    if not isinstance(title, str):
        raise ConditionError(f"{where}: 'title' must be text")
    codes = {
        system: tuple(plain_code(Code(system, prefix)) for prefix in prefixes)
        for system, prefixes in _lists(entry.get("codes"), f"{where}: 'codes'").items()
    }
    found = entry.get("anchors") or {}
    if not isinstance(found, dict):
        raise ConditionError(f"{where}: 'anchors' must be a mapping with keys among {', '.join(ANCHOR_KEYS)}")
    coded = _lists(found.get("coded"), f"{where}: 'anchors', 'coded'")
    rest = _lists({k: v for k, v in found.items() if k != "coded"}, f"{where}: 'anchors'")
    if unknown := set(rest) - set(ANCHOR_KEYS):
        known = ", ".join(ANCHOR_KEYS)
        raise ConditionError(f"{where}: unknown kind of anchor {sorted(unknown)[0]!r}; known are {known}")
    anchors: dict[Anchor, None] = {}  # a set that keeps the order
    for key, values in rest.items():
        how, fields, system = _KEYS[key]
        anchors |= {Anchor(how, value, fields, system): None for value in values}
    for system, values in coded.items():
        anchors |= {Anchor("code", value, ("coded",), system): None for value in values}
    return Condition(name, title, kind, codes, tuple(anchors))


def _lists(value: Any, where: str) -> dict[str, list[str]]:
    """A mapping of text to lists of text, or an error; numbers are refused because YAML eats their leading zeros."""
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise ConditionError(f"{where} must be a mapping")
    for key, items in value.items():
        if not isinstance(key, str) or not isinstance(items, list):
            raise ConditionError(f"{where}: {key!r} must be a list")
        for item in items:
            if not isinstance(item, str) or not item.strip():
                raise ConditionError(f"{where}: {key!r} holds {item!r}, needs text; put codes of digits in quotes")
    return {key: [item.strip() for item in items] for key, items in value.items()}


def _plain(condition: Condition) -> dict[str, Any]:
    """A condition as a conditions file has it."""
    keys = {meaning: key for key, meaning in _KEYS.items()}
    anchors: dict[str, Any] = {}
    for a in condition.anchors:
        if a.fields == ("coded",):
            anchors.setdefault("coded", {}).setdefault(a.system, []).append(a.value)
        else:
            anchors.setdefault(keys[a.how, a.fields, a.system], []).append(a.value)
    codes = {system: list(prefixes) for system, prefixes in condition.codes.items()}
    return dict(name=condition.name, title=condition.title, kind=condition.kind, codes=codes, anchors=anchors)
