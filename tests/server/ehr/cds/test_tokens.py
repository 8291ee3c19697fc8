"""Who may call a hook: tokens, origins, and settings that would let strangers in."""

from __future__ import annotations

import json
import time
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import jwt
import pytest
from cryptography.hazmat.primitives.asymmetric import ec, rsa

from tests.support.hooking import VIEW, call
from tests.support.serving import client, service
from whatelse.server.settings import SettingsError, allowed_server, load_settings

ISSUER = "https://ehr.example.org"


class Ehr:
    """An EHR's own keys, and tokens signed with them."""

    def __init__(self, folder: Path) -> None:
        self.keys: dict[str, Any] = {
            "ES384": ec.generate_private_key(ec.SECP384R1()),
            "RS384": rsa.generate_private_key(public_exponent=65537, key_size=2048),
        }
        algorithms = jwt.algorithms.get_default_algorithms()
        public = [
            {**json.loads(algorithms[name].to_jwk(key.public_key())), "kid": name} for name, key in self.keys.items()
        ]
        self.file = folder / "keys.json"
        self.file.write_text(json.dumps({"keys": public}))

    def token(
        self, address: str, algorithm: str = "ES384", *, key: Any = None, headers: Any = None, **claims: Any
    ) -> str:
        at = time.time()
        said = {"iss": ISSUER, "aud": address, "exp": int(at) + 300, "iat": int(at), "jti": str(uuid.uuid4()), **claims}
        said = {name: value for name, value in said.items() if value is not None}
        return jwt.encode(said, key or self.keys[algorithm], algorithm, {"kid": algorithm, **(headers or {})})


@pytest.fixture
def guarded(tmp_path: Path) -> Iterator[tuple[Ehr, httpx.Client]]:
    ehr = Ehr(tmp_path)
    settings = {"cds_issuers": {ISSUER: str(ehr.file)}, "cds_audiences": ["whatelse-at-general"]}
    with (
        service(tmp_path, cds_hooks=True, cds_origins=["http://ehr.test:8092"], **settings) as opened,
        client(opened) as http,
    ):
        yield ehr, http


def test_tokens_of_the_issuers_configured(guarded: tuple[Ehr, httpx.Client]) -> None:
    ehr, http = guarded
    address = f"{http.base_url}".rstrip("/") + VIEW

    def ask(token: str | None, at: str = VIEW, body: Any = None) -> int:
        headers = {"authorization": f"Bearer {token}"} if token else {}
        return http.post(at, json=call() if body is None else body, headers=headers).status_code

    assert ask(ehr.token(address)) == 200
    assert ask(ehr.token(address, "RS384", sub="client", nbf=int(time.time()) - 300)) == 200
    assert ask(ehr.token("whatelse-at-general")) == 200
    assert ask(ehr.token(address, iat=int(time.time()) + 1)) == 200, "iat rounded up to the next second"
    assert ask(ehr.token(address + "/feedback"), VIEW + "/feedback", {"feedback": []}) == 200
    assert http.get("/cds-services").status_code == 200

    other = ec.generate_private_key(ec.SECP384R1())
    jku = {"jku": "http://evil.test/keys.json"}
    replayed = ehr.token(address)
    assert ask(replayed) == 200 and ask(replayed) == 401
    for wrong in (
        None,
        "nonsense",
        "a.b.c",
        ehr.token(address, key=other),
        ehr.token(address, key=other, headers=jku),
        ehr.token(address, iss="https://sandbox.cds-hooks.org"),
        ehr.token(address, iss=None),
        ehr.token("https://other.example.org/cds-services/x"),
        ehr.token(address + "/feedback"),
        ehr.token(address, aud=None),
        ehr.token(address, exp=int(time.time()) - 300),
        ehr.token(address, exp=int(time.time()) + 10**6),
        ehr.token(address, exp=None),
        ehr.token(address, jti=None),
        ehr.token(address, jti=7),
        ehr.token(address, jti="x" * 501),
        ehr.token(address, exp=f"{int(time.time()) + 10**6}"),
        ehr.token(address, exp=[int(time.time())]),
        ehr.token(address, iat=int(time.time()) + 600),
        ehr.token(address, aud=["https://other.example.org", "x"]),
        ehr.token(address, headers={"kid": "../../etc/passwd"}),
        ehr.token(address, headers={"crit": ["x"], "x": 1}),
        ehr.token(address, nbf=int(time.time()) + 600),
        jwt.encode({"iss": ISSUER, "aud": address, "exp": 9**10, "iat": 1, "jti": "n"}, "", "none"),
        jwt.encode({"iss": ISSUER, "aud": address, "exp": time.time() + 99, "iat": 1, "jti": "h"},
        "x" * 48, "HS384"),
    ):  # fmt: skip
        assert ask(wrong) == 401, wrong


