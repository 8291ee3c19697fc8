"""check: tries everything that is configured (`serve --check`), and says of each whether it works and what to do."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass
from functools import partial

import httpx
from fastapi import HTTPException

from whatelse.errors import WhatelseError
from whatelse.io.files import scratch_folder
from whatelse.server.ehr.smart.oauth import PATIENCE, Pending, authorization_request, discover
from whatelse.server.security.auth import Gate
from whatelse.server.security.jwks import KeySet
from whatelse.server.service import Service, load_model
from whatelse.server.settings import Settings
from whatelse.sources.codings import load_codings
from whatelse.sources.fhir.client import FhirError, FhirServer
from whatelse.store import Store


@dataclass(frozen=True, slots=True)
class Line:
    """One thing tried: good, or what is wrong."""

    what: str
    good: bool
    says: str


def check(settings: Settings) -> Iterator[Line]:
    """Try model, database, sign-in, codings, keys, FHIR servers, a hook call and a launch, one after the other."""
    yield _try("settings", lambda: _settings(settings))
    yield _try(f"model {settings.model}", lambda: f"{len(load_model(settings.model).conditions_)} conditions")
    yield _try("database", lambda: _database(settings.database))
    if settings.auth != "none":
        yield _try("sign-in", lambda: _people(settings))
    yield _try("codings", lambda: f"{len(load_codings(settings.codings).flags)} chronic flags")
    if settings.public_url:
        safe = settings.public.startswith("https://") or settings.loopback
        yield Line("public_url", safe, "" if safe else "is not https: EHRs and browsers refuse it; put TLS in front")
    for issuer, place in settings.cds_issuers.items():
        yield _try(f"keys of {issuer}", partial(_keys, place))
    if settings.cds_hooks:
        if not settings.cds_issuers:
            yield Line("callers of hooks", settings.loopback, "anybody on this machine may call: set cds_issuers")
        yield _try("trial hook call", lambda: _hook(settings))
    for base in settings.fhir_servers:
        if base.endswith("*"):
            yield Line(f"FHIR servers {base}", True, "a pattern: not tried")
            continue
        yield _try(f"FHIR server {base}", partial(_fhir, base))
        if settings.smart_client_id:
            yield _try(f"trial launch from {base}", partial(_launch, settings, base))


def _try(what: str, work: Callable[[], str]) -> Line:
    try:
        return Line(what, True, work())
    except (WhatelseError, HTTPException) as problem:
        return Line(what, False, str(problem.detail if isinstance(problem, HTTPException) else problem))


def _settings(settings: Settings) -> str:
    settings.check()
    return "they go together"


def _database(url: str) -> str:
    with closing(Store(url)) as store:
        store.ping()
    return "answers, and its schema is of this version"


def _people(settings: Settings) -> str:
    """Somebody can sign in: a token is active, or the issuer's keys can be fetched."""
    with closing(Service(settings, Store(settings.database), load_model(settings.model), [])) as service:
        Gate(service).check()
    return "somebody can sign in"


def _keys(place: str) -> str:
    found = KeySet(place).fetch()
    if not found:
        raise FhirError("it holds no public key")
    return f"{found} keys"


def _hook(settings: Settings) -> str:
    """Answer a hook call about an invented visit, on a database of its own."""
    from whatelse.server.ehr.cds.hooks import Answer, Cards

    encounter = {
        "resourceType": "Encounter", "id": "trial", "status": "in-progress", "class": {"code": "EMER"},
        "subject": {"reference": "Patient/trial"}, "reasonCode": [{"text": "fall, hit head, headache"}],
    }  # fmt: skip
    prefetch = {"patient": {"resourceType": "Patient", "id": "trial", "gender": "female"}, "encounter": encounter}
    context = {"patientId": "trial", "encounterId": "trial", "userId": "Practitioner/trial"}
    call = {"hook": "patient-view", "hookInstance": "trial", "prefetch": prefetch, "context": context}
    with scratch_folder() as folder:
        store = Store(f"sqlite:///{folder / 'trial.db'}")
        with closing(Service(settings, store, load_model(settings.model), [])) as service, closing(Cards(service)) as c:
            start = time.perf_counter()
            found = c.begin("patient-view", json.dumps(call).encode())
            seconds = time.perf_counter() - start
    assert isinstance(found, Answer)  # the call names no FHIR server
    if found.visit is None:
        raise FhirError("an emergency visit was not recognised; check 'codings'")
    return f"answered in {1000 * seconds:.0f} ms"


def _fhir(base: str) -> str:
    with FhirServer(base, seconds=15) as server:
        version = str(server.capabilities().get("fhirVersion", ""))
    if not version.startswith(("4.0", "4.3")):
        raise FhirError(f"speaks FHIR {version[:10] or 'of no version'}; R4 (4.0.1) is needed")
    return f"FHIR {version}"


def _launch(settings: Settings, base: str) -> str:
    """Begin a standalone launch: the EHR's sign-in must take this client and this redirect address."""
    endpoints = discover(base)
    if not endpoints.keys:
        raise FhirError("its SMART configuration names no jwks_uri: nobody's identity could be verified")
    redirect = (settings.public or f"http://{settings.host}:{settings.port}") + "/smart/callback"
    pending = Pending(base, endpoints, "v" * 43, "n", redirect)
    where = authorization_request(pending, settings.smart_client_id, "trial" * 8, None)
    try:
        status = httpx.get(where, timeout=PATIENCE, follow_redirects=False, trust_env=False).status_code
    except httpx.HTTPError as error:
        raise FhirError(f"its sign-in cannot be reached ({type(error).__name__})") from None
    if status >= 400:
        raise FhirError(f"its sign-in refuses this client (status {status}): check smart_client_id and {redirect}")
    return f"the sign-in takes this client (status {status})"
