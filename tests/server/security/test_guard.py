"""Letting no one in: what strangers, forgers, other sites, and clumsy or slow clients get."""

from __future__ import annotations

import json
import logging
import socket
import time
from collections.abc import Iterator
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import httpx
import jwt
import pytest
from cryptography.hazmat.primitives.asymmetric import rsa
from typer.testing import CliRunner

from tests.support.serving import FALLEN, HOSTILE, SCRIPT, client, live, save_model, service, wanted
from whatelse.cli import app as command_line
from whatelse.server import Service, Settings
from whatelse.server.app import render_pages
from whatelse.server.routes.workbench import PAGES as WORKBENCH
from whatelse.server.security import auth
from whatelse.server.security.auth import Gate
from whatelse.server.security.jwks import Oidc, TokenRefused
from whatelse.server.security.limits import Buckets
from whatelse.server.settings import SettingsError, is_loopback, load_settings
from whatelse.store import schema

ISSUER, AUDIENCE = "https://login.example.org", "whatelse"
KEY, OTHER = (rsa.generate_private_key(public_exponent=65537, key_size=2048) for _ in range(2))


@pytest.fixture(scope="module")
def opened(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    with service(tmp_path_factory.mktemp("open"), client_seconds=1.0) as made:
        yield made


@pytest.fixture(scope="module")
def web(opened: Service) -> Iterator[httpx.Client]:
    with client(opened) as made:
        yield made


@pytest.fixture(scope="module")
def locked(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    with service(tmp_path_factory.mktemp("locked"), auth="token", failures_per_minute=1000) as made:
        yield made


@pytest.fixture(scope="module")
def gate(locked: Service) -> Iterator[httpx.Client]:
    with client(locked) as made:
        yield made


def key_of(opened: Service, index: int = 0) -> str:
    return opened.worklist.keys[index]


def bearer(token: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {token}"}


# ---- starting


@pytest.mark.parametrize(
    "given",
    [
        {"host": "0.0.0.0"},
        {"host": "::"},
        {"host": "10.0.0.7"},
        {"allowed_hosts": ["ed.example.org"]},
        {"public_url": "https://ed.example.org"},
    ],
)
def test_strangers_could_come_in_so_it_does_not_start(given: dict[str, Any]) -> None:
    with pytest.raises(SettingsError, match="whatelse token create"):
        load_settings(None, model="x.model", **given)
    load_settings(None, model="x.model", auth="token", **given)


def test_what_came_through_a_proxy_is_nobody_where_nobody_signs_in(opened: Service, web: httpx.Client) -> None:
    with pytest.raises(SettingsError, match="trusted_proxies"):
        load_settings(None, model="x.model", trusted_proxies=["10.0.0.7"])
    assert web.get("/api/visits").status_code == 200
    for name in ("x-forwarded-for", "forwarded", "X-Real-IP", "X-Forwarded-Proto", "Via", "CF-Connecting-IP"):
        assert web.get("/api/visits", headers={name: "203.0.113.9"}).status_code == 403


def test_the_command_says_what_to_do(tmp_path: Path) -> None:
    model = save_model(tmp_path)
    run = CliRunner().invoke(command_line, ["serve", "--model", str(model), "--host", "0.0.0.0"])
    assert run.exit_code == 2 and "whatelse token create" in run.stderr and "Traceback" not in run.stderr
    database = f"sqlite:///{tmp_path / 'd.db'}"
    run = CliRunner().invoke(command_line, ["serve", "--model", str(model), "--auth", "token", "--database", database])
    assert run.exit_code == 2 and "no token is good" in run.stderr
    run = CliRunner().invoke(command_line, ["serve", "--model", str(tmp_path / "none.model")])
    assert run.exit_code == 2 and "no such file" in run.stderr
    run = CliRunner().invoke(command_line, ["serve", "--model", str(model), "--auth", "magic"])
    assert run.exit_code == 2 and "auth" in run.stderr


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"auth": "oidc"}, "oidc_issuer"),
        ({"frame_ancestors": ["https://a.org; script-src *"]}, "not an origin"),
        ({"port": 70000}, "port"),
        ({"no_such_setting": 1}, "no_such_setting"),
    ],
)
def test_settings_that_cannot_be_used(given: dict[str, Any], says: str) -> None:
    with pytest.raises(SettingsError, match=says):
        load_settings(None, model="x.model", **given)


