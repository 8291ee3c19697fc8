"""A live FHIR server: the same visit as from files, and servers that misbehave."""

from __future__ import annotations

import gzip
import json
import socket
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.support import ehr_bench
from whatelse.sources import read_visits
from whatelse.sources.codings import load_codings
from whatelse.sources.fhir.client import FhirError, FhirServer
from whatelse.sources.fhir.gather import gather, searches
from whatelse.sources.fhir.visit import visit_of

CODINGS = load_codings()
BASE = "http://ehr.test/fhir"
# What Oracle Health documents for Millennium R4 (and US Core has): nothing else may be sent.
DOCUMENTED = {
    "Encounter": {"patient", "date", "status", "_count"},
    "Condition": {"patient", "category", "_count"},
    "Observation": {"patient", "code", "date", "category", "_count"},
    "DocumentReference": {"patient", "encounter", "type", "category", "date", "_count"},
    "MedicationAdministration": {"patient", "status", "effective-time", "_count"},
    "MedicationRequest": {"patient", "status", "intent", "_count"},
    "MedicationStatement": {"patient", "status", "_count"},
}


@pytest.fixture(scope="module")
def bench() -> Iterator[str]:
    """The FHIR server of ../shared/ehr, as strict as a large EHR, with pages of three."""
    with ehr_bench.fhir_server(FHIR_STRICT="1", FHIR_PAGE_SIZE="3", FHIR_PAGE_MAX="3") as base:
        yield base


def test_live_and_from_a_bundle_it_is_the_same_visit(bench: str, tmp_path: Path) -> None:
    (expected,) = read_visits(ehr_bench.bundle(), "fhir")
    assert expected.triage_note and expected.md_comments and expected.dispensed and expected.coded and expected.billing
    assert list(read_visits(bench, "fhir", options={"since": "2025-01-01"})) == [expected]
    (tmp_path / "patients").write_text("bench-ed-1\n")
    assert list(read_visits(bench, "fhir", options={"patients": str(tmp_path / "patients")})) == [expected]
    with FhirServer(bench) as server:
        for named in ("bench-ed-visit-1", None):
            resources, encounter = gather(server, "bench-ed-1", named, CODINGS)
            assert encounter is not None and visit_of(encounter, resources, CODINGS).visit == expected
            assert visit_of(encounter, resources, CODINGS).unseen == ()


def test_another_patients_encounter_is_refused(bench: str) -> None:
    with FhirServer(bench) as server, pytest.raises(FhirError, match="not one of the patient"):
        gather(server, "somebody-else", "bench-ed-visit-1", CODINGS)


def test_only_documented_parameters_are_sent() -> None:
    sent: list[httpx.Request] = []

    def answer(request: httpx.Request) -> httpx.Response:
        sent.append(request)
        if request.url.path.endswith("/Encounter/e1"):
            return resource({"resourceType": "Encounter", "id": "e1", "period": {"start": "2026-01-02T00:10:00Z"}})
        return bundle()

    with server(answer) as opened:
        gather(opened, "p1", "e1", CODINGS)
    kinds = {request.url.path.rsplit("/", 1)[-1]: set(request.url.params) for request in sent if request.url.query}
    assert {search.kind for search in searches(CODINGS).values()} == set(kinds)
    assert all(used <= DOCUMENTED[kind] for kind, used in kinds.items())
    dates = [request.url.params["date"] for request in sent if "date" in request.url.params]
    assert set(dates) == {"ge2026-01-01"}
    for search in searches(CODINGS).values():
        used = {part.split("=")[0] for part in search.template().partition("?")[2].split("&")}
        assert used <= DOCUMENTED[search.kind]


# ---- servers that misbehave


def server(answer: Callable[[httpx.Request], httpx.Response], **more: Any) -> FhirServer:
    more.setdefault("sleep", lambda seconds: None)
    return FhirServer(BASE, "secret-token", transport=httpx.MockTransport(answer), **more)


def reply(status: int = 200, content: bytes = b"", **headers: str) -> httpx.Response:
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return httpx.Response(status, headers=named, stream=httpx.ByteStream(content))  # as it would come over the wire


def resource(body: dict[str, Any], **headers: str) -> httpx.Response:
    return reply(200, json.dumps(body).encode(), content_type="application/fhir+json", **headers)


def bundle(*resources: dict[str, Any], next: str | None = None) -> httpx.Response:
    found: dict[str, Any] = {"resourceType": "Bundle", "entry": [{"resource": r} for r in resources]}
    if next:
        found["link"] = [{"relation": "next", "url": next}]
    return resource(found)


