"""Routes of the SMART launch: /smart/launch -> the EHR's sign-in -> /smart/callback -> the visit's page.

Whatever goes wrong ends on a page that says so in words of ours; what the EHR's servers say is neither shown nor
logged.
"""

from __future__ import annotations

import asyncio
import html
import secrets
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Annotated, Any

from fastapi import APIRouter, Depends, HTTPException, Request
from fastapi.responses import HTMLResponse, JSONResponse, RedirectResponse, Response

from whatelse.server.auth import Gate, needs
from whatelse.server.ehr_settings import allowed_server
from whatelse.server.limits import without_long_notes
from whatelse.server.service import Service
from whatelse.server.smart.launches import COOKIE, STATE_COOKIE, Launch, Launches, Pending, digest
from whatelse.server.smart.oauth import (
    Access,
    LaunchError,
    ask_token,
    authorize_url,
    challenge,
    discover,
    scopes,
    who,
)
from whatelse.sources.codings import load_codings
from whatelse.sources.fhir.client import FhirError, FhirServer
from whatelse.sources.fhir.gather import gather, valid_id
from whatelse.sources.fhir.models import Patient
from whatelse.sources.fhir.resources import Resources
from whatelse.sources.fhir.visit import Seen, is_emergency, visit_of
from whatelse.store import Person

READERS = 8
SECONDS = 20.0  # to read a visit
REFUSALS = {
    "access_denied": "The EHR did not give access: it was refused there.",
    "invalid_scope": "The EHR did not give access to all that this app reads. Tell whoever registered it.",
    "unauthorized_client": "The EHR does not know this app. Tell whoever registered it.",
    "server_error": "The EHR's sign-in failed. Try again later.",
    "temporarily_unavailable": "The EHR's sign-in is busy. Try again later.",
}
PAGE = """<!doctype html><html lang="en"><head><meta charset="utf-8"><title>whatelse</title>
<meta name="viewport" content="width=device-width"><link rel="stylesheet" href="/static/style.css"></head>
<body><main><h1>{title}</h1><p>{text}</p></main></body></html>"""


