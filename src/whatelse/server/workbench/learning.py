"""Routes about learning: suggestions again, a candidate, old and new model side by side, promote or drop."""

from __future__ import annotations

from collections.abc import Callable

from fastapi import APIRouter, HTTPException

from whatelse.server.visits import REFUSALS
from whatelse.server.workbench import schemas as s
from whatelse.server.workbench.conditions import state_of
from whatelse.server.workbench.desk import Curator, Desk, Here

router = APIRouter(prefix="/api/workbench", tags=["workbench"], responses=REFUSALS)


@router.post("/hunt")
async def hunt(desk: Here, _: Curator) -> s.State:
    """Look for suggestions with the conditions as they are now, in the background."""
    return await desk.run(_started, desk, desk.bench.start_hunt)


@router.post("/learn")
async def learn(desk: Here, _: Curator) -> s.State:
    """Learn a candidate from the conditions and labels as they are now, in a process of its own."""
    return await desk.run(_started, desk, desk.bench.start_learning)


def _started(desk: Desk, start: Callable[[], None]) -> s.State:
    start()
    return state_of(desk)


@router.get("/candidate")
async def candidate(desk: Here, _: Curator) -> s.Candidate:
    """Old and new model side by side, or nothing if there is no candidate."""
    return s.Candidate(outcome=await desk.run(desk.bench.outcome))


@router.post("/promote")
async def promote(desk: Here, _: Curator) -> s.Promoted:
    """Put the candidate in the model's place; it serves from now on."""
    if desk.service.settings.trusted_keys:
        raise HTTPException(
            422,
            "only signed models are loaded here: sign MODEL.candidate with 'whatelse sign' and put it in place by hand",
        )

    def work() -> str:
        digest = desk.bench.promote()
        desk.service.reload()
        desk.bench.hunt_soon()
        return digest

    return s.Promoted(model=await desk.run(work))


@router.post("/drop")
async def drop(desk: Here, _: Curator) -> s.State:
    """Forget the candidate; the conditions file stays as it is."""
    return await desk.run(_started, desk, desk.bench.drop)
