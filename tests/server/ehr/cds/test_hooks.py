"""CDS Hooks: discovery, calls, cards, feedback; the same visit by bundle, live and by prefetch; who may call."""

from __future__ import annotations

import base64
import json
import threading
import time
import uuid
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import httpx
import pytest
from fhir.resources.R4B.condition import Condition

from tests.sources.fhir.test_visit import visit_resources
from tests.support import ehr_bench
from tests.support.hooking import LEAVE, VIEW, call, cards, titles, written
from tests.support.serving import client, service, wait_until, wait_until_scored
from whatelse.server import Service
from whatelse.server.admission_control import LONG, length_of
from whatelse.server.ehr.cds import messages
from whatelse.server.ehr.cds.cards import by_burden, choose, evidence_of, plain, stays
from whatelse.server.ehr.cds.hooks import make_router
from whatelse.server.ehr.cds.messages import Call
from whatelse.server.policies import Lane, RouteTable
from whatelse.server.worker_pools import Busy
from whatelse.sources import read_visits
from whatelse.visits import Known, Visit


@pytest.fixture
def opened(tmp_path: Path) -> Iterator[Service]:
    with service(tmp_path, cds_hooks=True, cds_threshold=0.05, public_url="http://127.0.0.1:8000") as made:
        yield made


@pytest.fixture
def http(opened: Service) -> Iterator[httpx.Client]:
    with client(opened) as made:
        yield made


# ---- from discovery to decision


def test_discovery(http: httpx.Client) -> None:
    found = http.get("/cds-services").json()["services"]
    assert [s["hook"] for s in found] == ["patient-view", "encounter-discharge"]
    for one in found:
        assert {"id", "hook", "title", "description", "prefetch"} <= set(one)
        assert one["prefetch"]["encounter"] == "Encounter/{{context.encounterId}}"
        assert all("today()" not in t and "_sort" not in t and "class=" not in t for t in one["prefetch"].values())


def test_call_card_accept_override_second_call(http: httpx.Client, opened: Service) -> None:
    first = cards(http)
    assert 1 <= len(first) <= 3
    for card in first:
        assert len(card["summary"]) < 140 and card["indicator"] in ("info", "warning") and card["source"]["label"]
        uuid.UUID(card["uuid"])
        (suggestion,) = card["suggestions"]
        uuid.UUID(suggestion["uuid"])
        (action,) = suggestion["actions"]
        assert action["type"] == "create" and card["selectionBehavior"] == "at-most-one"
        written = Condition.model_validate(action["resource"])  # as an EHR would read it
        assert written.subject.reference == "Patient/p1" and written.encounter.reference == "Encounter/e1"
        assert written.verificationStatus.coding[0].code == "provisional"
        assert card["overrideReasons"] and all({"code", "system", "display"} <= set(r) for r in card["overrideReasons"])
    assert cards(http) == first, "nothing has changed: the same cards, number by number"

    accepted = {
        "card": first[0]["uuid"], "outcome": "accepted", "outcomeTimestamp": "2026-11-16T05:53:10.117Z",
        "acceptedSuggestions": [{"id": first[0]["suggestions"][0]["uuid"]}],
    }  # fmt: skip
    for _ in range(3):  # sent again, it is one decision
        assert http.post(VIEW + "/feedback", json={"feedback": [accepted]}).status_code == 200
    state = opened.store.state("e1")
    assert len(state.confirmed) == 1 and state.version == 1
    (line,) = opened.store.history("e1")
    assert line.actor == "Practitioner/7" and line.shown["card"] == first[0]["uuid"]
    assert 0 < line.shown["probability"] <= 1
    second = cards(http)
    assert state.confirmed[0] not in {titles(c) for c in second}
    assert all("Beside what is confirmed" in c["detail"] for c in second)
    if second:
        overridden = {
            "card": second[0]["uuid"], "outcome": "overridden",
            "overrideReason": {"reason": {"code": "not-present", "system": "urn:whatelse:override"}},
        }  # fmt: skip
        assert http.post(LEAVE + "/feedback", json={"feedback": [overridden]}).status_code == 200
        assert opened.store.history("e1")[-1].shown["reason"] == "not-present"
        assert len(opened.store.state("e1").rejected) == 1
        assert second[0]["summary"] not in [c["summary"] for c in cards(http)]


