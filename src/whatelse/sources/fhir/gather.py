"""gather: what is needed of one visit, asked of a FHIR server by the few search parameters that large EHRs take.

The same table gives the prefetch templates of the CDS Hooks service: what an EHR has filled in is not asked for again.
Searches are by patient; what belongs to the visit is chosen here, because EHRs differ in what they can search by
(Oracle Health has no `encounter` for observations and no `class` for encounters).
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from datetime import date, timedelta

from whatelse.sources.codings import Codings
from whatelse.sources.fhir.client import FhirError, FhirServer
from whatelse.sources.fhir.models import (
    ID,
    Binary,
    Encounter,
    Medication,
    MedicationAdministration,
    MedicationRequest,
    MedicationStatement,
    Patient,
)
from whatelse.sources.fhir.resources import Resources, entries, local, when
from whatelse.sources.fhir.visit import Seen, current, document_text, documents, is_emergency, visit_of
from whatelse.sources.report import Report
from whatelse.visits import Visit

PAGE = "100"
NOTES = 20  # documents of one visit that are read, newest first


@dataclass(frozen=True, slots=True)
class Search:
    """A search by patient: type, fixed parameters, and the parameter that limits it to the days of the visit."""

    kind: str
    fixed: str = ""
    since: str | None = None

    def template(self) -> str:
        """As a prefetch template of CDS Hooks: simple type searches only."""
        return f"{self.kind}?patient={{{{context.patientId}}}}" + (f"&{self.fixed}" if self.fixed else "")


def searches(codings: Codings) -> dict[str, Search]:
    """What is asked for, by the name that it has in a prefetch."""
    scores = [loinc for loinc, sign in codings.vitals.items() if sign in ("pain", "triage")]
    spoken = ",".join(sorted([*codings.complaint, *scores]))
    return {
        "conditions": Search("Condition"),
        "vitals": Search("Observation", "category=vital-signs", "date"),
        "triage": Search("Observation", f"code={spoken}", "date"),
        "requests": Search("MedicationRequest", "status=active"),
        "statements": Search("MedicationStatement"),
        "administrations": Search("MedicationAdministration", "", "effective-time"),
        "notes": Search("DocumentReference", "category=clinical-note"),
    }


def valid_id(text: object) -> bool:
    """Whether this is the id of a resource: nothing else may become part of an address."""
    return isinstance(text, str) and re.fullmatch(ID, text) is not None and text not in (".", "..")


def gather(
    server: FhirServer,
    patient: str,
    encounter: str | None,
    codings: Codings,
    given: Resources | None = None,
    have: frozenset[str] = frozenset(),
) -> tuple[Resources, Encounter | None]:
    """Everything about one visit that is not `given` yet, and the encounter it is about: the one named, else the
    patient's newest emergency encounter under way. `have`: the searches whose answers are given, whole.

    A kind that the server refuses is not seen, and `visit_of` says so. FhirError only if the encounter cannot be had.
    """
    if not valid_id(patient) or (encounter is not None and not valid_id(encounter)):
        raise FhirError("the id of a patient or encounter is not one: letters, digits, '-' and '.'")
    resources = given if given is not None else Resources(patient=patient)
    visit = find_encounter(server, patient, encounter, resources)
    if visit is None:
        return resources, None
    if resources.find(Patient, f"Patient/{patient}") is None:
        with suppress(FhirError):
            resources.add(server.read("Patient", patient))
    for name, search in searches(codings).items():
        if name in have:
            continue
        parameters = {"patient": patient, **dict(p.split("=", 1) for p in search.fixed.split("&") if p), "_count": PAGE}
        day = _day(visit)
        if search.since and day:
            parameters[search.since] = f"ge{day}"
        try:
            for page in server.pages(search.kind, parameters):
                for raw in entries(page):
                    resources.add(raw)
                resources.asked.add(search.kind)
            resources.partial.discard(search.kind)
        except FhirError as refused:
            if refused.status == 401:  # nothing else will be answered either
                raise
            if search.kind in resources.asked:
                resources.partial.add(search.kind)
    _medications(server, resources)
    _texts(server, visit, resources, codings)
    return resources, visit


def find_encounter(server: FhirServer, patient: str, encounter: str | None, resources: Resources) -> Encounter | None:
    """The encounter of the visit, read if it is not there."""
    if encounter is not None:
        if resources.find(Encounter, f"Encounter/{encounter}") is None:
            resources.add(server.read("Encounter", encounter))
        found = resources.find(Encounter, f"Encounter/{encounter}")
        if found is None or local(found.subject) not in (None, f"Patient/{patient}"):
            raise FhirError("the encounter named is not one of the patient named")
        return found
    if current(resources, patient) is None:
        for raw in server.search("Encounter", {"patient": patient, "_count": PAGE}):
            resources.add(raw)
    return current(resources, patient)


def _day(encounter: Encounter) -> date | None:
    """The day before arrival: an EHR may keep other hours than the visit was written in."""
    start = when(encounter.period.start) if encounter.period else None
    return (start - timedelta(days=1)).date() if start else None


def _medications(server: FhirServer, resources: Resources) -> None:
    """Read the Medications that are referred to and not there."""
    kinds = (MedicationAdministration, MedicationRequest, MedicationStatement)
    drugs = [drug for kind in kinds for drug in resources.all(kind)]
    names = dict.fromkeys(
        name
        for drug in drugs
        if drug.medicationCodeableConcept is None and (name := local(drug.medicationReference)) is not None
    )
    for name in list(names)[:100]:
        if name.startswith("Medication/") and resources.find(Medication, name) is None:
            with suppress(FhirError):
                resources.add(server.read("Medication", name.partition("/")[2]))


def _texts(server: FhirServer, visit: Encounter, resources: Resources, codings: Codings) -> None:
    """Read the Binaries of the visit's notes."""
    for _, document in documents(visit, resources, codings)[-NOTES:]:
        for content in document.content:
            name = local(content.attachment.url) if content.attachment else None
            if name is None or not name.startswith("Binary/") or document_text(document, resources) is not None:
                continue
            if resources.find(Binary, name) is None:
                with suppress(FhirError):
                    resources.add(server.binary(name.partition("/")[2]))


