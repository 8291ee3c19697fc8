"""Smart: one launch after the other: sign-in at the EHR, access, reading the visit, reading it again."""

from __future__ import annotations

import asyncio
import secrets
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any

from cachetools import TTLCache
from fastapi import HTTPException, Request

from whatelse.server.ehr.settings import allowed_server
from whatelse.server.ehr.smart.launches import COOKIE, Launch, Launches, Pending, csrf_of
from whatelse.server.ehr.smart.oauth import (
    Client,
    ClientKey,
    Endpoints,
    LaunchError,
    ask_token,
    authorization_request,
    discover,
    missing_scopes,
    user_of,
)
from whatelse.server.lru import Lru
from whatelse.server.security.jwks import KeySet
from whatelse.server.security.limits import without_long_notes
from whatelse.server.security.outgoing import OAUTH_ERRORS
from whatelse.server.service import Service
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
        key = ClientKey(settings.smart_client_key) if settings.smart_client_key else None
        self.client = Client(settings.smart_client_id, settings.smart_client_secret, key)
        self.readers = ThreadPoolExecutor(READERS, thread_name_prefix="whatelse-smart")
        self.fetchers = ThreadPoolExecutor(FETCHERS, thread_name_prefix="whatelse-smart-fetch")
        self._endpoints: TTLCache[str, Endpoints] = TTLCache(100, DISCOVERED)
        self._keys: Lru[str, KeySet] = Lru(100)
        self._held: Lru[str, Held] = Lru(HELD)
        self._reading: dict[str, asyncio.Future[None]] = {}  # visits that are being read, by key

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
        endpoints, verifier, nonce = self.endpoints(issuer), secrets.token_urlsafe(48), secrets.token_urlsafe(24)
        redirect = base + "/smart/callback"
        state, browser = self.launches.begin(Pending(issuer, endpoints, verifier, nonce, redirect))
        client = settings.smart_client_id
        return authorization_request(endpoints, issuer, client, redirect, state, verifier, nonce, launch), browser

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
        return without_long_notes(seen, settings.max_characters, settings.max_words), _banner(resources, patient)

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
        launch, now = self.launches.of(cookie, fresh=True).get(key), time.time()
        if launch is None or (launch.expires < now + 30 and launch.refresh is None):
            raise LaunchError("expired", "Access to the record has ended. Launch the app again from the EHR.", 401)
        new = replace(launch, read=now) if asked else launch
        if launch.expires < now + 30:
            fresh = ask_token(
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
