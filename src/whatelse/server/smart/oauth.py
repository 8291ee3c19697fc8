"""The authorisation server of an EHR: discovery, the code for a token, refresh, and who somebody is (id_token).

Every address is either the issuer's own, which is configured, or comes from the issuer's own description of itself; no
redirect is followed, answers are small and quick or are refused, and nothing that a server says is shown or logged.
"""

from __future__ import annotations

import base64
import hashlib
import json
import time
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlencode, urlsplit

import httpx

from whatelse.errors import WhatelseError
from whatelse.server.cds.tokens import KeySet, decode

ALGORITHMS = ["RS256", "RS384", "ES256", "ES384"]
LARGEST = 1_000_000  # bytes
PATIENCE = 10.0  # seconds
READ = (
    *("Patient", "Encounter", "Condition", "Observation", "MedicationRequest", "MedicationStatement"),
    *("MedicationAdministration", "Medication", "DocumentReference", "Binary"),
)


class LaunchError(WhatelseError):
    """A launch that goes no further: `says` is what the person reads, and holds nothing of a record or a token."""

    def __init__(self, says: str, status: int = 400) -> None:
        super().__init__(says)
        self.says, self.status = says, status


@dataclass(frozen=True, slots=True)
class Endpoints:
    """What an issuer says of itself."""

    issuer: str
    authorize: str
    token: str
    keys: str
    letters: bool = True  # whether scopes are written with letters (SMART 2); .read before


@dataclass(frozen=True, slots=True)
class Access:
    """What a token request gave. `expires`: as time.time(); `context`: patient, encounter and what else was sent
    along."""

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
    found = _json(
        "GET", issuer.rstrip("/") + "/.well-known/smart-configuration", "The EHR does not describe its sign-in"
    )
    try:
        urls = [found["authorization_endpoint"], found["token_endpoint"], found.get("jwks_uri") or ""]
    except KeyError:
        raise LaunchError("The EHR's description of its sign-in lacks an address. Tell whoever runs it.", 502) from None
    methods = found.get("code_challenge_methods_supported")
    if isinstance(methods, list) and methods and "S256" not in methods:
        raise LaunchError("The EHR's sign-in does not take PKCE with S256. Tell whoever runs it.", 502)
    secure = urlsplit(issuer).scheme == "https"
    for url in urls:
        scheme = urlsplit(url).scheme if isinstance(url, str) else "none"
        if scheme not in (("https",) if secure else ("http", "https")) and url:
            raise LaunchError("The EHR's description of its sign-in has an address that is not safe.", 502)
    able = found.get("capabilities")
    letters = not isinstance(able, list) or not able or "permission-v2" in able
    return Endpoints(str(found.get("issuer") or issuer), urls[0], urls[1], urls[2], letters)


def challenge(verifier: str) -> str:
    """S256 of PKCE."""
    return base64.urlsafe_b64encode(hashlib.sha256(verifier.encode()).digest()).decode().rstrip("=")


def authorize_url(endpoints: Endpoints, parameters: dict[str, str]) -> str:
    """Where the browser goes."""
    joint = "&" if urlsplit(endpoints.authorize).query else "?"
    return endpoints.authorize + joint + urlencode(parameters)


def ask_token(endpoints: Endpoints, form: dict[str, str], client: str, secret: str) -> Access:
    """Exchange a code, or refresh. LaunchError if the server refuses."""
    auth = httpx.BasicAuth(client, secret) if secret else None
    given = form if secret else {**form, "client_id": client}
    found = _json("POST", endpoints.token, "The EHR did not accept the sign-in", data=given, auth=auth)
    token = found.get("access_token")
    if not isinstance(token, str) or str(found.get("token_type", "bearer")).lower() != "bearer":
        raise LaunchError("The EHR gave no access. Launch the app again from the EHR.", 502)
    try:
        seconds = min(max(float(found.get("expires_in", 300)), 0.0), 86_400.0)
    except (TypeError, ValueError):
        seconds = 300.0
    texts = {name: found.get(name) for name in ("refresh_token", "id_token")}
    refresh, identity = (v if isinstance(v, str) else None for v in texts.values())
    return Access(token, refresh, time.time() + seconds, identity, found)


def who(access: Access, endpoints: Endpoints, issuer: str, client: str, nonce: str) -> str:
    """The fhirUser of an id_token, verified: signature, issuer, audience, time, nonce."""
    wrong = LaunchError("The EHR's word on who you are could not be verified. Launch the app again.", 403)
    if access.identity is None or not endpoints.keys:
        raise wrong
    claims = decode(
        access.identity,
        KeySet(endpoints.keys),
        algorithms=ALGORITHMS,
        issuer=[issuer, endpoints.issuer, issuer.rstrip("/") + "/"],
        audience=client,
        options={"require": ["exp", "iss", "aud", "sub"]},
    )
    if claims is None or claims.get("nonce") != nonce:
        raise wrong
    user = claims.get("fhirUser") or claims.get("profile") or claims["sub"]
    if not isinstance(user, str) or not user.strip():
        raise wrong
    kind = user.rstrip("/").split("/")[-2] if "/" in user else "Practitioner"
    if kind in ("Patient", "RelatedPerson"):
        raise LaunchError(
            "This page is for those who treat the patient; the EHR says that you are not one of them.", 403
        )
    return user.strip()[:200]


def _json(method: str, url: str, problem: str, **more: Any) -> dict[str, Any]:
    headers = {"Accept": "application/json", "Accept-Encoding": "identity"}  # a packed answer could be any size
    try:
        with httpx.stream(
            method, url, headers=headers, timeout=PATIENCE, follow_redirects=False, trust_env=False, **more
        ) as answer:
            body, until = b"", time.monotonic() + PATIENCE
            for piece in answer.iter_raw():
                body += piece
                if len(body) > LARGEST or time.monotonic() > until:
                    raise LaunchError(f"{problem}: its answer was too long or too slow.", 502)
            if answer.status_code != 200 or answer.headers.get("content-encoding", "identity") != "identity":
                raise LaunchError(f"{problem} (status {answer.status_code}). Launch the app again from the EHR.", 502)
        found = json.loads(body)
    except (httpx.HTTPError, httpx.InvalidURL, ValueError, RecursionError):
        raise LaunchError(f"{problem}: it cannot be reached, or answers nonsense.", 502) from None
    if not isinstance(found, dict):
        raise LaunchError(f"{problem}: it answers nonsense.", 502)
    return found
