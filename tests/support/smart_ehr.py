"""A small EHR of the tests' own: an authorisation server that checks what a launch sends, before a FHIR server."""

from __future__ import annotations

import base64
import hashlib
import json
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import parse_qs, urlencode

import httpx
import jwt
import uvicorn
from cryptography.hazmat.primitives.asymmetric import rsa
from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import JSONResponse, RedirectResponse, Response
from starlette.routing import Route

CLIENT = "whatelse-app"
Backend = Callable[[str, str], tuple[int, bytes, str]]


@dataclass
class Ehr:
    """What it is set to do, and what it has seen."""

    backend: Backend
    patient: str | None = "p1"
    encounter: str | None = "e1"
    user: str = "Practitioner/7"
    redirect: str = ""
    base: str = ""
    banner: bool = True
    error: str = ""
    expires: int = 3600
    refresh: bool = True
    spoil: dict[str, Any] = field(default_factory=dict)  # claims of the id_token to get wrong
    other_key: bool = False
    problems: list[str] = field(default_factory=list)
    asked: list[dict[str, str]] = field(default_factory=list)
    tokens: set[str] = field(default_factory=set)
    codes: dict[str, dict[str, str]] = field(default_factory=dict)
    refreshed: int = 0
    scope: str = ""  # granted scopes, if not those asked for
    client_keys: str = ""  # address of the client's key set: the client must sign an assertion
    secret: str = ""  # the client must send it with Basic authentication
    unknown_client: bool = False
    described: int = 0  # times that the SMART configuration was asked for
    capabilities: list[str] = field(default_factory=lambda: ["launch-ehr", "permission-v1", "permission-v2"])

    def __post_init__(self) -> None:
        self.key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
        self.wrong = rsa.generate_private_key(public_exponent=65537, key_size=2048)

    @property
    def issuer(self) -> str:
        return self.base + "/fhir"

    def check(self, right: bool, what: str) -> None:
        if not right:
            self.problems.append(what)

    # ---- routes

    async def configuration(self, request: Request) -> Response:
        self.described += 1
        self.check(request.headers.get("accept-encoding") == "identity", "an answer that may be packed")
        return JSONResponse({
            "capabilities": self.capabilities,
            "issuer": self.issuer, "jwks_uri": self.base + "/keys", "authorization_endpoint": self.base + "/authorize",
            "token_endpoint": self.base + "/token", "code_challenge_methods_supported": ["S256"],
        })  # fmt: skip

    async def keys(self, _: Request) -> Response:
        public = json.loads(jwt.algorithms.RSAAlgorithm.to_jwk(self.key.public_key()))
        return JSONResponse({"keys": [public]})  # without a kid, as the reference launcher

    async def authorize(self, request: Request) -> Response:
        if self.unknown_client:
            return JSONResponse({"error": "invalid_client"}, 400)
        asked = dict(request.query_params)
        self.asked.append(asked)
        self.check(asked.get("response_type") == "code", "response_type")
        self.check(asked.get("client_id") == CLIENT, "client_id")
        self.check(asked.get("redirect_uri") == self.redirect, "redirect_uri")
        self.check(asked.get("aud") == self.issuer, "aud")
        self.check(len(asked.get("state", "")) >= 32, "state")
        self.check(asked.get("code_challenge_method") == "S256" and len(asked.get("code_challenge", "")) == 43, "PKCE")
        self.check("*" not in asked.get("scope", "*") and "write" not in asked["scope"], "more scopes than needed")
        self.check(("launch" in asked) == ("launch" in asked["scope"].split()), "launch")
        back = {"state": asked["state"]}
        if self.error:
            back |= {"error": self.error, "error_description": "<b>secret words</b>"}
        else:
            code = f"code-{len(self.codes)}"
            self.codes[code] = asked
            back["code"] = code
        return RedirectResponse(f"{self.redirect}?{urlencode(back)}", 302)

    async def token(self, request: Request) -> Response:
        form = {name: values[0] for name, values in parse_qs((await request.body()).decode()).items()}
        if form.get("grant_type") == "refresh_token":
            self.check(form.get("refresh_token") == "refresh-me", "refresh_token")
            self.refreshed += 1
            return self.grant({})
        if self.client_keys:
            text = form.get("client_assertion", "")
            key = await run_in_threadpool(jwt.PyJWKClient(self.client_keys).get_signing_key_from_jwt, text)
            said = jwt.decode(text, key, algorithms=["RS384", "ES384"], audience=self.base + "/token")
            self.check(said["iss"] == said["sub"] == CLIENT and said["exp"] - time.time() <= 300, "client_assertion")
            self.check("client_id" not in form and "authorization" not in request.headers, "two ways to be a client")
        if self.secret:
            given = base64.b64encode(f"{CLIENT}:{self.secret}".encode()).decode()
            self.check(request.headers.get("authorization") == f"Basic {given}", "client secret")
        asked = self.codes.pop(form.get("code", ""), None)
        if asked is None:
            return JSONResponse({"error": "invalid_grant"}, 400)
        proof = base64.urlsafe_b64encode(hashlib.sha256(form["code_verifier"].encode()).digest()).decode().rstrip("=")
        if proof != asked["code_challenge"] or form["redirect_uri"] != asked["redirect_uri"]:
            self.problems.append("code_verifier")
            return JSONResponse({"error": "invalid_grant"}, 400)
        now = int(time.time())
        claims = {
            "iss": self.issuer, "aud": CLIENT, "sub": "s", "nonce": asked["nonce"], "iat": now, "exp": now + 300,
            "fhirUser": self.user, **self.spoil,
        }  # fmt: skip
        signed = jwt.encode(claims, self.wrong if self.other_key else self.key, "RS256")
        return self.grant({"id_token": signed})

    def grant(self, more: dict[str, Any]) -> Response:
        token = f"token-{len(self.tokens)}"
        self.tokens.add(token)
        given = {"access_token": token, "token_type": "Bearer", "expires_in": self.expires, **more}
        given["scope"] = self.scope or (self.asked[-1]["scope"] if self.asked else "")
        given |= {"patient": self.patient, "need_patient_banner": self.banner}
        given |= {"encounter": self.encounter} if self.encounter else {}
        given |= {"refresh_token": "refresh-me"} if self.refresh else {}
        return JSONResponse({name: value for name, value in given.items() if value is not None})

    async def fhir(self, request: Request) -> Response:
        if request.headers.get("authorization", "").removeprefix("Bearer ") not in self.tokens:
            return JSONResponse({}, 401)
        status, body, kind = await run_in_threadpool(self.backend, request.path_params["rest"], request.url.query)
        return Response(body, status, media_type=kind)


