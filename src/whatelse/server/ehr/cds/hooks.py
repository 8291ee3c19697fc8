"""Routes of CDS Hooks 2.0: discovery, the two services, feedback.

A call brings what the EHR prefetched, some of it or nothing; what is missing is read from the EHR's FHIR server, if
the call brings a token for it and the server is one of those configured; else it is lived without, and the card says
so.
"""

from __future__ import annotations

import asyncio
import json
import logging
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from threading import Lock
from typing import Annotated, Any

from cachetools import TTLCache, cached
from fastapi import HTTPException, Request, Response

from whatelse.server.admission_control import LONG
from whatelse.server.ehr.cds.cards import REJECTIONS, Chosen, card_number, choose, evidence_of, render, threshold_now
from whatelse.server.ehr.cds.log import Card, CardLog, Look, now
from whatelse.server.ehr.cds.messages import Call, Feedback, Outcome, parse
from whatelse.server.lru import Lru
from whatelse.server.policies import ANYONE, CALLED, Lane, policy
from whatelse.server.routing import Router, kept
from whatelse.server.security.jwks import Callers, TokenRefused
from whatelse.server.security.limits import without_long_notes
from whatelse.server.service import Service
from whatelse.server.settings import allowed_server
from whatelse.sources.codings import load_codings
from whatelse.sources.fhir.client import FhirError, FhirServer
from whatelse.sources.fhir.gather import gather, searches, valid_id
from whatelse.sources.fhir.models import Encounter
from whatelse.sources.fhir.resources import Resources, local, next_page
from whatelse.sources.fhir.visit import Seen, current, is_emergency, visit_of
from whatelse.store import Conflict, Decision, Reused

log = logging.getLogger("whatelse.server")
HOOKS = {
    "whatelse-patient-view": ("patient-view", "What else might this patient have?"),
    "whatelse-encounter-discharge": ("encounter-discharge", "Last look before the patient leaves"),
}
ABOUT = (
    "Suggests conditions that the record of this emergency visit speaks for and nobody has confirmed. It supports "
    "judgement and does not replace it, and writes nothing into the record."
)
NO_CARDS = b'{"cards": []}'
TOLERANCE = 0.01  # of a card's probability, which is shown in whole percent
READERS = 16  # threads that wait for FHIR servers
FETCHERS = 64  # threads for the single requests of those reads
CLERKS = 4  # threads that check tokens and note feedback
RENDERED = 5_000  # cards that are kept as they were sent


@dataclass(frozen=True, slots=True)
class Answer:
    """The answer to a hook call, and its audit line: user, visit and what was computed."""

    body: bytes
    user: str
    visit: str | None = None
    detail: dict[str, Any] = field(default_factory=dict)


