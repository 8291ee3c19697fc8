"""CDS Hooks as a strict client sees it: each field, the whole way of a card, and whatever is odd but legal."""

from __future__ import annotations

import base64
import copy
import json
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.sources.fhir.test_visit import visit_resources
from tests.support import ehr_bench
from tests.support.cds_client import Sandbox
from tests.support.hooking import LEAVE, VIEW, call, cards, titles
from tests.support.serving import live, service
from whatelse.server import Service
from whatelse.server.ehr.cds import messages
from whatelse.server.ehr.cds.cards import LEAST

SERVICE, LEAVING = VIEW.rsplit("/", 1)[1], LEAVE.rsplit("/", 1)[1]
Opened = tuple[Sandbox, Service]


@pytest.fixture
def opened(tmp_path: Path) -> Iterator[Opened]:
    sandbox = Sandbox(tmp_path)
    more = {"public_url": "", "smart_client_id": "app", "fhir_servers": ["http://localhost:8093/v/r4/fhir"]}
    with service(tmp_path, cds_threshold=0.15, **more, **sandbox.settings) as made, live(made) as sandbox.url:
        yield sandbox, made


@pytest.fixture
def http(tmp_path: Path) -> Iterator[httpx.Client]:
    with (
        service(tmp_path, cds_hooks=True, cds_threshold=0.15) as made,
        live(made) as url,
        httpx.Client(base_url=url, timeout=60) as http,
    ):
        yield http


def falling(found: list[dict[str, Any]]) -> dict[str, Any] | None:
    return next((card for card in found if titles(card) == "fall"), None)


# ---- the way of a card


def record(*, told: bool) -> list[dict[str, Any]]:
    """A visit that speaks for a fall without naming it; told: somebody has written down since that there was one."""
    resources = visit_resources()
    reason = "s/p fall" if told else "wrist pain"
    triage = f"{'fell, landed on side, ' if told else ''}wrist pain, hit head. denies loc"
    comments = f"{'81F s/p fall. ' if told else ''}xr wrist, ct head neg"
    resources[1]["reasonCode"] = [{"text": reason}]
    for document, text in zip(resources[2:4], (triage, comments), strict=True):
        document["content"][0]["attachment"]["data"] = base64.b64encode(text.encode()).decode()
    return resources


def test_an_override_from_discovery_to_the_card_that_comes_back(tmp_path: Path) -> None:
    sandbox = Sandbox(tmp_path)
    with service(tmp_path, cds_threshold=LEAST, **sandbox.settings) as made, live(made) as sandbox.url:
        first, second = sandbox.discover()
        assert (first["id"], second["id"]) == (SERVICE, LEAVING)
        card = falling(sandbox.call(SERVICE, call(record(told=False))))
        assert card is not None
        sandbox.override(SERVICE, card)
        (line,) = made.store.history("e1")
        assert (line.verdict, line.subject, line.shown["reason"]) == ("rejected", "fall", "not-present")
        assert line.shown["said_at"] == "2026-11-16T05:53:12.002Z" and line.shown["probability"] < 1
        assert falling(sandbox.call(SERVICE, call(record(told=False)))) is None, "nothing has changed"
        assert falling(sandbox.call(LEAVING, leaving(record(told=False)))) is None, "nor for the other hook"
        back = falling(sandbox.call(SERVICE, call(record(told=True))))
        assert back is not None and back["uuid"] != card["uuid"] and "Said again" in back["detail"]
        sandbox.accept(SERVICE, back)
        assert made.store.state("e1").confirmed == ("fall",)
        found = sandbox.call(LEAVING, leaving(record(told=True)))
        assert falling(found) is None and all("Beside what is confirmed" in c["detail"] for c in found)


def leaving(resources: list[dict[str, Any]]) -> dict[str, Any]:
    return call(resources, "encounter-discharge", context={"encounterId": "e1"})


def test_accepting_is_confirming_once(opened: Opened) -> None:
    sandbox, made = opened
    card = falling(sandbox.call(SERVICE, call()))
    assert card is not None
    for _ in range(2):
        sandbox.accept(SERVICE, card)
    assert made.store.state("e1").confirmed == ("fall",) and len(made.store.history("e1")) == 1
    assert falling(sandbox.call(SERVICE, call())) is None
    sandbox.override(SERVICE, card)  # thought better of: the newest word stands
    assert made.store.state("e1").rejected == ("fall",)


