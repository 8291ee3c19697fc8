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
from datetime import datetime
from typing import Annotated, Any

from fastapi import APIRouter, Depends, HTTPException, Request, Response

from whatelse.server.cds.cards import Chosen, card_number, choose, evidence_of, render
from whatelse.server.cds.cors import CALLED
from whatelse.server.cds.log import Card, CardLog, Look, now
from whatelse.server.cds.messages import Call, Feedback, Outcome, parse
from whatelse.server.cds.threshold import Threshold
from whatelse.server.cds.tokens import Callers
from whatelse.server.ehr_settings import DAYS, allowed_server
from whatelse.server.limits import without_long_notes
from whatelse.server.lru import Lru
from whatelse.server.service import Service
from whatelse.server.turnstile import LONG
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
READERS = 16  # threads that wait for FHIR servers
CLERKS = 4  # threads that check tokens and note feedback
RENDERED = 5_000  # cards that are kept as they were sent


class Cards:
    """What the routes share: the log, the callers, the threshold and the threads that read."""

    def __init__(self, service: Service) -> None:
        self.service = service
        settings = service.settings
        self.codings = load_codings(settings.codings)
        self.log = CardLog(service.store.engine)
        self.callers = Callers(settings)
        self.threshold = Threshold(settings, self.log, service.worklist)
        self.secret = service.store.secret("cards")
        self.readers = ThreadPoolExecutor(READERS, thread_name_prefix="whatelse-fhir")
        self.clerks = ThreadPoolExecutor(CLERKS, thread_name_prefix="whatelse-clerk")
        self._rendered: Lru[tuple[str, str, bool, tuple[str, ...]], bytes] = Lru(RENDERED)

    def close(self) -> None:
        for threads in (self.readers, self.clerks):
            threads.shutdown(wait=False, cancel_futures=True)
        self.log.close()

    def shows(self, user: str, day: datetime) -> bool:
        """Whether this person sees cards today."""
        settings = self.service.settings
        mode = self.log.mode() or settings.cds_mode
        wanted = not settings.cds_users or user in settings.cds_users or local(user) in settings.cds_users
        return mode == "show" and wanted and (not settings.cds_weekdays or DAYS[day.weekday()] in settings.cds_weekdays)

    # ---- one call

    def begin(self, hook: str, body: bytes) -> bytes | Call:
        """Answer a call that has all it needs; give it back, checked, if the FHIR server has to be waited for."""
        call = parse(Call, body)
        if call.hook != hook:
            raise HTTPException(400, f"this service answers the hook {hook}")
        named = call.context.encounterId
        if not valid_id(call.context.patientId) or (named is not None and not valid_id(named)):
            raise HTTPException(400, "the context's patientId or encounterId is not the id of a resource")
        if self.log.mode() == "off":
            return NO_CARDS
        return call if self.server(call) else self.answer(call, self.read(call))

    def server(self, call: Call) -> str | None:
        """The FHIR server that a call lets us read, if it is one of those configured."""
        server = call.fhirServer if call.fhirAuthorization is not None else None
        return server if server and allowed_server(self.service.settings.fhir_servers, server) else None

    def read(self, call: Call) -> Seen | None:
        """The visit that a call is about; None where there is no emergency visit. May wait for the FHIR server."""
        patient, named = call.context.patientId, call.context.encounterId
        resources, have = self.prefetched(call)
        if (address := self.server(call)) and call.fhirAuthorization is not None:
            token, seconds = call.fhirAuthorization.access_token, self.service.settings.fhir_seconds
            try:
                with FhirServer(address, token, seconds=seconds, patience=seconds, pages=20) as server:
                    gather(server, patient, named, self.codings, resources, have)
            except FhirError as refused:  # then with what there is
                log.warning("a FHIR server could not be read for a hook: %s", refused.problem)
        encounter = (
            resources.find(Encounter, f"Encounter/{named}") if named is not None else current(resources, patient)
        )
        if encounter is None or not is_emergency(encounter):
            return None
        if local(encounter.subject) not in (None, f"Patient/{patient}"):
            return None
        settings = self.service.settings
        return without_long_notes(
            visit_of(encounter, resources, self.codings), settings.max_characters, settings.max_words
        )

    def prefetched(self, call: Call) -> tuple[Resources, frozenset[str]]:
        """The resources of a prefetch, and which of the searches they answer whole."""
        resources, have = Resources(patient=call.context.patientId), set()
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

    def answer(self, call: Call, seen: Seen | None) -> bytes:
        """The cards of a visit as JSON, kept whether they are shown or not."""
        if seen is None:
            return NO_CARDS
        service, user = self.service, call.user
        visit, state, tagger = seen.visit, service.store.state(seen.visit.id), service.tagger
        known, reading, threshold = tagger.settle(state), tagger.read(visit), self.threshold.value()
        evidence, before = evidence_of(reading), self.log.of_visit(visit.id)
        shown = self.shows(user, datetime.now())
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
        if not shown:
            return NO_CARDS
        settings, patient = service.settings, call.context.patientId
        launch = f"{settings.public}/smart/launch" if settings.smart_client_id and settings.public else None

        def sent(one: Chosen, card: Card) -> bytes:
            found = render(one, card, reading, known, seen.unseen, self.codings, patient, settings.public, launch)
            return json.dumps(found, ensure_ascii=False).encode()

        # a card's number says whose and what it is: opened again with nothing new, only the reasons would cost
        rendered = [
            self._rendered.made((card.uuid, patient, one.again, seen.unseen), lambda o=one, c=card: sent(o, c))  # type: ignore[misc]
            for one, card in zip(chosen, cards, strict=True)
        ]
        return b'{"cards": [' + b", ".join(rendered) + b"]}"

    # ---- what came of it

    def note(self, body: bytes) -> None:
        """Record what came of cards, each by itself: one that is none of ours, or nonsense, costs itself."""
        for outcome in parse(Feedback, body).feedback:
            if outcome is not None:
                self.settle(outcome)

    def settle(self, given: Outcome) -> bool:
        """Record an outcome as a decision on the visit; False if the card is none of ours. Sent again, nothing
        changes."""
        card = self.log.find(given.card)
        verdict = {"accepted": "confirmed", "overridden": "rejected"}.get(given.outcome)
        if card is None or not card.shown or verdict is None:
            return False
        reason = given.reason
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
                return False
            if not done.repeated:
                self.service.metrics.count("decisions", verdict=verdict)
                self.log.settle(card, given.outcome, reason)
            return True
        return False


