"""Routes about visits that are in no worklist: typed in, or posted by another system. Nothing of them is kept."""

from __future__ import annotations

from fastapi import HTTPException

from whatelse.errors import QueryError
from whatelse.server import answers, reasons, schemas
from whatelse.server.policies import policy
from whatelse.server.record import as_read
from whatelse.server.routing import Here, Router
from whatelse.server.security.limits import too_much_text
from whatelse.server.service import Service
from whatelse.store import State
from whatelse.tagger import Tagger
from whatelse.visits import Known

router = Router(prefix="/api", tags=["typed visits"])


@router.post("/suggest")
@policy("viewer")
async def suggest(service: Here, asked: schemas.AskedVisit, full: bool = True) -> schemas.TypedView:
    """Suggestions for a posted visit; with `full`, also marks and questions."""
    tagger = service.tagger
    state = _state(tagger, asked)
    await _readable(service, asked.visit)

    def work() -> schemas.TypedView:
        visit = answers.typed(asked.visit)
        reading = answers.read(tagger, visit)
        view, read = answers.view(reading, state), as_read(tagger, visit)
        if not full:
            return schemas.TypedView(**dict(view), read=read, marks=[], explains={}, questions=[], tests=[])
        found, asking = reasons.marks(reading, state), answers.questions(reading, state)
        return schemas.TypedView(
            **dict(view),
            read=read,
            marks=found.marks,
            explains=found.explains,
            questions=asking,
            tests=answers.tests(view),
        )

    try:
        return await service.run(work)
    except QueryError as refused:
        raise HTTPException(422, str(refused)) from None


@router.post("/why")
@policy("viewer")
async def why(service: Here, asked: schemas.AskedWhy) -> schemas.Why:
    """The findings for and against one condition of a posted visit."""
    tagger = service.tagger
    state = _state(tagger, asked)
    if asked.condition not in tagger.conditions_:
        raise HTTPException(404, "that is not a condition of this model; /api/model lists them")
    await _readable(service, asked.visit)
    try:
        return await service.run(lambda: reasons.why(tagger.read(answers.typed(asked.visit)), state, asked.condition))
    except QueryError as refused:
        raise HTTPException(422, str(refused)) from None


@router.post("/moved")
@policy("viewer")
async def moved(service: Here, asked: schemas.AskedMove) -> schemas.Moved:
    """What the last decision about a posted visit moved most, and because of what."""
    tagger, was = service.tagger, asked.before
    state = _state(tagger, asked)
    await _readable(service, asked.visit)
    before = Known(tuple(was.confirmed), tuple(was.rejected), tuple(was.present), tuple(was.absent))
    return await service.run(lambda: reasons.moved(answers.read(tagger, answers.typed(asked.visit)), before, state))


def _state(tagger: Tagger, asked: schemas.AskedVisit) -> State:
    """What was given, if this model knows all of it and none of it both ways."""
    given = State(tuple(asked.confirmed), tuple(asked.rejected), tuple(asked.present), tuple(asked.absent))
    if tagger.settle(given) != Known(given.confirmed, given.rejected, given.present, given.absent):
        raise HTTPException(404, "a condition or finding is not of this model; /api/model lists the conditions")
    if {*given.confirmed} & {*given.rejected} or {*given.present} & {*given.absent}:
        raise HTTPException(422, "a condition cannot be both confirmed and rejected, nor a finding present and absent")
    return given


async def _readable(service: Service, visit: schemas.TypedVisit) -> None:
    """Refuse with 413 a visit whose notes would keep everybody waiting."""
    notes, limits = (visit.chief_complaint, visit.triage_note, visit.md_comments), service.settings
    if why := await service.run(too_much_text, notes, limits.max_characters, limits.max_words):
        raise HTTPException(413, why)
