"""Guard: what every request passes before a route sees it, and every answer before it leaves.

In: the name the service was reached by (DNS rebinding), where an unsafe request comes from (CSRF), the size of its body
and the time it takes to arrive. Out: headers that keep the page to itself. An error inside becomes a number: the log
has the number, the kind of error and the lines of code it passed through, never a value, because values are records.
"""

from __future__ import annotations

import asyncio
import json
import logging
import secrets
import time
import traceback
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from urllib.parse import urlsplit

from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from whatelse.server.admission_control import AdmissionControl, length_of
from whatelse.server.policies import POLICY, Lane, Policy
from whatelse.server.security.addresses import Addresses
from whatelse.server.security.auditing import ADDRESS, Auditor
from whatelse.server.security.connections import GONE, TASK
from whatelse.server.security.limits import Buckets
from whatelse.server.service import Service
from whatelse.server.settings import LOOPBACK_NAMES, Settings, is_loopback
from whatelse.server.worker_pools import URGENT, USUAL, urgency

log = logging.getLogger("whatelse.server")
SAFE = frozenset({"GET", "HEAD", "OPTIONS"})
FORWARDED = (b"forwarded", b"x-forwarded", b"x-real-ip", b"x-client-ip", b"true-client-ip", b"cf-connecting-ip", b"via")
ONE = (b"host", b"origin", b"authorization", b"content-type", b"sec-fetch-site", b"x-whatelse-csrf")


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
        self._buckets: dict[int, Buckets] = {}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            if scope["type"] == "websocket":  # there are none
                await send({"type": "websocket.close", "code": 1000})
            else:
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
            if len(headers) < len(scope["headers"]):
                _only_one(scope["headers"])
            self._check(scope, headers)
            methods = self.service.routes.methods(scope["path"])
            if methods and scope["method"] not in methods:
                raise HTTPException(405, "this path does not have that method", {"Allow": ", ".join(sorted(methods))})
            policy = scope[POLICY] = self.service.routes.find(scope["method"], scope["path"])
            bare = scope["method"] == "DELETE" and b"content-type" not in headers  # no form of another site sends it
            if methods and scope["method"] not in SAFE and not bare:
                _check_json(headers)
            body = Body(receive, self._most(policy), self.service.settings.client_seconds)
            body.check_length(headers)
            with self._admitted(scope, body, policy):
                await self.app(scope, body.receive, answer)
        except HTTPException as refused:  # of this layer: those of routes are answered inside
            if status == 0:
                await _say(answer, refused.status_code, {"detail": refused.detail}, dict(refused.headers or {}))
        except asyncio.CancelledError:
            task = asyncio.current_task()
            if task is None or not scope.get(GONE):  # the server is ending, and not the client gone
                raise
            task.uncancel()
            status = 499
        except ClientDisconnect:  # the client hung up while its body was read
            status = 499
        except Exception as error:
            said = failure(scope)
            self.service.metrics.count("errors")
            log.error("incident=%s error=%s at=%s", said["incident"], type(error).__name__, where(error))
            if status == 0:
                await _say(answer, 500, said)
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
            if policy.per_address and (wait := self._bucket(policy).take(f"{scope['path']} {address}")):
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

    def _most(self, policy: Policy) -> int:
        settings = self.service.settings
        return 5 * settings.max_body if policy.lane is Lane.HOOK else settings.max_body

    def _bucket(self, policy: Policy) -> Buckets:
        return self._buckets.setdefault(policy.per_address, Buckets(policy.per_address / 60, policy.per_address))

    def _headers(self, scope: Scope) -> list[tuple[bytes, bytes]]:
        static = scope["path"].startswith("/static/")
        model = (b"x-whatelse-model", self.service.tagger.digest_.encode())
        return [*self.headers, model, (b"cache-control", b"no-cache" if static else b"no-store")]

    def _check(self, scope: Scope, headers: dict[bytes, bytes]) -> None:
        host = headers.get(b"host", b"").decode("latin-1")
        if self.hosts is not None and _hostname(host) not in self.hosts:
            raise Refused(421, "this service is not known by that name; set allowed_hosts if it should be")
        if self.service.settings.auth == "none" and any(name.startswith(FORWARDED) for name in headers):
            raise Refused(403, "this came through a proxy, and nobody has to sign in here: set auth to token or oidc")
        if scope["method"] in SAFE:
            return
        if headers.get(b"sec-fetch-site", b"same-origin") not in (b"same-origin", b"none"):
            raise Refused(403, "requests from other sites change nothing here")
        origin = headers.get(b"origin")
        if origin is not None and _netloc(origin.decode("latin-1")) != host.lower():
            raise Refused(403, "requests from other sites change nothing here")


class Body:
    """A request's body, received within limits."""

    def __init__(self, receive: Receive, most: int, seconds: float) -> None:
        self._receive, self._most, self._seen = receive, most, 0
        self._until, self._done = time.monotonic() + seconds, False
        self.length = 0  # bytes, as far as they were announced
        self.admission: AdmissionControl | None = None  # is told when all of it is here

    def check_length(self, headers: dict[bytes, bytes]) -> None:
        """Refuse by the length announced, before anything is read."""
        length = headers.get(b"content-length", b"0")
        if not length.isdigit() or int(length) > self._most:
            raise self._too_long()
        self.length = length_of(headers)

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


def _check_json(headers: dict[bytes, bytes]) -> None:
    """Refused unless the body is declared as JSON: a form of another site cannot send that."""
    if headers.get(b"content-type", b"").split(b";")[0].strip().lower() != b"application/json":
        raise Refused(415, "send JSON, with Content-Type: application/json")


def _hostname(host: str) -> str:
    """The name in a Host header, without its port."""
    try:
        return urlsplit(f"//{host}").hostname or ""
    except ValueError:
        return ""


def _netloc(origin: str) -> str | None:
    """Name and port of an Origin header; None if it is not one."""
    try:
        return urlsplit(origin).netloc.lower()
    except ValueError:
        return None


def _only_one(headers: list[tuple[bytes, bytes]]) -> None:
    """Refused if there are two of what decides: whoever stands in front may have read the other one."""
    names = [name for name, _ in headers]
    for name in ONE:
        if names.count(name) > 1:
            raise Refused(400, f"there are several {name.decode()} headers; send one")


def failure(scope: Scope) -> dict[str, str]:
    """What is said about an error inside: a number, the same each time it is asked for."""
    incident: str = scope.setdefault("whatelse.incident", secrets.token_hex(6))
    return {"detail": f"something failed here; the log has it as incident {incident}", "incident": incident}


async def _say(send: Send, status: int, body: dict[str, str], more: dict[str, str] | None = None) -> None:
    data = json.dumps(body).encode()
    headers = {"content-type": "application/json", "content-length": str(len(data)), **(more or {})}
    raw = [(name.encode(), value.encode()) for name, value in headers.items()]
    await send({"type": "http.response.start", "status": status, "headers": raw})
    await send({"type": "http.response.body", "body": data})


def where(error: BaseException) -> str:
    """The way an error took through the code: file:line, innermost last, and no value."""
    frames = traceback.extract_tb(error.__traceback__)[-6:]
    return " > ".join(f"{frame.filename.rsplit('/', 1)[-1]}:{frame.lineno}" for frame in frames)