def test_feedback_on_cards_that_are_not_ours_changes_nothing(http: httpx.Client, opened: Service) -> None:
    for wrong in (
        {"card": str(uuid.uuid4()), "outcome": "accepted"},
        {"card": "'; DROP TABLE cds_card; --", "outcome": "overridden"},
        {"card": cards(http)[0]["uuid"], "outcome": "nonsense"},
    ):
        assert http.post(VIEW + "/feedback", json={"feedback": [wrong]}).status_code == 200
    assert opened.store.history("e1") == []


def test_an_overridden_tag_comes_back_only_when_the_record_speaks_louder(http: httpx.Client, opened: Service) -> None:
    fall = next(c for c in cards(http) if titles(c) == "fall")
    said = {"card": fall["uuid"], "outcome": "overridden", "overrideReason": {"reason": {"code": "not-present"}}}
    http.post(VIEW + "/feedback", json={"feedback": [said]})
    assert opened.store.state("e1").rejected == ("fall",)
    assert "fall" not in map(titles, cards(http))
    changed = visit_resources()
    changed[0]["gender"] = "male"  # the record has changed, but says no more for it
    assert "fall" not in map(titles, cards(http, changed))

    hooked = _state(opened)
    seen = hooked.read(Call.model_validate(call()))
    reading, known = opened.tagger.read(seen.visit), Known(rejected=("fall",))
    evidence = evidence_of(reading)
    written(opened)
    (kept,) = [c for c in hooked.log.all_cards() if c.uuid == fall["uuid"]]
    for before, again in (
        (kept, False),  # nothing has changed
        (replace(kept, evidence="other"), False),  # changed, but no likelier than when it was overridden
        (replace(kept, probability=0.05), False),  # likelier, by a change of the model alone
        (replace(kept, evidence="other", probability=0.05), True),
        (replace(kept, evidence="other", probability=0.05, outcome="accepted"), False),
    ):
        chosen, _ = choose(reading, known, [before], 0.15, evidence)
        assert [c.again for c in chosen if c.tag.condition == "fall"] == [True] * again, before
    hooked.close()


def test_a_card_stays_until_it_has_fallen_well_below() -> None:
    assert 0.35 < stays(0.5) < 0.4 and stays(0.5) < 0.5
    tops = [[0.9 - i / 1000, 0.1, 0.05] for i in range(200)]
    threshold = by_burden(tops, 5)
    assert threshold is not None and sum(p >= threshold for top in tops for p in top) == 10
    assert by_burden(tops[:10], 5) is None and by_burden(tops, 300) == 0.02
    assert by_burden([[0.9, 0.9, 0.9]] * 100, 5) is not None


def test_burden_limits_the_cards(tmp_path: Path) -> None:
    with service(tmp_path, cds_hooks=True, cds_burden=1) as opened, client(opened) as http:
        opened.start()
        wait_until_scored(opened)
        assert len(cards(http)) <= 1


# ---- the same visit, whichever way it comes


@pytest.fixture(scope="module")
def bench() -> Iterator[str]:
    with ehr_bench.fhir_server(FHIR_STRICT="1") as base:
        yield base


