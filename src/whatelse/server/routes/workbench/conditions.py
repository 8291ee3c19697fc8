"""Routes about conditions: all of them, one of them, a new one; and how the workbench stands."""

from __future__ import annotations

from dataclasses import asdict

from whatelse.server.findings import in_words
from whatelse.server.policies import Lane, policy
from whatelse.server.routes.workbench import schemas as s
from whatelse.server.routes.workbench.curator_session import CuratorSession, Here
from whatelse.server.routing import Router
from whatelse.workbench.judgements import read_judged

router = Router(prefix="/api/workbench", tags=["workbench"])


@router.get("/state")
@policy("curator", lane=Lane.SLOW)
async def state(session: Here) -> s.State:
    """What is under way, and what there is to go on with."""
    return await session.run(state_of, session)


def state_of(session: CuratorSession) -> s.State:
    """How the workbench stands."""
    bench, waiting, job = session.bench, session.queue.waiting(), session.bench.status()
    return s.State(
        visits=len(bench.records),
        hunted=bench.hunted is not None,
        edited=bench.edited,
        candidate=bench.folder.outcome.is_file(),
        labelled=None if waiting is None else waiting.done,
        waiting=None if waiting is None else len(waiting.visits),
        folder=bench.folder.root.name,
        job=job,
    )


@router.get("/conditions")
@policy("curator", lane=Lane.SLOW)
async def conditions(session: Here) -> s.Conditions:
    """Every condition with coverage, precision and sensitivity of its anchor; those that would gain most first."""
    return await session.run(_conditions, session)


def _conditions(session: CuratorSession) -> s.Conditions:
    rows, source = session.bench.conditions()
    return s.Conditions(rows=rows, labels=source)


@router.post("/conditions")
@policy("curator", audit="anchors edited", lane=Lane.SLOW)
async def new_condition(session: Here, wanted: s.NewCondition) -> s.State:
    """Start a condition; suggestions for it come with the next look through the records, which begins now."""

    def work() -> s.State:
        session.bench.add_condition(wanted.name, wanted.phrase, wanted.title)
        session.bench.hunt_soon()
        return state_of(session)

    return await session.run(work)


@router.post("/condition")
@policy("curator", lane=Lane.SLOW)
async def condition(session: Here, about: s.AboutCondition) -> s.ConditionView:
    """One condition: its anchors, and ten suggestions that nobody has decided on yet."""
    return await session.run(view_of, session, about.condition)


def view_of(session: CuratorSession, name: str) -> s.ConditionView:
    """One condition as the page shows it."""
    bench = session.bench
    anchors = bench.anchors(name)  # an error if there is no such condition
    title = next(c.title for c in bench.folder.anchors().conditions if c.name == name)
    judged = read_judged(bench.folder.judged)
    suggestions = []
    for found in bench.suggestions(name):
        said = judged.get((name, found.phrase, found.key, found.system or ""), {})
        fields = {k: v for k, v in found.to_json().items() if k not in ("condition", "score")}
        suggestions.append(s.Suggestion(**fields, judged=len(said), yes=sum(said.values())))
    return s.ConditionView(
        name=name,
        title=title,
        anchors=anchors,
        suggestions=suggestions,
        refused=list(bench.folder.refusals().get(name, ())),
        hunted=bench.hunted is not None and name in bench.hunted.cohort.conditions,
        knowledge=_knowledge(session, name),
    )


def _knowledge(session: CuratorSession, name: str) -> s.Knowledge | None:
    found = session.bench.beside_knowledge(name)
    if found is None:
        return None
    tagger = session.service.tagger
    lifts = [s.Lift(text=in_words(lift.finding, tagger), **asdict(lift)) for lift in found.lifts]
    return s.Knowledge(entries=list(found.entries), share=found.share, fires=found.fires, lifts=lifts)