def test_what_is_loopback() -> None:
    assert all(map(is_loopback, ["127.0.0.1", "127.9.9.9", "::1", "[::1]", "localhost"]))
    assert not any(
        map(is_loopback, ["0.0.0.0", "::", "192.168.0.1", "localhost.example.org", "127.0.0.1.example.org", ""])
    )


# ---- tokens


def test_nothing_about_visits_without_a_token(gate: httpx.Client, locked: Service) -> None:
    key = key_of(locked)
    for method, path in [
        ("GET", "/api/visits"), ("GET", f"/api/visits/{key}"), ("GET", f"/api/visits/{key}/history"),
        ("GET", "/api/model"), ("GET", "/metrics"), ("GET", "/api/decisions/export"), ("GET", "/api/session"),
        ("POST", "/api/visits/search"), ("POST", f"/api/visits/{key}/decisions"), ("POST", f"/api/visits/{key}/undo"),
        ("POST", "/api/suggest"), ("POST", "/api/why"), ("POST", "/admin/model"), ("DELETE", "/api/session"),
    ]:  # fmt: skip
        answer = gate.request(
            method, path, json={} if method != "GET" else None, headers={"content-type": "application/json"}
        )
        assert answer.status_code == 401, (method, path)
        assert answer.headers["www-authenticate"] == "Bearer"
    assert gate.get("/healthz").status_code == 200  # for whoever keeps it running
    assert FALLEN.chief_complaint not in gate.get("/").text  # pages are empty until the API fills them


def test_every_route_of_the_description_asks_who_is_there(gate: httpx.Client, locked: Service) -> None:
    admin = locked.store.access.create("admin", "admin", 1)
    paths = gate.get("/openapi.json", headers=bearer(admin)).json()["paths"]
    open_to_all = {"/healthz", "/readyz"}
    for path, methods in paths.items():
        for method in methods:
            if path in open_to_all or (path, method) == ("/api/session", "post"):
                continue
            answer = gate.request(
                method, path.replace("{key}", "x"), headers={"content-type": "application/json"}, content=b"{}"
            )
            assert answer.status_code == 401, (method, path)


def test_expired_revoked_and_made_up_tokens(gate: httpx.Client, locked: Service) -> None:
    access = locked.store.access
    for token in ("nonsense", "whatelse_" + "A" * 43, access.create("late", "admin", 1e-9), "é" * 9, "' OR 1=1 --"):
        sent = {"Authorization": f"Bearer {token}".encode()}
        assert gate.get("/api/visits", headers=sent).status_code == 401
    token = access.create("leaving", "admin", 1)
    assert gate.get("/api/visits", headers=bearer(token)).status_code == 200
    access.revoke(access.list()[-1].id)
    time.sleep(auth.REMEMBERED + 0.1)
    assert gate.get("/api/visits", headers=bearer(token)).status_code == 401
    for header in (token, f"Basic {token}", "Bearer", "Bearer ,"):
        assert gate.get("/api/visits", headers={"Authorization": header}).status_code == 401


def test_each_role_may_do_its_own(gate: httpx.Client, locked: Service) -> None:
    key = key_of(locked, 3)
    tokens = {role: locked.store.access.create(role, role, 1) for role in ("viewer", "clinician", "admin")}
    tried = {
        role: [
            gate.get(f"/api/visits/{key}", headers=bearer(token)).status_code,
            gate.post(
                f"/api/visits/{key}/decisions", headers=bearer(token), json=wanted("fall", "gout", 0)
            ).status_code,
            gate.post("/admin/model", headers=bearer(token), json={}).status_code,
            gate.get("/api/decisions/export", headers=bearer(token)).status_code,
        ]
        for role, token in tokens.items()
    }
    assert tried == {"viewer": [200, 403, 403, 403], "clinician": [200, 422, 403, 403], "admin": [200, 422, 200, 200]}


