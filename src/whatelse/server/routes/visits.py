"""Routes about visits: the worklist; one visit with its answers, decisions and history; visits that are posted."""

from __future__ import annotations

import asyncio
import json
from typing import Any

from fastapi import HTTPException, Request, Response

from whatelse.reading import Reading
from whatelse.server import answers, reasons, schemas
from whatelse.server.policies import READ, policy
from whatelse.server.record import as_read, record
from whatelse.server.routing import Here, Router, Somebody
from whatelse.server.security.limits import too_much_text
from whatelse.server.service import Service
from whatelse.store import Conflict, Decision, Entry, Reused, State, StoreError
from whatelse.tagger import Tagger
from whatelse.visits import Visit

router = Router(prefix="/api", tags=["visits"])
TOP = 3  # suggestions in a row of the worklist


def _visit(service: Service, key: str) -> Visit:
    visit = service.worklist.find(key)
    if visit is None:
        raise HTTPException(404, "there is no such visit in this worklist")
    return visit


def _read(service: Service, key: str) -> tuple[Reading, State]:
    """A visit, read, and what is decided about it."""
    visit = _visit(service, key)
    return service.answers.reading(service.tagger, visit), service.store.state(visit.id)


def _condition(tagger: Tagger, name: str) -> str:
    if name not in tagger.conditions_:
        raise HTTPException(404, "that is not a condition of this model; /api/model lists them")
    return name


# ---- the worklist


@router.get("/visits")
@policy("viewer", audit="worklist read")
def list_visits(service: Here, offset: int = 0, limit: int = 50) -> schemas.Rows:
    """Visits in the order of their file."""
    wanted = schemas.Search(offset=min(max(0, offset), 2**31 - 1), limit=min(max(1, limit), 200))
    return search_visits(service, wanted)


@router.post("/visits/search")
@policy("viewer", audit="worklist read")
def search_visits(service: Here, wanted: schemas.Search) -> schemas.Rows:
    """Visits by words, condition and whether somebody decided on them."""
    tagger, worklist = service.tagger, service.worklist
    if wanted.condition is not None:
        _condition(tagger, wanted.condition)
    decided = service.store.decided()
    found = worklist.search(
        wanted.words,
        wanted.condition,
        among=decided if wanted.status == "decided" else None,
        without=decided if wanted.status == "undecided" else None,
        must_not_miss=wanted.must_not_miss,
        by_attention=wanted.order == "attention",
    )
    page = found[wanted.offset : wanted.offset + wanted.limit].tolist()
    states = service.store.states([worklist.visits[i].id for i in page])
    rows = [_row(service, tagger, i, states.get(worklist.visits[i].id)) for i in page]
    scores = worklist.scores
    return schemas.Rows(
        model=tagger.digest_,
        total=len(found),
        offset=wanted.offset,
        rows=rows,
        scored=0 if scores is None else scores.done,
        visits=len(worklist),
        decided=sum(visit.id in decided for visit in worklist.visits) if decided else 0,
        alerts=0 if scores is None else sum(bool(one.must_not_miss) for one in scores.standing),
    )


def _row(service: Service, tagger: Tagger, i: int, state: State | None) -> schemas.Row:
    visit = service.worklist.visits[i]
    ready = service.worklist.standing(i, tagger)
    likely, missed = ([], []) if ready is None else (ready.likely, ready.must_not_miss)
    if state is not None:
        shown = service.answers.shown(tagger, visit, state)
        likely, missed = ([(c, float(shown.of(tagger, c))) for c in names] for names in shown.parts)
    return schemas.Row(
        key=service.worklist.keys[i],
        id=visit.id,
        age=visit.age,
        sex=visit.sex,
        chief_complaint=visit.chief_complaint,
        time=visit.time,
        read=ready is not None or state is not None,
        likely=likely[:TOP],
        must_not_miss=missed[:TOP],
        confirmed=list(state.confirmed) if state else [],
        rejected=len(state.rejected) if state else 0,
    )


# ---- one visit


@router.get("/visits/{key}", response_model=schemas.VisitView)
@policy("viewer", audit=READ)
def read_visit(service: Here, key: str) -> Response:
    """The record, what is decided, and the suggestions."""
    visit = _visit(service, key)
    view, parts = _current(service, visit), (record(visit), as_read(service.tagger, visit))
    more = (part.model_dump_json().encode() for part in parts)
    # a VisitView is a View with three entries more: they are put in front of what was made already
    return _reply(b'{"key":"%b","record":%b,"read":%b,%b' % (key.encode(), *more, view[1:]))