def read_server(
    server: FhirServer,
    report: Report,
    codings: Codings,
    patients: list[str] | None,
    since: str | None,
    until: str | None,
) -> Iterator[tuple[int, Visit]]:
    """(number from 1, visit) of every emergency encounter of the patients named, or of all between two days.

    Encounters are found by patient or by date, and chosen by class here.
    """
    number = 0
    for resource in _encounters(server, patients, since, until):
        found = Resources()
        found.add(resource)
        for encounter in found.all(Encounter):
            name = local(encounter.subject)
            if not is_emergency(encounter) or encounter.status in ("entered-in-error", "cancelled", "planned"):
                continue
            if name is None or not name.startswith("Patient/"):
                report.leave_out("Encounter names no patient", FhirError("Encounter names no patient"))
                continue
            seen = _read(server, name.partition("/")[2], encounter.id, codings, found)
            number += 1
            for missing in seen.unseen:
                report.note(f"{server.base}: {missing} not seen for some visits")
            yield number, seen.visit
        for kind, count in found.broken.items():
            report.leave_out(kind, FhirError(kind))
            report.left_out[kind] += count - 1


def _read(server: FhirServer, patient: str, encounter: str, codings: Codings, found: Resources) -> Seen:
    resources, visit = gather(server, patient, encounter, codings, found)
    assert visit is not None  # it was just found
    return visit_of(visit, resources, codings)


def _encounters(
    server: FhirServer, patients: list[str] | None, since: str | None, until: str | None
) -> Iterator[dict[str, object]]:
    if patients is not None:
        for patient in patients:
            if not valid_id(patient):
                raise FhirError("the id of a patient is not one: letters, digits, '-' and '.'")
            yield from server.search("Encounter", {"patient": patient, "_count": PAGE})
        return
    parameters = {"_count": PAGE}
    if since:
        parameters["date"] = f"ge{since}"
    for raw in server.search("Encounter", parameters):
        period = raw.get("period")
        start = period.get("start") if isinstance(period, dict) else None
        if until and isinstance(start, str) and start[:10] > until:
            continue
        yield raw
