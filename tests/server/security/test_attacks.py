"""What was tried against a running server and must no longer work: each test is one attack."""

from __future__ import annotations

import json
import resource
import socket
import sqlite3
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import httpx
import jwt
import pytest
from cryptography.hazmat.primitives.asymmetric import rsa

from tests.support import nginx, postgres
from tests.support.serving import FALLEN, client, live, service, wait_until, wanted
from whatelse.server import Service, Settings
from whatelse.server.security.jwks import Oidc, TokenRefused
from whatelse.server.security.limits import Addresses, too_much_text
from whatelse.server.settings import SettingsError, load_settings
from whatelse.store import Decision, audit, chain, schema

KEY = rsa.generate_private_key(public_exponent=65537, key_size=2048)


@pytest.fixture(scope="module")
def opened(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    with service(tmp_path_factory.mktemp("open"), client_seconds=2.0) as made:
        yield made


@pytest.fixture(scope="module")
def web(opened: Service) -> Iterator[httpx.Client]:
    with client(opened) as made:
        yield made


def bearer(token: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {token}"}


def address(url: str) -> tuple[str, int]:
    return "127.0.0.1", int(url.rsplit(":", 1)[1])


def fill(opened: Service, visits: int) -> None:
    waiting = [
        opened.store.record(Decision(f"v{k:06}", 0, "tag", "fall", "confirmed", "a" * 1000, "m", f"fill{k}"))
        for k in range(visits)
    ]
    for future in waiting:
        future.result()


# ---- exports


def test_exports_that_nobody_reads_hold_up_nobody(tmp_path: Path) -> None:
    raws = list[socket.socket]()

    def unread() -> None:
        raw = socket.socket()
        raws.append(raw)
        raw.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        with suppress(ConnectionError):  # there are limits for the connections of one address
            raw.connect(address(url))
            raw.sendall(b"GET /api/decisions/export HTTP/1.1\r\nHost: localhost\r\n\r\n")

    def refused() -> bool:
        for _ in range(4):  # one more than are allowed, as some may have been dropped by now
            unread()
        answer = web.get("/api/decisions/export")
        return answer.status_code == 503 and int(answer.headers["retry-after"]) > 0

    with service(tmp_path, client_seconds=2.0) as opened, live(opened) as url:
        fill(opened, 8_000)
        with httpx.Client(base_url=url, timeout=60) as web:
            for _ in range(20):
                unread()
            wait_until(refused)
            key = opened.worklist.keys[3]
            assert web.get(f"/api/visits/{key}").status_code == 200  # before: 30 s for a connection, then 500
            assert web.post(f"/api/visits/{key}/decisions", json=wanted("fall")).status_code == 200
            until = time.monotonic() + 60
            while (answer := web.get("/api/decisions/export")).status_code == 503:  # those who do not read are dropped
                assert time.monotonic() < until
                time.sleep(0.2)
            assert len(answer.text.splitlines()) == 8_002
            wait_until(lambda: opened.store.engine.pool.checkedout() == 0)  # type: ignore[attr-defined]
        for raw in raws:
            raw.close()


# ---- decisions


def test_the_recorded_model_is_one_that_served(opened: Service, web: httpx.Client) -> None:
    path = f"/api/visits/{opened.worklist.keys[2]}/decisions"
    for model in ("\0", "x", "0" * 64, "A" * 64):
        assert web.post(path, json=wanted("fall", model=model)).status_code in (404, 422)
    opened.store.serving("e" * 64)  # one that another process serves
    assert web.post(path, json=wanted("fall", model="e" * 64)).status_code == 200
    assert web.post(path, json=wanted("uti", version=1, model=opened.tagger.digest_)).status_code == 200
    lines = web.get(path.replace("decisions", "history")).json()["lines"]
    assert [line["model"] for line in lines] == ["e" * 64, opened.tagger.digest_]


@pytest.mark.parametrize("odd", [{"version": True}, {"version": "0"}, {"version": 0.5}, {"version": 2**70},
                                 {"subject": 7}, {"verdict": None}])  # fmt: skip
def test_nothing_is_converted(opened: Service, web: httpx.Client, odd: dict[str, Any]) -> None:
    path = f"/api/visits/{opened.worklist.keys[6]}/decisions"
    assert web.post(path, json=wanted("fall") | odd).status_code == 422
    assert web.post("/api/suggest", json={"visit": {"age": True}}).status_code == 422


def test_poison_for_postgresql_reaches_nobody_else(tmp_path: Path) -> None:
    patient = {"max_wait": 60.0}  # nobody is refused for a busy machine
    with postgres.server() as url, service(tmp_path, database=url, **patient) as opened, client(opened) as web:
        keys = opened.worklist.keys

        def honest(k: int) -> int:
            return web.post(f"/api/visits/{keys[k]}/decisions", json=wanted("fall")).status_code

        def poison(k: int) -> int:
            return web.post(f"/api/visits/{keys[k]}/decisions", json=wanted("fall", model="\0")).status_code

        with ThreadPoolExecutor(16) as pool:
            good, bad = pool.map(honest, range(60)), pool.map(poison, range(60, 120))
            assert set(good) == {200} and set(bad) == {422}


# ---- who is asking


def test_requests_without_credentials_lock_out_nobody(tmp_path: Path) -> None:
    with service(tmp_path, auth="token", failures_per_minute=5) as opened, live(opened) as url:
        good = opened.store.access.create("a", "viewer", 1)
        with nginx.proxy(url) as front, httpx.Client(base_url=front, timeout=60) as web:
            assert [web.get("/api/visits").status_code for _ in range(20)] == [401] * 20
            assert web.get("/api/visits", headers=bearer(good)).status_code == 200
            guessed = [web.get("/api/visits", headers=bearer(f"guess {k}")).status_code for k in range(10)]
            assert guessed[:5] == [401] * 5 and guessed[-1] == 429
            fresh = opened.store.access.create("b", "viewer", 1)
            assert web.get("/api/visits", headers=bearer(fresh)).status_code == 200


def test_behind_a_trusted_proxy_addresses_are_those_of_the_clients(tmp_path: Path) -> None:
    given = {"auth": "token", "failures_per_minute": 3, "trusted_proxies": ["127.0.0.1"]}
    with service(tmp_path, **given) as opened, live(opened) as url, nginx.proxy(url) as front:
        with httpx.Client(base_url=url, timeout=60) as web:  # as a second proxy in front of the first would write it
            one, two = ({"X-Forwarded-For": f"10.1.1.{k}"} for k in (1, 2))
            tried = [web.get("/api/visits", headers=bearer(f"x{k}") | one).status_code for k in range(6)]
            assert tried[:3] == [401] * 3 and tried[-1] == 429
            assert web.get("/api/visits", headers=bearer("y") | two).status_code == 401
        with httpx.Client(base_url=front, timeout=60) as web:  # who lies about themselves stands left of the truth
            seen = [
                web.get("/api/visits", headers=bearer(f"z{k}") | {"X-Forwarded-For": f"10.9.9.{k}"}).status_code
                for k in range(6)
            ]
        assert seen == [401] * 6  # nginx runs on a trusted address here, so what it was told counts
        opened.store.ping()
        noted = {json.loads(line)["address"] for line in audit.lines(opened.store.engine)}
        assert {"10.1.1.1", "10.1.1.2", "10.9.9.0"} <= noted


def test_forwarded_addresses() -> None:
    def of(peer: str, *forwarded: str, trusted: tuple[str, ...] = ("10.0.0.0/8", "::1")) -> str:
        headers = [(b"x-forwarded-for", text.encode()) for text in forwarded]
        return Addresses(trusted).of({"type": "http", "client": (peer, 1), "headers": headers})

    assert of("192.0.2.7", "198.51.100.1") == "192.0.2.7"  # a stranger says nothing that is believed
    assert of("10.0.0.1", "198.51.100.1") == "198.51.100.1"
    assert of("10.0.0.1", "1.1.1.1, 198.51.100.1, 10.0.0.2") == "198.51.100.1"
    assert of("10.0.0.1", "1.1.1.1", "198.51.100.1:4711") == "198.51.100.1"
    assert of("10.0.0.1", "1.1.1.1, nonsense") == "10.0.0.1" and of("10.0.0.1") == "10.0.0.1"
    assert of("::1", "[2001:db8::1:2:3:4]:80") == of("::1", "2001:db8::9") == "2001:db8::"
    assert of("::ffff:10.0.0.1", "198.51.100.1") == "198.51.100.1"
    assert of("10.0.0.1", "1.1.1.1", trusted=()) == "10.0.0.1"
    with pytest.raises(SettingsError, match="trusted_proxies"):
        load_settings(None, model="x", trusted_proxies=["proxy.example.org"])
    with pytest.raises(SettingsError, match="PostgreSQL"):
        load_settings(None, model="x", workers=2)


def claims(**other: Any) -> dict[str, Any]:
    whole = {"iss": "https://i", "aud": "w", "sub": "ada", "roles": ["viewer"]}
    return {**whole, "exp": datetime.now(UTC) + timedelta(hours=1), **other}


def oidc(folder: Path, **key: Any) -> Oidc:
    public = json.loads(jwt.algorithms.RSAAlgorithm.to_jwk(KEY.public_key()))
    (folder / "keys.json").write_text(json.dumps({"keys": [{**public, "kid": "one", **key}]}))
    return Oidc(Settings(model="x", auth="oidc", oidc_issuer="https://i", oidc_audience="w",
                         oidc_keys=str(folder / "keys.json")))  # fmt: skip


def sign(content: dict[str, Any]) -> str:
    return jwt.encode(content, KEY, "RS256", headers={"kid": "one"})


def test_odd_tokens_of_an_issuer(tmp_path: Path) -> None:
    check = oidc(tmp_path)
    person = check.person(sign(claims(exp=10**13)))
    assert person.expires is not None and person.expires.year == 9999
    for odd in ({"sub": "\ud800"}, {"sub": "a\0"}, {"exp": "soon"}, {"exp": 1e400}, {"exp": -(10**20)}):
        with pytest.raises(TokenRefused):
            check.person(sign(claims(**odd)))


@pytest.mark.parametrize("key", [{"use": "enc"}, {"key_ops": ["encrypt"]}])
def test_keys_for_encryption_vouch_for_nobody(tmp_path: Path, key: dict[str, Any]) -> None:
    with pytest.raises(TokenRefused, match="key"):
        oidc(tmp_path, **key).person(sign(claims()))
    assert oidc(tmp_path, use="sig").person(sign(claims())).name == "ada"


def test_an_origin_that_is_none(opened: Service, web: httpx.Client) -> None:
    path = f"/api/visits/{opened.worklist.keys[7]}/decisions"
    for origin in ("http://[", "http://[::1", "//", "\xff"):
        sent = {"Origin": origin.encode("latin-1")}
        assert web.post(path, json=wanted("fall"), headers=sent).status_code == 403


# ---- time and threads


def test_who_hangs_up_is_not_worked_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    note, worked = json.dumps({"visit": {"triage_note": "- " * 5_900}}).encode(), list[str]()
    monkeypatch.setattr("whatelse.server.routes.visits.answers.typed", lambda asked: worked.append("work") or 1 / 0)
    head = (
        b"POST /api/suggest HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n"
    )
    gate = threading.Event()
    with service(tmp_path) as opened, live(opened) as url, httpx.Client(base_url=url, timeout=60) as web:
        opened.pools.answers.submit(gate.wait)  # everybody waits for this one
        try:
            raws = [socket.create_connection(address(url)) for _ in range(7)]
            for raw in raws:
                raw.sendall(head % len(note) + note)
            wait_until(lambda: opened.admissions.pages.under_way == 7 and not opened.admissions.pages.arriving)
            for raw in raws:
                raw.close()
            wait_until(lambda: opened.admissions.pages.under_way == 0)
        finally:
            gate.set()
        assert web.get("/api/visits").status_code == 200
        assert not worked


def test_notes_that_would_take_too_long(opened: Service, web: httpx.Client) -> None:
    for note, says in (("-" * 50_000, "max_words"), ("a" * 70_000, "characters together")):
        for path, more in (("/api/suggest", {}), ("/api/why", {"condition": "fall"})):
            answer = web.post(path, json={"visit": {"md_comments": note}, **more})
            assert answer.status_code == 413 and says in answer.json()["detail"]
    assert too_much_text(["a " * 5_000, None, "b " * 5_000], 12_000) is None


def test_reads_do_not_wait_for_a_sign_in_that_waits_for_a_lock(tmp_path: Path) -> None:
    with service(tmp_path, auth="token") as opened, live(opened) as url:
        token = opened.store.access.create("a", "clinician", 1)
        with closing(sqlite3.connect(tmp_path / "decisions.db", isolation_level=None)) as other:
            other.execute("BEGIN IMMEDIATE")
            waiting = [
                threading.Thread(target=httpx.post, args=(f"{url}/api/session",),
                                 kwargs={"json": {"token": token}, "timeout": 60}) for _ in range(3)
            ]  # fmt: skip
            for thread in waiting:
                thread.start()
            wait_until(lambda: opened.pools.changes._waiting.qsize() == 1)  # the pool has two threads: both wait
            with httpx.Client(base_url=url, headers=bearer(token), timeout=60) as web:
                assert web.get("/api/visits").status_code == 200
                assert web.get(f"/api/visits/{opened.worklist.keys[0]}").status_code == 200
            assert all(thread.is_alive() for thread in waiting)  # the lock is waited for 30 s
            other.execute("ROLLBACK")
            for thread in waiting:
                thread.join()


# ---- connections


@pytest.mark.parametrize(
    "pieces",
    [
        [b"GET /healthz HTTP/1.1\r\nHost: localhost\r\nX-Long: ", b"a" * 65_536],
        [b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n", b"X-Many: 1\r\n" * 6_000],
        [b"GET /", b"a" * 65_536],
        [b"POST /api/suggest HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
         b"Transfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\nX-Trailer: ", b"a" * 65_536],
    ],
)  # fmt: skip
def test_headers_have_limits(opened: Service, pieces: list[bytes]) -> None:
    with live(opened) as url, socket.create_connection(address(url), timeout=60) as raw:
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        raw.sendall(pieces[0])
        sent = 0
        with suppress(ConnectionError, TimeoutError):
            while sent < 50_000_000:
                raw.sendall(pieces[1])
                sent += len(pieces[1])
        assert sent < 20_000_000  # it hung up; what the kernel took meanwhile was not kept
        assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 100_000  # kB
        assert httpx.get(f"{url}/healthz").status_code == 200


def test_many_headers_in_one_piece_and_as_many_as_allowed(opened: Service) -> None:
    with live(opened) as url:
        for number, status in ((90, b"200"), (110, b"431"), (1_000, b"431")):
            with socket.create_connection(address(url), timeout=60) as raw:
                more = b"".join(b"X-%d: 1\r\n" % k for k in range(number))
                raw.sendall(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n" + more + b"\r\n")
                assert raw.recv(100).split()[1] == status, number


def test_slow_connections_of_one_address_shut_out_nobody_else(tmp_path: Path) -> None:
    given = {"connections_per_address": 50, "max_connections": 80, "client_seconds": 120.0}
    with service(tmp_path, **given) as opened, live(opened) as url:
        slow = [socket.create_connection(address(url), source_address=("127.0.0.2", 0)) for _ in range(70)]
        for raw in slow:
            with suppress(ConnectionError):
                raw.sendall(b"GET / HTTP/1.1\r\nHost: localhost\r\nX-Slow: ")
        answers = dict[socket.socket, bytes]()

        def refused() -> int:
            answers.update({raw: _answer(raw) for raw in slow if not answers.get(raw)})
            return sum(answer.startswith(b"HTTP/1.1 503") for answer in answers.values())

        wait_until(lambda: refused() >= 20)
        assert [httpx.get(f"{url}/healthz").status_code for _ in range(20)] == [200] * 20
        assert refused() == 20
        slow += [socket.create_connection(address(url), source_address=("127.0.0.3", 0)) for _ in range(45)]
        # all places are taken by those who say nothing: the most silent makes room
        assert [httpx.get(f"{url}/healthz").status_code for _ in range(20)] == [200] * 20
        for raw in slow:
            raw.close()


def _answer(raw: socket.socket) -> bytes:
    raw.setblocking(False)
    try:
        return raw.recv(100)
    except BlockingIOError:
        return b""
    except ConnectionError:
        return b"HTTP/1.1 503"


# ---- the database


def test_reads_say_503_while_postgresql_is_down_and_it_comes_back(tmp_path: Path) -> None:
    with postgres.cluster() as cluster, service(tmp_path, database=cluster.url) as opened, client(opened) as web:
        key = opened.worklist.keys[0]
        assert web.get("/readyz").status_code == 200
        cluster.stop()
        for path in ("/api/visits", f"/api/visits/{key}", f"/api/visits/{key}/history", "/api/decisions/export"):
            answer = web.get(path)
            assert answer.status_code == 503 and answer.headers["retry-after"], (path, answer.text)
        assert web.post(f"/api/visits/{key}/decisions", json=wanted("fall")).status_code == 503
        until = time.monotonic() + 60
        while web.get("/readyz").status_code == 200:
            assert time.monotonic() < until
            time.sleep(0.2)
        assert web.get("/healthz").status_code == 200
        cluster.start()
        until = time.monotonic() + 60
        while web.get("/readyz").status_code != 200:
            assert time.monotonic() < until
            time.sleep(0.2)
        assert web.post(f"/api/visits/{key}/decisions", json=wanted("fall")).status_code == 200


def test_not_ready_on_a_full_disk(tmp_path: Path) -> None:
    """The limit of a file's size stands in for the disk's: SQLite's log may not grow any more."""
    with service(tmp_path) as opened, client(opened) as web:
        fill(opened, 50)
        assert web.get("/readyz").status_code == 200
        size, key = (tmp_path / "decisions.db-wal").stat().st_size, opened.worklist.keys[0]
        resource.setrlimit(resource.RLIMIT_FSIZE, (size, resource.RLIM_INFINITY))
        try:
            until = time.monotonic() + 60
            while web.get("/readyz").status_code == 200:
                assert time.monotonic() < until
                time.sleep(0.2)
            assert web.post(f"/api/visits/{key}/decisions", json=wanted("fall")).status_code == 503
            assert web.get(f"/api/visits/{key}").status_code == 200 and web.get("/healthz").status_code == 200
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
        until = time.monotonic() + 60
        while web.get("/readyz").status_code != 200:
            assert time.monotonic() < until
            time.sleep(0.2)
        assert web.post(f"/api/visits/{key}/decisions", json=wanted("fall")).status_code == 200


def test_not_ready_where_nothing_can_be_written(tmp_path: Path) -> None:
    """Somebody else holds SQLite's lock."""
    with service(tmp_path) as opened, client(opened) as web:
        assert web.get("/readyz").status_code == 200
        with closing(sqlite3.connect(tmp_path / "decisions.db", isolation_level=None)) as other:
            other.execute("BEGIN IMMEDIATE")  # nothing can be written either
            start = time.monotonic()
            while web.get("/readyz").status_code == 200:
                assert time.monotonic() - start < 60
                time.sleep(0.2)
            start = time.monotonic()
            assert web.get("/readyz").status_code == 503 and time.monotonic() - start < 20
            assert web.get("/api/visits").status_code == 200
            other.execute("ROLLBACK")


# ---- the audit


def test_the_audit_shows_who_did_what_and_nothing_of_a_record(tmp_path: Path) -> None:
    with service(tmp_path, auth="token", failures_per_minute=1000) as opened, client(opened) as web:
        token = opened.store.access.create("Dr. Ada", "admin", 1)
        key = opened.worklist.keys[0]
        session = web.post("/api/session", json={"token": token}).json()
        safe = {"X-Whatelse-CSRF": session["csrf"]}
        for _ in range(3):
            web.get(f"/api/visits/{key}")
            web.get(f"/api/visits/{key}/why?condition=fall")
        web.post(f"/api/visits/{key}/decisions", json=wanted("fall"), headers=safe)
        web.post(f"/api/visits/{key}/undo", json={"version": 1, "request": "request-undo"}, headers=safe)
        web.get("/api/decisions/export")
        web.post("/admin/model", headers=safe, json={})
        web.get("/api/visits")
        web.post("/api/visits/search", json={"words": "Jane Doe"}, headers=safe)
        web.request("DELETE", "/api/session", headers={**safe, "content-type": "application/json"})
        web.cookies.clear()
        for k in range(50):
            web.get(f"/api/visits/{key}", headers=bearer(f"wrong {k}"))
        wait_until(lambda: len(list(audit.lines(opened.store.engine))) >= 8 + 30)  # written beside the answers
        opened.store.ping()
        lines = [json.loads(line) for line in audit.lines(opened.store.engine)]
        events = [(line["event"], line["actor"]) for line in lines]
        assert events[:8] == [
            (event, "Dr. Ada")
            for event in ("sign-in", "visit read", "decision", "undo", "export", "model", "worklist read", "sign-out")
        ]
        assert [line["visit"] for line in lines[1:4]] == [key] * 3 and lines[5]["detail"]["model"]
        assert {event for event, _ in events[8:]} == {"refused"} and 20 < len(events[8:]) < 50
        text = json.dumps(lines)
        assert FALLEN.id not in text and "Doe" not in text and "fell" not in text and token not in text
        assert chain.verify(opened.store.engine, schema.audit).lines == len(lines)


# ---- the description


def test_the_description_has_refusals_files_and_times_as_they_are(web: httpx.Client) -> None:
    found = web.get("/openapi.json").json()
    for path, methods in found["paths"].items():
        for method, said in methods.items():
            if path not in ("/healthz", "/readyz"):
                assert {"415", "421", "503"} <= set(said["responses"]), (method, path)
    exported = found["paths"]["/api/decisions/export"]["get"]["responses"]["200"]["content"]
    assert set(exported) == {"text/csv", "application/vnd.apache.parquet"}
    times = [found["components"]["schemas"][name]["properties"]["time"] for name in ("Row", "Record")]
    assert "date-time" not in json.dumps(times) and "zone" in json.dumps(times)
