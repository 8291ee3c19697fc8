"""visit_of: one emergency encounter and the resources around it -> a Visit. The one way from FHIR to a visit: files, a
live server and a prefetch all end here, so the same resources always give the same visit.

| field | from |
|---|---|
| chief_complaint | Encounter.reasonCode, else an Observation with the complaint |
| triage_note, md_comments | DocumentReference of this encounter, text inline or in a Binary |
| coded | the first vital signs, pain and triage level by the thresholds of `vitals.py`; the problem list |
| medication_history | MedicationStatement; MedicationRequest that is reported or planned, or active since before |
| dispensed | MedicationAdministration of this encounter; its orders where the source keeps no administrations |
| billing | Condition of this encounter: for evaluation only |
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from whatelse.sources.codings import Codings, NoteKind, drug_name
from whatelse.sources.fhir.models import (
    Binary,
    Concept,
    Condition,
    DocumentReference,
    Drug,
    Encounter,
    MedicationAdministration,
    MedicationRequest,
    MedicationStatement,
    Observation,
    Patient,
    Period,
    Reference,
)
from whatelse.sources.fhir.notes import attachment_text
from whatelse.sources.fhir.resources import WORDS, Resources, codes, has_code, local, medication, when
from whatelse.sources.vitals import vital_codes
from whatelse.visits import OLDEST, Code, Sex, Visit

EMERGENCY = ("EMER", "E")  # the class of an encounter; E is that of HL7 version 2
NO_VISIT = frozenset({"entered-in-error", "cancelled", "planned"})
HERE = frozenset({"arrived", "triaged", "in-progress", "onleave"})
WITHOUT_VISIT = timedelta(hours=24)  # how long after arrival something without an encounter is taken for this visit's
WITHDRAWN = frozenset({"entered-in-error", "cancelled", "superseded", "not-done", "not-taken"})
_NEVER = datetime.min.replace(tzinfo=UTC)
SEXES: dict[str, Sex] = {"female": "F", "male": "M"}


@dataclass(frozen=True, slots=True)
class Seen:
    """A visit, and in words the parts of its record that could not be read."""

    visit: Visit
    unseen: tuple[str, ...]


def is_emergency(encounter: Encounter) -> bool:
    """Whether the class of an encounter is emergency."""
    return encounter.class_ is not None and (encounter.class_.code or "").upper() in EMERGENCY


def current(resources: Resources, patient: str) -> Encounter | None:
    """The patient's newest emergency encounter that is under way."""
    there = [
        e
        for e in resources.all(Encounter)
        if is_emergency(e) and e.status in HERE and local(e.subject) in (None, f"Patient/{patient}")
    ]
    return max(there, key=lambda e: _start(e) or _NEVER, default=None)


def visit_of(encounter: Encounter, resources: Resources, codings: Codings) -> Seen:
    """Make the visit of an encounter. O(resources)."""
    here = _Here(encounter)
    patient = resources.find(Patient, encounter.subject)
    notes = _notes(here, resources, codings)
    given, stood_in = _given(here, resources)
    conditions = None
    if "Condition" in resources.asked:
        wrong = ("refuted", "entered-in-error")
        conditions = [c for c in resources.all(Condition) if not has_code(c.verificationStatus, *wrong)]
    vitals = _vitals(here, resources, codings) if "Observation" in resources.asked else None
    problems = _problems(here, conditions, codings) if conditions is not None else None
    found = [*(vitals or ()), *(problems or ())]
    visit = Visit(
        id=encounter.id,
        age=_age(patient, here.start),
        sex=SEXES.get(patient.gender or "") if patient else None,
        chief_complaint=_complaint(here, resources, codings),
        triage_note=notes.get("triage"),
        md_comments=notes.get("provider"),
        medication_history=_home(here, resources),
        dispensed=given,
        billing=_billing(here, conditions, codings) if conditions is not None else None,
        coded=None if vitals is None and problems is None else tuple(dict.fromkeys(found)),
        time=here.start.replace(tzinfo=None) if here.start else None,  # the hospital's clock, as other sources have it
    )
    return Seen(visit, _unseen(visit, patient, notes, resources, vitals, problems, stood_in))


def documents(encounter: Encounter, resources: Resources, codings: Codings) -> list[tuple[NoteKind, DocumentReference]]:
    """The notes of an encounter by kind, oldest first."""
    here, found = _Here(encounter), []
    for document in resources.all(DocumentReference):
        references = document.context.encounter if document.context else []
        if document.status in WITHDRAWN or document.docStatus in WITHDRAWN or not here.among(references):
            continue
        loinc, name = [code.code for code in codes(document.type)], document.type and document.type.name
        if (kind := codings.note(loinc, name or "")) is not None:
            found.append((kind, document))
    return sorted(found, key=lambda pair: (when(pair[1].date) or _NEVER, pair[1].id or ""))


