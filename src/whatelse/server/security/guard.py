"""Guard: what every request passes before a route sees it, and every answer before it leaves.

In: the name the service was reached by (DNS rebinding), where an unsafe request comes from (CSRF), the size of its body
and the time it takes to arrive. Out: headers that keep the page to itself. An error inside becomes a number: the log
has the number, the kind of error and the lines of code it passed through, never a value, because values are records.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
import time
import traceback
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from urllib.parse import SplitResult, urlsplit

from cachetools import TTLCache
from starlette.exceptions import HTTPException
from starlette.middleware.cors import CORSMiddleware
from starlette.requests import ClientDisconnect
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from whatelse.server.admission_control import AdmissionControl, length_of
from whatelse.server.policies import ADDRESS, CALLED, POLICY, UNDECLARED, Lane, Policy
from whatelse.server.security.connections import GONE, TASK
from whatelse.server.security.limits import Addresses, Buckets
from whatelse.server.service import Service
from whatelse.server.settings import LOOPBACK_NAMES, Settings, is_loopback
from whatelse.server.worker_pools import URGENT, USUAL, urgency
from whatelse.store import Event, Person, StoreError

log = logging.getLogger("whatelse.server")
SAFE = frozenset({"GET", "HEAD", "OPTIONS"})
FORWARDED = (b"forwarded", b"x-forwarded", b"x-real-ip", b"x-client-ip", b"true-client-ip", b"cf-connecting-ip", b"via")
ONE = (b"host", b"origin", b"authorization", b"content-type", b"sec-fetch-site", b"x-whatelse-csrf")
AGAIN = 60.0  # seconds within which the same person's reads of the same visit are one line
NOTHING_READ = (404, 405, 415, 422, 499)
REFUSED_PER_MINUTE = 30  # of one address: a flood of refusals is not to bury the rest
HOOKS = "/cds-services"
TELLING = (b"origin", b"sec-fetch-site", b"cookie")


class Refused(HTTPException):
    """A request that goes no further. The connection ends: more of it may be on its way that nobody will read."""

    def __init__(self, status: int, detail: str, headers: Mapping[str, str] | None = None) -> None:
        super().__init__(status, detail, {**(headers or {}), "connection": "close"})


class Guard:
    """The outermost ASGI layer."""

    def __init__(self, app: ASGIApp, service: Service) -> None:
        self.app, self.service = app, service
        self.headers = [(k.encode(), v.encode()) for k, v in page_headers(service.settings).items()]
        self.hosts = allowed_hosts(service.settings)
        self.addresses, self.auditor = Addresses(service.settings.trusted_proxies), Auditor(service)
        self._under_way: Counter[str] = Counter()  # requests by address
        self._buckets = {p.per_address: Buckets(p.per_address / 60, p.per_address) for *_, p in service.routes.all()}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":  # the lifespan; the server speaks no websockets
            await self.app(scope, receive, send)
            return
        start, status = time.perf_counter(), 0
        scope[TASK], scope[ADDRESS] = asyncio.current_task(), self.addresses.of(scope)

        async def answer(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                message = {**message, "headers": [*message.get("headers", []), *self._headers(scope)]}
            await send(message)

        try:
            headers = dict(scope["headers"])
            self._check(scope, headers)
            policy = scope[POLICY] = self.service.routes.find(scope["method"], scope["path"])
            most = self.service.settings.max_body * (5 if policy.lane is Lane.HOOK else 1)
            body = Body(receive, headers, most, self.service.settings.client_seconds)
            with self._admitted(scope, body, policy):
                await self.app(scope, body.receive, answer)
        except HTTPException as refused:  # of this layer: those of routes are answered inside
            if status == 0:
                said = JSONResponse({"detail": refused.detail}, refused.status_code, refused.headers)
                await said(scope, receive, answer)
        except asyncio.CancelledError:
            task = asyncio.current_task()
            if task is None or not scope.get(GONE):  # the server is ending, and not the client gone
                raise
            task.uncancel()
            status = 499
        except ClientDisconnect:  # the client hung up while its body was read
            status = 499
        except Exception as error:
            failed = failure(scope)
            self.service.metrics.count("errors")
            log.error("incident=%s error=%s at=%s", failed["incident"], type(error).__name__, where(error))
            if status == 0:
                await JSONResponse(failed, 500)(scope, receive, answer)
        seconds = time.perf_counter() - start
        route = getattr(scope.get("route"), "path", None) or ("/static" if "/static" in scope["path"][:8] else "none")
        self.service.metrics.count("requests", route=route, status=str(status))
        self.service.metrics.took(route, seconds)
        self.auditor.note(scope, status)
        log.info("method=%s route=%s status=%d ms=%.1f", scope["method"], route, status, 1000 * seconds)

    @contextmanager
    def _admitted(self, scope: Scope, body: Body, policy: Policy) -> Iterator[None]:
        """Refused while too much goes on, of this address or at all; health is always answered."""
        address, pressing = scope[ADDRESS], policy.urgent
        admission = self.service.admissions.of(policy.lane, body.length)
        if policy.lane is not Lane.HEALTH:
            if self.service.store.behind and policy.audit:
                raise Refused(503, "the audit cannot be written; try again", {"Retry-After": "5"})
            if self._under_way[address] >= self.service.settings.connections_per_address:
                raise Refused(503, "too many requests at once from your address", {"Retry-After": "1"})
            minute = policy.per_address
            if minute and (wait := self._buckets[minute].take(f"{scope['path']} {address}")):
                raise Refused(429, "too many requests from your address", {"Retry-After": str(int(wait) + 1)})
        if passes := policy.counted:
            admission.enter(pressing)
            if body.length:  # its turn comes when it is whole
                admission.arriving[body] = pressing
                body.admission = admission
        mark = urgency.set(URGENT if pressing else USUAL)
        self._under_way[address] += 1
        try:
            yield
        finally:
            self._under_way[address] -= 1
            if not self._under_way[address]:
                del self._under_way[address]
            urgency.reset(mark)
            if passes:
                admission.arriving.pop(body, None)
                admission.leave()

    def _headers(self, scope: Scope) -> list[tuple[bytes, bytes]]:
        static = scope["path"].startswith("/static/")
        model = (b"x-whatelse-model", self.service.tagger.digest_.encode())
        return [*self.headers, model, (b"cache-control", b"no-cache" if static else b"no-store")]

    def _check(self, scope: Scope, headers: dict[bytes, bytes]) -> None:
        for name in ONE if len(headers) < len(scope["headers"]) else ():
            if sum(key == name for key, _ in scope["headers"]) > 1:  # a proxy in front may have read the other one
                raise Refused(400, f"there are several {name.decode()} headers; send one")
        host = headers.get(b"host", b"").decode("latin-1")
        named, origin = _split(f"//{host}"), headers.get(b"origin")
        if self.hosts is not None and (named is None or named.hostname not in self.hosts):
            raise Refused(421, "this service is not known by that name; set allowed_hosts if it should be")
        if self.service.settings.auth == "none" and any(name.startswith(FORWARDED) for name in headers):
            raise Refused(403, "this came through a proxy, and nobody has to sign in here: set auth to token or oidc")
        if scope["method"] not in SAFE:
            site = None if origin is None else _split(origin.decode("latin-1"))
            foreign = origin is not None and (site is None or site.netloc.lower() != host.lower())
            if foreign or headers.get(b"sec-fetch-site", b"same-origin") not in (b"same-origin", b"none"):
                raise Refused(403, "requests from other sites change nothing here")
        methods = self.service.routes.methods(scope["path"])
        if methods and scope["method"] not in methods:
            raise HTTPException(405, "this path does not have that method", {"Allow": ", ".join(sorted(methods))})
        bare = scope["method"] in SAFE or (scope["method"] == "DELETE" and b"content-type" not in headers)
        kind = headers.get(b"content-type", b"").split(b";")[0].strip().lower()
        if methods and not bare and kind != b"application/json":  # which no form of another site sends
            raise Refused(415, "send JSON, with Content-Type: application/json")


class Body:
    """A request's body, received within limits."""

    def __init__(self, receive: Receive, headers: Mapping[bytes, bytes], most: int, seconds: float) -> None:
        self._receive, self._most, self._seen = receive, most, 0
        self._until, self._done = time.monotonic() + seconds, False
        self.admission: AdmissionControl | None = None  # is told when all of it is here
        announced = headers.get(b"content-length", b"0")
        if not announced.isdigit() or int(announced) > most:
            raise self._too_long()
        self.length = length_of(headers)  # bytes, as far as they were announced

    async def receive(self) -> Message:
        """The next piece; Refused when there was too much or it took too long."""
        if self._done:  # the request is whole: what is waited for now is the client going away
            return await self._receive()
        try:
            async with asyncio.timeout(max(0.0, self._until - time.monotonic())):
                message = await self._receive()
        except TimeoutError:
            raise Refused(408, "the request took too long to arrive") from None
        self._seen += len(message.get("body", b""))
        if self._seen > self._most:
            raise self._too_long()
        self._done = not message.get("more_body", False)
        if self._done and self.admission is not None:
            self.admission.arrived(self)
        return message

    def _too_long(self) -> Refused:
        return Refused(413, f"a request's body may have {self._most:,} bytes")


