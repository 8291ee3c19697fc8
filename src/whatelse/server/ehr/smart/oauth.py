"""The authorisation server of an EHR: discovery, exchange of a code for a token, refresh, and the user (id_token).

Addresses come from the settings or from the discovery document of a server that the settings name. Nothing that a
server answers is shown or logged, except a standard OAuth error code.
"""

from __future__ import annotations

import base64
import hashlib
import json
import re
import secrets
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import httpx
import jwt
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric.ec import SECP384R1, EllipticCurvePrivateKey
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPrivateKey
from cryptography.hazmat.primitives.serialization import load_pem_private_key
from jwt.algorithms import ECAlgorithm, RSAAlgorithm

from whatelse.errors import WhatelseError
from whatelse.server.security.jwks import KeySet, TokenRefused, verify
from whatelse.server.security.outgoing import OutgoingError, request_json

PATIENCE = 10.0  # seconds for one request
READ = (
    *("Patient", "Encounter", "Condition", "Observation", "MedicationRequest", "MedicationStatement"),
    *("MedicationAdministration", "Medication", "DocumentReference", "Binary"),
)


class LaunchError(WhatelseError):
    """A launch that cannot go on. `says`: what the person reads, without anything of a record or a token.

    `reason`: one word, or an OAuth error code, for log and metrics.
    """

    def __init__(self, reason: str, says: str, status: int = 400) -> None:
        super().__init__(says)
        self.reason, self.says, self.status = reason, says, status


@dataclass(frozen=True, slots=True)
class Endpoints:
    """What an issuer says of itself."""

    issuer: str
    authorize: str
    token: str
    keys: str
    letters: bool = True  # whether scopes are written with letters (SMART 2); .read before


@dataclass(frozen=True, slots=True)
class Pending:
    """A launch that is at the EHR's sign-in."""

    issuer: str
    endpoints: Endpoints
    verifier: str
    nonce: str
    redirect: str


@dataclass(frozen=True, slots=True)
class Access:
    """The answer of a token endpoint. `expires`: as time.time(); `context`: the whole answer (patient, encounter …)."""

    token: str
    refresh: str | None
    expires: float
    identity: str | None
    context: dict[str, Any]


def scopes(launched: bool, letters: bool = True) -> str:
    """The least that is needed: who somebody is, which visit, and to read the kinds of resource that are read."""
    where = "launch" if launched else "launch/patient launch/encounter"
    return " ".join(["openid fhirUser", where, *(f"patient/{kind}.{'rs' if letters else 'read'}" for kind in READ)])


def discover(issuer: str) -> Endpoints:
    """The endpoints of an issuer, from its SMART configuration."""
    found = _ask(
        "GET", issuer.rstrip("/") + "/.well-known/smart-configuration", "The EHR does not describe its sign-in"
    )
    try:
        urls = [found["authorization_endpoint"], found["token_endpoint"], found.get("jwks_uri") or ""]
    except KeyError:
        raise LaunchError("discovery", "The EHR's description of its sign-in lacks an address.", 502) from None
    methods = found.get("code_challenge_methods_supported")
    if isinstance(methods, list) and methods and "S256" not in methods:
        raise LaunchError("pkce", "The EHR's sign-in does not take PKCE with S256.", 502)
    secure = issuer.lower().startswith("https:")
    for url in urls:
        if url and not (isinstance(url, str) and url.startswith(("https://",) if secure else ("https://", "http://"))):
            raise LaunchError("discovery", "The EHR's description of its sign-in has an address that is not safe.", 502)
    able = found.get("capabilities")
    letters = not isinstance(able, list) or not able or "permission-v2" in able
    return Endpoints(str(found.get("issuer") or issuer), urls[0], urls[1], urls[2], letters)


def authorization_request(pending: Pending, client: str, state: str, launch: str | None) -> str:
    """The address of the EHR's sign-in for one launch (PKCE with S256). launch: None for a standalone launch."""
    endpoints = pending.endpoints
    asked = {
        "response_type": "code", "client_id": client, "redirect_uri": pending.redirect, "state": state,
        "scope": scopes(launch is not None, endpoints.letters), "aud": pending.issuer, "nonce": pending.nonce,
        "code_challenge": _digest(pending.verifier), "code_challenge_method": "S256",
    }  # fmt: skip
    joint = "&" if "?" in endpoints.authorize else "?"
    return endpoints.authorize + joint + urlencode(asked | ({"launch": launch} if launch is not None else {}))


@dataclass(frozen=True, slots=True)
class Client:
    """How this app proves to the EHR who it is: by a secret, by a private key (private_key_jwt), or not at all."""

    id: str
    secret: str = ""
    key: ClientKey | None = None

    def credentials(self, endpoint: str) -> tuple[httpx.BasicAuth | None, dict[str, str]]:
        """Authorization header and form fields of a token request to `endpoint`."""
        if self.secret:
            return httpx.BasicAuth(self.id, self.secret), {}
        if self.key is None:
            return None, {"client_id": self.id}
        kind = "urn:ietf:params:oauth:client-assertion-type:jwt-bearer"
        return None, {"client_assertion_type": kind, "client_assertion": self.key.assertion(self.id, endpoint)}