# ---- fields


class _Here:
    """What belongs to this encounter, by reference or, where a resource names no encounter, by time."""

    def __init__(self, encounter: Encounter) -> None:
        self.encounter, self.name = encounter, f"Encounter/{encounter.id}"
        self.start, self.end = _start(encounter), when(encounter.period.end) if encounter.period else None

    def among(self, references: Iterable[Reference]) -> bool:
        return any(local(reference) == self.name for reference in references)

    def has(self, reference: Reference | None, time: datetime | None) -> bool:
        if reference is not None and reference.reference:
            return local(reference) == self.name
        if time is None or self.start is None:
            return False
        return self.start - timedelta(hours=1) <= time <= (self.end or self.start + WITHOUT_VISIT)

    def before(self, time: datetime | None) -> bool:
        """Whether an entry is from before the visit. An entry without a date counts as older."""
        return time is None or self.start is None or time < self.start


def _start(encounter: Encounter) -> datetime | None:
    return when(encounter.period.start) if encounter.period else None


def _age(patient: Patient | None, at: datetime | None) -> float | None:
    date = patient.birthDate if patient else None
    born = when(date)
    if born is None or at is None:
        return None
    had_birthday = (at.month, at.day) >= (born.month, born.day)
    years = at.year - born.year - (0 if had_birthday or len(date or "") == 4 else 1)
    return float(years) if 0 <= years <= OLDEST else None


def _complaint(here: _Here, resources: Resources, codings: Codings) -> str | None:
    said = [name for concept in here.encounter.reasonCode if _is_complaint(concept) and (name := concept.name)]
    if not said:
        for observation in _of(here, resources):
            if any(code.code in codings.complaint for code in codes(observation.code)):
                value = observation.valueString or (observation.valueCodeableConcept or Concept()).name
                said += [value] if value else []
    return "; ".join(dict.fromkeys(" ".join(text.split()) for text in said)) or None


def _is_complaint(concept: Concept) -> bool:
    """Whether a reason for visit is a complaint.

    EHRs also list admitting diagnoses, incidents and administrative problems there. A reason that is marked as one of
    these, or coded as a disease, is no complaint. A code of ICD's chapter of symptoms is one.
    """
    for mark in concept.extension:
        value = mark.valueCodeableConcept
        words = [mark.valueCode, mark.valueString, mark.valueCoding and mark.valueCoding.display, value and value.name]
        if any(w in (text or "").lower() for text in words for w in ("diagnosis", "incident", "administrative")):
            return False
    icd = [code for code in codes(concept) if code.system in ("icd9", "icd10")]
    return not icd or any(code.code.startswith(("R", "78")) for code in icd)


def _notes(here: _Here, resources: Resources, codings: Codings) -> dict[str, str | None]:
    """Kind -> text: "" where there is no such note, None where notes were not searched for or none could be read."""
    if "DocumentReference" not in resources.asked:
        return {"triage": None, "provider": None}
    texts: dict[str, list[str]] = {"triage": [], "provider": []}
    unread: set[str] = set()
    for kind, document in documents(here.encounter, resources, codings):
        text = document_text(document, resources)
        if text is None:
            unread.add(kind)
        else:
            texts[kind].append(text)
    return {kind: None if kind in unread and not found else "\n".join(found) for kind, found in texts.items()}


def document_text(document: DocumentReference, resources: Resources) -> str | None:
    """The first form of a document that can be read."""
    for content in document.content:
        attachment = content.attachment
        if attachment is None:
            continue
        if attachment.data is not None:
            text = attachment_text(attachment.contentType, attachment.data)
        else:
            binary = resources.find(Binary, attachment.url)
            text = attachment_text(binary.contentType or attachment.contentType, binary.data) if binary else None
        if text is not None:
            return text
    return None


def _of(here: _Here, resources: Resources) -> list[Observation]:
    """The observations of this encounter that stand, oldest first."""
    found = []
    for o in resources.all(Observation):
        time = when(o.effectiveDateTime or o.effectiveInstant or (o.effectivePeriod or Period()).start or o.issued)
        if o.status not in WITHDRAWN and here.has(o.encounter, time):
            found.append((time is None, time or _NEVER, o.id or "", o))
    return [entry[-1] for entry in sorted(found, key=lambda entry: entry[:3])]


def _vitals(here: _Here, resources: Resources, codings: Codings) -> list[Code]:
    """The first value of each vital sign, as codes where it is out of range."""
    first: dict[str, float] = {}
    for o in _of(here, resources):
        number = o.valueQuantity.value if o.valueQuantity else None
        number = float(o.valueInteger) if number is None and o.valueInteger is not None else number
        values = [(o.code, number)]
        values += [(c.code, c.valueQuantity.value) for c in o.component if c.valueQuantity is not None]
        for concept, value in values:
            for code in codes(concept):
                if code.system == "loinc" and code.code in codings.vitals and value is not None:
                    first.setdefault(codings.vitals[code.code], value)
    return vital_codes(**first)