def page_headers(settings: Settings) -> dict[str, str]:
    """Only our own scripts and styles, no other site around us but those configured, nothing told to others."""
    around = " ".join(settings.frame_ancestors) or "'none'"
    headers = {
        "content-security-policy": "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; "
        f"connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors {around}",
        "x-content-type-options": "nosniff",
        "referrer-policy": "no-referrer",
        "cross-origin-opener-policy": "same-origin",
        "cross-origin-resource-policy": "same-origin",
        "permissions-policy": "camera=(), microphone=(), geolocation=()",
    }
    if not settings.frame_ancestors:
        headers["x-frame-options"] = "DENY"
    if settings.cookie_secure:
        headers["strict-transport-security"] = "max-age=31536000"
    return headers


def allowed_hosts(settings: Settings) -> frozenset[str] | None:
    """Names the service answers to; None for any, where everybody must sign in and no names are configured."""
    if settings.auth != "none" and not is_loopback(settings.host) and not settings.allowed_hosts:
        return None
    public = {urlsplit(settings.public).hostname or settings.host}
    return LOOPBACK_NAMES | {settings.host.strip("[]"), *public, *(name.lower() for name in settings.allowed_hosts)}


def _split(address: str) -> SplitResult | None:
    try:
        parts = urlsplit(address)
        return parts if parts.hostname is not None else None
    except ValueError:
        return None


