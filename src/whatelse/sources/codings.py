"""Codings: tables that translate codes of FHIR and OMOP records (vital signs, notes, chronic conditions, diagnoses).

`codings.yaml` holds the shipped tables and explains their form. A hospital's own file of the same form is added to it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import chain
from pathlib import Path
from typing import Any, Literal

import yaml

from whatelse.errors import InputError
from whatelse.io.limits import read_yaml, shipped_yaml, yaml_problem
from whatelse.visits import Code

NoteKind = Literal["triage", "provider"]
SHIPPED = "whatelse.sources", "codings.yaml"
SECTIONS = ("vitals", "complaint", "notes", "chronic", "conditions")
_QUANTITY = re.compile(r"^(?:NDA\d+ |\d+(?:\.\d+)? (?:HR|ML|ACTUAT|MG|UNT|DAY|MIN) )+", re.IGNORECASE)
_STRENGTH = re.compile(r"\s+\d.*$", re.DOTALL)
_BRAND = re.compile(r"\[[^\[\]]{1,80}\]")
_SALT = re.compile(
    r"\s+(?:hydrochloride|hydrobromide|bitartrate|tartrate|succinate|maleate|mesylate|fumarate|besylate|sulfate|acetate|"
    r"phosphate|citrate|sodium|potassium|calcium|trihydrate|monohydrate|anhydrous)$",
    re.IGNORECASE,
)
_MINERALS = frozenset(["sodium", "potassium", "calcium", "magnesium", "zinc", "ferrous", "lithium", "aluminum"])


@dataclass(frozen=True, slots=True)
class Codings:
    """The tables, as `load_codings` makes them."""

    vitals: Mapping[str, str]  # LOINC -> vital sign
    complaint: frozenset[str]  # LOINC
    notes: Mapping[str, tuple[frozenset[str], tuple[str, ...]]]  # kind -> LOINC codes, words
    flags: Mapping[str, Code]  # flag -> its code
    prefixes: Mapping[str, tuple[tuple[str, str], ...]]  # icd9, icd10 -> (prefix, flag), longest first
    whole: Mapping[str, str]  # SNOMED CT -> flag
    drafts: Mapping[str, tuple[Code, ...]]  # condition -> the codes to write it with
    diagnoses: Mapping[str, Code]  # SNOMED CT -> ICD-10

    def note(self, codes: Iterable[str], name: str) -> NoteKind | None:
        """Which note a document is: by the LOINC codes of its type, else by words in its name; None for others."""
        codes, name = set(codes), name.lower()
        kinds: dict[str, NoteKind | None] = {"never": None, "triage": "triage", "provider": "provider"}
        by_code = (kind for kind in kinds if codes & self.notes[kind][0])
        by_word = (kind for kind in kinds if any(word in name for word in self.notes[kind][1]))
        return kinds[next(chain(by_code, by_word), "never")]

    def problem(self, codes: Sequence[Code], name: str | None) -> Code | None:
        """One entry of the problem list as one code: a chronic flag if it is known as such, else the problem by name.

        An entry often has the same problem in two code systems: two findings would count it twice.
        """
        for code in codes:
            plain = code.code.replace(".", "").upper()
            flag = self.whole.get(code.code) if code.system == "snomed" else None
            flag = flag or next((f for p, f in self.prefixes.get(code.system, ()) if plain.startswith(p)), None)
            if flag is not None:
                return self.flags[flag]
        label = (name or next((c.name for c in codes if c.name), None) or "").strip().lower()
        if not label and not codes:
            return None
        return Code("problem", f"{codes[0].system}:{codes[0].code}" if codes else label, label or None)

    def diagnosis(self, codes: Sequence[Code]) -> Code | None:
        """A diagnosis of the visit as one billing code: ICD as it is, SNOMED CT as ICD-10 where it is known as such."""
        for system in ("icd10", "icd9"):
            for code in codes:
                if code.system == system:
                    return Code(system, code.code.replace(".", "").upper(), code.name)
        for code in codes:
            if code.system == "snomed":
                known = self.diagnoses.get(code.code)
                return Code(known.system, known.code, code.name) if known is not None else code
        return codes[0] if codes else None


def load_codings(path: str | Path | None = None) -> Codings:
    """The shipped codings, extended by the codings of a hospital's own file."""
    if path is None:
        return _shipped()
    try:
        return _merge([shipped_yaml(*SHIPPED), read_yaml(Path(path))])
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as problem:
        raise InputError(f"the codings file: {yaml_problem(problem)}", file=path) from None
    except (KeyError, TypeError, ValueError, AttributeError):
        form = f"sections {', '.join(SECTIONS)}, and codes as text in quotes"
        raise InputError(f"the codings file is not of the form of the shipped one: {form}", file=path) from None


