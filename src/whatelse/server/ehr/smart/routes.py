"""Routes of the SMART launch: /smart/launch -> the EHR's sign-in -> /smart/callback -> the visit's page.

Whatever goes wrong ends on a page that says so in words of ours; what the EHR's servers say is neither shown nor
logged.
"""

from __future__ import annotations

import html
import logging
from typing import Annotated, Any

from fastapi import Depends, HTTPException, Request
from fastapi.responses import HTMLResponse, JSONResponse, RedirectResponse, Response

from whatelse.server.ehr.smart.launcher import Smart
from whatelse.server.ehr.smart.launches import COOKIE, STATE_COOKIE
from whatelse.server.ehr.smart.oauth import LaunchError
from whatelse.server.policies import ANYONE, READ, policy
from whatelse.server.routing import ANY_JSON, Router, Somebody
from whatelse.server.settings import Settings

log = logging.getLogger("whatelse.server")
PAGE = """<!doctype html><html lang="en"><head><meta charset="utf-8"><title>whatelse</title>
<meta name="viewport" content="width=device-width"><link rel="stylesheet" href="/static/style.css"></head>
<body><main><h1>{title}</h1><p>{text}</p></main></body></html>"""


def smart_of(request: Request) -> Smart:
    """The launches of this app."""
    found: Smart = request.app.state.smart
    return found


router = Router(prefix="/smart", tags=["SMART launch"])
Here = Annotated[Smart, Depends(smart_of)]


def page(title: str, text: str, status: int = 200) -> HTMLResponse:
    """A page with one message."""
    return HTMLResponse(PAGE.format(title=html.escape(title), text=html.escape(text)), status)


def _state_cookie(settings: Settings) -> dict[str, Any]:
    """Attributes of the cookie of a launch under way, which must come back from another site."""
    samesite = "none" if settings.cookie_samesite == "none" else "lax"
    return {**settings.cookie, "samesite": samesite, "path": "/smart"}


def _refused(smart: Smart, request: Request, problem: LaunchError) -> Response:
    request.state.detail = {"reason": problem.reason}
    smart.service.metrics.count("launches", outcome=problem.reason)
    log.warning("launch failed: reason=%s", problem.reason)
    answer = page("The launch did not work", problem.says, problem.status)
    answer.delete_cookie(STATE_COOKIE, **_state_cookie(smart.service.settings))
    return answer


@router.get("/launch", include_in_schema=False)
@policy(ANYONE, per_address=30)
async def launch(request: Request, smart: Here, iss: str = "", launch: str | None = None) -> Response:
    """An EHR launch, or with `iss` alone a standalone one; without either, of the one EHR that is configured."""
    settings = smart.service.settings
    issuer = iss or next((s for s in settings.fhir_servers if not s.endswith("*")), "")
    base = settings.public or f"{request.url.scheme}://{request.headers.get('host', '')}"
    try:
        if len(issuer) > 2_000 or len(launch or "") > 4_000:
            raise LaunchError("parameters", "That is no launch of an EHR.")
        where, browser = await smart.run(smart.begin, issuer.rstrip("/"), launch, base)
    except LaunchError as problem:
        return _refused(smart, request, problem)
    answer = RedirectResponse(where, 303)
    answer.set_cookie(STATE_COOKIE, browser, max_age=600, **_state_cookie(settings))
    return answer


@router.get("/callback", include_in_schema=False)
@policy(ANYONE, audit="launch sign-in", per_address=60)
async def callback(request: Request, smart: Here, state: str = "", code: str = "", error: str = "") -> Response:
    """Back from the EHR's sign-in."""
    settings = smart.service.settings
    try:
        key, opened = await smart.run(smart.finish, state, request.cookies.get(STATE_COOKIE, ""), code, error)
    except LaunchError as problem:
        return _refused(smart, request, problem)
    request.state.actor, request.state.visit = opened.user, key
    smart.service.metrics.count("launches", outcome="ok")
    cookie = await smart.run(smart.launches.open, request.cookies.get(COOKIE), key, opened)
    answer = RedirectResponse(f"/visit/{key}?embed=1&smart=1", 303)
    answer.delete_cookie(STATE_COOKIE, **_state_cookie(settings))
    answer.set_cookie(COOKIE, cookie, max_age=int(settings.session_hours * 3600), **settings.cookie)
    return answer


@router.get("/visit/{key}")
@policy("viewer", audit=READ)
async def about(request: Request, smart: Here, person: Somebody, key: str) -> JSONResponse:
    """The banner, if the EHR wants one here; who is signed in, and until when."""
    return JSONResponse(await smart.run(smart.about, request.cookies.get(COOKIE, ""), key, person))


@router.post("/visit/{key}", openapi_extra=ANY_JSON)
@policy("viewer", audit=READ)
async def again(request: Request, smart: Here, person: Somebody, key: str) -> JSONResponse:
    """Read the visit again from the EHR."""
    if person.only is None:
        raise HTTPException(404, "that visit was not launched here")
    try:
        await smart.run(smart.again, request.cookies.get(COOKIE, ""), key)
    except LaunchError as problem:
        raise HTTPException(problem.status, problem.says) from None
    return await about(request, smart, person, key)


@router.delete("/session", status_code=204)
@policy("viewer", audit="launch sign-out", when_launched=True)
async def sign_out(request: Request, response: Response, smart: Here, person: Somebody) -> None:
    """End the launch: its tokens are forgotten."""
    if cookie := request.cookies.get(COOKIE):
        await smart.run(smart.launches.close, cookie)
    response.delete_cookie(COOKIE, **smart.service.settings.cookie)


@router.get("/keys", include_in_schema=False)
@policy(ANYONE)
async def keys(smart: Here) -> JSONResponse:
    """The public key set of this app, for the EHR to verify its client assertions by."""
    return JSONResponse(smart.client.key.jwks if smart.client.key else {"keys": []})


@router.get("/ended", include_in_schema=False)
@policy(ANYONE)
async def ended() -> Response:
    """After signing out."""
    return page("Signed out", "This page no longer has access to the record. Launch it again from the EHR.")