class Cards:
    """What the routes share: the log, the callers, the threshold and the threads that read."""

    def __init__(self, service: Service) -> None:
        self.service = service
        settings = service.settings
        self.codings = load_codings(settings.codings)
        self.log = CardLog(service.store.engine)
        self.callers = Callers(settings)
        every_minute = cached(TTLCache[Any, float](1, 60.0), lock=Lock())
        self.threshold = every_minute(lambda: threshold_now(settings, self.log, service.worklist))
        self.secret = service.store.secret("cards")
        self.key = service.worklist.key  # id of a visit -> its key in URLs and in the audit
        self.readers = ThreadPoolExecutor(READERS, thread_name_prefix="whatelse-fhir")
        self.fetchers = ThreadPoolExecutor(FETCHERS, thread_name_prefix="whatelse-fetch")
        self.clerks = ThreadPoolExecutor(CLERKS, thread_name_prefix="whatelse-clerk")
        self._rendered: Lru[tuple[str, str, bool, tuple[str, ...]], bytes] = Lru(RENDERED)

    def close(self) -> None:
        for threads in (self.readers, self.fetchers, self.clerks):
            threads.shutdown(wait=False, cancel_futures=True)
        self.log.close()

    def shows(self, user: str) -> bool:
        settings = self.service.settings
        mode = self.log.mode() or settings.cds_mode
        wanted = not settings.cds_users or user in settings.cds_users or local(user) in settings.cds_users
        return mode == "show" and wanted

    # ---- one call

    def begin(self, hook: str, body: bytes) -> Answer | Call:
        """Answer a call that has all it needs; return the checked call if a FHIR server has to be read."""
        call = parse(Call, body)
        if call.hook != hook:
            raise HTTPException(400, f"this service answers the hook {hook}")
        if not valid_id(call.patient) or (call.encounter is not None and not valid_id(call.encounter)):
            raise HTTPException(400, "the context's patientId or encounterId is not the id of a resource")
        if self.log.mode() == "off":
            return Answer(NO_CARDS, call.user)
        return call if self.server(call) else self.answer(call, self.read(call))

    def server(self, call: Call) -> str | None:
        """The FHIR server that a call lets us read, if it is one of those configured."""
        server = call.fhirServer if call.token is not None else None
        return server if server and allowed_server(self.service.settings.fhir_servers, server) else None

    def read(self, call: Call) -> Seen | None:
        """The visit that a call is about; None where there is no emergency visit. May wait for the FHIR server."""
        patient, named = call.patient, call.encounter
        resources, have = self.prefetched(call)
        if address := self.server(call):
            seconds, failed = self.service.settings.fhir_seconds, self.service.metrics.fhir_failed
            try:
                with FhirServer(address, call.token, seconds=seconds, patience=seconds, pages=20) as server:
                    gather(server, patient, named, self.codings, resources, have, self.fetchers, failed)
            except FhirError as refused:  # then with what there is
                failed("Encounter", refused.reason)
        encounter = (
            resources.find(Encounter, f"Encounter/{named}") if named is not None else current(resources, patient)
        )
        if encounter is None or not is_emergency(encounter):
            return None
        if local(encounter.subject) not in (None, f"Patient/{patient}"):
            return None
        return without_long_notes(visit_of(encounter, resources, self.codings), self.service.settings.max_words)

    def prefetched(self, call: Call) -> tuple[Resources, frozenset[str]]:
        """The resources of a prefetch, and which of the searches they answer whole."""
        resources, have = Resources(patient=call.patient), set()
        known = searches(self.codings)
        for name, value in (call.prefetch or {}).items():
            if not isinstance(value, dict) or value.get("resourceType") == "OperationOutcome":
                continue
            resources.add_bundle(value)
            if name in known and value.get("resourceType") == "Bundle":
                resources.asked.add(known[name].kind)
                if next_page(value) is None:
                    have.add(name)
                else:
                    resources.partial.add(known[name].kind)
        return resources, frozenset(have)

    def answer(self, call: Call, seen: Seen | None) -> Answer:
        """The cards of a visit; they are logged whether they are shown or not."""
        service, user = self.service, call.user
        if seen is None:
            return Answer(NO_CARDS, user)
        visit, state, tagger = seen.visit, service.store.state(seen.visit.id), service.tagger
        known, reading, threshold = tagger.settle(state), tagger.read(visit, TOLERANCE), self.threshold()
        evidence, before = evidence_of(reading), self.log.of_visit(visit.id)
        shown = self.shows(user)
        chosen, top = choose(reading, known, [c for c in before if c.shown == shown], threshold, evidence)

        def made(one: Chosen) -> Card:
            same = (visit.id, one.tag.condition, tagger.digest_, evidence, state.version, user, shown)
            return Card(
                uuid=card_number(self.secret, "card", *same), suggestion=card_number(self.secret, "suggestion", *same),
                visit=visit.id, condition=one.tag.condition, probability=one.tag.probability, rank=one.rank,
                threshold=threshold, evidence=evidence, model=tagger.digest_, hook=call.hook, actor=user, shown=shown,
                at=now(),
            )  # fmt: skip

        cards = [made(one) for one in chosen]
        likeliest = [[tag.condition, round(tag.probability, 4)] for tag in top]
        self.log.keep(cards, Look(now(), visit.id, call.hook, user, shown, len(cards), likeliest, list(seen.unseen)))
        audited = {"shown": shown, "cards": [card.uuid for card in cards]}
        if not shown:
            return Answer(NO_CARDS, user, visit.id, audited)
        settings, patient = service.settings, call.patient
        launch = f"{settings.public}/smart/launch" if settings.smart_client_id and settings.public else None

        def sent(one: Chosen, card: Card) -> bytes:
            found = render(one, card, reading, known, seen.unseen, self.codings, patient, settings.public, launch)
            return json.dumps(found, ensure_ascii=False).encode()

        # a card's number says whose and what it is: opened again with nothing new, only the reasons would cost
        rendered = [
            self._rendered.made((card.uuid, patient, one.again, seen.unseen), lambda o=one, c=card: sent(o, c))  # type: ignore[misc]
            for one, card in zip(chosen, cards, strict=True)
        ]
        return Answer(b'{"cards": [' + b", ".join(rendered) + b"]}", user, visit.id, audited)

    # ---- what came of it

    def note(self, body: bytes) -> dict[str, Any]:
        """Record the outcomes of cards; returns the audit detail. Unknown cards and malformed outcomes are left out."""
        given = [outcome for outcome in parse(Feedback, body).feedback if outcome is not None]
        found = [card for outcome in given if (card := self.settle(outcome)) is not None]
        return {
            "outcomes": {card.uuid: now.outcome for card in found if (now := self.log.find(card.uuid)) is not None},
            "versions": {self.key(card.visit): self.service.store.version(card.visit) for card in found},
        }

    def settle(self, given: Outcome) -> Card | None:
        """Record an outcome, and as a decision on the visit if it is one; None if the card is unknown.

        Accepted confirms the tag. Overridden rejects it only with a reason of REJECTIONS. Repeats change nothing.
        """
        card = self.log.find(given.card)
        if card is None or not card.shown or given.outcome not in ("accepted", "overridden"):
            return None
        reason = given.reason
        if given.outcome == "overridden" and reason not in REJECTIONS:  # dismissed: it says nothing about the patient
            if card.outcome is None:
                self.log.settle(card, given.outcome, reason)
            return card
        verdict = "confirmed" if given.outcome == "accepted" else "rejected"
        shown = {
            "card": card.uuid, "hook": card.hook, "probability": card.probability, "rank": card.rank,
            "threshold": card.threshold, "reason": reason, "said_at": given.outcomeTimestamp,
        }  # fmt: skip
        for _ in range(10):
            version = self.service.store.version(card.visit)
            decision = Decision(
                card.visit, version, "tag", card.condition, verdict,  # type: ignore[arg-type]
                card.actor or "cds-hooks", card.model, f"card-{card.uuid}-{given.outcome}", shown,
            )  # fmt: skip
            try:
                done = self.service.store.record(decision).result()
            except Conflict:  # somebody decided on something else meanwhile: this is about the card alone
                continue
            except Reused:
                return None
            if not done.repeated:
                self.service.metrics.count("decisions", verdict=verdict)
                self.log.settle(card, given.outcome, reason)
            return card
        return None