@cache
def _shipped() -> Codings:
    return _merge([shipped_yaml(*SHIPPED)])


def _merge(parts: Sequence[Any]) -> Codings:
    vitals, whole = dict[str, str](), dict[str, str]()
    complaint: set[str] = set()
    notes: dict[str, tuple[set[str], list[str]]] = {kind: (set(), []) for kind in ("triage", "provider", "never")}
    flags, diagnoses = dict[str, Code](), dict[str, Code]()
    prefixes: dict[str, list[tuple[str, str]]] = {"icd9": [], "icd10": []}
    drafts: dict[str, tuple[Code, ...]] = {}
    for part in parts:
        if unknown := set(part) - set(SECTIONS):
            raise ValueError(unknown)
        for sign, codes in part.get("vitals", {}).items():
            vitals |= dict.fromkeys(map(_code, codes), sign)
        complaint |= set(map(_code, part.get("complaint", ())))
        for kind, found in part.get("notes", {}).items():
            notes[kind][0].update(map(_code, found.get("loinc", ())))
            notes[kind][1].extend(word.lower() for word in found.get("words", ()))
        for entry in part.get("chronic", ()):
            flag = entry["flag"]
            flags.setdefault(flag, Code("chronic", flag, entry.get("name", flag)))
            for system in ("icd9", "icd10"):
                prefixes[system] += [(_code(prefix).replace(".", ""), flag) for prefix in entry.get(system, ())]
            whole |= dict.fromkeys(map(_code, entry.get("snomed", ())), flag)
        for condition, entry in part.get("conditions", {}).items():
            snomed, icd = [_code(code) for code in entry.get("snomed", ())], entry.get("icd10")
            found = [Code("snomed", snomed[0])] if snomed else []
            found += [Code("icd10", _code(icd))] if icd else []
            drafts[condition] = tuple(found)
            if icd:
                diagnoses |= dict.fromkeys(snomed, Code("icd10", _code(icd)))
    return Codings(
        vitals,
        frozenset(complaint),
        {kind: (frozenset(codes), tuple(words)) for kind, (codes, words) in notes.items()},
        flags,
        {system: tuple(sorted(found, key=lambda p: -len(p[0]))) for system, found in prefixes.items()},
        whole,
        drafts,
        diagnoses,
    )


def _code(value: Any) -> str:
    if not isinstance(value, str) or not value.strip():
        raise ValueError("a code is text in quotes")
    return value.strip()


def drug_name(text: str) -> str:
    """A drug's ingredients from its name in RxNorm or an EHR, as anchors and findings look for it.

    "24 HR metformin hydrochloride 500 MG Extended Release Oral Tablet" is metformin,
    "acetaminophen 325 MG / hydrocodone bitartrate 5 MG Oral Tablet [Norco]" acetaminophen-hydrocodone [Norco].
    """
    text = " ".join(text.split())[:500]
    brands = _BRAND.findall(text)
    text = _BRAND.sub("", text)
    parts = [_STRENGTH.sub("", _QUANTITY.sub("", part.strip())).strip(" ,") for part in text.split(" / ")]
    bare = [(part, _SALT.sub("", part)) for part in parts if part]
    name = "-".join(part if short.lower() in _MINERALS else short for part, short in bare).lower()
    return " ".join([name, *brands]).strip() or text.lower()
