"""Who is asking: a bearer token, the page's session cookie, or anybody where only this machine can ask."""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Awaitable, Callable

from cachetools import TTLCache
from fastapi import HTTPException, Request

from whatelse.server.policies import ADDRESS, POLICY
from whatelse.server.security.jwks import Oidc, TokenRefused
from whatelse.server.security.limits import Buckets
from whatelse.server.service import Service
from whatelse.server.settings import SettingsError
from whatelse.store import Person

COOKIE = "whatelse_session"
CSRF = "x-whatelse-csrf"
REMEMBERED = 5.0  # seconds that an answer is good for: a revoked token works no longer than that
LOCAL = Person("local", "admin")
SAFE = frozenset({"GET", "HEAD"})


class Gate:
    """Lets people in, by the settings of one service."""

    def __init__(self, service: Service) -> None:
        settings = service.settings
        self._service = service
        self._oidc = Oidc(settings) if settings.auth == "oidc" else None
        self._people: TTLCache[bytes, Person] = TTLCache(10_000, REMEMBERED)
        self._requests = Buckets(settings.rate_limit, max(1.0, 4 * settings.rate_limit))
        self._failures = Buckets(settings.failures_per_minute / 60, settings.failures_per_minute)

    def check(self) -> None:
        """SettingsError if nobody could ever be let in."""
        if self._oidc is not None:
            self._oidc.check()
        elif self._service.settings.auth == "token" and not any(
            token.status == "active" for token in self._service.store.access.list()
        ):
            raise SettingsError(
                "nobody could sign in: no token is good. Make one with 'whatelse token create NAME --role clinician'"
            )

    async def person(self, request: Request) -> Person:
        """Whoever asks; 401 if nobody we know, 403 if a cookie comes without its CSRF token, 429 if too often."""
        address = address_of(request)
        launched = self._service.launched
        person = (launched and await launched(request)) or await self._known(request, address)
        if person is None:
            raise HTTPException(401, "sign in first", {"WWW-Authenticate": "Bearer"})
        request.state.person = person
        if wait := self._requests.take(f"{person.name} {address}" if person is LOCAL else person.name):
            raise _slow_down(wait)
        if person.csrf is not None and request.method not in SAFE:
            given = request.headers.get(CSRF, "")
            if not hmac.compare_digest(given.encode("utf-8", "replace"), person.csrf.encode()):
                raise HTTPException(403, "the page's own token is missing; reload the page")
        if person.only is not None:
            key, policy = request.path_params.get("key"), request.scope[POLICY]
            if not (policy.when_launched if key is None else key in person.only):
                raise HTTPException(403, "you came by a launch of an EHR, which is for the visit launched and no other")
        return person

    async def _known(self, request: Request, address: str) -> Person | None:
        if self._service.settings.auth == "none":
            return LOCAL
        scheme, _, text = request.headers.get("authorization", "").partition(" ")
        if scheme.lower() == "bearer" and text.strip():
            return await self.bearer(text.strip(), address)
        if cookie := request.cookies.get(COOKIE):
            return await self._remembered("cookie", cookie, address, self._service.store.access.by_session)
        return None

    async def bearer(self, token: str, address: str) -> Person | None:
        """Whose token this is; None if nobody's, 429 if that came too often."""
        ask = self._service.store.access.by_token if self._oidc is None else self._oidc.person
        return await self._remembered("bearer", token, address, ask)

    def forget(self) -> None:
        """Ask the database again at the next request: somebody signed out."""
        self._people.clear()

    async def _remembered(
        self, kind: str, secret: str, address: str, ask: Callable[[str], Person | None]
    ) -> Person | None:
        key = hashlib.sha256(f"{kind} {secret}".encode("utf-8", "replace")).digest()
        if (known := self._people.get(key)) is not None:
            return known
        # Nobody is kept out by what others send from the same address, a proxy's perhaps: only what is wrong is
        # counted, and a token of 32 random bytes is not found by trying.
        wrong = f"credential {key.hex()}"
        if wait := self._failures.peek(wrong):
            raise _slow_down(wait)
        try:
            person = await self._service.pools.access.run(ask, secret)
        except TokenRefused as refused:
            person, reason = None, refused.reason
        else:
            reason = "unknown"
        if person is None:
            self._service.metrics.refused("sign-in", reason)
            if wait := max(self._failures.take(address), self._failures.take(wrong)):
                raise _slow_down(wait)
        else:
            self._people[key] = person
        return person


def address_of(request: Request) -> str:
    """Where a request comes from, as the guard found out."""
    return str(request.scope.get(ADDRESS, "unknown"))


def _slow_down(wait: float) -> HTTPException:
    return HTTPException(429, "too many requests; wait a little", {"Retry-After": str(int(wait) + 1)})


def needs(role: str) -> Callable[[Request], Awaitable[Person]]:
    """A dependency: somebody with this role or more, else 401 or 403."""

    async def who(request: Request) -> Person:
        person: Person = await request.app.state.gate.person(request)
        if not person.may(role):
            raise HTTPException(403, f"this needs the role {role}; yours is {person.role}")
        return person

    return who