class Smart:
    """What the routes share."""

    def __init__(self, service: Service) -> None:
        self.service, self.launches = service, Launches()
        self.codings = load_codings(service.settings.codings)
        self.readers = ThreadPoolExecutor(READERS, thread_name_prefix="whatelse-smart")

    def close(self) -> None:
        self.readers.shutdown(wait=False, cancel_futures=True)

    async def run(self, work: Any, *args: object) -> Any:
        """In a thread: an EHR may take its time."""
        return await asyncio.get_running_loop().run_in_executor(self.readers, work, *args)

    def begin(self, issuer: str, launch: str | None, base: str, browser: str) -> str:
        """The address of the EHR's sign-in."""
        settings = self.service.settings
        if not allowed_server(settings.fhir_servers, issuer):
            raise LaunchError("That EHR is not one that this app may be launched from.", 403)
        endpoints, verifier, nonce = discover(issuer), secrets.token_urlsafe(48), secrets.token_urlsafe(24)
        redirect = base + "/smart/callback"
        state = self.launches.begin(Pending(issuer, endpoints, verifier, nonce, redirect, digest(browser)))
        asked = {
            "response_type": "code", "client_id": settings.smart_client_id, "redirect_uri": redirect, "state": state,
            "scope": scopes(launch is not None, endpoints.letters), "aud": issuer, "nonce": nonce,
            "code_challenge": challenge(verifier), "code_challenge_method": "S256",
        }  # fmt: skip
        return authorize_url(endpoints, asked | ({"launch": launch} if launch is not None else {}))

    def finish(self, pending: Pending, code: str) -> tuple[str, str, Launch]:
        """(person, key of the visit, launch) once the EHR has given a code."""
        settings = self.service.settings
        form = {
            "grant_type": "authorization_code", "code": code, "redirect_uri": pending.redirect,
            "code_verifier": pending.verifier,
        }  # fmt: skip
        access = ask_token(pending.endpoints, form, settings.smart_client_id, settings.smart_client_secret)
        user = who(access, pending.endpoints, pending.issuer, settings.smart_client_id, pending.nonce)
        patient, encounter = access.context.get("patient"), access.context.get("encounter")
        if not isinstance(patient, str) or not valid_id(patient):
            raise LaunchError("The EHR did not say which patient. Open a patient there, then launch the app.")
        if encounter is not None and (not isinstance(encounter, str) or not valid_id(encounter)):
            raise LaunchError("The EHR did not say which visit in a way that can be read.", 502)
        seen, banner = self.read(pending.issuer, access, patient, encounter)
        wants = bool(access.context.get("need_patient_banner"))
        until = time.time() + 3600 * settings.session_hours
        until = until if access.refresh else min(until, access.expires)
        launch = Launch(
            pending.issuer, pending.endpoints, access, patient, seen.visit.id, banner if wants else None, seen.unseen,
            until,
        )  # fmt: skip
        return user, self.hold(seen), launch

    def read(self, issuer: str, access: Access, patient: str, encounter: str | None) -> tuple[Seen, dict[str, Any]]:
        """The visit, and the patient's name and dates for a banner."""
        try:
            with FhirServer(issuer, access.token, seconds=SECONDS, patience=SECONDS, pages=50) as server:
                resources, found = gather(server, patient, encounter, self.codings)
        except FhirError as refused:
            raise LaunchError(f"The visit could not be read from the EHR: {refused.problem}.", 502) from None
        if found is None or not is_emergency(found):
            raise LaunchError("This patient has no emergency visit under way, so there is nothing to show.", 404)
        seen, settings = visit_of(found, resources, self.codings), self.service.settings
        return without_long_notes(seen, settings.max_characters, settings.max_words), _banner(resources, patient)

    def hold(self, seen: Seen) -> str:
        """Keep a visit for the page, in memory; the key that its address has."""
        service = self.service
        key = service.worklist.hold(seen.visit)
        service.answers.renew(service.tagger, seen.visit, service.store.state(seen.visit.id))
        return key

    def again(self, launch: Launch) -> None:
        """Read a visit again, with fresh access if the old has ended."""
        settings = self.service.settings
        if launch.access.expires < time.time() + 30:
            if launch.access.refresh is None:
                raise LaunchError("Access to the record has ended. Launch the app again from the EHR.", 401)
            form = {"grant_type": "refresh_token", "refresh_token": launch.access.refresh}
            fresh = ask_token(launch.endpoints, form, settings.smart_client_id, settings.smart_client_secret)
            launch.access = replace(fresh, refresh=fresh.refresh or launch.access.refresh)
        seen, banner = self.read(launch.issuer, launch.access, launch.patient, launch.encounter)
        launch.unseen, launch.banner = seen.unseen, banner if launch.banner is not None else None
        self.hold(seen)


def _banner(resources: Resources, patient: str) -> dict[str, Any]:
    found = resources.find(Patient, f"Patient/{patient}")
    names = sorted(found.name, key=lambda n: n.use != "official") if found else []
    name = next((n.text or " ".join([*n.given, n.family or ""]).strip() for n in names), "")
    return {"name": name[:200], "born": found.birthDate if found else None, "sex": found.gender if found else None}


def smart_of(request: Request) -> Smart:
    """The launches of this app."""
    found: Smart = request.app.state.smart
    return found


router = APIRouter(prefix="/smart", tags=["SMART launch"])
Here = Annotated[Smart, Depends(smart_of)]
Somebody = Annotated[Person, Depends(needs("viewer"))]


def page(title: str, text: str, status: int = 200) -> HTMLResponse:
    """A page with one message."""
    return HTMLResponse(PAGE.format(title=html.escape(title), text=html.escape(text)), status)