def cards_of(request: Request) -> Cards:
    """The cards of this app."""
    found: Cards = request.app.state.cards
    return found


async def caller(request: Request) -> str:
    """The issuer of the call's token, or "" where none is needed; 401 otherwise."""
    cards = cards_of(request)
    if not cards.callers.needed:
        return ""
    scheme, _, token = request.headers.get("authorization", "").partition(" ")
    settings = cards.service.settings
    base = settings.public or f"{request.url.scheme}://{request.headers.get('host', '')}"
    issuer = None
    if scheme.lower() == "bearer" and token.strip():
        loop = asyncio.get_running_loop()
        called = base + request.scope.get(CALLED, request.url.path)
        issuer = await loop.run_in_executor(cards.clerks, cards.callers.caller, token.strip(), called)
    if issuer is None:
        raise HTTPException(401, "the token is missing, used before, or not good here", {"WWW-Authenticate": "Bearer"})
    return issuer


router = APIRouter(prefix="/cds-services", tags=["CDS Hooks"])
Here = Annotated[Cards, Depends(cards_of)]
Caller = Annotated[str, Depends(caller)]


@router.get("")
async def discovery(cards: Here) -> dict[str, Any]:
    """The services, and what of the record they would like to have with a call."""
    prefetch = {
        "patient": "Patient/{{context.patientId}}",
        "encounter": "Encounter/{{context.encounterId}}",
        "encounters": "Encounter?patient={{context.patientId}}&status=in-progress",
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


# bodies are parsed in a thread, as CDS Hooks has them: the description of the API says no more
BODY = {"requestBody": {"required": True, "content": {"application/json": {"schema": {"type": "object"}}}}}


@router.post("/{number}", openapi_extra=BODY)
async def hook(cards: Here, _: Caller, number: str, request: Request) -> Response:
    """The cards of a visit: at most three, and none is a good answer."""
    if number not in HOOKS:
        raise HTTPException(404, "there is no such service; /cds-services lists them")
    lanes, body = cards.service.lanes, await request.body()
    lane = lanes.long if len(body) > LONG else lanes.hooks
    found = await lane.run(cards.begin, HOOKS[number][0], body)
    if isinstance(found, Call):
        seen = await asyncio.get_running_loop().run_in_executor(cards.readers, cards.read, found)
        found = await lane.run(cards.answer, found, seen)
    return Response(found, media_type="application/json")


@router.post("/{number}/feedback", openapi_extra=BODY)
async def feedback(cards: Here, _: Caller, number: str, request: Request) -> dict[str, Any]:
    """What came of cards: accepted confirms the tag, overridden rejects it."""
    if number not in HOOKS:
        raise HTTPException(404, "there is no such service; /cds-services lists them")
    await asyncio.get_running_loop().run_in_executor(cards.clerks, cards.note, await request.body())
    return {}