class ClientKey:
    """A private key (PEM; RSA or EC P-384) that signs client assertions, and its public key set."""

    def __init__(self, file: Path) -> None:
        try:
            key = load_pem_private_key(file.read_bytes(), None)
        except (OSError, ValueError, TypeError, UnsupportedAlgorithm) as error:
            raise WhatelseError(f"{file.name}: is no private key in PEM ({type(error).__name__})") from None
        if isinstance(key, RSAPrivateKey):
            self._algorithm, public = "RS384", RSAAlgorithm.to_jwk(key.public_key(), as_dict=True)
        elif isinstance(key, EllipticCurvePrivateKey) and isinstance(key.curve, SECP384R1):
            self._algorithm, public = "ES384", ECAlgorithm.to_jwk(key.public_key(), as_dict=True)
        else:
            raise WhatelseError(f"{file.name}: SMART needs an RSA key (RS384) or one of the curve P-384 (ES384)")
        self._key = key
        named = {name: public[name] for name in ("crv", "e", "kty", "n", "x", "y") if name in public}
        self._id = _digest(json.dumps(named, sort_keys=True, separators=(",", ":")))  # RFC 7638
        self.jwks: dict[str, Any] = {"keys": [{**named, "kid": self._id, "use": "sig", "alg": self._algorithm}]}

    def assertion(self, client: str, endpoint: str) -> str:
        """A client assertion for a token endpoint, good once and for five minutes at most."""
        now = int(time.time())
        claims: dict[str, Any] = {"iss": client, "sub": client, "aud": endpoint, "iat": now, "exp": now + 240}
        claims["jti"] = secrets.token_urlsafe(24)
        return jwt.encode(claims, self._key, self._algorithm, headers={"kid": self._id})


def missing_scopes(granted: object) -> list[str]:
    """Kinds of resource that are read and that the granted scopes do not allow to read; [] if the EHR does not say."""
    if not isinstance(granted, str) or "/" not in granted:
        return []
    held = [re.fullmatch(r"(?:patient|user)/(\*|[A-Za-z]+)\.(\*|read|[cruds]+)(?:\?.*)?", s) for s in granted.split()]
    readable = {m[1] for m in held if m is not None and (m[2] in ("*", "read") or {"r", "s"} <= set(m[2]))}
    return [] if "*" in readable else [kind for kind in READ if kind not in readable]


def ask_token(endpoints: Endpoints, form: dict[str, str], client: Client) -> Access:
    """Exchange a code, or refresh. LaunchError if the server refuses."""
    auth, proof = client.credentials(endpoints.token)
    given = {**form, **proof}
    found = _ask("POST", endpoints.token, "The EHR did not accept the sign-in", data=given, auth=auth)
    token = found.get("access_token")
    if not isinstance(token, str) or str(found.get("token_type", "bearer")).lower() != "bearer":
        raise LaunchError("token", "The EHR gave no access. Launch the app again from the EHR.", 502)
    try:
        seconds = min(max(float(found.get("expires_in", 300)), 0.0), 86_400.0)
    except (TypeError, ValueError):
        seconds = 300.0
    texts = {name: found.get(name) for name in ("refresh_token", "id_token")}
    refresh, identity = (v if isinstance(v, str) else None for v in texts.values())
    return Access(token, refresh, time.time() + seconds, identity, found)


def _digest(text: str) -> str:
    """SHA-256 as OAuth writes it: base64url without padding."""
    return base64.urlsafe_b64encode(hashlib.sha256(text.encode()).digest()).decode().rstrip("=")


def user_of(access: Access, pending: Pending, client: str, kinds: Sequence[str], keys: KeySet) -> str:
    """The fhirUser of a verified id_token, as `Practitioner/7`. LaunchError unless it is of one of `kinds`.

    fhirUser is a relative reference, or an absolute one below the issuer. Anything else (a version, a query, another
    server) is refused: it could be read in two ways.
    """
    issuer, endpoints = pending.issuer, pending.endpoints
    unverified = "The EHR's word on who you are could not be verified. Launch the app again."
    if access.identity is None or not endpoints.keys:
        raise LaunchError("identity", unverified, 403)
    bases = [issuer.rstrip("/"), endpoints.issuer.rstrip("/")]
    try:
        claims = verify(
            access.identity, keys, [issuer, endpoints.issuer, bases[0] + "/"], client, ("exp", "iss", "aud", "sub")
        )
    except TokenRefused as refused:
        raise LaunchError(refused.reason, unverified, 403) from None
    if claims.get("nonce") != pending.nonce:
        raise LaunchError("nonce", unverified, 403)
    said = claims.get("fhirUser")  # and not `profile`, which users of some identity providers write themselves
    user = said if isinstance(said, str) else ""
    for base in bases:
        user = user.removeprefix(base + "/")
    found = re.fullmatch(r"([A-Za-z]{1,40})/([A-Za-z0-9.-]{1,64})", user)
    if found is None or found[1] not in kinds:
        says = "This page is for those who treat the patient; the EHR does not say that you are one of them."
        raise LaunchError("user", says, 403)
    return found[0]


def _ask(method: str, url: str, problem: str, **more: Any) -> dict[str, Any]:
    """A JSON object of the EHR's authorisation server; LaunchError that begins with `problem` if there is none."""
    try:
        return request_json(method, url, PATIENCE, **more)
    except OutgoingError as error:
        status = f" (status {error.status})" if error.status else f" ({error.reason})"
        says = f"{problem}{status}. Launch the app again from the EHR."
        raise LaunchError(error.error or error.reason, says, 502) from None