def test_guessing_tokens_is_slowed_down(tmp_path: Path) -> None:
    with service(tmp_path, auth="token", failures_per_minute=5) as opened, client(opened) as web:
        good = opened.store.access.create("a", "viewer", 1)
        got = [web.get("/api/visits", headers=bearer(f"guess {k}")).status_code for k in range(8)]
        assert got == [401] * 5 + [429] * 3
        answer = web.post("/api/session", json={"token": "guess"})
        assert answer.status_code == 429 and int(answer.headers["retry-after"]) >= 1
        assert web.get("/api/visits", headers=bearer(good)).status_code == 200  # others from there are not kept out


# ---- sessions and other sites


def test_the_session_cookie_and_its_csrf_token(gate: httpx.Client, locked: Service) -> None:
    token = locked.store.access.create("Dr. Ada", "clinician", 1)
    assert gate.post("/api/session", json={"token": "wrong"}).status_code == 401
    made = gate.post("/api/session", json={"token": token})
    cookie = made.headers["set-cookie"]
    assert "HttpOnly" in cookie and "SameSite=strict" in cookie and token not in cookie and token not in made.text
    csrf, key = made.json()["csrf"], key_of(locked, 4)
    path = f"/api/visits/{key}/decisions"
    assert gate.get("/api/session").json()["csrf"] == csrf
    assert gate.post(path, json=wanted("fall")).status_code == 403
    assert gate.post(path, json=wanted("fall"), headers={"X-Whatelse-CSRF": "x" * 43}).status_code == 403
    other_site = {"X-Whatelse-CSRF": csrf, "Origin": "https://evil.example"}
    assert gate.post(path, json=wanted("fall"), headers=other_site).status_code == 403
    assert gate.post(path, json=wanted("fall"), headers={"X-Whatelse-CSRF": csrf}).status_code == 200
    with locked.store.engine.connect() as connection:  # what is stored lets nobody in
        stored = str(connection.execute(schema.session.select()).all())
    assert gate.cookies["whatelse_session"] not in stored
    old = gate.cookies["whatelse_session"]
    gone = gate.request("DELETE", "/api/session", headers={"X-Whatelse-CSRF": csrf, "content-type": "application/json"})
    assert gone.status_code == 204
    gate.cookies.clear()
    assert gate.get("/api/visits", headers={"Cookie": f"whatelse_session={old}"}).status_code == 401


def test_cookies_are_for_https_where_others_can_listen() -> None:
    settings = load_settings(None, model="x", host="0.0.0.0", auth="token")
    assert settings.cookie_secure and not load_settings(None, model="x").cookie_secure


def test_other_sites_change_nothing_even_where_nobody_signs_in(opened: Service, web: httpx.Client) -> None:
    path = f"/api/visits/{key_of(opened, 5)}/decisions"
    for headers in (
        {"Origin": "https://evil.example"},
        {"Origin": "null"},
        {"Sec-Fetch-Site": "cross-site"},
        {"Sec-Fetch-Site": "same-site"},
    ):
        assert web.post(path, json=wanted("fall"), headers=headers).status_code == 403
    for kind in ("text/plain", "application/x-www-form-urlencoded", "multipart/form-data"):  # what a form can send
        assert web.post(path, content=json.dumps(wanted("fall")), headers={"content-type": kind}).status_code == 415
    assert opened.store.state(opened.worklist.visits[5].id).version == 0
    own = {"Origin": str(web.base_url).rstrip("/"), "Sec-Fetch-Site": "same-origin"}
    assert web.post(path, json=wanted("fall"), headers=own).status_code == 200


@pytest.mark.parametrize("host", ["evil.example", "evil.example:8000", "127.0.0.1.evil.example", "[::1", ""])
def test_dns_rebinding_finds_nobody(web: httpx.Client, host: str) -> None:
    assert web.get("/api/visits", headers={"Host": host}).status_code in (400, 421)
    assert web.get("/api/visits", headers={"Host": "localhost:1234"}).status_code == 200


def test_headers_keep_the_page_to_itself(web: httpx.Client) -> None:
    for path in ("/", "/visit/x", "/static/visit.js", "/api/visits", "/nothing"):
        headers = web.get(path).headers
        policy = headers["content-security-policy"]
        assert "default-src 'none'" in policy and "script-src 'self'" in policy and "unsafe" not in policy
        assert "frame-ancestors 'none'" in policy and headers["x-frame-options"] == "DENY"
        assert headers["x-content-type-options"] == "nosniff" and headers["referrer-policy"] == "no-referrer"
        assert "server" not in headers
    assert web.get("/api/visits").headers["cache-control"] == "no-store"


