"""Routes of the SMART launch: /smart/launch -> the EHR's sign-in -> /smart/callback -> the visit's page.

Whatever goes wrong ends on a page that says so in words of ours; what the EHR's servers say is neither shown nor
logged.
"""

from __future__ import annotations

import asyncio
import html
import logging
import secrets
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Annotated, Any, Literal

from cachetools import TTLCache
from fastapi import Depends, HTTPException, Request
from fastapi.responses import HTMLResponse, JSONResponse, RedirectResponse, Response

from whatelse.server.ehr.settings import allowed_server
from whatelse.server.ehr.smart.launches import COOKIE, STATE_COOKIE, Launch, Launches, Pending, digest
from whatelse.server.ehr.smart.oauth import (
    Access,
    Client,
    ClientKey,
    Endpoints,
    LaunchError,
    ask_token,
    authorize_url,
    challenge,
    discover,
    missing_scopes,
    scopes,
    user_of,
)
from whatelse.server.lru import Lru
from whatelse.server.policies import ANYONE, READ, policy
from whatelse.server.routing import ANY_JSON, Router, Somebody
from whatelse.server.security.auth import Gate
from whatelse.server.security.jwks import KeySet
from whatelse.server.security.limits import without_long_notes
from whatelse.server.security.outgoing import OAUTH_ERRORS
from whatelse.server.service import Service
from whatelse.sources.codings import load_codings
from whatelse.sources.fhir.client import FhirError, FhirServer
from whatelse.sources.fhir.gather import gather, valid_id
from whatelse.sources.fhir.models import Patient
from whatelse.sources.fhir.resources import Resources
from whatelse.sources.fhir.visit import Seen, is_emergency, visit_of