def _is_diagnosis(here: _Here, condition: Condition) -> bool:
    """A diagnosis of this visit: said so by its category or, where it has none, by its encounter."""
    listed = any(local(d.condition) == f"Condition/{condition.id}" for d in here.encounter.diagnosis)
    of_visit = listed or local(condition.encounter) == here.name
    return of_visit and not has_code(condition.category, "problem-list-item")


def _problems(here: _Here, conditions: list[Condition], codings: Codings) -> list[Code]:
    found = []
    for condition in conditions:
        listed = has_code(condition.category, "problem-list-item", "health-concern") or not condition.category
        began, ended = when(condition.onsetDateTime or condition.recordedDate), when(condition.abatementDateTime)
        gone = ended is not None and (here.start is None or ended < here.start)
        gone = gone or (ended is None and has_code(condition.clinicalStatus, "inactive", "resolved", "remission"))
        if listed and not gone and not _is_diagnosis(here, condition) and here.before(began):
            code = codings.problem(codes(condition.code), condition.code.name if condition.code else None)
            found += [code] if code is not None else []
    return sorted(set(found), key=lambda code: (code.system, code.code))


def _billing(here: _Here, conditions: list[Condition], codings: Codings) -> tuple[Code, ...]:
    found = [codings.diagnosis(codes(c.code)) for c in conditions if _is_diagnosis(here, c)]
    return tuple(sorted({code for code in found if code is not None}, key=lambda code: (code.system, code.code)))


def _home(here: _Here, resources: Resources) -> tuple[Code, ...] | None:
    if not resources.asked & {"MedicationStatement", "MedicationRequest"}:
        return None
    drugs: list[Drug] = []
    for statement in resources.all(MedicationStatement):
        period = statement.effectivePeriod or Period()
        stopped = when(period.end)
        began = when(statement.effectiveDateTime or period.start)
        taken = stopped is None or here.start is None or stopped >= here.start
        if taken and statement.status in ("active", "unknown", None) and here.before(began):
            drugs.append(statement)
    for request in resources.all(MedicationRequest):
        if request.status not in ("active", None):
            continue
        reported = request.reportedBoolean or request.intent == "plan"
        elsewhere = local(request.encounter) != here.name and not has_code(request.category, "inpatient")
        if reported or (elsewhere and here.before(when(request.authoredOn))):
            drugs.append(request)
    return _drugs(drugs, resources)


def _given(here: _Here, resources: Resources) -> tuple[tuple[Code, ...] | None, bool]:
    drugs: list[Drug] = []
    if "MedicationAdministration" in resources.asked:
        for a in resources.all(MedicationAdministration):
            time = when(a.effectiveDateTime or (a.effectivePeriod or Period()).start)
            if a.status not in WITHDRAWN and here.has(a.context, time):
                drugs.append(a)
        return _drugs(drugs, resources), False
    if "MedicationRequest" not in resources.asked:
        return None, False
    for r in resources.all(MedicationRequest):
        ordered = r.intent not in ("plan", "proposal") and not r.reportedBoolean and r.status not in WITHDRAWN
        if ordered and local(r.encounter) == here.name:
            drugs.append(r)
    return _drugs(drugs, resources), True


def _drugs(drugs: list[Drug], resources: Resources) -> tuple[Code, ...]:
    """Drugs by RxNorm, NDC or name, each once, in the order of their codes."""
    found = []
    for drug in drugs:
        concept = medication(drug, resources)
        if concept is None:
            continue
        by_system = {code.system: code for code in reversed(codes(concept))}
        code = by_system.get("rxnorm") or by_system.get("ndc")
        said = (code.name if code else None) or concept.name
        if code is not None:
            found.append(Code(code.system, code.code, drug_name(said) if said else None))
        elif said:
            name = drug_name(said)
            found.append(Code("name", name, name))
    return tuple(sorted(set(found), key=lambda code: (code.name or "", code.system, code.code)))


def _unseen(
    visit: Visit,
    patient: Patient | None,
    notes: dict[str, str | None],
    resources: Resources,
    vitals: list[Code] | None,
    problems: list[Code] | None,
    stood_in: bool,
) -> tuple[str, ...]:
    """The parts of the record that were not seen, or only in part, in the words of a card."""
    missing = {
        "age and sex": patient is None,
        "triage note": notes["triage"] is None,
        "provider note": notes["provider"] is None,
        "vital signs": vitals is None,
        "problem list": problems is None,
        "home medications": visit.medication_history is None,
        "drugs given": visit.dispensed is None or stood_in,
    }
    found, words = [name for name, gone in missing.items() if gone], WORDS["partly"]
    return tuple(dict.fromkeys([*found, *(words[kind] for kind in sorted(resources.partial) if kind in words)]))
