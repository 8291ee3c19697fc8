"""Cors: lets EHRs that run in a browser call the hooks from their own origin, with slashes too many or not.

A hook call is let in by its token, never by a cookie, so the guard's rule against other sites is not for it: for an
origin that is configured, what tells the guard of another site is taken off. Every other path and origin is left as
it is.
"""

from __future__ import annotations

from starlette.types import ASGIApp, Message, Receive, Scope, Send

PATH = "/cds-services"
CALLED = "whatelse.called"  # of a scope: the path as it was called, which tokens name
TELLING = (b"origin", b"sec-fetch-site", b"cookie")
HEADERS = b"authorization, content-type, accept"


class Cors:
    """An ASGI layer around the guard."""

    def __init__(self, app: ASGIApp, origins: list[str]) -> None:
        self.app, self._origins = app, {origin.lower().encode() for origin in origins}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or not (scope["path"] == PATH or scope["path"].startswith(PATH + "/")):
            await self.app(scope, receive, send)
            return
        plain = "/" + "/".join(part for part in scope["path"].split("/") if part)
        scope = {**scope, "path": plain, "raw_path": plain.encode(), CALLED: scope["path"]}
        origin = dict(scope["headers"]).get(b"origin", b"")
        if origin.lower() not in self._origins:
            await self.app(scope, receive, send)
            return
        allow = [
            (b"access-control-allow-origin", origin),
            (b"vary", b"Origin"),
            (b"cross-origin-resource-policy", b"cross-origin"),
        ]
        if scope["method"] == "OPTIONS":
            more = [
                (b"access-control-allow-methods", b"GET, POST"),
                (b"access-control-allow-headers", HEADERS),
                (b"access-control-max-age", b"600"),
                (b"content-length", b"0"),
            ]
            await send({"type": "http.response.start", "status": 204, "headers": [*allow, *more]})
            await send({"type": "http.response.body", "body": b""})
            return

        async def answer(message: Message) -> None:
            if message["type"] == "http.response.start":
                kept = [h for h in message.get("headers", []) if h[0] != b"cross-origin-resource-policy"]
                message = {**message, "headers": [*kept, *allow]}
            await send(message)

        headers = [header for header in scope["headers"] if header[0] not in TELLING]
        await self.app({**scope, "headers": headers}, receive, answer)
