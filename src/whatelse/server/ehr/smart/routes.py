"""Routes of the SMART launch: /smart/launch -> the EHR's sign-in -> /smart/callback -> the visit's page.

`Smart` does the work: sign-in at the EHR, access, reading the visit, reading it again. Whatever goes wrong ends on a
page that says so in words of ours; what the EHR's servers say is neither shown nor logged.
"""

from __future__ import annotations

import asyncio
import html
import logging
import secrets
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from threading import Lock
from typing import Annotated, Any

from cachetools import LRUCache, TTLCache, cached
from fastapi import HTTPException, Request
from fastapi.responses import HTMLResponse, JSONResponse, RedirectResponse, Response

from whatelse.server.ehr.smart import oauth
from whatelse.server.ehr.smart.launches import COOKIE, STATE_COOKIE, Launch, Launches, csrf_of
from whatelse.server.ehr.smart.oauth import LaunchError
from whatelse.server.lru import Lru
from whatelse.server.policies import ANYONE, READ, policy
from whatelse.server.routing import ANY_JSON, Router, Somebody, kept
from whatelse.server.security.jwks import KeySet
from whatelse.server.security.limits import without_long_notes
from whatelse.server.security.outgoing import OAUTH_ERRORS
from whatelse.server.service import Service
from whatelse.server.settings import Settings, allowed_server
from whatelse.server.worklist import HELD
from whatelse.sources.codings import load_codings
from whatelse.sources.fhir.client import FhirError, FhirServer
from whatelse.sources.fhir.gather import gather, valid_id
from whatelse.sources.fhir.models import Patient
from whatelse.sources.fhir.resources import Resources
from whatelse.sources.fhir.visit import Seen, is_emergency, visit_of
from whatelse.store import Person

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


@dataclass(frozen=True, slots=True)
class Held:
    """What this process has of a launched visit beside its record: when it was read, banner, what was not seen."""

    read: float
    banner: dict[str, Any]
    unseen: tuple[str, ...]