def test_browsers_of_an_ehr_may_call_and_others_may_not(guarded: tuple[Ehr, httpx.Client]) -> None:
    ehr, http = guarded
    address = f"{http.base_url}".rstrip("/") + VIEW
    wants = {"access-control-request-method": "POST", "access-control-request-headers": "authorization,content-type"}
    known, unknown = {"origin": "http://ehr.test:8092"}, {"origin": "http://evil.test"}
    before = http.options(VIEW, headers={**known, **wants})
    assert before.status_code == 200 and before.headers["access-control-allow-origin"] == known["origin"]
    assert "authorization" in before.headers["access-control-allow-headers"]
    cross = {"sec-fetch-site": "cross-site", "authorization": f"Bearer {ehr.token(address)}"}
    answer = http.post(VIEW, json=call(), headers={**known, **cross})
    assert answer.status_code == 200 and answer.headers["access-control-allow-origin"] == known["origin"]
    refused = http.post(VIEW, json=call(), headers={**unknown, **cross})
    assert refused.status_code == 403 and "access-control-allow-origin" not in refused.headers
    assert "access-control-allow-origin" not in http.options(VIEW, headers={**unknown, **wants}).headers
    page = http.post("/api/visits/search", json={}, headers={**known, "sec-fetch-site": "cross-site"})
    assert page.status_code == 403, "the page itself is as closed as before"


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"cds_hooks": True, "host": "0.0.0.0", "auth": "token"}, "by anybody"),
        ({"smart_client_id": "x"}, "no EHR could launch"),
        ({"fhir_servers": ["ftp://x"]}, "is not an address"),
        ({"fhir_servers": ["https://ehr.example.org*"]}, "is not an address"),
        ({"fhir_servers": ["https://*/fhir"]}, "is not an address"),
        ({"cds_origins": ["*"]}, "is not an origin"),
        ({"cds_hooks": True, "workers": 2, "database": "postgresql://x"}, "workers 1"),
    ],
)
def test_settings_that_cannot_work_or_let_strangers_in(given: dict[str, Any], says: str) -> None:
    with pytest.raises(SettingsError, match=says):
        load_settings(None, model="x.model", **given)


def test_which_fhir_servers_are_read() -> None:
    servers = ["https://ehr.example.org/fhir", "http://localhost:8093/v/r4/*"]
    for good in (
        "https://ehr.example.org/fhir",
        "https://ehr.example.org/fhir/",
        "http://localhost:8093/v/r4/sim/x/fhir",
        "HTTPS://EHR.example.org:443/fhir",
        "http://localhost:8093/v/r4/sim/WzIsIiJd_-0=/fhir",
    ):
        assert allowed_server(servers, good)
    for bad in (
        *("https://ehr.example.org/fhir2", "http://ehr.example.org/fhir", "https://evil.test", "http://localhost:8093/v/r4"),
        *("http://localhost:8093/v/r4/../../admin", "https://ehr.example.org@evil.test/fhir", ""),
        *("http://localhost:8093/v/r4/%2e%2e/admin", "http://localhost:8093/v/r4/%252e%252e/admin"),
        *("http://localhost:8093/v/r4/x?y=/fhir", "http://localhost:8093/v/r4/x#/fhir", "http://localhost:8093/v/r4/%3fx"),
        *("http://localhost:8093/v/r4/%2fx", "http://localhost:8093/v/r4//x", "http://localhost:8093/v/r4/a;b"),
        *("http://localhost:8093%2fv%2fr4%2f.evil.test/x", "http://localhost%3a8093%2fv%2fr4%2fx.evil.test"),
        *("http://localhost:8093/v/r4/%c0%ae%c0%ae/admin", "http://localhost:8093/v/r4/%61", "http://localhost:8093/V/R4/x"),
        *("http://localhost:8093/v/r4/\uff0e\uff0e/admin", "http://localhost:8093/v/r4/x\n", "\thttp://localhost:8093/v/r4/x"),
        *("http://localhost:8093\\@evil.test/v/r4/x", "http://localhost:8093/v/r4/..", "http://localhost:8094/v/r4/x"),
        *("http://localhost:8093.evil.test/v/r4/x", "http://x@localhost:8093/v/r4/x", "http://localhost:99999999/v/r4/x"),
    ):  # fmt: skip
        assert not allowed_server(servers, bad), bad


def test_token_for_another_service_is_refused_whatever_host_the_caller_names(tmp_path: Path) -> None:
    ehr = Ehr(tmp_path)
    settings = {"cds_issuers": {ISSUER: str(ehr.file)}, "cds_audiences": ["whatelse-at-general"]}
    settings |= {"host": "0.0.0.0", "auth": "token"}
    with service(tmp_path, cds_hooks=True, **settings) as opened, client(opened) as http:
        token = ehr.token("http://other.example.org" + VIEW)
        relayed = {"authorization": f"Bearer {token}", "host": "other.example.org"}
        assert http.post(VIEW, json=call(), headers=relayed).status_code == 401
        meant = {"authorization": f"Bearer {ehr.token('whatelse-at-general')}"}
        assert http.post(VIEW, json=call(), headers=meant).status_code == 200