log = logging.getLogger("whatelse.server")
READERS, FETCHERS = 8, 32  # threads that read visits, and that make single requests for them
SECONDS = 20.0  # to read a visit
DISCOVERED = 300.0  # seconds that a discovery document is used for
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
        self.codings, settings = load_codings(service.settings.codings), service.settings
        key = ClientKey(settings.smart_client_key) if settings.smart_client_key else None
        self.client = Client(settings.smart_client_id, settings.smart_client_secret, key)
        self.readers = ThreadPoolExecutor(READERS, thread_name_prefix="whatelse-smart")
        self.fetchers = ThreadPoolExecutor(FETCHERS, thread_name_prefix="whatelse-smart-fetch")
        self._endpoints: TTLCache[str, Endpoints] = TTLCache(100, DISCOVERED)
        self._keys: Lru[str, KeySet] = Lru(100)

    def close(self) -> None:
        for threads in (self.readers, self.fetchers):
            threads.shutdown(wait=False, cancel_futures=True)

    def endpoints(self, issuer: str) -> Endpoints:
        """The endpoints of an issuer, asked for at most once in DISCOVERED seconds."""
        found = self._endpoints.get(issuer)
        if found is None:
            found = self._endpoints[issuer] = discover(issuer)
        return found

    async def run(self, work: Any, *args: object) -> Any:
        """In a thread: an EHR may take its time."""
        return await asyncio.get_running_loop().run_in_executor(self.readers, work, *args)

    def begin(self, issuer: str, launch: str | None, base: str, browser: str) -> str:
        """The address of the EHR's sign-in."""
        settings = self.service.settings
        if not allowed_server(settings.fhir_servers, issuer):
            raise LaunchError("issuer", "That EHR is not one that this app may be launched from.", 403)
        endpoints, verifier, nonce = self.endpoints(issuer), secrets.token_urlsafe(48), secrets.token_urlsafe(24)
        redirect = base + "/smart/callback"
        state = self.launches.begin(Pending(issuer, endpoints, verifier, nonce, redirect, digest(browser)))
        client = settings.smart_client_id
        return authorization_request(endpoints, issuer, client, redirect, state, verifier, nonce, launch)

    def finish(self, pending: Pending, code: str) -> tuple[str, str, Launch]:
        """(person, key of the visit, launch) once the EHR has given a code."""
        settings = self.service.settings
        form = {
            "grant_type": "authorization_code", "code": code, "redirect_uri": pending.redirect,
            "code_verifier": pending.verifier,
        }  # fmt: skip
        access = ask_token(pending.endpoints, form, self.client)
        missing = missing_scopes(access.context.get("scope"))
        for kind in missing:
            self.service.metrics.fhir_failed(kind, "scope")
        if {"Patient", "Encounter"} & set(missing):
            says = "The EHR did not give access to all that this app reads: " + ", ".join(missing) + " missing."
            raise LaunchError("scope", says, 403)
        keys = self._keys.made(pending.endpoints.keys, lambda: KeySet(pending.endpoints.keys))
        user = user_of(
            access,
            pending.endpoints,
            pending.issuer,
            settings.smart_client_id,
            pending.nonce,
            settings.smart_users,
            keys,
        )
        patient, encounter = access.context.get("patient"), access.context.get("encounter")
        if not isinstance(patient, str) or not valid_id(patient):
            raise LaunchError(
                "patient", "The EHR did not say which patient. Open a patient there, then launch the app."
            )
        if encounter is not None and (not isinstance(encounter, str) or not valid_id(encounter)):
            raise LaunchError("encounter", "The EHR did not say which visit in a way that can be read.", 502)
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
                failed = self.service.metrics.fhir_failed
                resources, found = gather(server, patient, encounter, self.codings, pool=self.fetchers, failed=failed)
        except FhirError as refused:
            raise LaunchError("fhir", f"The visit could not be read from the EHR: {refused.problem}.", 502) from None
        if found is None or not is_emergency(found):
            raise LaunchError(
                "encounter", "This patient has no emergency visit under way, so there is nothing to show.", 404
            )
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
        if launch.access.expires < time.time() + 30:
            if launch.access.refresh is None:
                raise LaunchError("expired", "Access to the record has ended. Launch the app again from the EHR.", 401)
            form = {"grant_type": "refresh_token", "refresh_token": launch.access.refresh}
            fresh = ask_token(launch.endpoints, form, self.client)
            launch.access = replace(fresh, refresh=fresh.refresh or launch.access.refresh)
        seen, banner = self.read(launch.issuer, launch.access, launch.patient, launch.encounter)
        launch.unseen, launch.banner = seen.unseen, banner if launch.banner is not None else None
        self.hold(seen)


def authorization_request(
    endpoints: Endpoints,
    issuer: str,
    client: str,
    redirect: str,
    state: str,
    verifier: str,
    nonce: str,
    launch: str | None,
) -> str:
    """The address of the EHR's sign-in for one launch (PKCE with S256). launch: None for a standalone launch."""
    asked = {
        "response_type": "code", "client_id": client, "redirect_uri": redirect, "state": state,
        "scope": scopes(launch is not None, endpoints.letters), "aud": issuer, "nonce": nonce,
        "code_challenge": challenge(verifier), "code_challenge_method": "S256",
    }  # fmt: skip
    return authorize_url(endpoints, asked | ({"launch": launch} if launch is not None else {}))


def _banner(resources: Resources, patient: str) -> dict[str, Any]:
    found = resources.find(Patient, f"Patient/{patient}")
    names = sorted(found.name, key=lambda n: n.use != "official") if found else []
    name = next((n.text or " ".join([*n.given, n.family or ""]).strip() for n in names), "")
    return {"name": name[:200], "born": found.birthDate if found else None, "sex": found.gender if found else None}


def smart_of(request: Request) -> Smart:
    """The launches of this app."""
    found: Smart = request.app.state.smart
    return found


router = Router(prefix="/smart", tags=["SMART launch"])
Here = Annotated[Smart, Depends(smart_of)]


