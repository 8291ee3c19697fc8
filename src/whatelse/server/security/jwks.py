"""JSON Web Tokens of other issuers, verified by the issuer's key set (JWKS).

The only verifier: OIDC sign-in, CDS Hooks calls and SMART id_tokens use it. Keys come from the settings or from the
issuer's own discovery document, never from an address inside a token (`jku`, `x5u`).
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import jwt
from cachetools import TLRUCache

from whatelse.errors import WhatelseError
from whatelse.server.security.outgoing import OutgoingError, request_json
from whatelse.server.settings import Settings, SettingsError
from whatelse.store import ROLES, Person

ALGORITHMS = ("ES384", "RS384", "ES256", "RS256", "RS512", "PS256", "EdDSA")  # asymmetric only
KINDS = {"RSA": ("RS", "PS"), "EC": ("ES",), "OKP": ("Ed",)}
LEEWAY = 60  # seconds that clocks may differ: a client that rounds `iat` up is up to a second ahead
FRESH = 300.0  # seconds after which keys are fetched again: a withdrawn key works no longer than that
STALE = 1800.0  # seconds without a successful fetch after which no key is trusted
RETRY = 30.0  # least seconds between two fetches, whatever tokens arrive
DEADLINE = 5.0  # seconds for one fetch
MOST_KEYS = 50
LATEST = 253_402_300_799.0  # the end of the year 9999, where Python's calendar ends
LONGEST = 3600  # seconds that a token of a hook call may be valid for
LONGEST_ID = 500  # characters of its `jti`: used ones are kept
REMEMBERED = 200_000  # used tokens in memory, until they expire
REASONS: dict[type[Exception], str] = {
    jwt.InvalidSignatureError: "signature",
    jwt.ExpiredSignatureError: "expired",
    jwt.ImmatureSignatureError: "early",
    jwt.InvalidIssuedAtError: "early",
    jwt.InvalidAudienceError: "audience",
    jwt.InvalidIssuerError: "issuer",
}
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

    @property
    def algorithms(self) -> list[str]:
        """The algorithms of tokens that may be verified by this key."""
        return [a for a in ALGORITHMS if self.algorithm in (None, a) and a.startswith(KINDS[self.kind])]


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
        with suppress(*UNREADABLE):
            known = entry["kty"] in KINDS
            if known and entry.get("use", "sig") == "sig" and "verify" in entry.get("key_ops", ["verify"]):
                keys.append(Key(entry.get("kid"), entry["kty"], entry.get("alg"), jwt.PyJWK.from_dict(entry).key))
    return keys


def _named(keys: list[Key], kid: object) -> list[Key]:
    if kid is None:
        return list(keys)
    return [key for key in keys if key.id == kid] or [key for key in keys if key.id is None]


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
                algorithms=key.algorithms,
                issuer=issuer,
                audience=audience,
                leeway=LEEWAY,
                options={"require": list(require), "enforce_minimum_key_length": True},
            )
            return claims
        except (jwt.InvalidAlgorithmError, jwt.InvalidKeyError):
            continue
        except (*UNREADABLE, ArithmeticError) as error:
            refused = TokenRefused(next((why for kind, why in REASONS.items() if isinstance(error, kind)), "claims"))
    raise refused


class Oidc:
    """Sign-in by an OIDC issuer: the person and the role that a token of the issuer names. Threads may share it."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._keys = KeySet(settings.oidc_keys or self._discover)

    def person(self, token: str) -> Person:
        """Whose token it is; TokenRefused if it is not one of the issuer, for us, in time and with a role."""
        s = self._settings
        claims = verify(token, self._keys, s.oidc_issuer, s.oidc_audience, ("exp", "iss", "aud", "sub"))
        try:
            until = datetime.fromtimestamp(min(float(claims["exp"]), LATEST), UTC)
        except (ValueError, TypeError, ArithmeticError):
            raise TokenRefused("claims") from None
        name, held = _claim(claims, s.oidc_name_claim), _claim(claims, s.oidc_role_claim)
        roles = [held] if isinstance(held, str) else held if isinstance(held, list) else []
        known = [role for role in ROLES if role in roles]
        if not known:
            raise TokenRefused("role")
        if not isinstance(name, str) or not name or not name.isprintable():  # half of a surrogate pair is not printable
            raise TokenRefused("name")
        return Person(name[:200], known[-1], until)

    def check(self) -> None:
        """SettingsError if no key of the issuer can be fetched now."""
        try:
            self._keys.fetch()
        except OutgoingError as error:
            raise SettingsError(
                f"the keys of {self._settings.oidc_issuer} cannot be had ({error.reason}); "
                "check oidc_issuer and oidc_keys"
            ) from None

    def _discover(self) -> str:
        """The URL of the issuer's key set, from the issuer's discovery document."""
        issuer = self._settings.oidc_issuer
        about = request_json("GET", issuer.rstrip("/") + "/.well-known/openid-configuration", DEADLINE)
        if about["issuer"] != issuer:
            raise ValueError("the issuer gives itself another name")
        place = about["jwks_uri"]
        if not isinstance(place, str) or not place.startswith(("https://", "http://")):
            raise ValueError("the key set has no http address")
        return place


def _claim(claims: dict[str, Any], path: str) -> Any:
    """A claim by name; `a.b` is b inside a, unless there is a claim of that very name."""
    if path in claims:
        return claims[path]
    value: Any = claims
    for part in path.split("."):
        value = value.get(part) if isinstance(value, dict) else None
    return value


class Callers:
    """Who calls a hook: tokens of the issuers in `cds_issuers`. A token is accepted once (`jti`)."""

    def __init__(self, settings: Settings) -> None:
        self.keys = {issuer: KeySet(place) for issuer, place in settings.cds_issuers.items()}
        self._audiences = list(settings.cds_audiences)
        self._used = TLRUCache[tuple[str, str], float](REMEMBERED, lambda _, until, now: until + LEEWAY, time.time)
        self._lock = threading.Lock()

    def caller(self, token: str, address: str | None) -> str:
        """The issuer of a token for `address` or one of `cds_audiences`; TokenRefused for any other token.

        May fetch keys. address: as it was called; None if the caller could have made up the name of the host.
        """
        try:
            issuer = jwt.decode(token, options={"verify_signature": False}).get("iss")
        except UNREADABLE:
            raise TokenRefused("malformed") from None
        if not isinstance(issuer, str) or issuer not in self.keys:
            raise TokenRefused("issuer")
        audience = [*self._audiences, *((address, address.rstrip("/")) if address else ())]
        claims = verify(token, self.keys[issuer], issuer, audience, ("exp", "iat", "iss", "aud", "jti"))
        number, expires = claims["jti"], float(claims["exp"])
        if not isinstance(number, str) or len(number) > LONGEST_ID or expires - time.time() > LONGEST:
            raise TokenRefused("claims")
        with self._lock:
            if (issuer, number) in self._used:
                raise TokenRefused("replayed")
            self._used.expire()
            if len(self._used) >= REMEMBERED:
                raise TokenRefused("crowded")
            self._used[issuer, number] = expires
        return issuer
