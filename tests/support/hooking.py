"""Calls of CDS Hooks as an EHR makes them, for tests and benchmarks."""

from __future__ import annotations

import uuid
from typing import Any

import httpx

from tests.sources.fhir.test_visit import visit_resources
from tests.support.serving import department
from whatelse.server import Service
from whatelse.server.ehr.cds.hooks import Cards

VIEW, LEAVE = "/cds-services/whatelse-patient-view", "/cds-services/whatelse-encounter-discharge"
KEYS = {
    "Condition": "conditions", "Observation": "vitals", "MedicationRequest": "requests",
    "MedicationStatement": "statements", "MedicationAdministration": "administrations", "DocumentReference": "notes",
}  # fmt: skip


def prefetch(resources: list[dict[str, Any]]) -> dict[str, Any]:
    """Resources as an EHR would prefetch them; a search that finds nothing is an empty Bundle."""
    found: dict[str, Any] = {
        key: {"resourceType": "Bundle", "entry": [{"resource": r} for r in resources if r["resourceType"] == kind]}
        for kind, key in KEYS.items()
    }
    found["patient"] = next(r for r in resources if r["resourceType"] == "Patient")
    found["encounters"] = {
        "resourceType": "Bundle", "entry": [{"resource": r} for r in resources if r["resourceType"] == "Encounter"],
    }  # fmt: skip
    return found


def call(resources: list[dict[str, Any]] | None = None, hook: str = "patient-view", **more: Any) -> dict[str, Any]:
    given = prefetch(visit_resources() if resources is None else resources)
    context = {"patientId": "p1", "userId": "Practitioner/7", **more.pop("context", {})}
    return {"hook": hook, "hookInstance": str(uuid.uuid4()), "context": context, "prefetch": given, **more}


def cards(http: httpx.Client, *args: Any, at: str = VIEW, **more: Any) -> list[dict[str, Any]]:
    answer = http.post(at, json=call(*args, **more))
    assert answer.status_code == 200, answer.text
    found: list[dict[str, Any]] = answer.json()["cards"]
    return found


def written(opened: Service) -> None:
    """Wait until what servers on this service noted of cards, beside their answers, is in the database."""
    for close in opened.closing:
        owner = getattr(close, "__self__", None)
        if isinstance(owner, Cards):
            owner.log.flush()


def titles(card: dict[str, Any]) -> str:
    """The condition of a card, by the title that its draft entry has."""
    text = card["suggestions"][0]["actions"][0]["resource"]["code"]["text"]
    return {c.title: c.name for c in department()[0].vocabulary_.anchors.conditions}[text]