@router.get("/visits/{key}/suggestions", response_model=schemas.View)
@policy("viewer", audit=READ)
def suggestions(service: Here, key: str) -> Response:
    """What is decided, and the suggestions."""
    return _reply(_current(service, _visit(service, key)))


def _reply(answer: str | bytes, status: int = 200) -> Response:
    """JSON without a second look at what was just made: these are asked for most often."""
    return Response(answer, status, media_type="application/json")


def _current(service: Service, visit: Visit) -> bytes:
    """Mostly somebody has seen this version already, and its number is all that is asked of the database."""
    tagger, store = service.tagger, service.store
    shown = service.answers.was_shown(tagger.digest_, visit.id, store.version(visit.id))
    return (shown or service.answers.shown(tagger, visit, store.state(visit.id))).json


@router.get("/visits/{key}/findings")
@policy("viewer", audit=READ, aside=True)
def findings(service: Here, key: str) -> schemas.Reading:
    """The findings that matter and where they are in the record."""
    return reasons.marks(*_read(service, key))


@router.get("/visits/{key}/why")
@policy("viewer", audit=READ, aside=True)
def why(service: Here, key: str, condition: str) -> schemas.Why:
    """The findings for and against one condition."""
    reading, state = _read(service, key)
    return reasons.why(reading, state, _condition(reading.tagger, condition))


@router.get("/visits/{key}/questions")
@policy("viewer", audit=READ, aside=True)
def questions(service: Here, key: str, about: str | None = None) -> schemas.Questions:
    """The findings to ask about next, over all open conditions or about one."""
    reading, state = _read(service, key)
    tagger = reading.tagger
    if about is None:
        asked = service.answers.questions(tagger, reading.visit, state)
    else:
        asked = answers.questions(reading, state, _condition(tagger, about))
    tests = answers.tests(answers.view(reading, state)[0])
    return schemas.Questions(model=tagger.digest_, version=state.version, questions=asked, tests=tests)


@router.post("/visits/{key}/moved")
@policy("viewer", audit=READ, aside=True)
def moved(service: Here, key: str, before: schemas.KnownOf) -> schemas.Moved:
    """What the decisions since `before` moved most, and because of what."""
    reading, state = _read(service, key)
    return reasons.moved(reading, before.known(), state)


@router.get("/visits/{key}/history")
@policy("viewer", audit=READ)
def history(service: Here, key: str) -> schemas.History:
    """Who decided what, when, on which model, and what they were shown."""
    lines = service.store.history(_visit(service, key).id)
    out = [schemas.Line(**{name: getattr(line, name) for name in schemas.Line.model_fields}) for line in lines]
    return schemas.History(model=service.tagger.digest_, lines=out)


# ---- deciding


CONFLICT: dict[int | str, dict[str, Any]] = {409: {"model": schemas.Conflict | schemas.Problem}}


@router.post("/visits/{key}/decisions", responses=CONFLICT, response_model=schemas.View)
@policy("clinician", audit="decision", urgent=True)
async def decide(
    request: Request, service: Here, person: Somebody, key: str, wanted: schemas.WantedDecision
) -> Response:
    """Record a decision: durable when this answers. 409 with the visit's state if somebody was faster."""
    visit, tagger = _visit(service, key), service.tagger
    about_finding = wanted.verdict in ("present", "absent", "unasked")
    if about_finding and wanted.subject not in tagger.vocabulary_.index:
        raise HTTPException(404, "that is not a finding of this model")
    if not about_finding:
        _condition(tagger, wanted.subject)
    digest = wanted.model or tagger.digest_
    if digest != tagger.digest_ and not await service.run(service.store.has_served, digest):
        raise HTTPException(404, "no model with that digest has served here; name the one whose answer was looked at")
    decision = Decision(
        visit=visit.id,
        version=wanted.version,
        kind="finding" if about_finding else "tag",
        subject=wanted.subject,
        verdict="open" if wanted.verdict == "unasked" else wanted.verdict,
        actor=person.name,
        model=digest,
        request=wanted.request,
        shown=_shown(service, digest, visit, wanted.version, wanted.subject),
    )
    return await _record(request, service, visit, decision)


@router.post("/visits/{key}/undo", responses=CONFLICT, response_model=schemas.View)
@policy("clinician", audit="undo", urgent=True)
async def undo(request: Request, service: Here, person: Somebody, key: str, wanted: schemas.WantedUndo) -> Response:
    """Take back the newest decision that has not been taken back; the history keeps both."""
    visit, digest = _visit(service, key), service.tagger.digest_
    shown = _shown(service, digest, visit, wanted.version, None)
    decision = Decision(visit.id, wanted.version, "undo", "", "open", person.name, digest, wanted.request, shown)
    return await _record(request, service, visit, decision)