def test_pages_load_nothing_from_elsewhere_and_have_nothing_inline() -> None:
    static = Path(__file__).parents[3] / "src" / "whatelse" / "server" / "static"
    for file in static.rglob("*.*"):
        text = file.read_text(encoding="utf-8")
        assert "https://" not in text and "http://" not in text.replace("http://www.w3.org/2000/svg", ""), file
        assert "innerHTML" not in text and "insertAdjacentHTML" not in text and "eval(" not in text, file
    for page in (*render_pages().values(), *render_pages(WORKBENCH).values()):
        assert " style=" not in page and " onclick=" not in page and "<style" not in page and "http" not in page
        assert page.count("<script") == page.count('<script type="module" src="/static/') == 1


# ---- JSON Web Tokens


def jwks(folder: Path) -> Path:
    public = json.loads(jwt.algorithms.RSAAlgorithm.to_jwk(KEY.public_key()))
    path = folder / "keys.json"
    path.write_text(json.dumps({"keys": [{**public, "kid": "one", "use": "sig", "alg": "RS256"}]}))
    return path


def claims(**other: Any) -> dict[str, Any]:
    now = datetime.now(UTC)
    whole = {
        "iss": ISSUER,
        "aud": AUDIENCE,
        "sub": "ada",
        "roles": ["clinician"],
        "exp": now + timedelta(hours=1),
        **other,
    }
    return {name: value for name, value in whole.items() if value is not None}


def sign(content: dict[str, Any], key: Any = KEY, algorithm: str = "RS256", **headers: Any) -> str:
    return jwt.encode(content, key, algorithm, headers={"kid": "one", **headers})


def test_tokens_of_an_issuer_are_let_in_and_forged_ones_are_not(tmp_path: Path) -> None:
    keys = jwks(tmp_path)
    given = dict(auth="oidc", oidc_issuer=ISSUER, oidc_audience=AUDIENCE, oidc_keys=str(keys), failures_per_minute=1000)
    past = datetime.now(UTC) - timedelta(hours=1)
    public = KEY.public_key().public_numbers().n.to_bytes(256, "big")
    with service(tmp_path, **given) as opened, client(opened) as web:
        Gate(opened).check()

        def status(token: str, path: str = "/api/session") -> int:
            return web.get(path, headers=bearer(token)).status_code

        good = sign(claims())
        assert web.get("/api/session", headers=bearer(good)).json()["name"] == "ada"
        assert web.get("/api/session", headers=bearer(sign(claims(roles="admin")))).json()["role"] == "admin"
        forged = {
            "alg none": jwt.encode(claims(), None, "none", headers={"kid": "one"}),
            "wrong key": sign(claims(), OTHER),
            "public key as a secret": sign(claims(), public, "HS256"),
            "wrong audience": sign(claims(aud="another")),
            "no audience": sign(claims(aud=None)),
            "wrong issuer": sign(claims(iss="https://evil.example")),
            "expired": sign(claims(exp=past)),
            "no expiry": sign(claims(exp=None)),
            "not yet": sign(claims(nbf=datetime.now(UTC) + timedelta(hours=1))),
            "unknown key": sign(claims(), kid="two"),
            "odd key": good.replace(good.split(".")[0], "eyJhbGciOiJSUzI1NiIsImtpZCI6e319"),
            "cut": good[:-9],
            "changed": ".".join([good.split(".")[0], sign(claims(sub="eve")).split(".")[1], good.split(".")[2]]),
            "no role": sign(claims(roles=None)),
            "unknown role": sign(claims(roles=["root"])),
            "no name": sign(claims(sub="")),
            "not a token": "a.b.c",
        }
        assert {name: status(token) for name, token in forged.items()} == dict.fromkeys(forged, 401)
        viewer = sign(claims(roles=["viewer"]))
        path = f"/api/visits/{key_of(opened)}/decisions"
        assert web.post(path, headers=bearer(viewer), json=wanted("fall")).status_code == 403
        assert web.post(path, headers=bearer(good), json=wanted("fall")).status_code == 200
        assert opened.store.history(FALLEN.id)[0].actor == "ada"
        session = web.post("/api/session", json={"token": good})
        assert session.status_code == 200 and session.json()["csrf"]


