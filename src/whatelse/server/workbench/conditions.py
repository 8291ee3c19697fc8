"""Routes about conditions: all of them, one of them, a new one; and how the workbench stands."""

from __future__ import annotations

from dataclasses import asdict

from fastapi import APIRouter

from whatelse.server.visits import REFUSALS
from whatelse.server.workbench import schemas as s
from whatelse.server.workbench.desk import Curator, Desk, Here
from whatelse.teaching.bench.judged import read_judged

router = APIRouter(prefix="/api/workbench", tags=["workbench"], responses=REFUSALS)


@router.get("/state")
async def state(desk: Here, _: Curator) -> s.State:
    """What is under way, and what there is to go on with."""
    return await desk.run(state_of, desk)


def state_of(desk: Desk) -> s.State:
    """How the workbench stands."""
    bench, waiting, job = desk.bench, desk.queue.waiting(), desk.bench.status()
    return s.State(
        visits=len(bench.records),
        hunted=bench.hunted is not None,
        edited=bench.edited,
        candidate=bench.folder.outcome.is_file(),
        labelled=None if waiting is None else waiting.done,
        waiting=None if waiting is None else len(waiting.visits),
        folder=bench.folder.root.name,
        job=None if job is None else s.Job(**asdict(job)),
    )


@router.get("/conditions")
async def conditions(desk: Here, _: Curator) -> s.Conditions:
    """Every condition with coverage, precision and sensitivity of its anchor; those that would gain most first."""
    return await desk.run(_conditions, desk)


def _conditions(desk: Desk) -> s.Conditions:
    rows, source = desk.bench.conditions()
    return s.Conditions(
        rows=[s.ConditionRow(**{**asdict(row), "conflicts": list(row.conflicts)}) for row in rows], labels=source
    )


@router.post("/conditions")
async def new_condition(desk: Here, _: Curator, wanted: s.NewCondition) -> s.State:
    """Start a condition; suggestions for it come with the next look through the records, which begins now."""

    def work() -> s.State:
        desk.bench.add_condition(wanted.name, wanted.phrase, wanted.title)
        desk.bench.hunt_soon()
        return state_of(desk)

    return await desk.run(work)


@router.post("/condition")
async def condition(desk: Here, _: Curator, about: s.AboutCondition) -> s.ConditionView:
    """One condition: its anchors, and ten suggestions that nobody has decided on yet."""
    return await desk.run(view_of, desk, about.condition)


def view_of(desk: Desk, name: str) -> s.ConditionView:
    """One condition as the page shows it."""
    bench = desk.bench
    anchors = [s.AnchorLine(**asdict(line)) for line in bench.anchors(name)]  # an error if there is no such condition
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
    )
