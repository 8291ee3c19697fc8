"""Logs without ids, and an audit line for every read and decision that comes through an EHR."""

from __future__ import annotations

import asyncio
import gc
import io
import json
import logging
import socket
import threading
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from http.client import HTTPConnection
from pathlib import Path
from typing import Any

import httpx
import pytest
import sqlalchemy as sa

from tests.server.ehr.smart.test_routes import key_of
from tests.server.ehr.smart.test_routes import launch as launched
from tests.sources.fhir.test_visit import visit_resources
from tests.support.hooking import VIEW, call, titles, written
from tests.support.serving import live, service, wait_until
from tests.support.smart_ehr import CLIENT, Ehr, memory, running
from whatelse.server import Service
from whatelse.server.app import _unheard
from whatelse.server.ehr.cds import log as card_log
from whatelse.server.logs import JsonFormatter, configure_logging
from whatelse.store import StoreError, audit, backup, chain
from whatelse.store.engine import reading, writing

Opened = tuple[Ehr, Service, httpx.Client]


@pytest.fixture
def opened(tmp_path: Path) -> Iterator[Opened]:
    resources = json.loads(json.dumps(visit_resources()).replace('p1"', 'pat-4711"').replace('e1"', 'enc-4712"'))
    with running(Ehr(memory(resources), patient="pat-4711", encounter="enc-4712")) as ehr:
        settings = {"smart_client_id": CLIENT, "fhir_servers": [ehr.issuer], "auth": "token", "cds_hooks": True}
        with service(tmp_path, cds_threshold=0.15, **settings) as made, live(made) as url:
            ehr.redirect = url + "/smart/callback"
            ehr.tokens.add("hook-token")
            with httpx.Client(base_url=url, timeout=60) as http:
                yield ehr, made, http


def hook(opened: Opened) -> httpx.Response:
    """A hook call without prefetch: everything is read from the FHIR server."""
    ehr, _, http = opened
    body = call(context={"patientId": "pat-4711"})
    body |= {"prefetch": None, "fhirServer": ehr.issuer, "fhirAuthorization": {"access_token": "hook-token"}}
    return http.post(VIEW, json=body)


def lines(made: Service) -> list[dict[str, Any]]:
    made.store.ping()
    return [json.loads(line) for line in audit.lines(made.store.engine)]


def test_no_id_in_any_log_at_any_level(opened: Opened, capfd: pytest.CaptureFixture[str]) -> None:
    root = logging.getLogger()
    before = root.level, root.handlers[:], logging.getLogger("whatelse").level
    try:
        configure_logging(logging.DEBUG, "text")
        key_of(launched(opened, launch="xyz"))
        assert hook(opened).json()["cards"]
        logging.getLogger("whatelse.server").info("a line to be sure that lines arrive")
    finally:
        root.setLevel(before[0])
        root.handlers[:] = before[1]
        logging.getLogger("whatelse").setLevel(before[2])
    written = capfd.readouterr().err
    assert "a line to be sure" in written and "route=/smart/callback" in written
    assert "4711" not in written and "4712" not in written and "hook-token" not in written


def test_json_log_lines_are_objects() -> None:
    record = logging.LogRecord("whatelse.server", logging.WARNING, "f", 1, "status=%d", (200,), None)
    found = json.loads(JsonFormatter().format(record))
    assert (found["level"], found["message"], found["logger"]) == ("WARNING", "status=200", "whatelse.server")


def test_launch_sign_in_and_sign_out_are_audited(opened: Opened) -> None:
    _, made, http = opened
    key = key_of(launched(opened, launch="xyz"))
    csrf = {"x-whatelse-csrf": http.get("/api/session").json()["csrf"], "content-type": "application/json"}
    assert http.request("DELETE", "/smart/session", headers=csrf).status_code == 204
    found = [(line["event"], line["actor"], line["visit"]) for line in lines(made)]
    assert ("launch sign-in", "Practitioner/7", key) in found
    assert ("launch sign-out", "Practitioner/7", None) in found


