"""Routes of the label queue and of learning: visits to label; a candidate model, promote, roll back or drop it."""

from __future__ import annotations

from functools import partial

from fastapi import HTTPException

from whatelse.server.policies import READ, Lane, policy
from whatelse.server.record import as_read, record
from whatelse.server.routes.workbench import schemas as s
from whatelse.server.routes.workbench.anchors import state
from whatelse.server.routes.workbench.curator_session import Here
from whatelse.server.routing import Router

router = Router(prefix="/api/workbench", tags=["workbench"])


@router.get("/labels")
@policy("curator", lane=Lane.SLOW)
def queue(session: Here) -> s.Queue:
    """The visits that wait, in the order of the sheet; none where visits have not been chosen yet."""
    found = session.queue.waiting()
    if found is None:
        return s.Queue(waiting=[], done=0)
    return s.Queue(waiting=[session.key(visit) for visit in found.visits], done=found.done)


@router.post("/labels/more")
@policy("curator", lane=Lane.SLOW)
def more(session: Here, wanted: s.More) -> s.State:
    """Choose visits to label, or more of them, in the background."""
    count = 0 if session.queue.waiting() is None else wanted.count
    session.bench.start("choose", partial(session.queue.choose, session.service.tagger, count))
    return state(session)


@router.post("/labels/undo")
@policy("curator", audit="label undone", lane=Lane.SLOW)
def undo(session: Here) -> s.Undone:
    """Take back what was said of the last visit that is done."""
    visit = session.queue.take_back()
    return s.Undone(key=None if visit is None else session.key(visit))


@router.get("/labels/{key}")
@policy("curator", audit=READ, lane=Lane.SLOW)
def read(session: Here, key: str) -> s.LabelView:
    """A visit of the sheet: its record, and every condition, likeliest first, with what is said of it."""
    (visit, said), tagger = session.queue.record(session.visit(key)), session.service.tagger
    likely = dict(zip(tagger.conditions_, tagger.predict_proba([visit])[0].tolist(), strict=True))
    titles = {c.name: c.title for c in session.bench.folder.anchors().conditions}
    conditions = [
        s.Said(condition=name, title=titles[name], said=value)  # type: ignore[arg-type]
        for name, value in sorted(said.items(), key=lambda item: -likely.get(item[0], 1.0))
    ]
    return s.LabelView(key=key, record=record(visit), read=as_read(tagger, visit), conditions=conditions)


@router.post("/labels/{key}")
@policy("curator", audit="label", lane=Lane.SLOW)
def label(session: Here, key: str, said: s.Label) -> s.Queue:
    """Write what a visit has into labels.csv; the queue as it is then."""
    session.queue.label(session.visit(key), said.yes, said.unknown)
    return queue(session)


# ---- learning


@router.post("/hunt")
@policy("curator", lane=Lane.SLOW)
def hunt(session: Here) -> s.State:
    """Look for suggestions with the conditions as they are now, in the background."""
    session.bench.start_hunt()
    return state(session)


@router.post("/learn")
@policy("curator", audit="learning", lane=Lane.SLOW)
def learn(session: Here) -> s.State:
    """Learn a candidate from the conditions and labels as they are now, in a process of its own."""
    session.bench.start_learning()
    return state(session)


@router.get("/candidate")
@policy("curator", lane=Lane.SLOW)
def candidate(session: Here) -> s.Candidate:
    """Old and new model side by side, or nothing if there is no candidate."""
    return s.Candidate(outcome=session.bench.outcome(), previous=session.bench.has_previous)


@router.post("/promote")
@policy("curator", audit="model", lane=Lane.SLOW)
def promote(session: Here) -> s.Promoted:
    """Put the candidate in the model's place; it serves from now on."""
    if session.service.settings.trusted_keys:
        says = (
            "only signed models are loaded here: sign MODEL.candidate with 'whatelse sign' and put it in place by hand"
        )
        raise HTTPException(422, says)
    digest = session.bench.promote()
    session.service.reload()
    session.bench.hunt_soon()
    return s.Promoted(model=digest)


@router.post("/rollback")
@policy("curator", audit="model", lane=Lane.SLOW)
def rollback(session: Here) -> s.Promoted:
    """Put the model back that served before the last promotion; it serves from now on."""
    digest = session.bench.roll_back()
    session.service.reload()
    return s.Promoted(model=digest)


@router.post("/drop")
@policy("curator", audit="candidate dropped", lane=Lane.SLOW)
def drop(session: Here) -> s.State:
    """Forget the candidate; the conditions file stays as it is."""
    session.bench.drop()
    return state(session)