def _shown(service: Service, digest: str, visit: Visit, version: int, subject: str | None) -> dict[str, Any]:
    """What was on the screen: the tag's probability and rank, and what was decided by then.

    Answers are remembered when they are given; after a restart or a change of model they may be forgotten, and then
    the history says so rather than something that was not shown.
    """
    was = service.answers.was_shown(digest, visit.id, version)
    if was is None:
        return {"remembered": False}
    known, conditions = was.known, service.tagger.conditions_
    shown = {"confirmed": list(known.confirmed), "rejected": list(known.rejected), "of": len(was.order)}
    if subject in conditions and not known.about(subject) and digest == service.tagger.digest_:
        at = conditions.index(subject)
        shown |= {"probability": float(was.probabilities[at]), "rank": was.order.tolist().index(at) + 1}
    return shown


def _expected(service: Service, line: Entry) -> None:
    """Count what was expected of a tag beside what was decided: they drift apart if the model does."""
    if line.verdict in ("confirmed", "rejected") and "probability" in line.shown and line.undoes is None:
        service.metrics.count("confirmations_expected", line.shown["probability"], condition=line.subject)
        service.metrics.count("confirmations", float(line.verdict == "confirmed"), condition=line.subject)


async def _record(request: Request, service: Service, visit: Visit, decision: Decision) -> Response:
    tagger = service.tagger
    try:
        done = await asyncio.wrap_future(service.store.record(decision))
    except Conflict as conflict:
        service.metrics.count("conflicts")
        shown, last = await service.run(service.answers.shown, tagger, visit, conflict.state), conflict.latest
        moved = {
            "detail": "this visit has moved on; look again",
            "actor": last.actor if last else "",
            "subject": last.subject if last else "",
            "verdict": last.verdict if last else "",
        }
        # a Conflict is a View with these in front; the view was mostly made already, for whoever was faster
        return _reply(json.dumps(moved)[:-1].encode() + b"," + shown.json[1:], 409)
    except Reused as refused:
        raise HTTPException(409, str(refused)) from None
    except StoreError:
        raise HTTPException(503, "the decision could not be stored; nothing was recorded, try again") from None
    request.state.detail = {"version": done.entry.version}
    if not done.repeated:
        service.metrics.count("decisions", verdict=done.entry.verdict)
        _expected(service, done.entry)
    return _reply((await service.run(service.answers.shown, tagger, visit, done.state)).json)


# ---- visits that are in no worklist: typed in, or posted by another system. Nothing of them is kept


@router.post("/suggest")
@policy("viewer")
def suggest(service: Here, asked: schemas.AskedVisit, full: bool = True) -> schemas.TypedView:
    """Suggestions for a posted visit; with `full`, also marks and questions."""
    reading, state = _read_posted(service, asked)
    (view, _), read = answers.view(reading, state), as_read(reading.tagger, reading.visit)
    if not full:
        return schemas.TypedView(**dict(view), read=read, marks=[], explains={}, questions=[], tests=[])
    found, asking, tests = reasons.marks(reading, state), answers.questions(reading, state), answers.tests(view)
    return schemas.TypedView(
        **dict(view), read=read, questions=asking, tests=tests, marks=found.marks, explains=found.explains
    )


@router.post("/why")
@policy("viewer")
def why_posted(service: Here, asked: schemas.AskedWhy) -> schemas.Why:
    """The findings for and against one condition of a posted visit."""
    condition = _condition(service.tagger, asked.condition)
    return reasons.why(*_read_posted(service, asked), condition)


@router.post("/moved")
@policy("viewer")
def moved_posted(service: Here, asked: schemas.AskedMove) -> schemas.Moved:
    """What the last decision about a posted visit moved most, and because of what."""
    reading, state = _read_posted(service, asked)
    return reasons.moved(reading, asked.before.known(), state)


def _read_posted(service: Service, asked: schemas.AskedVisit) -> tuple[Reading, State]:
    """A posted visit, read, and what is known of it; 404, 413 or 422 for what cannot be answered."""
    tagger, known, visit, limits = service.tagger, asked.known(), asked.visit, service.settings
    if tagger.settle(known) != known:
        raise HTTPException(404, "a condition or finding is not of this model; /api/model lists the conditions")
    if {*known.confirmed} & {*known.rejected} or {*known.present} & {*known.absent}:
        raise HTTPException(422, "a condition cannot be both confirmed and rejected, nor a finding present and absent")
    notes = (visit.chief_complaint, visit.triage_note, visit.md_comments)
    if problem := too_much_text(notes, limits.max_words):
        raise HTTPException(413, problem)
    return answers.read(tagger, answers.typed(visit)), State(**vars(known))