def page(title: str, text: str, status: int = 200) -> HTMLResponse:
    """A page with one message."""
    return HTMLResponse(PAGE.format(title=html.escape(title), text=html.escape(text)), status)


def _refused(smart: Smart, request: Request, problem: LaunchError) -> Response:
    request.state.detail = {"reason": problem.reason}
    smart.service.metrics.count("launches", outcome=problem.reason)
    log.warning("launch failed: reason=%s", problem.reason)
    answer = page("The launch did not work", problem.says, problem.status)
    answer.delete_cookie(STATE_COOKIE)
    return answer


@router.get("/launch", include_in_schema=False)
@policy(ANYONE, per_address=30)
async def launch(request: Request, smart: Here, iss: str = "", launch: str | None = None) -> Response:
    """An EHR launch, or with `iss` alone a standalone one; without either, of the one EHR that is configured."""
    settings = smart.service.settings
    issuer = iss or next((s for s in settings.fhir_servers if not s.endswith("*")), "")
    base = settings.public or f"{request.url.scheme}://{request.headers.get('host', '')}"
    browser = secrets.token_urlsafe(32)
    try:
        if len(issuer) > 2_000 or len(launch or "") > 4_000:
            raise LaunchError("parameters", "That is no launch of an EHR.")
        where = await smart.run(smart.begin, issuer.rstrip("/"), launch, base, browser)
    except LaunchError as problem:
        return _refused(smart, request, problem)
    answer = RedirectResponse(where, 303)
    # the cookie must come back from another site
    lax: Literal["none", "lax"] = "none" if settings.cookie_samesite == "none" else "lax"
    answer.set_cookie(
        STATE_COOKIE, browser, max_age=600, httponly=True, secure=settings.cookie_secure, samesite=lax,
        path="/smart",
    )  # fmt: skip
    return answer


@router.get("/callback", include_in_schema=False)
@policy(ANYONE, audit="launch sign-in")
async def callback(request: Request, smart: Here, state: str = "", code: str = "", error: str = "") -> Response:
    """Back from the EHR's sign-in."""
    settings = smart.service.settings
    try:
        pending = smart.launches.come_back(state, request.cookies.get(STATE_COOKIE, ""))
        if error or not code:
            says = REFUSALS.get(error, "The EHR did not give access. Launch the app again from there.")
            raise LaunchError(error if error in OAUTH_ERRORS else "error", says, 403)
        user, key, opened = await smart.run(smart.finish, pending, code)
    except LaunchError as problem:
        return _refused(smart, request, problem)
    request.state.actor, request.state.visit = user, key
    smart.service.metrics.count("launches", outcome="ok")
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
@policy("viewer", audit=READ)
async def about(request: Request, smart: Here, person: Somebody, key: str) -> JSONResponse:
    """The banner, if the EHR wants one here; who is signed in, and until when."""
    found = _launch(smart, request, key)
    ends = found.until if found.access.refresh else found.access.expires
    said = {"patient": found.banner, "user": person.name, "ends": ends, "unseen": list(found.unseen)}
    return JSONResponse(said)


@router.post("/visit/{key}", openapi_extra=ANY_JSON)
@policy("viewer", audit=READ)
async def again(request: Request, smart: Here, person: Somebody, key: str) -> JSONResponse:
    """Read the visit again from the EHR."""
    found = _launch(smart, request, key)
    try:
        await smart.run(smart.again, found)
    except LaunchError as problem:
        raise HTTPException(problem.status, problem.says) from None
    return await about(request, smart, person, key)


@router.delete("/session", status_code=204)
@policy("viewer", audit="launch sign-out", when_launched=True)
async def sign_out(request: Request, response: Response, smart: Here, person: Somebody) -> None:
    """End the launch: its tokens are forgotten."""
    smart.launches.close(request)
    gate: Gate = request.app.state.gate
    gate.forget()
    response.delete_cookie(COOKIE)


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