class Smart:
    """What the routes share."""

    def __init__(self, service: Service) -> None:
        self.service, self.launches = service, Launches(service.store.engine)
        self.codings, settings = load_codings(service.settings.codings), service.settings
        key = oauth.ClientKey(settings.smart_client_key) if settings.smart_client_key else None
        self.client = oauth.Client(settings.smart_client_id, settings.smart_client_secret, key)
        self.readers = ThreadPoolExecutor(READERS, thread_name_prefix="whatelse-smart")
        self.fetchers = ThreadPoolExecutor(FETCHERS, thread_name_prefix="whatelse-smart-fetch")
        self.endpoints = cached(TTLCache[Any, oauth.Endpoints](100, DISCOVERED), lock=Lock())(oauth.discover)
        self._keys = cached(LRUCache[Any, KeySet](100), lock=Lock())(KeySet)
        self._held: Lru[str, Held] = Lru(HELD)
        self._reading: dict[str, asyncio.Future[None]] = {}  # visits that are being read, by key

    def close(self) -> None:
        for threads in (self.readers, self.fetchers):
            threads.shutdown(wait=False, cancel_futures=True)

    async def run(self, work: Any, *args: object) -> Any:
        """In a thread: an EHR may take its time."""
        return await asyncio.get_running_loop().run_in_executor(self.readers, work, *args)

    async def person(self, request: Request) -> Person | None:
        """Whoever a launch let in, for the visits that were launched and no other; None if it was nobody or is over.

        A visit that this process does not have, after a restart or beside other processes, is read again.
        """
        cookie = request.cookies.get(COOKIE)
        opened = await self.service.pools.access.run(self.launches.of, cookie) if cookie else {}
        if not cookie or not opened:
            return None
        key = request.path_params.get("key")
        if key in opened and not self._has(key, opened[key]):
            under_way = self._reading.get(key)
            if under_way is None:
                under_way = self._reading[key] = asyncio.ensure_future(self.run(self.again, cookie, key, False))
                under_way.add_done_callback(lambda _: self._reading.pop(key, None))
            try:
                await asyncio.shield(under_way)
            except LaunchError as problem:
                raise HTTPException(problem.status, problem.says) from None
        until = datetime.fromtimestamp(max(launch.until for launch in opened.values()), UTC)
        user, role = next(iter(opened.values())).user, self.service.settings.smart_role
        return Person(user, role, until, csrf_of(cookie), only=frozenset(opened))

    def _has(self, key: str, launch: Launch) -> bool:
        held = self._held.get(key)
        return held is not None and held.read >= launch.read and self.service.worklist.find(key) is not None

    def begin(self, issuer: str, launch: str | None, base: str) -> tuple[str, str]:
        """The address of the EHR's sign-in, and the secret of the browser that goes there."""
        settings = self.service.settings
        if not allowed_server(settings.fhir_servers, issuer):
            raise LaunchError("issuer", "That EHR is not one that this app may be launched from.", 403)
        verifier, nonce = secrets.token_urlsafe(48), secrets.token_urlsafe(24)
        pending = oauth.Pending(issuer, self.endpoints(issuer), verifier, nonce, base + "/smart/callback")
        state, browser = self.launches.begin(pending)
        return oauth.authorization_request(pending, settings.smart_client_id, state, launch), browser

    def finish(self, state: str, browser: str, code: str, error: str) -> tuple[str, Launch]:
        """(key of the visit, launch) once the browser is back from the EHR's sign-in."""
        pending, settings = self.launches.come_back(state, browser), self.service.settings
        if error or not code:
            says = REFUSALS.get(error, "The EHR did not give access. Launch the app again from there.")
            raise LaunchError(error if error in OAUTH_ERRORS else "error", says, 403)
        form = {
            "grant_type": "authorization_code", "code": code, "redirect_uri": pending.redirect,
            "code_verifier": pending.verifier,
        }  # fmt: skip
        access = oauth.ask_token(pending.endpoints, form, self.client)
        missing = oauth.missing_scopes(access.context.get("scope"))
        for kind in missing:
            self.service.metrics.fhir_failed(kind, "scope")
        if {"Patient", "Encounter"} & set(missing):
            says = "The EHR did not give access to all that this app reads: " + ", ".join(missing) + " missing."
            raise LaunchError("scope", says, 403)
        keys = self._keys(pending.endpoints.keys)
        user = oauth.user_of(access, pending, settings.smart_client_id, settings.smart_users, keys)
        patient, encounter = access.context.get("patient"), access.context.get("encounter")
        if not isinstance(patient, str) or not valid_id(patient):
            raise LaunchError(
                "patient", "The EHR did not say which patient. Open a patient there, then launch the app."
            )
        if encounter is not None and (not isinstance(encounter, str) or not valid_id(encounter)):
            raise LaunchError("encounter", "The EHR did not say which visit in a way that can be read.", 502)
        seen, banner = self.read(pending.issuer, access.token, patient, encounter)
        now = time.time()
        until = now + 3600 * settings.session_hours
        launch = Launch(
            user, pending.issuer, pending.endpoints, access.token, access.refresh, access.expires, patient,
            seen.visit.id, bool(access.context.get("need_patient_banner")),
            until if access.refresh else min(until, access.expires), now,
        )  # fmt: skip
        return self.hold(seen, banner, now), launch

    def read(self, issuer: str, token: str, patient: str, encounter: str | None) -> tuple[Seen, dict[str, Any]]:
        """The visit, and the patient's name and dates for a banner."""
        try:
            with FhirServer(issuer, token, seconds=SECONDS, patience=SECONDS, pages=50) as server:
                failed = self.service.metrics.fhir_failed
                resources, found = gather(server, patient, encounter, self.codings, pool=self.fetchers, failed=failed)
        except FhirError as refused:
            raise LaunchError("fhir", f"The visit could not be read from the EHR: {refused.problem}.", 502) from None
        if found is None or not is_emergency(found):
            raise LaunchError(
                "encounter", "This patient has no emergency visit under way, so there is nothing to show.", 404
            )
        seen, settings = visit_of(found, resources, self.codings), self.service.settings
        return without_long_notes(seen, settings.max_words), _banner(resources, patient)

    def hold(self, seen: Seen, banner: dict[str, Any], read: float) -> str:
        """Keep a visit for the page, in memory; the key that its address has."""
        service = self.service
        key = service.worklist.hold(seen.visit)
        self._held.put(key, Held(read, banner, seen.unseen))
        service.answers.renew(service.tagger, seen.visit, service.store.state(seen.visit.id))
        return key

    def again(self, cookie: str, key: str, asked: bool = True) -> None:
        """Read a visit again, with fresh access if the old has ended.

        asked: somebody wants the record as it is now, so other processes read it again too.
        """
        launch, now = self.launches.of(cookie).get(key), time.time()
        if launch is None or (launch.expires < now + 30 and launch.refresh is None):
            raise LaunchError("expired", "Access to the record has ended. Launch the app again from the EHR.", 401)
        new = replace(launch, read=now) if asked else launch
        if launch.expires < now + 30:
            fresh = oauth.ask_token(
                launch.endpoints, {"grant_type": "refresh_token", "refresh_token": str(launch.refresh)}, self.client
            )
            new = replace(new, token=fresh.token, refresh=fresh.refresh or launch.refresh, expires=fresh.expires)
        seen, banner = self.read(new.issuer, new.token, new.patient, new.encounter)
        self.hold(seen, banner, now)
        if new != launch:
            self.launches.put(cookie, key, new)

    def about(self, cookie: str, key: str, person: Person) -> dict[str, Any]:
        """What the bar above a visit shows."""
        launch, held = self.launches.of(cookie).get(key), self._held.get(key)
        if launch is None or held is None:
            raise HTTPException(404, "that visit was not launched here")
        banner = held.banner if launch.banner else None
        return {"patient": banner, "user": person.name, "ends": launch.until, "unseen": list(held.unseen)}


def _banner(resources: Resources, patient: str) -> dict[str, Any]:
    found = resources.find(Patient, f"Patient/{patient}")
    names = sorted(found.name, key=lambda n: n.use != "official") if found else []
    name = next((n.text or " ".join([*n.given, n.family or ""]).strip() for n in names), "")
    return {"name": name[:200], "born": found.birthDate if found else None, "sex": found.gender if found else None}


log = logging.getLogger("whatelse.server")
PAGE = """<!doctype html><html lang="en"><head><meta charset="utf-8"><title>whatelse</title>
<meta name="viewport" content="width=device-width"><link rel="stylesheet" href="/static/style.css"></head>
<body><main><h1>{title}</h1><p>{text}</p></main></body></html>"""


router = Router(prefix="/smart", tags=["SMART launch"])
Here = Annotated[Smart, kept("smart")]


def page(title: str, text: str, status: int = 200) -> HTMLResponse:
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
