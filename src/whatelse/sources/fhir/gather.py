"""Reads the resources of a visit from a FHIR server: `gather` for one visit, `read_server` for all visits of a period.

Only the few search parameters that large EHRs support are used. Searches run in parallel (`Reads`).

The table of `searches` also gives the prefetch templates of the CDS Hooks service: what an EHR has filled in is not
asked for again. Searches are by patient; what belongs to the visit is chosen here, because EHRs differ in
what they can search by (Oracle Health has no `encounter` for observations and no `class` for encounters).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from concurrent.futures import Executor, Future
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

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
from whatelse.sources.fhir.visit import NO_VISIT, current, document_text, documents, is_emergency, visit_of
from whatelse.sources.report import Report
from whatelse.visits import Visit

PAGE = "100"
NO_ID = "the id of a patient or encounter is not one: letters, digits, '-' and '.'"
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
    """Name in a prefetch -> search."""
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
    pool: Executor | None = None,
    failed: Callable[[str, str], None] = lambda kind, reason: None,
) -> tuple[Resources, Encounter | None]:
    """Everything about one visit that is not `given` yet, and the encounter it is about.

    encounter  id of the encounter; None for the patient's newest emergency encounter under way
    have       searches whose answers are given, whole
    pool       threads that read in parallel; one request after the other without. Notes are read first
    failed     is told of every read that failed: kind of resource, one word for the reason

    A kind that the server refuses is not seen, and `visit_of` says so. FhirError only if the encounter cannot be had.
    With a pool this takes three rounds of requests: encounter and undated searches, dated searches, documents.
    """
    if not valid_id(patient) or (encounter is not None and not valid_id(encounter)):
        raise FhirError(NO_ID)
    resources = given if given is not None else Resources(patient=patient)
    reads = Reads(server, resources, pool, failed)
    wanted = {name: search for name, search in searches(codings).items() if name not in have}
    by_patient = {"patient": patient, "_count": PAGE}
    for name in sorted(wanted, key=lambda name: name != "notes"):  # notes first
        if wanted[name].since is None:
            reads.search(wanted[name], by_patient)
    if resources.find(Patient, f"Patient/{patient}") is None:
        reads.one("Patient", server.read, "Patient", patient)
    visit = find_encounter(server, patient, encounter, resources)
    if visit is None:
        reads.give_up()
        return resources, None
    start = when(visit.period.start) if visit.period else None
    day = (start - timedelta(days=1)).date() if start else None  # an EHR may keep other hours than the visit's
    for search in wanted.values():
        if search.since is not None:
            reads.search(search, {**by_patient, **({search.since: f"ge{day}"} if day else {})})
    reads.finish("DocumentReference")
    _texts(server, visit, resources, codings, reads)
    reads.finish()
    _medications(server, resources, reads)
    reads.finish()
    return resources, visit


class Reads:
    """Reads of one visit under way. Only the thread that calls `finish` changes `resources`."""

    def __init__(
        self, server: FhirServer, resources: Resources, pool: Executor | None, failed: Callable[[str, str], None]
    ) -> None:
        self._server, self._resources, self._pool, self._failed = server, resources, pool, failed
        self._waiting: list[tuple[str, bool, Future[list[dict[str, Any]]]]] = []  # kind, whether a search, answer

    def one(self, kind: str, read: Callable[..., dict[str, Any]], *given: str | None) -> None:
        """Read one resource: `read(*given)`."""
        self._start(kind, False, lambda: [read(*given)])

    def search(self, search: Search, parameters: dict[str, str]) -> None:
        """Read every page of a search."""
        fixed = dict(p.split("=", 1) for p in search.fixed.split("&") if p)
        self._start(search.kind, True, lambda: self._pages(search.kind, {**fixed, **parameters}))

    def _pages(self, kind: str, parameters: dict[str, str]) -> list[dict[str, Any]]:
        """The pages of a search. If a page fails: the pages before it, and the error as the last entry."""
        found: list[dict[str, Any]] = []
        try:
            found.extend(self._server.pages(kind, parameters))  # page by page: those before an error are kept
        except FhirError as error:
            if error.status == 401 or not found:
                raise
            found.append({"broken_off": error})
        return found

    def _start(self, kind: str, search: bool, read: Callable[[], list[dict[str, Any]]]) -> None:
        answer: Future[list[dict[str, Any]]] = Future()
        if self._pool is not None:
            answer = self._pool.submit(read)
        else:
            try:
                answer.set_result(read())
            except FhirError as error:
                answer.set_exception(error)
        self._waiting.append((kind, search, answer))

    def give_up(self) -> None:
        """Cancel reads that have not begun."""
        for _, _, future in self._waiting:
            future.cancel()

    def finish(self, only: str | None = None) -> None:
        """Wait for the reads that were started, of one kind or all, and add their resources.

        FhirError if the access token is refused: nothing else will be answered either.
        """
        ready = [entry for entry in self._waiting if only in (None, entry[0])]
        self._waiting = [entry for entry in self._waiting if only not in (None, entry[0])]
        for kind, search, future in ready:
            try:
                answers = future.result()
            except FhirError as error:
                self._failed(kind, error.reason)
                if error.status == 401:
                    self.give_up()
                    raise
                if kind in self._resources.asked:
                    self._resources.partial.add(kind)
                continue
            self._add(kind, search, answers)

    def _add(self, kind: str, search: bool, answers: list[dict[str, Any]]) -> None:
        broken_off = None
        for answer in answers:
            broken_off = answer.get("broken_off")
            if broken_off is None:
                for raw in entries(answer) if search else [answer]:
                    self._resources.add(raw)
        if search:
            self._resources.asked.add(kind)
            if broken_off is None:
                self._resources.partial.discard(kind)
            else:
                self._resources.partial.add(kind)
                self._failed(kind, broken_off.reason)


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


def _medications(server: FhirServer, resources: Resources, reads: Reads) -> None:
    """Read the Medications that are referred to and not there."""
    kinds = (MedicationAdministration, MedicationRequest, MedicationStatement)
    drugs = [drug for kind in kinds for drug in resources.all(kind)]
    names = dict.fromkeys(local(drug.medicationReference) for drug in drugs if not drug.medicationCodeableConcept)
    for name in list(names)[:100]:
        if name and name.startswith("Medication/") and resources.find(Medication, name) is None:
            reads.one("Medication", server.read, "Medication", name.partition("/")[2])


def _texts(server: FhirServer, visit: Encounter, resources: Resources, codings: Codings, reads: Reads) -> None:
    """Read the Binaries of the visit's notes."""
    asked = set()
    for _, document in documents(visit, resources, codings)[-NOTES:]:
        for content in document.content:
            name = local(content.attachment.url) if content.attachment else None
            if name is None or not name.startswith("Binary/") or document_text(document, resources) is not None:
                continue
            if resources.find(Binary, name) is None and name not in asked:
                asked.add(name)
                kind = content.attachment.contentType if content.attachment else None
                reads.one("Binary", server.binary, name.partition("/")[2], kind)


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
            if not is_emergency(encounter) or encounter.status in NO_VISIT:
                continue
            if name is None or not name.startswith("Patient/"):
                report.leave_out("Encounter names no patient", FhirError("Encounter names no patient"))
                continue
            resources, visit = gather(server, name.partition("/")[2], encounter.id, codings, found)
            seen = visit_of(visit or encounter, resources, codings)
            number += 1
            for missing in seen.unseen:
                report.note(f"{server.base}: {missing} not seen for some visits")
            yield number, seen.visit
        for kind, count in found.broken.items():
            report.leave_out(kind, FhirError(kind))
            report.left_out[kind] += count - 1


def _encounters(
    server: FhirServer, patients: list[str] | None, since: str | None, until: str | None
) -> Iterator[dict[str, object]]:
    if patients is not None:
        for patient in patients:
            if not valid_id(patient):
                raise FhirError(NO_ID)
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