def test_bundle_live_and_prefetch_give_the_same_visit_and_tags(bench: str, tmp_path: Path) -> None:
    """The central test: one visit, read from a file, from a server, and by a hook call with an EHR's own prefetch."""
    (from_file,) = read_visits(ehr_bench.bundle(), "fhir")
    (live,) = read_visits(bench, "fhir", options={"since": "2025-01-01"})
    with service(tmp_path, cds_hooks=True, cds_threshold=0.01, fhir_servers=[bench]) as opened, client(opened) as http:
        templates = http.get("/cds-services").json()["services"][0]["prefetch"]
        filled = {}
        for key, template in templates.items():  # as the reference client does: what cannot be filled in is left out
            if "encounterId" not in template:
                answer = httpx.get(f"{bench}/{template.replace('{{context.patientId}}', 'bench-ed-1')}")
                if answer.status_code == 200:
                    filled[key] = answer.json()
        assert set(filled) == set(templates) - {"encounter"}
        context = {"patientId": "bench-ed-1", "userId": "Practitioner/COREPRACTITIONER1"}
        body = {"hook": "patient-view", "hookInstance": "x", "context": context, "fhirServer": bench}
        token = {"access_token": "bench", "token_type": "Bearer", "expires_in": 3600, "scope": "", "subject": "x"}
        hooked, half = _state(opened), {key: filled[key] for key in ("patient", "vitals")}
        named = {**context, "encounterId": "bench-ed-visit-1"}
        ways = {
            "prefetch": {**body, "prefetch": filled, "fhirAuthorization": token},
            "nothing prefetched": {**body, "fhirAuthorization": token},
            "half of it": {**body, "prefetch": half, "fhirAuthorization": token},
            "encounter named": {**body, "context": named, "fhirAuthorization": token},
        }
        visits: dict[str, Visit] = {}
        for way, given in ways.items():
            seen = hooked.read(Call.model_validate(given))
            assert seen is not None and seen.unseen == (), way
            visits[way] = seen.visit
            assert http.post(VIEW, json=given).status_code == 200
        assert {way: visit == from_file for way, visit in visits.items()} == dict.fromkeys(ways, True)
        assert live == from_file
        tagger = opened.tagger
        assert tagger.read(live).suggest() == tagger.read(from_file).suggest()
        # without a token the notes' text is not to be had: lived without, and said
        seen = hooked.read(Call.model_validate({**body, "prefetch": filled}))
        assert seen is not None and set(seen.unseen) == {"triage note", "provider note"}
        said = http.post(VIEW, json={**body, "prefetch": filled}).json()["cards"]
        assert all("Not seen: triage note, provider note" in card["detail"] for card in said)
        # a server that is not configured is never asked, whatever token comes with it
        elsewhere = {**body, "fhirServer": "http://evil.test/", "fhirAuthorization": token}
        assert hooked.read(Call.model_validate(elsewhere)) is None
        hooked.close()


def _state(opened: Service) -> Any:
    from whatelse.server.ehr.cds.hooks import Cards

    return Cards(opened)


def test_the_captured_call_of_the_reference_client(tmp_path: Path) -> None:
    captured = json.loads((ehr_bench.folder() / "captured" / "cds-call-patient-view.json").read_text())["request"]
    with service(tmp_path, cds_hooks=True, cds_threshold=0.01) as opened, client(opened) as http:
        assert http.post(VIEW, json=captured).status_code == 200
        hooked = _state(opened)
        seen = hooked.read(
            Call.model_validate(captured)
        )  # its prefetch has other keys than ours: what is there is used
        assert seen is not None and seen.visit.id == "bench-ed-visit-1" and seen.visit.age == 66
        assert {"drugs given", "triage note"} <= set(seen.unseen)
        hooked.close()


# ---- what is not shown


def test_silent_mode_roll_out_and_the_switch(tmp_path: Path) -> None:
    with (
        service(tmp_path, cds_hooks=True, cds_threshold=0.15, cds_users=["Practitioner/7"]) as opened,
        client(opened) as http,
    ):
        assert cards(http)
        assert cards(http, context={"userId": "Practitioner/8"}) == []
        log = _state(opened).log
        written(opened)
        looks = log.looks()
        assert [look.shown for look in looks] == [True, False] and looks[1].cards == looks[0].cards > 0
        for mode, some in (("off", False), ("silent", False), ("show", True), (None, True)):
            log.switch(mode)
            time.sleep(1.1)
            assert bool(cards(http)) is some, mode
        written(opened)
        hidden = [c for c in log.all_cards() if not c.shown]
        assert hidden
        http.post(VIEW + "/feedback", json={"feedback": [{"card": hidden[0].uuid, "outcome": "accepted"}]})
        assert opened.store.history("e1") == [], "nobody can have decided on a card that nobody saw"
        log.close()


@pytest.mark.parametrize(
    "change",
    [
        lambda r: r[1].update({"class": {"code": "AMB"}}),
        lambda r: r[1].update(status="finished"),
        lambda r: r[1].update(subject={"reference": "Patient/other"}),
        lambda r: r.pop(1),
    ],
)
def test_no_emergency_visit_no_card(http: httpx.Client, change: Any) -> None:
    resources = visit_resources()
    change(resources)
    assert cards(http, resources) == []


