"""Who calls a hook: JSON Web Tokens of the issuers in `cds_issuers`. A token is accepted once (`jti`)."""

from __future__ import annotations

import threading
import time

from whatelse.server.ehr.settings import EhrSettings
from whatelse.server.security.jwks import LEEWAY, KeySet, TokenRefused, unverified_issuer, verify

LONGEST = 3600  # seconds that a token may be valid for
LONGEST_ID = 500  # characters of a `jti`: used ones are kept
REMEMBERED = 200_000  # used tokens in memory


class Callers:
    """Verifies the tokens of hook calls."""

    def __init__(self, settings: EhrSettings) -> None:
        self.keys = {issuer: KeySet(place) for issuer, place in settings.cds_issuers.items()}
        self._audiences = list(settings.cds_audiences)
        self._used: dict[tuple[str, str], float] = {}
        self._lock = threading.Lock()

    @property
    def needed(self) -> bool:
        """Whether a call needs a token. Without `cds_issuers` only this machine can call, and needs none."""
        return bool(self.keys)

    def caller(self, token: str, address: str | None) -> str:
        """The issuer of a token for `address` or one of `cds_audiences`; TokenRefused for any other token.

        May fetch keys. address: as it was called; None if the caller could have made up the name of the host.
        """
        issuer = unverified_issuer(token)
        keys = self.keys.get(issuer)
        if keys is None:
            raise TokenRefused("issuer")
        audience = [*self._audiences, *((address, address.rstrip("/")) if address else ())]
        claims = verify(token, keys, issuer, audience, ("exp", "iat", "iss", "aud", "jti"))
        number, expires = claims["jti"], float(claims["exp"])
        if not isinstance(number, str) or len(number) > LONGEST_ID or expires - time.time() > LONGEST:
            raise TokenRefused("claims")
        self._use_once(issuer, number, expires)
        return issuer

    def _use_once(self, issuer: str, number: str, expires: float) -> None:
        """TokenRefused if the token was used before, or if REMEMBERED tokens that have not expired were used."""
        now = time.time()
        with self._lock:
            if (issuer, number) in self._used:
                raise TokenRefused("replayed")
            if len(self._used) >= REMEMBERED:
                self._used = {key: until for key, until in self._used.items() if until + LEEWAY > now}
                if len(self._used) >= REMEMBERED:
                    raise TokenRefused("crowded")
            self._used[issuer, number] = expires
