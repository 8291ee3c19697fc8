"""Codes and numbers of a record as findings: the label of a code is text, and is read as a note is.

"Painful urination" is dysuria whether it was typed or picked from a list. Codes of ICD-10 and ICD-9 are conditions by
their prefix. A code whose label says more than the concepts it mentions stays a finding of its own too.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import TYPE_CHECKING

from whatelse.text.assertion import HISTORICAL, PRESENT
from whatelse.text.function_words import says_nothing
from whatelse.text.lexicon import DRUG, DRUG_CLASS
from whatelse.text.matcher import ASSERTION, COVERED, DRUG_GIVEN, FLAGS, HOME, ID, MENTION, NOTE, TYPE, WORD_ITEM
from whatelse.visits import Code, Visit

if TYPE_CHECKING:
    from whatelse.cohort.findings import Finder
    from whatelse.text.reader import NoteReader

# Codes that sources make of vital signs out of range (`sources/vitals.py`) -> concept
VITAL_CODES = {
    ("vital", "temperature-high"): "fever",
    ("vital", "pulse-high"): "tachycardia",
    ("vital", "pulse-low"): "bradycardia",
    ("vital", "respirations-high"): "tachypnea",
    ("vital", "systolic-low"): "hypotension",
    ("vital", "systolic-high"): "severe_hypertension",
    ("vital", "saturation-low"): "hypoxia",
    ("pain", "high"): "severe_pain",
}
PREFIX = {"medication_history": "hx:", "dispensed": "rx:"}
LASTING_SYSTEMS = ("problem", "chronic", "icd10", "icd9")  # lists of what a patient has or had
SHORTEST_CODE = 3
# Words of code labels that say nothing by themselves.
_FORM = frozenset(
    """type ii unspecified other nos nec specified without mention complication complications uncomplicated symptoms
    symptom disorder disease diseases syndrome problem problems including involving initial encounter subsequent due
    history personal current condition conditions status related use""".split()  # noqa: SIM905
)


def code_name(field: str, code: Code) -> str:
    """The name of the finding that a code is: its label where it has one, else the code itself.

    Drug names as hospitals dispense them lose their brand and strength ("Aspirin 81mg TAB" is `rx:aspirin`);
    the labels of a drug classification (code system "drug") are taken whole.
    """
    label = (code.name or "").strip().lower()
    if field in PREFIX:
        if label and code.system != "drug":
            label = re.split(r"\s*[\[(]|\s+\d", label)[0].strip(" *,") or label
        return PREFIX[field] + (label or f"{code.system} {code.code}")
    return f"{code.system}:{label or code.code}"


def code_findings(finder: Finder, field: str, code: Code) -> tuple[str, ...]:
    """Names of the findings of a code: its concept and the wider concepts. Where labels are not read: its name."""
    own = code_name(field, code)
    if not finder.lexicon.entries or not finder.lexicon.labels:
        return (own,)
    found = _drug(finder, field, code, own) if field in PREFIX else _coded(finder, code, own)
    return tuple(dict.fromkeys(name for name in found if name)) or (own,)


def _drug(finder: Finder, field: str, code: Code, own: str) -> list[str]:
    """Drugs that a label names, and their classes."""
    lexicon, flags = finder.lexicon, HOME if field == "medication_history" else DRUG_GIVEN
    concepts = [finder.reader.concepts[item[ID]] for item in _items(finder, code) if item[TYPE] == MENTION]
    plain = own.partition(":")[2].replace(" ", "_").replace("-", "_")
    drugs = [name for name in (*concepts, plain) if name in lexicon.by_name]
    drugs = [name for name in drugs if lexicon.by_name[name].kind in (DRUG, DRUG_CLASS)]
    return [name for drug in drugs for name in finder.concept_names(drug, PRESENT, flags)]


def _coded(finder: Finder, code: Code, own: str) -> list[str]:
    """Findings of a code: a vital sign, the condition of an ICD code, else the concepts that its label mentions."""
    lexicon = finder.lexicon
    vital = VITAL_CODES.get((code.system, code.code))
    if vital is not None and vital in lexicon.by_name:
        return finder.concept_names(vital, PRESENT)
    lasting = code.system in LASTING_SYSTEMS
    by_code = _condition(finder, code)
    if by_code is not None:
        return finder.concept_names(by_code, HISTORICAL if lasting else PRESENT)
    found, items = list[str](), _items(finder, code)
    for item in items:
        if item[TYPE] == MENTION:
            assertion = HISTORICAL if lasting and item[ASSERTION] == PRESENT else item[ASSERTION]
            found += finder.concept_names(finder.reader.concepts[item[ID]], assertion, item[FLAGS])
    return found if code.name and not says_more(finder.reader, items, 1)[0] else [*found, own]


def says_more(reader: NoteReader, items: list[list[int]], labels: int) -> list[bool]:
    """Whether each label has a word that belongs to no concept; `items` as the reader found them, its lock held."""
    more = [False] * labels
    for item in items:
        if item[TYPE] == WORD_ITEM and not item[FLAGS] & COVERED:
            word = reader.pieces.names[item[ID]]
            more[item[NOTE]] |= not (word in _FORM or says_nothing(word))
    return more


def _condition(finder: Finder, code: Code) -> str | None:
    """The condition of an ICD code, by its longest known prefix. A problem has the code as "icd10:I26.9"."""
    system, colon, text = code.code.partition(":") if code.system == "problem" else (code.system, ":", code.code)
    prefixes = finder.lexicon.codes.get(system)
    if not prefixes or not colon:
        return None
    plain = text.replace(".", "").strip().upper()
    known = (plain[:n] for n in range(len(plain), SHORTEST_CODE - 1, -1))
    return next((prefixes[prefix] for prefix in known if prefix in prefixes), None)


def _items(finder: Finder, code: Code) -> list[list[int]]:
    label = code.name or (code.code if code.system in ("name", "problem") else "")
    with finder.reader.lock:
        found: list[list[int]] = finder.reader.items([label], [0]).tolist()
    return found


def number_findings(finder: Finder, visit: Visit) -> Iterable[str]:
    """What the numbers of a visit mean: `fever`, `neg:hypotension`, with wider concepts."""
    measures = finder.reader.measures
    if measures is None or not visit.numbers:
        return ()
    found: dict[str, None] = {}
    for name in measures.findings(measures.of_columns(visit.numbers), visit.age):
        concept = name.removeprefix("neg:")
        if concept in finder.lexicon.by_name:
            names = [name] if name != concept else finder.concept_names(concept, PRESENT)
            found.update(dict.fromkeys(names))
    return found
