"""JSON Web Tokens of other issuers, verified by the issuer's key set (JWKS).

The only verifier: OIDC sign-in, CDS Hooks calls and SMART id_tokens use it. Keys come from the settings or from the
issuer's own discovery document, never from an address inside a token (`jku`, `x5u`).
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jwt

from whatelse.errors import WhatelseError
from whatelse.server.security.outgoing import OutgoingError, request_json

ALGORITHMS = ("ES384", "RS384", "ES256", "RS256", "RS512", "PS256", "EdDSA")  # asymmetric only
KINDS = {"RSA": ("RS", "PS"), "EC": ("ES",), "OKP": ("Ed",)}
LEEWAY = 60  # seconds that clocks may differ: a client that rounds `iat` up is up to a second ahead
FRESH = 300.0  # seconds after which keys are fetched again: a withdrawn key works no longer than that
STALE = 1800.0  # seconds without a successful fetch after which no key is trusted
RETRY = 30.0  # least seconds between two fetches, whatever tokens arrive
DEADLINE = 5.0  # seconds for one fetch
MOST_KEYS = 50
UNREADABLE = (jwt.PyJWTError, OSError, ValueError, TypeError, KeyError, RecursionError)


class TokenRefused(WhatelseError):
    """A token that is not accepted. `reason`: one word for log and metrics; nothing of the token is in it."""

    def __init__(self, reason: str) -> None:
        super().__init__(f"the token was refused ({reason})")
        self.reason = reason


@dataclass(frozen=True, slots=True)
class Key:
    """A public key for signatures. `algorithm`: the only one that the key set allows for it, or None."""

    id: str | None
    kind: str
    algorithm: str | None
    key: Any

    def fits(self, algorithm: str) -> bool:
        """Whether a token with this algorithm may be verified by this key."""
        return self.algorithm in (None, algorithm) and algorithm.startswith(KINDS.get(self.kind, ("none",)))


class KeySet:
    """The keys of one issuer. Threads may share it.

    place: URL or file of the key set, or a function that finds the URL (discovery); called before each fetch.
    """

    def __init__(self, place: str | Callable[[], str], clock: Callable[[], float] = time.monotonic) -> None:
        self._place, self._clock = place, clock
        self._keys: list[Key] = []
        self._fetched = self._tried = float("-inf")
        self._fetching = threading.Lock()

    def candidates(self, kid: object) -> list[Key]:
        """The keys with this id; without an id every key. TokenRefused if the key set is out of date.

        One thread fetches; others go on with the keys that are there, and wait at most DEADLINE if there are none.
        """
        if self._due(kid) and self._fetching.acquire(timeout=0 if self._usable() else DEADLINE):
            try:
                if self._due(kid):
                    self._tried = self._clock()
                    self.fetch()
            except OutgoingError:
                pass  # the keys that are there stay in use until they are STALE
            finally:
                self._fetching.release()
        if not self._usable():
            raise TokenRefused("keys_unavailable")
        return _named(self._keys, kid)

    def fetch(self) -> int:
        """Fetch the keys now; returns their number. OutgoingError if there are none to be had."""
        try:
            place = self._place if isinstance(self._place, str) else self._place()
            if place.startswith(("https://", "http://")):
                found = request_json("GET", place, DEADLINE)
            else:
                found = json.loads(Path(place).read_text("utf-8"))
            keys = signature_keys(found)
        except UNREADABLE:
            raise OutgoingError("malformed") from None
        self._keys, self._fetched = keys, self._clock()
        return len(keys)

    def _usable(self) -> bool:
        return self._clock() - self._fetched < STALE

    def _due(self, kid: object) -> bool:
        now = self._clock()
        return now - self._tried > RETRY and (now - self._fetched > FRESH or not _named(self._keys, kid))


def signature_keys(found: dict[str, Any]) -> list[Key]:
    """The public keys of a JWKS that are meant for signatures. Keys of unknown kinds are left out."""
    keys = []
    for entry in found["keys"][:MOST_KEYS]:
        try:
            if entry["kty"] not in KINDS or entry.get("use", "sig") != "sig":
                continue
            if "verify" not in entry.get("key_ops", ["verify"]):
                continue
            made = jwt.PyJWK.from_dict(entry)
        except UNREADABLE:
            continue
        keys.append(Key(made.key_id, entry["kty"], entry.get("alg"), made.key))
    return keys


def _named(keys: list[Key], kid: object) -> list[Key]:
    if kid is None:
        return list(keys)
    return [key for key in keys if key.id == kid] or [key for key in keys if key.id is None]


def unverified_issuer(token: str) -> str:
    """The issuer that a token names; TokenRefused if the token cannot be read."""
    try:
        issuer = jwt.decode(token, options={"verify_signature": False}).get("iss")
    except UNREADABLE:
        raise TokenRefused("malformed") from None
    if not isinstance(issuer, str):
        raise TokenRefused("issuer")
    return issuer


def verify(
    token: str, keys: KeySet, issuer: str | Sequence[str], audience: str | Sequence[str], require: Sequence[str]
) -> dict[str, Any]:
    """The claims of a token: signed by one of `keys`, from `issuer`, for `audience`, in time, with claims `require`."""
    try:
        header = jwt.get_unverified_header(token)
    except UNREADABLE:
        raise TokenRefused("malformed") from None
    refused = TokenRefused("key")
    for key in keys.candidates(header.get("kid")):
        try:
            claims: dict[str, Any] = jwt.decode(
                token,
                key.key,
                algorithms=[a for a in ALGORITHMS if key.fits(a)],
                issuer=issuer,
                audience=audience,
                leeway=LEEWAY,
                options={"require": list(require), "enforce_minimum_key_length": True},
            )
            return claims
        except jwt.InvalidSignatureError:
            refused = TokenRefused("signature")
        except jwt.ExpiredSignatureError:
            refused = TokenRefused("expired")
        except (jwt.ImmatureSignatureError, jwt.InvalidIssuedAtError):
            refused = TokenRefused("early")
        except jwt.InvalidAudienceError:
            refused = TokenRefused("audience")
        except jwt.InvalidIssuerError:
            refused = TokenRefused("issuer")
        except (jwt.InvalidAlgorithmError, jwt.InvalidKeyError):
            continue
        except (*UNREADABLE, ArithmeticError):
            refused = TokenRefused("claims")
    raise refused