def _refused(problem: LaunchError) -> Response:
    answer = page("The launch did not work", problem.says, problem.status)
    answer.delete_cookie(STATE_COOKIE)
    return answer


@router.get("/launch", include_in_schema=False)
async def launch(request: Request, smart: Here, iss: str = "", launch: str | None = None) -> Response:
    """An EHR launch, or with `iss` alone a standalone one; without either, of the one EHR that is configured."""
    settings = smart.service.settings
    issuer = iss or next((s for s in settings.fhir_servers if not s.endswith("*")), "")
    base = settings.public or f"{request.url.scheme}://{request.headers.get('host', '')}"
    browser = secrets.token_urlsafe(32)
    try:
        if len(issuer) > 2_000 or len(launch or "") > 4_000:
            raise LaunchError("That is no launch of an EHR.")
        where = await smart.run(smart.begin, issuer.rstrip("/"), launch, base, browser)
    except LaunchError as problem:
        return _refused(problem)
    answer = RedirectResponse(where, 303)
    lax = "none" if settings.cookie_samesite == "none" else "lax"  # it must come back from another site
    answer.set_cookie(
        STATE_COOKIE, browser, max_age=600, httponly=True, secure=settings.cookie_secure, samesite=lax,  # type: ignore[arg-type]
        path="/smart",
    )  # fmt: skip
    return answer


@router.get("/callback", include_in_schema=False)
async def callback(request: Request, smart: Here, state: str = "", code: str = "", error: str = "") -> Response:
    """Back from the EHR's sign-in."""
    settings = smart.service.settings
    try:
        pending = smart.launches.come_back(state, request.cookies.get(STATE_COOKIE, ""))
        if error or not code:
            raise LaunchError(REFUSALS.get(error, "The EHR did not give access. Launch the app again from there."), 403)
        user, key, opened = await smart.run(smart.finish, pending, code)
    except LaunchError as problem:
        return _refused(problem)
    cookie = smart.launches.open(request.cookies.get(COOKIE), user, settings.smart_role, key, opened)
    answer = RedirectResponse(f"/visit/{key}?embed=1&smart=1", 303)
    answer.delete_cookie(STATE_COOKIE, path="/smart")
    answer.set_cookie(
        COOKIE, cookie, max_age=int(settings.session_hours * 3600), httponly=True, secure=settings.cookie_secure,
        samesite=settings.cookie_samesite,
    )  # fmt: skip
    return answer


def _launch(smart: Smart, request: Request, key: str) -> Launch:
    session = smart.launches.session(request)
    found = session.launches.get(key) if session else None
    if found is None:
        raise HTTPException(404, "that visit was not launched here")
    return found


@router.get("/visit/{key}")
async def about(request: Request, smart: Here, person: Somebody, key: str) -> JSONResponse:
    """The banner, if the EHR wants one here; who is signed in, and until when."""
    found = _launch(smart, request, key)
    ends = found.until if found.access.refresh else found.access.expires
    said = {"patient": found.banner, "user": person.name, "ends": ends, "unseen": list(found.unseen)}
    return JSONResponse(said)


@router.post("/visit/{key}")
async def again(request: Request, smart: Here, person: Somebody, key: str) -> JSONResponse:
    """Read the visit again from the EHR."""
    found = _launch(smart, request, key)
    try:
        await smart.run(smart.again, found)
    except LaunchError as problem:
        raise HTTPException(problem.status, problem.says) from None
    return await about(request, smart, person, key)


@router.delete("/session", status_code=204)
async def sign_out(request: Request, response: Response, smart: Here, person: Somebody) -> None:
    """End the launch: its tokens are forgotten."""
    smart.launches.close(request)
    gate: Gate = request.app.state.gate
    gate.forget()
    response.delete_cookie(COOKIE)


@router.get("/ended", include_in_schema=False)
async def ended() -> Response:
    """After signing out."""
    return page("Signed out", "This page no longer has access to the record. Launch it again from the EHR.")