def test_hook_call_and_feedback_are_audited_with_user_and_visit(opened: Opened) -> None:
    _, made, http = opened
    card = hook(opened).json()["cards"][0]
    said = {"card": card["uuid"], "outcome": "accepted", "acceptedSuggestions": []}
    assert http.post(VIEW + "/feedback", json={"feedback": [said]}).status_code == 200
    key = made.worklist.key("enc-4712")
    (read,) = (line for line in lines(made) if line["event"] == "hook call")
    assert (read["actor"], read["visit"]) == ("Practitioner/7", key) and card["uuid"] in read["detail"]["cards"]
    (told,) = (line for line in lines(made) if line["event"] == "card feedback")
    assert told["detail"]["outcomes"] == {card["uuid"]: "accepted"} and told["detail"]["versions"] == {key: 1}


def _cards(made: Service) -> list[dict[str, Any]]:
    with reading(made.store.engine) as connection:
        return [dict(row._mapping) for row in connection.execute(sa.text("SELECT * FROM cds_card"))]


def test_outcome_that_nobody_sent_is_found(opened: Opened) -> None:
    made = opened[1]
    assert hook(opened).json()["cards"]
    written(made)
    backup.verify(made.store.engine)
    with writing(made.store.engine) as connection:
        connection.execute(sa.text("UPDATE cds_card SET outcome = 'accepted'"))
    with pytest.raises(StoreError, match="the outcome of card"):
        backup.verify(made.store.engine)


def test_card_that_the_audit_does_not_tell_of_is_found(opened: Opened, monkeypatch: pytest.MonkeyPatch) -> None:
    made = opened[1]
    assert hook(opened).json()["cards"]
    written(made)
    made.store.ping()
    monkeypatch.setattr(chain, "LATER", timedelta(0))
    with writing(made.store.engine) as connection:
        row = _cards(made)[0] | {"uuid": "forged", "at": str(datetime.now(UTC).replace(tzinfo=None))}
        names = ", ".join(f":{name}" for name in row)
        connection.execute(sa.text(f"INSERT INTO cds_card ({', '.join(row)}) VALUES ({names})"), row)
    backup.verify(made.store.engine)  # no line of the audit is newer than the card yet
    assert opened[2].get("/api/visits").status_code == 401
    made.store.ping()
    with pytest.raises(StoreError, match="card forged: it was added"):
        backup.verify(made.store.engine)


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ("UPDATE cds_card SET probability = 0.01", "was changed"),
        ("UPDATE cds_card SET outcome = 'overridden' WHERE outcome = 'accepted'", "the outcome of card"),
        ("UPDATE cds_card SET outcome = NULL", "the outcome of card"),
        ("DELETE FROM cds_card", "is missing"),
        ("UPDATE cds_look SET top = '[]'", "a look of"),
        ("DELETE FROM cds_look", "a look of"),
    ],
)
def test_changes_of_card_logs_are_found(opened: Opened, change: str, says: str) -> None:
    _, made, http = opened
    card = hook(opened).json()["cards"][0]
    said = {"card": card["uuid"], "outcome": "accepted"}
    assert http.post(VIEW + "/feedback", json={"feedback": [said]}).status_code == 200
    written(made)
    made.store.ping()
    backup.verify(made.store.engine)
    with writing(made.store.engine) as connection:
        connection.execute(sa.text(change))
    with pytest.raises(StoreError, match=says):
        backup.verify(made.store.engine)


def test_cards_that_a_full_disk_took_are_no_break_of_the_chain(opened: Opened, monkeypatch: pytest.MonkeyPatch) -> None:
    _, made, http = opened

    def full(_: object, *__: object) -> None:
        raise StoreError("the database cannot be written to")

    with monkeypatch.context() as patched:
        patched.setattr(card_log, "writing", full)
        card = hook(opened).json()["cards"][0]
        said = {"card": card["uuid"], "outcome": "accepted"}
        assert http.post(VIEW + "/feedback", json={"feedback": [said]}).status_code == 200
        written(made)
    made.store.ping()
    assert backup.verify(made.store.engine).decisions.lines == 1, "the decision is kept, the card is not"


@pytest.mark.parametrize(
    ("reason", "verdicts"),
    [("not-relevant", []), (None, []), ("ruled-out", ["rejected"]), ("not-present", ["rejected"])],
)
def test_only_an_explicit_rejection_is_a_decision(opened: Opened, reason: str | None, verdicts: list[str]) -> None:
    _, made, http = opened
    before = hook(opened).json()["cards"]
    said: dict[str, Any] = {"card": before[0]["uuid"], "outcome": "overridden"}
    if reason:
        said["overrideReason"] = {"reason": {"code": reason}}
    assert http.post(VIEW + "/feedback", json={"feedback": [said]}).status_code == 200
    assert [line.verdict for line in made.store.history("enc-4712")] == verdicts
    after = hook(opened).json()["cards"]
    assert titles(before[0]) not in [titles(card) for card in after], "the card does not come back"