Here = Annotated[Cards, kept("cards")]


async def caller(request: Request, cards: Here) -> None:
    """Check the call's token: 401 unless it is good. `request.state.issuer`: its issuer, "" where none is needed."""
    request.state.issuer = ""
    if not cards.callers.keys:  # without `cds_issuers` only this machine can call, and needs no token
        return
    scheme, _, token = request.headers.get("authorization", "").partition(" ")
    settings = cards.service.settings
    base = settings.public or (f"http://{request.headers.get('host', '')}" if settings.loopback else None)
    called = base and base + request.scope.get(CALLED, request.url.path)
    try:
        if scheme.lower() != "bearer" or not token.strip():
            raise TokenRefused("missing")
        loop = asyncio.get_running_loop()
        check = cards.callers.caller
        request.state.issuer = await loop.run_in_executor(cards.clerks, check, token.strip(), called)
    except TokenRefused as refused:
        cards.service.metrics.refused("hook", refused.reason)
        request.state.detail = {"reason": refused.reason}
        says = "the token is missing, used before, or not good here"
        raise HTTPException(401, says, {"WWW-Authenticate": "Bearer"}) from None


@policy(ANYONE, lane=Lane.HOOK)
async def discovery(cards: Here) -> dict[str, Any]:
    """The services, and what of the record they would like to have with a call."""
    prefetch = {
        "patient": "Patient/{{context.patientId}}",
        "encounter": "Encounter/{{context.encounterId}}",
        "encounters": "Encounter?patient={{context.patientId}}&status=arrived,triaged,in-progress",
        **{name: search.template() for name, search in searches(cards.codings).items()},
    }
    usage = "Notes are read from the FHIR server: they need fhirAuthorization. Whatever is missing is lived without."
    return {
        "services": [
            {
                "id": number, "hook": hook, "title": title, "description": ABOUT, "prefetch": prefetch,
                "usageRequirements": usage,
            }
            for number, (hook, title) in HOOKS.items()
        ]
    }  # fmt: skip