def test_discharge_looks_at_the_visit_that_it_names(http: httpx.Client) -> None:
    found = cards(http, hook="encounter-discharge", at=LEAVE, context={"encounterId": "Encounter/e1"})
    assert found
    assert cards(http, hook="encounter-discharge", at=LEAVE, context={"encounterId": "e2"}) == []


def test_what_the_record_has_as_a_diagnosis_is_not_said(http: httpx.Client) -> None:
    resources = visit_resources()
    assert "fall" in map(titles, cards(http, resources))
    resources[-1]["code"] = {"coding": [{"system": "http://hl7.org/fhir/sid/icd-10-cm", "code": "W19.XXXA"}]}
    assert "fall" not in map(titles, cards(http, resources))


# ---- hostile calls


@pytest.mark.parametrize("number", ["../x", "a/b", "a?b", "", "x" * 65, "<script>"])
def test_ids_that_are_none(http: httpx.Client, number: str) -> None:
    for context in ({"patientId": number}, {"encounterId": number}):
        answer = http.post(VIEW, json=call(context=context))
        assert answer.status_code == 400 and (not number or number not in answer.text)


@pytest.mark.parametrize(
    "body",
    [
        {}, [], {"hook": "patient-view"}, {"hook": "order-sign", "hookInstance": "x", "context": {"patientId": "p1"}},
        {"hook": "patient-view", "hookInstance": "x", "context": {"patientId": "p1"}, "prefetch": [1]},
    ],
)  # fmt: skip
def test_calls_that_are_none(http: httpx.Client, body: Any) -> None:
    assert http.post(VIEW, json=body).status_code in (400, 422)


BROKEN = {"resourceType": "Bundle", "entry": [None, 7, {"resource": {"resourceType": "Condition", "id": "/"}}]}


@pytest.mark.parametrize("value", [None, 7, "x", [], BROKEN])
def test_a_prefetch_of_nonsense_costs_itself(http: httpx.Client, value: Any) -> None:
    body = call()
    body["prefetch"] |= {"conditions": value, "unheard-of": value}
    assert http.post(VIEW, json=body).json()["cards"]


def test_numbers_and_tokens_that_cannot_be_used_are_no_incident(tmp_path: Path) -> None:
    settings = {"fhir_servers": ["http://127.0.0.1:9/fhir"], "fhir_seconds": 0.5}
    with service(tmp_path, cds_hooks=True, **settings) as made, client(made) as http:
        digits = json.dumps(call()).replace('"p1"', "9" * 5_000, 1)
        head = {"content-type": "application/json"}
        assert http.post(VIEW, content=digits, headers=head).status_code == 422
        for token in ("\u2603", "a\r\nX-Other: b", "a b"):
            access = {"fhirServer": "http://127.0.0.1:9/fhir", "fhirAuthorization": {"access_token": token}}
            assert http.post(VIEW, json=call(**access)).status_code == 200, "with what was prefetched"
        assert "whatelse_errors_total 0.0" in made.metrics.text({})


def test_nothing_in_a_card_is_markup(tmp_path: Path) -> None:
    evil = "[x](http://evil) <img src=x onerror=alert(1)> **b** `c` www.evil.test | a_b_c\n# h"
    text = plain(evil, 500)
    assert not set(text) & set("<>[]()*`_|\n\"'") and "www&#46;" in text and "http&#58;&#47;&#47;" in text
    resources = visit_resources()
    resources[2]["content"] = [{"attachment": {"contentType": "text/html", "data": base64.b64encode(
        f"<p>fell {evil} <script>fall()</script></p>".encode()).decode()}}]  # fmt: skip
    with service(tmp_path, cds_hooks=True, cds_threshold=0.01) as opened, client(opened) as http:
        for card in cards(http, resources):
            assert "<" not in card["detail"] and "](" not in card["detail"] and "evil" not in card["detail"]


def test_a_call_that_is_too_long(tmp_path: Path) -> None:
    with service(tmp_path, cds_hooks=True, max_body=400_000) as opened, client(opened) as http:
        padded = call()
        padded["prefetch"]["more"] = "x" * 1_500_000
        assert http.post(VIEW, json=padded).status_code == 200
        padded["prefetch"]["more"] = "x" * 2_500_000
        assert http.post(VIEW, json=padded).status_code == 413