def test_roles_may_be_inside_another_claim(tmp_path: Path) -> None:
    given = dict(oidc_issuer=ISSUER, oidc_audience=AUDIENCE, oidc_keys=str(jwks(tmp_path)), oidc_name_claim="email")
    check = Oidc(Settings(model="x", auth="oidc", oidc_role_claim="realm_access.roles", **given))
    person = check.person(
        sign(claims(realm_access={"roles": ["viewer", "admin"]}, email="ada@example.org", roles=None))
    )
    assert (person.name, person.role) == ("ada@example.org", "admin")
    with pytest.raises(TokenRefused, match="role"):
        check.person(sign(claims(email="ada@example.org")))


def test_an_issuer_without_keys_is_found_out_at_the_start(tmp_path: Path) -> None:
    given = dict(auth="oidc", oidc_issuer="http://127.0.0.1:9", oidc_audience=AUDIENCE)
    with service(tmp_path, **given) as opened, pytest.raises(SettingsError, match="keys of"):
        Gate(opened).check()


# ---- bodies, paths, ids


def test_bodies_that_are_too_long_are_not_read(web: httpx.Client) -> None:
    ten = b'{"visit": {"triage_note": "' + b"a" * 10_000_000 + b'"}}'
    headers = {"content-type": "application/json"}
    answer = web.post("/api/suggest", content=ten, headers=headers)
    assert answer.status_code == 413

    def pieces() -> Iterator[bytes]:  # no length is announced
        for _ in range(160):
            yield b"a" * 65_536

    with suppress(httpx.WriteError, httpx.RemoteProtocolError, httpx.ReadError):  # it may hang up in the middle of it
        assert web.post("/api/suggest", content=pieces(), headers=headers).status_code == 413
    assert web.get("/healthz").status_code == 200


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{",
        b"[]",
        b"null",
        b'"x"',
        b'{"visit": 1}',
        b'{"visit": {"age": NaN}}',
        b"\xff\xfe",
        b'{"visit": {"age": 1e999}}',
        b'{"visit": {"triage_note": "\\ud800"}}',
        b"[" * 100_000,
        b'{"a":' * 20_000,
    ],
)
def test_malformed_json_is_refused_in_a_sentence(web: httpx.Client, body: bytes) -> None:
    answer = web.post("/api/suggest", content=body, headers={"content-type": "application/json"})
    assert answer.status_code in (400, 422), answer.text
    assert set(answer.json()) == {"detail"} and isinstance(answer.json()["detail"], str)


def test_errors_do_not_repeat_what_was_sent(web: httpx.Client) -> None:
    answer = web.post("/api/suggest", json={"visit": {"age": "Jane Doe, room 7"}, "Jane": SCRIPT})
    assert answer.status_code == 422 and "Doe" not in answer.text and "script" not in answer.text


@pytest.mark.parametrize(
    "path",
    [
        "/static/../app.py",
        "/static/..%2fapp.py",
        "/static/%2e%2e/app.py",
        "/static/....//app.py",
        "/static/%00",
        "/static/",
        "/static//etc/passwd",
        "/visit/../../etc/passwd",
        "/api/visits/..%2f..%2fetc%2fpasswd",
        "/api/visits/%00",
        "//etc/passwd",
    ],
)
def test_path_tricks_find_no_file(opened: Service, path: str) -> None:
    with live(opened) as url:
        port = int(url.rsplit(":", 1)[1])
        with socket.create_connection(("127.0.0.1", port), timeout=60) as raw:
            raw.sendall(f"GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n".encode())
            answer = b"".join(iter(lambda: raw.recv(65536), b"")).decode("utf-8", "replace")
    head = answer.split("\r\n")[0]
    assert "root:" not in answer and "create_app" not in answer
    assert head.split()[1] in ("400", "404", "405") or "<!doctype html>" in answer