def memory(resources: list[dict[str, Any]]) -> Backend:
    """A FHIR server of these resources that takes no notice of search parameters."""

    def answer(path: str, query: str) -> tuple[int, bytes, str]:
        kind, _, number = path.partition("/")
        found = [r for r in resources if r["resourceType"] == kind and (not number or r["id"] == number)]
        if number:
            body = json.dumps(found[0] if found else {}).encode()
            return (200 if found else 404), body, "application/fhir+json"
        bundle = {"resourceType": "Bundle", "entry": [{"resource": r} for r in found]}
        return 200, json.dumps(bundle).encode(), "application/fhir+json"

    return answer


def proxy(base: str) -> Backend:
    """Another FHIR server, with its page links led back here."""

    def answer(path: str, query: str) -> tuple[int, bytes, str]:
        found = httpx.get(f"{base}/{path}?{query}", headers={"accept": "application/fhir+json"}, timeout=30)
        return found.status_code, found.content, found.headers["content-type"]

    return answer


@contextmanager
def running(ehr: Ehr) -> Iterator[Ehr]:
    """The EHR on a port of its own."""
    routes = [
        Route("/fhir/.well-known/smart-configuration", ehr.configuration),
        Route("/keys", ehr.keys),
        Route("/authorize", ehr.authorize),
        Route("/token", ehr.token, methods=["POST"]),
        Route("/fhir/{rest:path}", ehr.fhir),
    ]
    config = uvicorn.Config(Starlette(routes=routes), port=0, log_config=None, ws="none")
    server = uvicorn.Server(config)
    socket = config.bind_socket()
    thread = threading.Thread(target=server.run, kwargs={"sockets": [socket]}, daemon=True)
    thread.start()
    ehr.base = f"http://127.0.0.1:{socket.getsockname()[1]}"
    try:
        yield ehr
    finally:
        server.should_exit = True
        thread.join(10)
        socket.close()
