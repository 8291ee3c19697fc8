"""JSON Web Tokens of an OIDC issuer: signature by its published keys, then issuer, audience, time and role."""

from __future__ import annotations

import json
import threading
import time
import urllib.request
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import jwt

from whatelse.server.settings import Settings, SettingsError
from whatelse.store import ROLES, Person

ALGORITHMS = ["RS256", "RS384", "RS512", "PS256", "ES256", "ES384", "EdDSA"]  # none that a public key can forge
REFETCH = 60.0  # seconds between looks at the issuer's keys, whatever clients send
STALE = 3600.0  # keys older than this are fetched again
LATEST = 253_402_300_799.0  # the end of the year 9999, where Python's calendar ends
LEEWAY = 30  # seconds that clocks may differ
UNREACHABLE = (OSError, ValueError, KeyError, TypeError, jwt.PyJWTError)


class Oidc:
    """Checks tokens of one issuer. Threads may share it."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._keys: dict[str | None, jwt.PyJWK] = {}
        self._fetched = -STALE
        self._lock = threading.Lock()

    def person(self, token: str) -> Person | None:
        """Whose token it is; None if it is not one of our issuer, for us, in time and with a role. May fetch keys."""
        s = self._settings
        try:
            key = self._key(jwt.get_unverified_header(token).get("kid"))
            if key is None:
                return None
            claims = jwt.decode(
                token,
                key,
                algorithms=[a for a in ALGORITHMS if key.algorithm_name in (None, a)],
                issuer=s.oidc_issuer,
                audience=s.oidc_audience,
                leeway=LEEWAY,
                options={"require": ["exp", "iss", "aud", "sub"], "enforce_minimum_key_length": True},
            )
            until = datetime.fromtimestamp(min(float(claims["exp"]), LATEST), UTC)
        except (jwt.PyJWTError, ValueError, TypeError, KeyError, ArithmeticError, RecursionError):
            return None
        name, held = _claim(claims, s.oidc_name_claim), _claim(claims, s.oidc_role_claim)
        roles = [held] if isinstance(held, str) else held if isinstance(held, list) else []
        best = max((ROLES.index(role) for role in roles if role in ROLES), default=None)
        if (
            best is None or not isinstance(name, str) or not name or not name.isprintable()
        ):  # no half of a surrogate pair
            return None
        return Person(name[:200], ROLES[best], until)

    def _key(self, kid: Any) -> jwt.PyJWK | None:
        if kid is not None and not isinstance(kid, str):
            return None
        with self._lock:
            age = time.monotonic() - self._fetched
            if age > STALE or (kid not in self._keys and age > REFETCH):
                self._fetched = time.monotonic()
                with suppress(*UNREACHABLE):  # then the keys we have go on being good
                    self._keys = self._fetch()
            if kid is None and len(self._keys) == 1:
                return next(iter(self._keys.values()))
            return self._keys.get(kid)

    def _fetch(self) -> dict[str | None, jwt.PyJWK]:
        place = self._settings.oidc_keys
        if not place:
            about = _get(self._settings.oidc_issuer.rstrip("/") + "/.well-known/openid-configuration")
            if about["issuer"] != self._settings.oidc_issuer:
                raise ValueError("the issuer gives itself another name")
            place = about["jwks_uri"]
        found = _get(place) if place.startswith(("https://", "http://")) else json.loads(Path(place).read_text("utf-8"))
        return {key.key_id: key for key in jwt.PyJWKSet.from_dict({"keys": _for_signatures(found)}).keys}

    def check(self) -> None:
        """SettingsError if no key of the issuer can be had now."""
        with self._lock:
            try:
                self._keys, self._fetched = self._fetch(), time.monotonic()
            except UNREACHABLE as error:
                raise SettingsError(
                    f"the keys of {self._settings.oidc_issuer} cannot be had ({type(error).__name__}); "
                    "check oidc_issuer and oidc_keys"
                ) from None


def _for_signatures(found: dict[str, Any]) -> list[dict[str, Any]]:
    """The public keys of a JWKS that are meant for signatures; a key for encryption must not vouch for anybody."""
    keys: list[dict[str, Any]] = found["keys"]
    return [
        key
        for key in keys
        if key.get("kty") != "oct" and key.get("use", "sig") == "sig" and "verify" in key.get("key_ops", ["verify"])
    ]


def _claim(claims: dict[str, Any], path: str) -> Any:
    """A claim by name; `a.b` is b inside a, unless there is a claim of that very name."""
    if path in claims:
        return claims[path]
    value: Any = claims
    for part in path.split("."):
        value = value.get(part) if isinstance(value, dict) else None
    return value


def _get(url: str) -> dict[str, Any]:
    if not url.startswith(("https://", "http://")):
        raise ValueError("only http and https")
    with urllib.request.urlopen(url, timeout=5) as answer:
        data = answer.read(1_000_000)
    found: dict[str, Any] = json.loads(data)
    return found
