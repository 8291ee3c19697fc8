"""Routes of the label queue: which visits wait, one visit, what is said of it, undo, and more visits."""

from __future__ import annotations

from functools import partial

from whatelse.learning.learners import Progress
from whatelse.server.policies import READ, Lane, policy
from whatelse.server.record import as_read, record
from whatelse.server.routes.workbench import schemas as s
from whatelse.server.routes.workbench.conditions import state_of
from whatelse.server.routes.workbench.curator_session import CuratorSession, Here
from whatelse.server.routing import Router

router = Router(prefix="/api/workbench/labels", tags=["workbench"])


@router.get("")
@policy("curator", lane=Lane.SLOW)
async def queue(session: Here) -> s.Queue:
    """The visits that wait, in the order of the sheet; none where visits have not been chosen yet."""
    return await session.run(_queue, session)


def _queue(session: CuratorSession) -> s.Queue:
    found = session.queue.waiting()
    if found is None:
        return s.Queue(waiting=[], done=0)
    return s.Queue(waiting=[session.key(visit) for visit in found.visits], done=found.done)


@router.post("/more")
@policy("curator", lane=Lane.SLOW)
async def more(session: Here, wanted: s.More) -> s.State:
    """Choose visits to label, or more of them, in the background."""

    def work() -> s.State:
        first = session.queue.waiting() is None
        tagger, count = session.service.tagger, 0 if first else wanted.count
        choose = partial(session.queue.choose, tagger, more=count)

        def chosen(progress: Progress) -> None:
            choose(progress)

        session.bench.start("choose", chosen)
        return state_of(session)

    return await session.run(work)


@router.post("/undo")
@policy("curator", audit="label undone", lane=Lane.SLOW)
async def undo(session: Here) -> s.Undone:
    """Take back what was said of the last visit that is done."""
    visit = await session.run(session.queue.take_back)
    return s.Undone(key=None if visit is None else session.key(visit))


@router.get("/{key}")
@policy("curator", audit=READ, lane=Lane.SLOW)
async def read(session: Here, key: str) -> s.LabelView:
    """A visit of the sheet: its record, and every condition, likeliest first, with what is said of it."""
    return await session.run(_read, session, key)


def _read(session: CuratorSession, key: str) -> s.LabelView:
    visit, said = session.queue.record(session.visit(key))
    tagger = session.service.tagger
    likely = dict(zip(tagger.conditions_, tagger.predict_proba([visit])[0].tolist(), strict=True))
    titles = {c.name: c.title for c in session.bench.folder.anchors().conditions}
    conditions = [
        s.Said(condition=name, title=titles[name], said=value)  # type: ignore[arg-type]
        for name, value in sorted(said.items(), key=lambda item: -likely.get(item[0], 1.0))
    ]
    return s.LabelView(
        key=key, record=record(visit), read=as_read(session.service.tagger, visit), conditions=conditions
    )


@router.post("/{key}")
@policy("curator", audit="label", lane=Lane.SLOW)
async def label(session: Here, key: str, said: s.Label) -> s.Queue:
    """Write what a visit has into labels.csv; the queue as it is then."""
    visit = session.visit(key)

    def work() -> s.Queue:
        session.queue.label(visit, said.yes, said.unknown)
        return _queue(session)

    return await session.run(work)