@pytest.mark.parametrize("name", ["cds-call-patient-view", "cds-call-with-fhirAuthorization"])
def test_the_captured_calls_as_they_were_sent(opened: Opened, name: str) -> None:
    sandbox, _ = opened
    captured = json.loads((ehr_bench.folder() / "captured" / f"{name}.json").read_text())
    assert set(captured["request"]) <= {
        "hookInstance", "hook", "fhirServer", "context", "prefetch", "fhirAuthorization",
    }  # fmt: skip
    sandbox.call(SERVICE, captured["request"])


@pytest.mark.parametrize(("name", "verdicts"), [("accepted", ["confirmed"]), ("overridden", [])])
def test_the_captured_feedback(opened: Opened, name: str, verdicts: list[str]) -> None:
    """A card that was overridden without an explicit rejection is no label."""
    sandbox, made = opened
    captured = json.loads((ehr_bench.folder() / "captured" / f"cds-feedback-{name}.json").read_text())["request"]
    (given,) = captured["feedback"]
    card = falling(sandbox.call(SERVICE, call()))
    assert card is not None
    sandbox.feedback(SERVICE, given)  # of a card that another service made
    assert made.store.history("e1") == []
    sandbox.feedback(SERVICE, {**given, "card": card["uuid"]})
    assert [line.verdict for line in made.store.history("e1")] == verdicts


# ---- odd but legal


def without(body: dict[str, Any], *names: str) -> dict[str, Any]:
    return {key: value for key, value in body.items() if key not in names}


def _contained(body: dict[str, Any]) -> dict[str, Any]:
    (entry,) = body["prefetch"]["statements"]["entry"]
    drug = entry["resource"]
    inside = {"resourceType": "Medication", "id": "in", "code": drug.pop("medicationCodeableConcept")}
    drug |= {"contained": [inside], "medicationReference": {"reference": "#in"}}
    return body


def _outcome(body: dict[str, Any]) -> dict[str, Any]:
    problem = {"resourceType": "OperationOutcome", "issue": [{"severity": "error", "code": "forbidden"}]}
    body["prefetch"]["unheard-of"] = problem
    body["prefetch"]["conditions"]["entry"].append({"resource": problem, "search": {"mode": "outcome"}})
    return body


def _named(body: dict[str, Any]) -> dict[str, Any]:
    (entry,) = body["prefetch"].pop("encounters")["entry"]
    body["context"]["encounterId"] = "e1"
    body["prefetch"]["encounter"] = entry["resource"]
    return body


ODD: dict[str, Callable[[dict[str, Any]], dict[str, Any]]] = {
    "fields nobody knows": lambda b: {**b, "extension": {"x.y": [1]}, "later": None},
    "a context with more": lambda b: {**b, "context": {**b["context"], "departmentId": 7, "selections": []}},
    "nothing optional": lambda b: without(b, "fhirServer", "fhirAuthorization"),
    "nulls": lambda b: {**b, "fhirServer": None, "fhirAuthorization": None, "extension": None},
    "a null in the prefetch": lambda b: {**b, "prefetch": {**b["prefetch"], "more": None}},
    "no visit named": lambda b: {**b, "context": {**b["context"], "encounterId": None}},
    "the visit named, and read": _named,
    "an OperationOutcome": _outcome,
    "a contained Medication": _contained,
    "nobody said who": lambda b: {**b, "context": without(b["context"], "userId")},
    "a server with a slash": lambda b: {**b, "fhirServer": "http://localhost:8093/v/r4/fhir/"},
    "a server without": lambda b: {**b, "fhirServer": "http://localhost:8093/v/r4/fhir"},
    "a server with a launch in it": lambda b: {**b, "fhirServer": f"http://localhost:8093/v/r4/sim/{'W' * 900}/fhir"},
    "half an authorization": lambda b: {**b, "fhirAuthorization": {"token_type": "Bearer"}},
    "the same call again": lambda b: {**b, "hookInstance": "d1577c69-dfbe-44ad-ba6d-3e05e953b2ea"},
    "a hookInstance that is no uuid": lambda b: {**b, "hookInstance": "not-a-uuid"},
    **{
        f"by a {kind}": lambda b, kind=kind: {**b, "context": {**b["context"], "userId": f"{kind}/abc.1-2"}}  # type: ignore[misc]
        for kind in ("Practitioner", "PractitionerRole", "Patient", "RelatedPerson")
    },
}


def test_odd_but_legal_calls_get_the_same_cards(http: httpx.Client) -> None:
    usual = {card["summary"] for card in cards(http)}
    assert usual
    for what, change in ODD.items():
        body = change(copy.deepcopy(call()))
        for _ in range(2):
            answer = http.post(VIEW, json=body)
            assert answer.status_code == 200, (what, answer.text)
            assert {card["summary"] for card in answer.json()["cards"]} == usual, what


