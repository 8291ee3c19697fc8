"""Routes about learning: suggestions again, a candidate, old and new model side by side, promote or drop."""

from __future__ import annotations

from collections.abc import Callable

from fastapi import HTTPException

from whatelse.server.policies import Lane, policy
from whatelse.server.routes.workbench import schemas as s
from whatelse.server.routes.workbench.conditions import state_of
from whatelse.server.routes.workbench.curator_session import CuratorSession, Here
from whatelse.server.routing import Router

router = Router(prefix="/api/workbench", tags=["workbench"])


@router.post("/hunt")
@policy("curator", lane=Lane.SLOW)
async def hunt(session: Here) -> s.State:
    """Look for suggestions with the conditions as they are now, in the background."""
    return await session.run(_started, session, session.bench.start_hunt)


@router.post("/learn")
@policy("curator", audit="learning", lane=Lane.SLOW)
async def learn(session: Here) -> s.State:
    """Learn a candidate from the conditions and labels as they are now, in a process of its own."""
    return await session.run(_started, session, session.bench.start_learning)


def _started(session: CuratorSession, start: Callable[[], None]) -> s.State:
    start()
    return state_of(session)


@router.get("/candidate")
@policy("curator", lane=Lane.SLOW)
async def candidate(session: Here) -> s.Candidate:
    """Old and new model side by side, or nothing if there is no candidate."""
    return s.Candidate(outcome=await session.run(session.bench.outcome), previous=session.bench.has_previous)


@router.post("/promote")
@policy("curator", audit="model", lane=Lane.SLOW)
async def promote(session: Here) -> s.Promoted:
    """Put the candidate in the model's place; it serves from now on."""
    if session.service.settings.trusted_keys:
        raise HTTPException(
            422,
            "only signed models are loaded here: sign MODEL.candidate with 'whatelse sign' and put it in place by hand",
        )

    def work() -> str:
        digest = session.bench.promote()
        session.service.reload()
        session.bench.hunt_soon()
        return digest

    return s.Promoted(model=await session.run(work))


@router.post("/rollback")
@policy("curator", audit="model", lane=Lane.SLOW)
async def rollback(session: Here) -> s.Promoted:
    """Put the model back that served before the last promotion; it serves from now on."""

    def work() -> str:
        digest = session.bench.roll_back()
        session.service.reload()
        return digest

    return s.Promoted(model=await session.run(work))


@router.post("/drop")
@policy("curator", audit="candidate dropped", lane=Lane.SLOW)
async def drop(session: Here) -> s.State:
    """Forget the candidate; the conditions file stays as it is."""
    return await session.run(_started, session, session.bench.drop)