@pytest.mark.parametrize(
    ("answer", "says"),
    [
        (lambda r: reply(302, location="http://evil.test/"), "leads elsewhere"),
        (lambda r: bundle(next="http://evil.test/fhir/Condition?page=2"), "at another address"),
        (lambda r: bundle(next="//evil.test/x"), "at another address"),
        (lambda r: bundle(next="https://ehr.test/fhir/Condition"), "at another address"),
        (lambda r: bundle(next=f"{BASE}/Condition?page=1"), "round in a circle"),
        (lambda r: bundle(next=f"{BASE}/Condition?page={int(r.url.params.get('page', 0)) + 1}"), "more than 200 pages"),
        (lambda r: reply(200, b"<html>sign in</html>"), "not JSON"),
        (lambda r: reply(200, b"[" * 100_000), "not JSON"),
        (lambda r: reply(200, b"[]"), "not a resource"),
        (lambda r: resource({"resourceType": "Patient"}), "something else than a Bundle"),
        (lambda r: reply(401, b"secret words"), "expired"),
        (lambda r: reply(500, b"secret words"), "status 500"),
        (lambda r: reply(200, gzip.compress(b" " * 40_000_000), content_encoding="gzip"), "larger than"),
        (lambda r: reply(200, b"xx", content_encoding="gzip"), "damaged"),
        (lambda r: reply(200, b"{}", content_encoding="br"), "packed"),
    ],
)  # fmt: skip
def test_a_server_that_misbehaves_is_left(answer: Callable[[httpx.Request], httpx.Response], says: str) -> None:
    asked: list[str] = []

    def noting(request: httpx.Request) -> httpx.Response:
        asked.append(request.url.host)
        return answer(request)

    with server(noting) as opened, pytest.raises(FhirError, match=says) as refused:
        list(opened.search("Condition", {"patient": "p-secret"}))
    assert set(asked) == {"ehr.test"}, "the token goes nowhere else"
    assert "secret" not in str(refused.value)


def test_a_binary_that_is_a_bomb_is_no_note() -> None:
    packed = gzip.compress(b"0" * 50_000_000)
    bomb = server(lambda r: reply(200, packed, content_encoding="gzip", content_type="text/plain"))
    with bomb, pytest.raises(FhirError, match="larger than"):
        bomb.binary("b1")
    with server(lambda r: reply(200, b"hello", content_type="text/plain")) as opened:
        assert opened.binary("b1") == {
            "resourceType": "Binary",
            "id": "b1",
            "contentType": "text/plain",
            "data": "aGVsbG8=",
        }


def test_a_busy_server_is_waited_for_as_long_as_it_says() -> None:
    waits: list[float] = []
    answers = iter([
        reply(429, retry_after="7"),
        reply(503),
        reply(503, retry_after="nonsense"),
        bundle(),
    ])  # fmt: skip
    with server(lambda r: next(answers), sleep=waits.append) as opened:
        assert list(opened.search("Condition", {})) == []
    assert waits == [7.0, 1.0, 2.0]
    busy = reply(429, retry_after="1000000")
    with server(lambda r: busy, sleep=waits.append, seconds=5) as opened, pytest.raises(FhirError, match="longer than"):
        list(opened.search("Condition", {}))


def test_one_kind_that_is_refused_costs_that_kind() -> None:
    def answer(request: httpx.Request) -> httpx.Response:
        if "MedicationStatement" in request.url.path or "MedicationRequest" in request.url.path:
            return reply(404)
        if request.url.path.endswith("/Encounter/e1"):
            return resource({"resourceType": "Encounter", "id": "e1"})
        if "Observation" in request.url.path:
            return bundle({"resourceType": "Observation", "id": "../x"}, {"resourceType": "Observation", "id": "o1"})
        return bundle()

    with server(answer) as opened:
        resources, encounter = gather(opened, "p1", "e1", CODINGS)
    assert encounter is not None
    assert visit_of(encounter, resources, CODINGS).unseen == ("age and sex", "home medications")
    assert resources.broken == {"Observation is not valid": 2}


@pytest.mark.parametrize("number", ["../Patient/1", "a/b", "a?x=1", "", "x" * 65, "..", "a b", "%2e%2e"])
def test_an_id_with_a_slash_becomes_no_address(number: str) -> None:
    asked: list[str] = []

    def answer(request: httpx.Request) -> httpx.Response:
        asked.append(str(request.url))
        return bundle()

    with server(answer) as opened:
        with pytest.raises(FhirError, match="the id of"):
            gather(opened, number, None, CODINGS)
        with pytest.raises(FhirError, match="the id of"):
            gather(opened, "p1", number, CODINGS)
    assert not asked


@pytest.mark.parametrize("base", ["ftp://x", "http://", "http://user:pw@x/fhir", "http://x/fhir?a=b", "nonsense"])
def test_addresses_that_are_none(base: str) -> None:
    with pytest.raises(FhirError, match="address") as refused:
        FhirServer(base)
    assert "pw" not in str(refused.value)


STATUS = b"HTTP/1.1 200 OK\r\n"
BEGUN = STATUS + b"Content-Type: application/fhir+json\r\n\r\n{"


@pytest.mark.parametrize(
    ("start", "drop"),
    [(b"", b""), (b"", b"H"), (STATUS, b"X: y\r\n"), (BEGUN, b" ")],
    ids=["nothing", "a status line that never ends", "headers without end", "a body without end"],
)
def test_a_server_that_drips_is_not_waited_for(start: bytes, drop: bytes) -> None:
    """Headers or a body that come byte by byte for ever: the limit is on the whole, not on each byte."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        stop = threading.Event()

        def drip() -> None:
            connection, _ = listening.accept()
            with connection:
                connection.recv(65_536)
                try:
                    connection.sendall(start)
                    while not stop.wait(0.05):
                        connection.sendall(drop)
                except OSError:
                    pass

        thread = threading.Thread(target=drip, daemon=True)
        thread.start()
        began = time.monotonic()
        slow = FhirServer(f"http://127.0.0.1:{listening.getsockname()[1]}/fhir", seconds=0.5)
        with slow, pytest.raises(FhirError, match="too long"):
            slow.read("Patient", "p1")
        assert time.monotonic() - began < 20, "given up long before it would end"
        stop.set()
        thread.join(5)