def test_a_call_that_takes_long_keeps_nobody_else_waiting(
    http: httpx.Client, opened: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Megabytes of JSON are parsed in the hooks' own pool: neither the event loop nor a page waits for it."""
    begun, gate, where = threading.Event(), threading.Event(), list[str]()

    def slowly(body: bytes) -> Any:
        where.append(threading.current_thread().name)
        begun.set()
        assert gate.wait(60)
        return json.loads(body)

    monkeypatch.setattr(messages, "json", SimpleNamespace(loads=slowly, JSONDecodeError=json.JSONDecodeError))
    body = call()
    body["prefetch"]["more"] = ["x"] * 1_000_000
    with ThreadPoolExecutor(1) as others:
        answer = others.submit(http.post, VIEW, json=body)
        assert begun.wait(60)
        with httpx.Client(base_url=http.base_url, timeout=60) as page:
            assert page.get("/healthz").status_code == 200
            assert page.get(f"/api/visits/{opened.worklist.keys[0]}").status_code == 200
            assert page.get("/cds-services").status_code == 200
        assert not answer.done()
        gate.set()
        assert answer.result(60).json()["cards"]
    assert where[0].startswith("whatelse-long")


def test_a_flood_of_calls_as_long_as_allowed_keeps_no_other_call_waiting(
    http: httpx.Client, opened: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They wait for each other, and are refused when too many do; other calls and pages are answered meanwhile."""
    gate = threading.Event()

    def slowly(body: bytes) -> Any:
        assert len(body) < LONG or gate.wait(120)
        return json.loads(body)

    monkeypatch.setattr(messages, "json", SimpleNamespace(loads=slowly, JSONDecodeError=json.JSONDecodeError))
    body = call()
    body["prefetch"]["more"] = "x" * LONG
    long = opened.admissions.long
    with ThreadPoolExecutor(40) as flood, httpx.Client(base_url=http.base_url, timeout=60) as other:
        try:
            at = f"{http.base_url}".rstrip("/") + VIEW
            many = [flood.submit(httpx.post, at, json=body, timeout=120) for _ in range(40)]
            wait_until(lambda: long.under_way - len(long.arriving) + sum(each.done() for each in many) == 40)
            assert cards(other)
            assert other.get(f"/api/visits/{opened.worklist.keys[0]}").status_code == 200
            assert other.get("/healthz").status_code == 200
        finally:
            gate.set()
        assert {each.result().status_code for each in many} <= {200, 503}


def test_hooks_may_wait_longer_than_a_page_and_are_counted_apart(opened: Service) -> None:
    pages, hooks = opened.admissions.of(Lane.PAGE), opened.admissions.of(Lane.HOOK)
    pages._gap = hooks._gap = 0.011
    for admission, most in ((hooks, 50), (pages, 11)):  # BURST; 0.12 s
        with pytest.raises(Busy):
            for _ in range(100):
                admission.enter(False)
        assert admission.under_way == most
    table = RouteTable()
    table.add(make_router().routes)
    assert table.find("POST", VIEW + "/feedback").lane is Lane.HOOK and pages is not hooks
    assert opened.admissions.of(Lane.HOOK, LONG) is hooks
    assert opened.admissions.of(Lane.HOOK, LONG + 1) is opened.admissions.long
    assert opened.admissions.of(Lane.PAGE, LONG + 1) is pages
    assert length_of({b"content-length": b"70"}) == 70 and length_of({}) == 0
    assert length_of({b"transfer-encoding": b"chunked"}) > LONG


def test_a_note_too_long_to_read_is_not_seen(opened: Service) -> None:
    resources, hooked = visit_resources(), _state(opened)
    resources[2]["content"][0]["attachment"]["data"] = base64.b64encode(b"fell " * 200_000).decode()
    seen = hooked.read(Call.model_validate(call(resources)))
    assert seen.visit.triage_note is None and seen.unseen == ("triage note",)
    assert seen.visit.md_comments == "81F s/p fall. ct head neg"
    hooked.close()


def test_nothing_of_a_record_is_logged(http: httpx.Client, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level("DEBUG"):
        cards(http)
        body = call(fhirServer="http://127.0.0.1:9/fhir", fhirAuthorization={"access_token": "secret-token"})
        http.post(VIEW, json=body)
    assert not [w for w in ("fell", "hit head", "warfarin", "Practitioner/7", "secret-token") if w in caplog.text]