def failure(scope: Scope) -> dict[str, str]:
    """What is said about an error inside: a number, the same each time it is asked for."""
    incident: str = scope.setdefault("whatelse.incident", secrets.token_hex(6))
    return {"detail": f"something failed here; the log has it as incident {incident}", "incident": incident}


def where(error: BaseException) -> str:
    """The way an error took through the code: file:line, innermost last, and no value."""
    frames = traceback.extract_tb(error.__traceback__)[-6:]
    return " > ".join(f"{frame.filename.rsplit('/', 1)[-1]}:{frame.lineno}" for frame in frames)


class Auditor:
    """Writes the audit line of a request: who, from which address, what, and the key of the visit.

    The event is declared at the route (policies.py). A route that is not called by a signed-in person says in
    `request.state` who acts (`actor`), on which visit (`visit`, a key) and why it failed (`detail`).
    """

    def __init__(self, service: Service) -> None:
        self._service = service
        self._read: TTLCache[tuple[str, str, str], bool] = TTLCache(20_000, AGAIN)
        self._refused = Buckets(REFUSED_PER_MINUTE / 60, REFUSED_PER_MINUTE)

    def note(self, scope: Scope, status: int) -> None:
        """Add a line for a request that was answered, if it is one that the audit shows."""
        policy: Policy = scope.get(POLICY, UNDECLARED)
        state = scope.get("state", {})
        person: Person | None = state.get("person")
        actor, address = person.name if person else state.get("actor", ""), str(scope.get(ADDRESS, ""))
        key = scope.get("path_params", {}).get("key") or state.get("visit")
        event, detail = policy.audit, {"status": status, **state.get("detail", {})}
        stranger = status >= 400 and not actor and event is not None  # too long, too slow, a made-up state
        if status in (401, 403, 429) or (stranger and status not in NOTHING_READ):
            if self._refused.take(address):
                self._service.metrics.count("unaudited_refusals")
                return
            route = getattr(scope.get("route"), "path", "none")
            event, detail = "refused", {**detail, "method": scope["method"], "route": route}
        elif event is None or status in NOTHING_READ:
            return
        elif not policy.audit_repeats:
            if self._read.get((event, actor, str(key))):
                return
            self._read[event, actor, str(key)] = True
        elif event == "model":
            detail["model"] = self._service.tagger.digest_
        if shown := state.get("visits"):  # keys of the visits that were shown
            detail["visits"] = shown
        try:
            self._service.store.note(Event(event, actor, address, key, detail))
        except StoreError:
            self._service.metrics.count("errors")


class HookCors:
    """A layer around the guard that lets EHRs in a browser call the hooks from their own origin, also with too many /.

    A hook call is let in by its token, never by a cookie, so the guard's rule against other sites is not for it: for an
    origin that is configured, what tells the guard of another site is taken off. Every other path and origin is left as
    it is.
    """

    def __init__(self, app: ASGIApp, origins: list[str]) -> None:
        self.app, self._origins = app, {origin.lower().encode() for origin in origins}
        self._cors = CORSMiddleware(
            self._without_origin,
            allow_origins=[origin.lower() for origin in origins],
            allow_methods=["GET", "POST"],
            allow_headers=["authorization"],
        )

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or not (scope["path"] == HOOKS or scope["path"].startswith(HOOKS + "/")):
            await self.app(scope, receive, send)
            return
        plain = "/" + "/".join(part for part in scope["path"].split("/") if part)
        scope = {**scope, "path": plain, "raw_path": plain.encode(), CALLED: scope["path"]}
        known = dict(scope["headers"]).get(b"origin", b"") in self._origins
        await (self._cors if known else self.app)(scope, receive, send)

    async def _without_origin(self, scope: Scope, receive: Receive, send: Send) -> None:
        headers = [header for header in scope["headers"] if header[0] not in TELLING]
        await self.app({**scope, "headers": headers}, receive, send)
