"""Hook calls without prefetch: FHIR reads in parallel, failures that are counted, web pages that are no notes."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.sources.fhir.test_visit import visit_resources
from tests.support.hooking import VIEW, call, prefetch
from tests.support.serving import live, service
from tests.support.smart_ehr import Ehr, memory, running
from whatelse.server import Service
from whatelse.sources.codings import load_codings
from whatelse.sources.fhir.client import FhirError, FhirServer
from whatelse.sources.fhir.gather import gather

Opened = tuple[Ehr, Service, httpx.Client]
LOGIN = b"<!doctype html><html><body><form><input type='password'></form>Session expired</body></html>"


def with_binaries() -> list[dict[str, Any]]:
    """The visit with its notes as Binaries, which need a read of their own."""
    resources = visit_resources()
    for n, document in enumerate(r for r in resources if r["resourceType"] == "DocumentReference"):
        attachment = document["content"][0]["attachment"]
        resources.append(
            {"resourceType": "Binary", "id": f"b{n}", "contentType": "text/plain", "data": attachment["data"]}
        )
        document["content"] = [{"attachment": {"contentType": "text/plain", "url": f"Binary/b{n}"}}]
    return resources


@pytest.fixture
def opened(tmp_path: Path) -> Iterator[Opened]:
    with running(Ehr(memory(with_binaries()))) as ehr:
        settings = {"fhir_servers": [ehr.issuer], "cds_hooks": True, "cds_threshold": 0.1}
        with service(tmp_path, **settings) as made, live(made) as url, httpx.Client(base_url=url, timeout=60) as http:
            ehr.tokens.add("t")
            yield ehr, made, http


def ask(opened: Opened) -> httpx.Response:
    body = call() | {"prefetch": None, "fhirServer": opened[0].issuer, "fhirAuthorization": {"access_token": "t"}}
    return opened[2].post(VIEW, json=body)


def test_hook_without_prefetch_waits_for_rounds_of_requests_and_not_for_each(opened: Opened) -> None:
    ehr, _, _ = opened
    quick, at_once, most = ehr.backend, [0], [0]
    lock = threading.Lock()

    def slow(path: str, query: str) -> tuple[int, bytes, str]:
        with lock:
            at_once[0] += 1
            most[0] = max(most[0], at_once[0])
        time.sleep(0.1)
        with lock:
            at_once[0] -= 1
        return quick(path, query)

    ask(opened)  # opens threads
    ehr.backend, taken = slow, []
    for _ in range(20):
        start = time.perf_counter()
        assert ask(opened).json()["cards"]
        taken.append(time.perf_counter() - start)
    assert most[0] >= 4, "requests go in parallel"
    # 11 requests of 100 ms: one after the other they take 1.1 s. The target is 500 ms at p95 on an idle machine
    assert sorted(taken)[10] < 0.8


def test_every_failed_read_is_counted_by_kind_and_reason(opened: Opened, caplog: pytest.LogCaptureFixture) -> None:
    ehr, made, _ = opened
    quick = ehr.backend
    ehr.backend = lambda p, q: (403, b"secret", "text/plain") if p.startswith("Observation") else quick(p, q)
    assert ask(opened).status_code == 200
    assert 'whatelse_fhir_failures_total{kind="Observation",reason="status_403"} 2.0' in made.metrics.text({})
    assert "FHIR read failed: kind=Observation reason=status_403" in caplog.text and "secret" not in caplog.text


def test_login_page_is_not_a_note(opened: Opened) -> None:
    ehr, made, _ = opened
    quick = ehr.backend
    ehr.backend = lambda p, q: (200, LOGIN, "text/html") if p.startswith("Binary") else quick(p, q)
    detail = ask(opened).json()["cards"]
    assert all("Not seen" in card["detail"] for card in detail)
    assert 'whatelse_fhir_failures_total{kind="Binary",reason="web_page"} 2.0' in made.metrics.text({})


@pytest.mark.parametrize(
    ("kind", "body", "expected", "good"),
    [
        ("text/html", b"<p>fell, hit head</p>", "text/html", True),
        ("text/html", b"<p>fell, hit head</p>", "text/plain", False),
        ("text/html", b"<p>fell, hit head</p>", None, False),
        ("text/html", LOGIN, "text/html", False),
        ("text/plain", b"<html>Sign in</html>", "text/plain", False),
        ("text/plain", b"temp < 38, bp > 90", "text/plain", True),
    ],
)
def test_web_page_where_a_note_is_expected_is_refused(kind: str, body: bytes, expected: str | None, good: bool) -> None:
    transport = httpx.MockTransport(
        lambda _: httpx.Response(200, stream=httpx.ByteStream(body), headers={"content-type": kind})
    )
    with FhirServer("https://fhir.test", transport=transport) as server:
        if good:
            assert server.binary("b1", expected)["contentType"] == kind
        else:
            with pytest.raises(FhirError, match="web page"):
                server.binary("b1", expected)


def test_notes_are_asked_for_before_anything_else() -> None:
    asked: list[str] = []
    backend = memory(visit_resources())

    def answer(request: httpx.Request) -> httpx.Response:
        asked.append(request.url.path.split("/")[2])
        status, body, kind = backend(request.url.path.removeprefix("/r4/"), "")
        return httpx.Response(status, stream=httpx.ByteStream(body), headers={"content-type": kind})

    with FhirServer("https://fhir.test/r4", transport=httpx.MockTransport(answer)) as server:
        assert gather(server, "p1", "e1", load_codings(None))[1] is not None
    assert asked[0] == "DocumentReference" and len(asked) > 5


def test_prefetched_encounters_may_be_arrived_or_triaged(opened: Opened) -> None:
    services = opened[2].get("/cds-services").json()["services"]
    assert "status=arrived,triaged,in-progress" in services[0]["prefetch"]["encounters"]
    for status in ("arrived", "triaged"):
        resources = visit_resources()
        resources[1]["status"] = status
        body = call() | {"prefetch": prefetch(resources)}
        assert opened[2].post(VIEW, json=body).json()["cards"], status


def test_draft_condition_names_its_codes_and_no_external_cause(opened: Opened) -> None:
    draft = ask(opened).json()["cards"][0]["suggestions"][0]["actions"][0]["resource"]
    codes = draft["code"].get("coding", [])
    assert all(code["display"] for code in codes) and not [c for c in codes if c["code"][0] in "VWXY"]
    from whatelse.server.ehr.cds.cards import draft as make

    codings = load_codings(None)
    external = [name for name, codes in codings.drafts.items() if any(c.code[0] in "VWXY" for c in codes)]
    assert external, "the shipped codings have some"
    for name in external:
        found = json.dumps(make(name, name, "e", "p", codings)["code"].get("coding", []))
        assert not any(f'"{letter}' in found for letter in "VWXY")


def test_fifty_hook_calls_at_one_instant_are_answered(opened: Opened) -> None:
    _, _, http = opened
    bodies = [json.dumps(call()).encode() for _ in range(50)]
    http.post(VIEW, content=bodies[0], headers={"content-type": "application/json"})
    barrier, statuses = threading.Barrier(50), list[int]()

    def one(body: bytes) -> None:
        with httpx.Client(base_url=http.base_url, timeout=60) as own:
            own.get("/healthz")
            barrier.wait(60)
            statuses.append(own.post(VIEW, content=body, headers={"content-type": "application/json"}).status_code)

    for _ in range(2):  # the second time with what the first taught admission control
        statuses.clear()
        threads = [threading.Thread(target=one, args=(body,)) for body in bodies]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert set(statuses) <= {200, 503} and statuses.count(503) <= 5