@pytest.mark.parametrize("key", ["1' OR '1'='1", "'; DROP TABLE decision; --", FALLEN.id, SCRIPT, "x" * 5000, "🤕"])
def test_ids_that_are_not_keys(opened: Service, web: httpx.Client, key: str) -> None:
    from urllib.parse import quote

    answer = web.get(f"/api/visits/{quote(key, safe='')}")
    assert answer.status_code == 404 and answer.json()["detail"] in (
        "there is no such visit in this worklist",
        "Not Found",
    )
    decided = web.post(f"/api/visits/{quote(key, safe='')}/decisions", json=wanted("fall"))
    assert decided.status_code == 404


def test_a_visit_with_a_hostile_id_is_decided_on_like_any_other(opened: Service, web: httpx.Client) -> None:
    key = key_of(opened, 1)
    assert web.post(f"/api/visits/{key}/decisions", json=wanted("fall")).status_code == 200
    assert opened.store.state(HOSTILE.id).confirmed == ("fall",)
    for subject in ("'; DROP TABLE decision; --", SCRIPT, "Fall"):
        assert web.post(f"/api/visits/{key}/decisions", json=wanted(subject, version=1)).status_code == 404


# ---- inside


def test_an_error_inside_is_a_number_outside_and_no_record_in_the_log(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    with service(tmp_path) as opened, client(opened) as web:
        web.get(f"/api/visits/{key_of(opened)}")

        def fails(*_: object) -> None:
            raise RuntimeError(f"secret {FALLEN.triage_note}")

        monkeypatch.setattr(opened.store, "version", fails)
        with caplog.at_level(logging.DEBUG):
            answer = web.get(f"/api/visits/{key_of(opened)}")
            web.post("/api/visits/search", json={"words": "Jane Doe"})
        assert answer.status_code == 500 and set(answer.json()) == {"detail", "incident"}
        logged = "\n".join(record.getMessage() for record in caplog.records if record.name.startswith("whatelse"))
        assert answer.json()["incident"] in logged and "RuntimeError" in logged
        everything = caplog.text + logged + answer.text
        assert "secret" not in everything and "standing" not in everything and "Doe" not in everything
        assert key_of(opened) not in logged  # not even the opaque key: the route is enough


# ---- limits


def test_who_asks_too_often_waits(tmp_path: Path) -> None:
    with service(tmp_path, rate_limit=1.25) as opened, client(opened) as web:
        got = [web.get("/api/model").status_code for _ in range(8)]
        assert got == [200] * 5 + [429] * 3
        assert web.get("/api/model").headers["retry-after"] == "1"
        assert web.get("/healthz").status_code == 200


def test_buckets_refill_and_forget() -> None:
    now = [0.0]
    buckets = Buckets(rate=2, burst=3, clock=lambda: now[0])
    assert [buckets.take("a") for _ in range(4)] == [0, 0, 0, 0.5]
    assert buckets.peek("a") == 0.5 and buckets.peek("b") == 0
    now[0] = 1.0
    assert [buckets.take("a") for _ in range(3)] == [0, 0, 0.5]
    assert Buckets(rate=0, burst=1).take("a", 100) == 0
    for k in range(20_000):
        buckets.take(str(k))
    assert len(buckets._levels) <= 10_000


def test_slow_clients_are_shown_out(opened: Service) -> None:
    """A head that does not end, a body that does not come: both end after a second, and others are served meanwhile."""
    with live(opened) as url:
        address = ("127.0.0.1", int(url.rsplit(":", 1)[1]))

        def said(piece: bytes) -> socket.socket:
            raw = socket.create_connection(address, timeout=60)
            raw.sendall(piece)  # at once: who says nothing for a second is shown out too
            return raw

        heads = [said(b"GET / HTTP/1.1\r\nHost: localhost\r\nX-Slow: ") for _ in range(20)]
        bodies = [said(b"POST /api/suggest HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
                       b"Content-Length: 100\r\n\r\n{") for _ in range(20)]  # fmt: skip
        assert httpx.get(f"{url}/healthz").status_code == 200
        for raw in heads:
            assert raw.recv(1000) == b""
        for raw in bodies:
            assert raw.recv(1000).startswith(b"HTTP/1.1 408")
        for raw in (*heads, *bodies):
            raw.close()


def test_settings_are_not_changed_by_accident() -> None:
    with pytest.raises(ValueError, match="frozen"):
        Settings(model="x").host = "0.0.0.0"
