"""check: tries every connection that is configured, and says of each whether it works and what to do if not."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from whatelse.errors import WhatelseError
from whatelse.server.cds.tokens import UNREACHABLE, KeySet
from whatelse.server.service import load_model
from whatelse.server.settings import Settings
from whatelse.server.smart.oauth import discover
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
    """Try model, database, codings, callers' keys, FHIR servers and sign-ins, one after the other."""
    yield _try("settings", lambda: _settings(settings))
    yield _try(f"model {settings.model}", lambda: f"{len(load_model(settings.model).conditions_)} conditions")
    yield _try("database", lambda: _database(settings.database))
    yield _try("codings", lambda: f"{len(load_codings(settings.codings).flags)} chronic flags")
    if settings.public_url:
        safe = settings.public.startswith("https://") or settings.loopback
        yield Line("public_url", safe, "" if safe else "is not https: EHRs and browsers refuse it; put TLS in front")
    for issuer, place in settings.cds_issuers.items():
        yield _try(f"keys of {issuer}", lambda place=place: _keys(place))  # type: ignore[misc]
    if settings.cds_hooks and not settings.cds_issuers:
        yield Line("callers of hooks", settings.loopback, "anybody on this machine may call: set cds_issuers")
    for base in settings.fhir_servers:
        if base.endswith("*"):
            yield Line(f"FHIR servers {base}", True, "a pattern: not tried")
            continue
        yield _try(f"FHIR server {base}", lambda base=base: _fhir(base))  # type: ignore[misc]
        if settings.smart_client_id:
            yield _try(f"sign-in of {base}", lambda base=base: _sign_in(base))  # type: ignore[misc]


def _try(what: str, work: Callable[[], str]) -> Line:
    try:
        return Line(what, True, work())
    except WhatelseError as problem:
        return Line(what, False, str(problem))
    except UNREACHABLE as error:
        return Line(what, False, f"cannot be had ({type(error).__name__}); check its address")


def _settings(settings: Settings) -> str:
    settings.check()
    return "they go together"


def _database(url: str) -> str:
    store = Store(url)
    try:
        store.ping()
        return "answers, and its schema is of this version"
    finally:
        store.close()


def _keys(place: str) -> str:
    found = KeySet(place).fetch()
    if not found:
        raise FhirError("it holds no public key")
    return f"{len(found)} keys"


def _fhir(base: str) -> str:
    with FhirServer(base, seconds=15) as server:
        found = server.capabilities()
    version = str(found.get("fhirVersion", ""))
    if not version.startswith("4.0") and not version.startswith("4.3"):
        raise FhirError(f"speaks FHIR {version[:10] or 'of no version'}; R4 (4.0.1) is needed")
    return f"FHIR {version}"


def _sign_in(base: str) -> str:
    found = discover(base)
    if not found.keys:
        raise FhirError("its SMART configuration names no jwks_uri: nobody's identity could be verified")
    return "SMART configuration found"