# Bodies are parsed in a thread, so the description of the API is written here. Numbers are taken for text.
TEXT = {"type": ["string", "number"], "maxLength": 500, "pattern": "^[^\\x00]*$"}
ID_OF = {"type": ["string", "integer"], "maxLength": 64, "pattern": "^[A-Za-z0-9.-]*[A-Za-z0-9-][A-Za-z0-9.-]*$"}
OUTCOMES = {"type": "object", "required": ["feedback"], "properties": {"feedback": {"type": "array", "maxItems": 1000}}}


def described(schema: dict[str, Any]) -> dict[str, Any]:
    return {"requestBody": {"required": True, "content": {"application/json": {"schema": schema}}}}


def call_schema(hook: str) -> dict[str, Any]:
    """A call as far as its form decides whether it is answered."""
    context = {"type": "object", "required": ["patientId"], "properties": {"patientId": ID_OF}}
    properties = {"hook": {"const": hook}, "hookInstance": TEXT, "context": context}
    return {"type": "object", "required": list(properties), "properties": properties}


def add_service(router: Router, number: str, hook: str) -> None:

    @router.post(f"/{number}", openapi_extra=described(call_schema(hook)))
    @policy("hook token", check=caller, audit="hook call", lane=Lane.HOOK)
    async def call(cards: Here, request: Request) -> Response:
        """The cards of a visit: at most three, and none is a good answer."""
        pools, body = cards.service.pools, await request.body()
        pool = pools.long if len(body) > LONG else pools.hooks
        found = await pool.run(cards.begin, hook, body)
        if isinstance(found, Call):
            seen = await asyncio.get_running_loop().run_in_executor(cards.readers, cards.read, found)
            found = await pool.run(cards.answer, found, seen)
        issuer = request.state.issuer
        request.state.actor, request.state.visit = (found.user or issuer, found.visit and cards.key(found.visit))
        request.state.detail = {"issuer": issuer, "hook": hook, **found.detail}
        return Response(found.body, media_type="application/json")

    @router.post(f"/{number}/feedback", openapi_extra=described(OUTCOMES))
    @policy("hook token", check=caller, audit="card feedback", lane=Lane.HOOK, urgent=True)
    async def feedback(cards: Here, request: Request) -> dict[str, Any]:
        """What came of cards: accepted confirms the tag, overridden rejects it with a reason that says so."""
        detail = await asyncio.get_running_loop().run_in_executor(cards.clerks, cards.note, await request.body())
        request.state.actor = request.state.issuer
        request.state.detail = {"issuer": request.state.issuer, **detail}
        return {}


def make_router() -> Router:
    router = Router(prefix="/cds-services", tags=["CDS Hooks"])
    router.get("")(discovery)
    for number, (hook, _) in HOOKS.items():
        add_service(router, number, hook)
    return router
