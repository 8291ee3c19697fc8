"""Who calls a hook: JSON Web Tokens of the issuers configured, by keys from the table of settings.

Keys are never fetched from an address that the token itself names (`jku`). A token is good once: its `jti` is
remembered until it expires. Clocks may differ by a minute: a client that rounds `iat` to the nearest second is half a
second ahead.
"""

from __future__ import annotations

import json
import threading
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import httpx
import jwt

from whatelse.server.ehr_settings import EhrSettings

ALGORITHMS = ["ES384", "RS384", "ES256", "RS256"]  # none that a public key can forge
LEEWAY = 60  # seconds that clocks may differ
LONGEST = 3600  # seconds that a token may be good for
REFETCH, STALE = 60.0, 3600.0  # seconds between looks at an issuer's keys: at least, at most
REMEMBERED = 200_000  # tokens that were used
WRONG = (jwt.PyJWTError, ValueError, TypeError, KeyError)
UNREACHABLE = (httpx.HTTPError, OSError, *WRONG)


class KeySet:
    """The public keys of one issuer, from a URL or a file. Threads may share it."""

    def __init__(self, place: str) -> None:
        self.place, self._lock = place, threading.Lock()
        self._keys: list[jwt.PyJWK] = []
        self._fetched = -STALE

    def candidates(self, kid: object) -> list[jwt.PyJWK]:
        """The key of this name; every key where the token names none, or the key set names none of its own."""
        with self._lock:
            age = time.monotonic() - self._fetched
            if age > STALE or (age > REFETCH and not _named(self._keys, kid)):
                self._fetched = time.monotonic()
                with suppress(*UNREACHABLE):  # then the keys we have go on being good
                    self._keys = self.fetch()
            return _named(self._keys, kid)

    def fetch(self) -> list[jwt.PyJWK]:
        """Read the keys now; an error of UNREACHABLE if they cannot be had."""
        if self.place.startswith(("https://", "http://")):
            with httpx.stream("GET", self.place, timeout=5, follow_redirects=False, trust_env=False) as answer:
                answer.raise_for_status()
                body = b""
                for piece in answer.iter_bytes():
                    body += piece
                    if len(body) > 1_000_000:
                        raise ValueError("too long for a key set")
            found = json.loads(body)
        else:
            found = json.loads(Path(self.place).read_text("utf-8"))
        return [key for key in jwt.PyJWKSet.from_dict(found).keys if key.key_type != "oct"]


def _named(keys: list[jwt.PyJWK], kid: object) -> list[jwt.PyJWK]:
    if kid is None:
        return list(keys)
    return [key for key in keys if key.key_id == kid] or [key for key in keys if key.key_id is None]


def _fits(key: jwt.PyJWK, algorithm: str) -> bool:
    """Whether a key may be used with an algorithm: one of its kind, and the one that the key set says, if any."""
    said = key._jwk_data.get("alg")
    kind = {"RSA": ("RS", "PS"), "EC": ("ES",), "OKP": ("Ed",)}.get(key.key_type or "", ())
    return said in (None, algorithm) and algorithm.startswith(kind)


def decode(token: str, keys: KeySet, **options: Any) -> dict[str, Any] | None:
    """The claims of a token that one of the keys signed and that fits `options` of jwt.decode; None otherwise."""
    try:
        kid = jwt.get_unverified_header(token).get("kid")
    except WRONG:
        return None
    for key in keys.candidates(kid):
        try:
            claims: dict[str, Any] = jwt.decode(
                token,
                key.key,
                algorithms=[a for a in options["algorithms"] if _fits(key, a)],
                leeway=LEEWAY,
                **{name: value for name, value in options.items() if name != "algorithms"},
            )
            return claims
        except WRONG:
            continue
    return None


class Callers:
    """Checks the tokens of hook calls."""

    def __init__(self, settings: EhrSettings) -> None:
        self.keys = {issuer: KeySet(place) for issuer, place in settings.cds_issuers.items()}
        self._audiences = list(settings.cds_audiences)
        self._used: dict[tuple[str, str], float] = {}
        self._lock = threading.Lock()

    @property
    def needed(self) -> bool:
        """Whether a call needs a token: not where only this machine can call and nobody is configured."""
        return bool(self.keys)

    def caller(self, token: str, address: str) -> str | None:
        """The issuer of a good token for `address`; None for any other. May fetch keys."""
        try:
            issuer = jwt.decode(token, options={"verify_signature": False}).get("iss")
        except WRONG:
            return None
        keys = self.keys.get(issuer) if isinstance(issuer, str) else None
        if keys is None or not isinstance(issuer, str):
            return None
        claims = decode(
            token,
            keys,
            algorithms=ALGORITHMS,
            issuer=issuer,
            audience=[address, address.rstrip("/"), *self._audiences],
            options={"require": ["exp", "iat", "iss", "aud", "jti"], "enforce_minimum_key_length": True},
        )
        if claims is None or not isinstance(claims["jti"], str):
            return None
        if claims["exp"] - time.time() > LONGEST:
            return None
        return issuer if self._first(issuer, claims["jti"], float(claims["exp"])) else None

    def _first(self, issuer: str, number: str, expires: float) -> bool:
        """Whether this token was not used before. When too many are remembered nobody new is let in until some
        expire."""
        now = time.time()
        with self._lock:
            if (issuer, number) in self._used:
                return False
            if len(self._used) >= REMEMBERED:
                self._used = {key: until for key, until in self._used.items() if until + LEEWAY > now}
                if len(self._used) >= REMEMBERED:
                    return False
            self._used[issuer, number] = expires
            return True
