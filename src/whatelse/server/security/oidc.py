"""Sign-in by an OIDC issuer: the person and the role that a JSON Web Token of the issuer names."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from whatelse.server.security.jwks import KeySet, TokenRefused, verify
from whatelse.server.security.outgoing import OutgoingError, request_json
from whatelse.server.settings import Settings, SettingsError
from whatelse.store import ROLES, Person

LATEST = 253_402_300_799.0  # the end of the year 9999, where Python's calendar ends
DISCOVERY_SECONDS = 5.0


class Oidc:
    """Verifies tokens of the issuer of the settings. Threads may share it."""

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
        best = max((ROLES.index(role) for role in roles if role in ROLES), default=None)
        if best is None:
            raise TokenRefused("role")
        if not isinstance(name, str) or not name or not name.isprintable():  # half of a surrogate pair is not printable
            raise TokenRefused("name")
        return Person(name[:200], ROLES[best], until)

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
        about = request_json("GET", issuer.rstrip("/") + "/.well-known/openid-configuration", DISCOVERY_SECONDS)
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