def test_a_prefetch_that_is_missing_is_lived_without_and_said(http: httpx.Client) -> None:
    whole = call()
    for name in ("conditions", "vitals", "notes", "patient"):
        for missing in (None, {"resourceType": "OperationOutcome", "issue": []}):
            body = {**whole, "prefetch": {**whole["prefetch"], name: missing}}
            found = http.post(VIEW, json=body).json()["cards"]
            assert all("Not seen: " in card["detail"] for card in found), name
    for nothing in ({}, None):
        assert http.post(VIEW, json={**whole, "prefetch": nothing}).json() == {"cards": []}
    assert http.post(VIEW, json=without(whole, "prefetch")).json() == {"cards": []}


def test_slashes_too_many_are_no_other_service(opened: Opened) -> None:
    sandbox, _ = opened
    body, usual = call(), {c["summary"] for c in sandbox.call(SERVICE, call())}
    for path in (VIEW + "/", VIEW.replace("/whatelse", "//whatelse")):
        for address in (path, VIEW):  # tokens name the address with its slash, or without
            token = sandbox.token(sandbox.url + address)
            answer = httpx.post(sandbox.url + path, json=body, headers={"authorization": f"Bearer {token}"})
            if address == path or path.rstrip("/") == address:
                assert answer.status_code == 200, path
                assert {c["summary"] for c in answer.json()["cards"]} == usual
    assert httpx.get(sandbox.url + "/cds-services/").json()["services"]
    odd = httpx.post(sandbox.url + VIEW + "/feedback/", json={"feedback": []})
    assert odd.status_code == 401, "found, and still in want of a token"


def test_odd_but_legal_feedback(opened: Opened) -> None:
    sandbox, made = opened
    card = falling(sandbox.call(SERVICE, call()))
    assert card is not None
    unknown = {"card": str(uuid.uuid4()), "outcome": "overridden", "outcomeTimestamp": "2026-11-16T05:53:10Z"}
    nonsense = {"card": None, "outcome": 7}
    sandbox.feedback(SERVICE)
    sandbox.feedback(SERVICE, unknown, nonsense, {**unknown, "overrideReason": {"userComment": "no"}})
    assert made.store.history("e1") == []
    mine: dict[str, Any] = {
        "card": card["uuid"], "outcome": "overridden", "outcomeTimestamp": "2026-11-16T11:23:10.117+05:30",
        "overrideReason": {"userComment": "I know this patient"}, "extension": {"x": 1},
    }  # fmt: skip
    sandbox.feedback(LEAVING, unknown, mine, mine, unknown)  # several in one post, one of them twice
    assert made.store.history("e1") == [], "no reason was chosen: the card was dismissed, and that is no decision"
    mine["overrideReason"] = {"userComment": "I know this patient", "reason": {"code": "ruled-out"}}
    sandbox.feedback(LEAVING, unknown, mine, mine, unknown)
    (line,) = made.store.history("e1")
    assert line.verdict == "rejected" and line.shown["reason"] == "ruled-out"
    assert line.shown["said_at"] == "2026-11-16T11:23:10.117+05:30"
    assert "know this patient" not in json.dumps(line.shown), "a comment may hold anything"


def test_what_no_database_keeps_is_nobody_and_no_card() -> None:
    for user in ("a\0b", "\ud800", 7 * "x" * 100, ["Practitioner/7"], None):
        body = {**call(), "context": {"patientId": "p1", "userId": user}}
        assert messages.Call.model_validate(body).user == ""
    given = {"feedback": [{"card": "a\0b", "outcome": "accepted"}, {"card": "c", "outcome": "accepted"}]}
    first, second = messages.Feedback.model_validate(given).feedback
    assert first is None and second is not None and second.card == "c"


@pytest.mark.parametrize("zone", ["Z", "+00:00", "-11:00", "+14:00", ""])
def test_a_suggestion_unknown_and_any_zone_are_taken(opened: Opened, zone: str) -> None:
    sandbox, made = opened
    card = falling(sandbox.call(SERVICE, call()))
    assert card is not None
    other = {"acceptedSuggestions": [{"id": str(uuid.uuid4())}], "outcomeTimestamp": f"2026-11-16T11:23:10{zone}"}
    sandbox.feedback(SERVICE, {"card": card["uuid"], "outcome": "accepted", **other})
    assert made.store.state("e1").confirmed == ("fall",)
