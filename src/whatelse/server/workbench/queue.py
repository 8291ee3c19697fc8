"""Routes of the label queue: which visits wait, one visit, what is said of it, undo, and more visits."""

from __future__ import annotations

from functools import partial

from fastapi import APIRouter

from whatelse.learning.learners import Progress
from whatelse.server.answers import record
from whatelse.server.visits import REFUSALS
from whatelse.server.workbench import schemas as s
from whatelse.server.workbench.conditions import state_of
from whatelse.server.workbench.desk import Curator, Desk, Here

router = APIRouter(prefix="/api/workbench/labels", tags=["workbench"], responses=REFUSALS)


@router.get("")
async def queue(desk: Here, _: Curator) -> s.Queue:
    """The visits that wait, in the order of the sheet; none where visits have not been chosen yet."""
    return await desk.run(_queue, desk)


def _queue(desk: Desk) -> s.Queue:
    found = desk.queue.waiting()
    if found is None:
        return s.Queue(waiting=[], done=0)
    return s.Queue(waiting=[desk.key(visit) for visit in found.visits], done=found.done)


@router.post("/more")
async def more(desk: Here, _: Curator, wanted: s.More) -> s.State:
    """Choose visits to label, or more of them, in the background."""

    def work() -> s.State:
        first = desk.queue.waiting() is None
        tagger, count = desk.service.tagger, 0 if first else wanted.count
        choose = partial(desk.queue.choose, tagger, more=count)

        def chosen(progress: Progress) -> None:
            choose(progress)

        desk.bench.start("choose", chosen)
        return state_of(desk)

    return await desk.run(work)


@router.post("/undo")
async def undo(desk: Here, _: Curator) -> s.Undone:
    """Take back what was said of the last visit that is done."""
    visit = await desk.run(desk.queue.take_back)
    return s.Undone(key=None if visit is None else desk.key(visit))


@router.get("/{key}")
async def read(desk: Here, _: Curator, key: str) -> s.LabelView:
    """A visit of the sheet: its record, and every condition, likeliest first, with what is said of it."""
    return await desk.run(_read, desk, key)


def _read(desk: Desk, key: str) -> s.LabelView:
    visit, said = desk.queue.record(desk.visit(key))
    tagger = desk.service.tagger
    likely = dict(zip(tagger.conditions_, tagger.predict_proba([visit])[0].tolist(), strict=True))
    titles = {c.name: c.title for c in desk.bench.folder.anchors().conditions}
    conditions = [
        s.Said(condition=name, title=titles[name], said=value)  # type: ignore[arg-type]
        for name, value in sorted(said.items(), key=lambda item: -likely.get(item[0], 1.0))
    ]
    return s.LabelView(key=key, record=record(visit), conditions=conditions)


@router.post("/{key}")
async def label(desk: Here, _: Curator, key: str, said: s.Label) -> s.Queue:
    """Write what a visit has into labels.csv; the queue as it is then."""
    visit = desk.visit(key)

    def work() -> s.Queue:
        desk.queue.label(visit, said.yes, said.unknown)
        return _queue(desk)

    return await desk.run(work)