def test_why_a_launch_failed_is_one_word_in_log_audit_and_metrics(
    opened: Opened, caplog: pytest.LogCaptureFixture
) -> None:
    ehr, made, _ = opened
    ehr.error = "access_denied"
    assert launched(opened, launch="x").status_code == 403
    assert "launch failed: reason=access_denied" in caplog.text
    assert any(line["detail"].get("reason") == "access_denied" for line in lines(made))
    assert 'whatelse_launches_total{outcome="access_denied"} 1.0' in made.metrics.text({})


def test_why_a_token_was_refused_is_one_word_in_log_and_metrics(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with service(tmp_path, auth="token") as made, live(made) as url:
        assert httpx.get(url + "/api/visits", headers={"authorization": "Bearer secret-4711"}).status_code == 401
        assert 'whatelse_tokens_refused_total{reason="unknown",use="sign-in"} 1.0' in made.metrics.text({})
    said = [record.getMessage() for record in caplog.records if record.name.startswith("whatelse")]
    assert "token refused: use=sign-in reason=unknown" in said and "4711" not in str(said)


def test_one_address_cannot_use_up_the_launches_and_discovery_is_asked_once(opened: Opened) -> None:
    ehr, _, http = opened
    statuses = [http.get("/smart/launch", params={"iss": ehr.issuer}).status_code for _ in range(40)]
    assert 30 <= statuses.count(303) <= 33 and statuses[-1] == 429, "a bucket refills a little meanwhile"
    assert ehr.described == 1


def test_strangers_do_not_fill_the_audit(opened: Opened) -> None:
    _, made, http = opened
    for _ in range(50):
        assert http.get("/smart/callback", params={"state": "forged", "code": "x"}).status_code in (400, 429)
        raw = HTTPConnection(http.base_url.host, http.base_url.port, timeout=60)
        raw.putrequest("POST", "/api/session")
        raw.putheader("content-type", "application/json")
        raw.putheader("content-length", "2000000")
        raw.endheaders()
        assert raw.getresponse().status == 413
        raw.close()
    assert len(lines(made)) <= 40, "30 at once, and a bucket refills a little meanwhile"


def test_errors_that_nobody_waits_for_are_logged_without_their_message(
    opened: Opened, capfd: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    async def fails() -> None:
        raise ValueError("record of 4711")

    async def forget() -> None:
        task = asyncio.ensure_future(fails())
        asyncio.get_running_loop().set_exception_handler(_unheard)
        await asyncio.sleep(0.01)
        del task
        gc.collect()

    hook_before = threading.excepthook
    root = logging.getLogger()
    left_over = root.handlers[:]
    closed = io.StringIO()
    closed.close()
    configure_logging(logging.INFO, "text")
    root.handlers[0].setStream(closed)  # type: ignore[attr-defined]  # a standard error that nobody reads any more
    root.addHandler(caplog.handler)
    try:
        asyncio.run(forget())
        thread = threading.Thread(target=lambda: int("record of 4711"))
        thread.start()
        thread.join()
    finally:
        threading.excepthook = hook_before
        root.handlers[:] = left_over
    assert caplog.text.count("error=ValueError") == 2
    assert "4711" not in caplog.text and "4711" not in capfd.readouterr().err


def test_client_that_hangs_up_is_no_incident(opened: Opened, caplog: pytest.LogCaptureFixture) -> None:
    _, made, http = opened
    host, port = http.base_url.host, http.base_url.port or 80
    for _ in range(3):
        with socket.create_connection((host, port)) as raw:
            head = (
                f"POST {VIEW} HTTP/1.1\r\nHost: {host}\r\nContent-Type: application/json\r\nContent-Length: 99\r\n\r\n"
            )
            raw.sendall(head.encode() + b'{"hook"')
    wait_until(lambda: made.admissions.under_way == 0)
    assert http.get("/healthz").status_code == 200
    assert "incident" not in caplog.text and "whatelse_errors_total 0.0" in made.metrics.text({})
