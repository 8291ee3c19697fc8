"""Codings: tables that translate codes of FHIR and OMOP records (vital signs, notes, chronic conditions, diagnoses).

`codings.yaml` holds the shipped tables and explains their form. A hospital's own file of the same form is added to it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import cache
from itertools import chain
from pathlib import Path
from typing import Any, Literal, cast

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


@dataclass(slots=True)
class Codings:
    """The tables, as `load_codings` makes them."""

    vitals: dict[str, str] = field(default_factory=dict)  # LOINC -> vital sign
    complaint: set[str] = field(default_factory=set)  # LOINC
    notes: dict[str, tuple[set[str], list[str]]] = field(  # kind -> LOINC codes, words
        default_factory=lambda: {kind: (set(), []) for kind in ("never", "triage", "provider")}
    )
    flags: dict[str, Code] = field(default_factory=dict)  # flag -> its code
    prefixes: dict[str, list[tuple[str, str]]] = field(  # -> (prefix, flag), longest first
        default_factory=lambda: {"icd9": [], "icd10": []}
    )
    whole: dict[str, str] = field(default_factory=dict)  # SNOMED CT -> flag
    drafts: dict[str, tuple[Code, ...]] = field(default_factory=dict)  # condition -> the codes to write it with
    diagnoses: dict[str, Code] = field(default_factory=dict)  # SNOMED CT -> ICD-10

    def add(self, part: Any) -> None:
        """Add the content of a codings file. ValueError, TypeError and the like where it has another form."""
        if unknown := set(part) - set(SECTIONS):
            raise ValueError(unknown)
        for sign, codes in part.get("vitals", {}).items():
            self.vitals |= dict.fromkeys(map(_code, codes), sign)
        self.complaint |= set(map(_code, part.get("complaint", ())))
        for kind, found in part.get("notes", {}).items():
            self.notes[kind][0].update(map(_code, found.get("loinc", ())))
            self.notes[kind][1].extend(word.lower() for word in found.get("words", ()))
        for entry in part.get("chronic", ()):
            flag = entry["flag"]
            self.flags.setdefault(flag, Code("chronic", flag, entry.get("name", flag)))
            for system, known in self.prefixes.items():
                known += [(_code(prefix).replace(".", ""), flag) for prefix in entry.get(system, ())]
                known.sort(key=lambda pair: -len(pair[0]))
            self.whole |= dict.fromkeys(map(_code, entry.get("snomed", ())), flag)
        for condition, entry in part.get("conditions", {}).items():
            snomed, icd = [_code(code) for code in entry.get("snomed", ())], entry.get("icd10")
            icd10 = [Code("icd10", _code(icd))] if icd else []
            self.drafts[condition] = (*[Code("snomed", code) for code in snomed[:1]], *icd10)
            for code in icd10:
                self.diagnoses |= dict.fromkeys(snomed, code)

    def note(self, codes: Iterable[str], name: str) -> NoteKind | None:
        """Which note a document is: by the LOINC codes of its type, else by words in its name; None for others."""
        codes, name = set(codes), name.lower()
        by_code = (kind for kind, (known, _) in self.notes.items() if codes & known)
        by_word = (kind for kind, (_, words) in self.notes.items() if any(word in name for word in words))
        kind = next(chain(by_code, by_word), "never")
        return None if kind == "never" else cast(NoteKind, kind)

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
    codings = Codings()
    try:
        codings.add(shipped_yaml(*SHIPPED))
        codings.add(read_yaml(Path(path)))
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as problem:
        raise InputError(f"the codings file: {yaml_problem(problem)}", file=path) from None
    except (KeyError, TypeError, ValueError, AttributeError):
        form = f"sections {', '.join(SECTIONS)}, and codes as text in quotes"
        raise InputError(f"the codings file is not of the form of the shipped one: {form}", file=path) from None
    return codings


@cache
def _shipped() -> Codings:
    codings = Codings()
    codings.add(shipped_yaml(*SHIPPED))
    return codings


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
