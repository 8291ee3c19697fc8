"""Routes about visits that are in no worklist: typed in, or posted by another system. Nothing of them is kept."""

from __future__ import annotations

from fastapi import HTTPException

from whatelse.errors import QueryError
from whatelse.reading import Reading
from whatelse.server import answers, reasons, schemas
from whatelse.server.policies import policy
from whatelse.server.record import as_read
from whatelse.server.routing import Here, Router
from whatelse.server.security.limits import too_much_text
from whatelse.server.service import Service
from whatelse.store import State

router = Router(prefix="/api", tags=["typed visits"])


@router.post("/suggest")
@policy("viewer")
def suggest(service: Here, asked: schemas.AskedVisit, full: bool = True) -> schemas.TypedView:
    """Suggestions for a posted visit; with `full`, also marks and questions."""
    reading, state = _read(service, asked)
    try:
        view, read = answers.view(reading, state), as_read(reading.tagger, reading.visit)
        if not full:
            return schemas.TypedView(**dict(view), read=read, marks=[], explains={}, questions=[], tests=[])
        found, asking = reasons.marks(reading, state), answers.questions(reading, state)
    except QueryError as refused:
        raise HTTPException(422, str(refused)) from None
    tests = answers.tests(view)
    return schemas.TypedView(
        **dict(view), read=read, questions=asking, tests=tests, marks=found.marks, explains=found.explains
    )


@router.post("/why")
@policy("viewer")
def why(service: Here, asked: schemas.AskedWhy) -> schemas.Why:
    """The findings for and against one condition of a posted visit."""
    if asked.condition not in service.tagger.conditions_:
        raise HTTPException(404, "that is not a condition of this model; /api/model lists them")
    reading, state = _read(service, asked)
    try:
        return reasons.why(reading, state, asked.condition)
    except QueryError as refused:
        raise HTTPException(422, str(refused)) from None


@router.post("/moved")
@policy("viewer")
def moved(service: Here, asked: schemas.AskedMove) -> schemas.Moved:
    """What the last decision about a posted visit moved most, and because of what."""
    reading, state = _read(service, asked)
    return reasons.moved(reading, asked.before.known(), state)


def _read(service: Service, asked: schemas.AskedVisit) -> tuple[Reading, State]:
    """A posted visit, read, and what is known of it; 404, 413 or 422 for what cannot be answered."""
    tagger, known, visit, limits = service.tagger, asked.known(), asked.visit, service.settings
    if tagger.settle(known) != known:
        raise HTTPException(404, "a condition or finding is not of this model; /api/model lists the conditions")
    if {*known.confirmed} & {*known.rejected} or {*known.present} & {*known.absent}:
        raise HTTPException(422, "a condition cannot be both confirmed and rejected, nor a finding present and absent")
    notes = (visit.chief_complaint, visit.triage_note, visit.md_comments)
    if problem := too_much_text(notes, limits.max_characters, limits.max_words):
        raise HTTPException(413, problem)
    return answers.read(tagger, answers.typed(visit)), State(**vars(known))
