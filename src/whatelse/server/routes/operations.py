"""Routes for signing in and for those who run the service: model, labels, health, metrics."""

from __future__ import annotations

import asyncio
import tempfile
import time
from collections.abc import AsyncGenerator, AsyncIterator
from itertools import islice
from typing import Annotated, Any, Literal

from fastapi import HTTPException, Request, Response
from fastapi.responses import JSONResponse, PlainTextResponse, StreamingResponse

from whatelse.errors import WhatelseError
from whatelse.server import schemas
from whatelse.server.policies import ANYONE, Lane, policy
from whatelse.server.routing import ANY_JSON, Here, Router, Somebody, kept
from whatelse.server.security.auth import COOKIE, Gate, address_of
from whatelse.server.service import Service, without_folders
from whatelse.store import Person, Store
from whatelse.store.labels import labels, to_csv, to_parquet

router = Router()
Door = Annotated[Gate, kept("gate")]
MAX_EXPORTS = 2  # at once
ROWS = 500  # of an export sent at a time
PROMPT = 1.0  # seconds within which readiness is answered, whatever the database does
FRESH = 1.0  # seconds for which a commit that succeeded is enough


@router.get("/api/model", tags=["model"])
@policy("viewer", when_launched=True)
def model(service: Here) -> schemas.Model:
    """The conditions that the model was taught: it suggests nothing else."""
    known = service.tagger.vocabulary_.anchors.conditions
    conditions = [schemas.Condition(name=c.name, title=c.title, kind=c.kind) for c in known]
    return schemas.Model(model=service.tagger.digest_, caveat=service.tagger.caveat_, conditions=conditions)


@router.post("/admin/model", tags=["model"], openapi_extra=ANY_JSON)
@policy("admin", audit="model", lane=Lane.SLOW)
async def reload_model(service: Here) -> schemas.Model:
    """Load the model file again. If it cannot be used the old model goes on serving, and 422 says why."""
    try:
        await service.pools.slow.run(service.reload)
    except WhatelseError as refused:
        said = without_folders(str(refused), service.settings.model.parent)
        raise HTTPException(422, f"the old model goes on serving: {said}") from None
    return model(service)


EXPORTED: dict[int | str, dict[str, Any]] = {
    200: {
        "description": "Labels, one row per visit and tag.",
        "content": {
            "text/csv": {"schema": {"type": "string"}},
            "application/vnd.apache.parquet": {"schema": {"type": "string", "format": "binary"}},
        },
    }
}


@router.get("/api/decisions/export", tags=["decisions"], responses=EXPORTED, response_class=Response)
@policy("admin", audit="export", lane=Lane.SLOW)
async def export(request: Request, service: Here, format: Literal["csv", "parquet"] = "csv") -> StreamingResponse:
    """Decisions as labels: one row per visit and tag that stands confirmed or rejected.

    Read and sent page by page: while a slow client takes its time nothing is held but its place among MAX_EXPORTS.
    """
    state = request.app.state
    running: int = getattr(state, "exports", 0)
    if running >= MAX_EXPORTS:
        raise HTTPException(503, "as many exports as allowed are under way; try again later", {"Retry-After": "10"})
    state.exports = running + 1
    pieces = _csv(service) if format == "csv" else _parquet(service)
    try:
        first = await anext(pieces)  # what fails now can still be said
    except BaseException:
        state.exports -= 1
        raise
    name = {"Content-Disposition": f'attachment; filename="labels.{format}"'}
    kind = "text/csv" if format == "csv" else "application/vnd.apache.parquet"

    async def sent() -> AsyncIterator[bytes]:
        try:
            yield first
            async for piece in pieces:
                yield piece
        finally:
            state.exports -= 1
            await pieces.aclose()

    return StreamingResponse(sent(), media_type=kind, headers=name)


async def _csv(service: Service) -> AsyncGenerator[bytes, None]:
    lines = to_csv(labels(service.store))
    while piece := await service.pools.slow.run(lambda: "".join(islice(lines, ROWS))):
        yield piece.encode("utf-8", "replace")


async def _parquet(service: Service) -> AsyncGenerator[bytes, None]:
    """Parquet is whole before it begins, so it is made in a file without a name."""
    with tempfile.TemporaryFile() as file:
        await service.pools.slow.run(to_parquet, labels(service.store), file)
        file.seek(0)
        while piece := await service.pools.slow.run(file.read, 1 << 16):
            yield piece


# ---- signing in


@router.post("/api/session", tags=["session"])
@policy(ANYONE, audit="sign-in", lane=Lane.SLOW)
async def sign_in(
    request: Request, response: Response, service: Here, gate: Door, given: schemas.SignIn
) -> schemas.SessionOut:
    """Exchange a token for a session cookie."""
    settings = service.settings
    if settings.auth == "none":
        raise HTTPException(404, "nobody has to sign in here")
    person = request.state.person = await gate.bearer(given.token, address_of(request))
    if person is None:
        raise HTTPException(401, "that token is not known here, or no longer good")
    text, session = await service.pools.changes.run(service.store.access.open_session, person, settings.session_hours)
    response.set_cookie(COOKIE, text, max_age=int(settings.session_hours * 3600), **settings.cookie)
    return _session(service, session)


@router.get("/api/session", tags=["session"])
@policy("viewer", lane=Lane.SLOW, when_launched=True)
async def session(service: Here, person: Somebody) -> schemas.SessionOut:
    """Who is signed in, and the CSRF token that the page sends with what it changes."""
    return _session(service, person)


def _session(service: Service, person: Person) -> schemas.SessionOut:
    bench = service.settings.workbench is not None and person.may("curator")
    return schemas.SessionOut(
        name=person.name, role=person.role, auth=service.settings.auth, csrf=person.csrf, workbench=bench
    )


@router.delete("/api/session", tags=["session"], status_code=204)
@policy("viewer", audit="sign-out", lane=Lane.SLOW)
async def sign_out(request: Request, response: Response, service: Here, gate: Door) -> None:
    """End the session."""
    if cookie := request.cookies.get(COOKIE):
        await service.pools.changes.run(service.store.access.close_session, cookie)
        gate.forget()
    response.delete_cookie(COOKIE, **service.settings.cookie)


# ---- running


@router.get("/healthz", tags=["running"])
@policy(ANYONE, lane=Lane.HEALTH)
async def health() -> dict[str, str]:
    """The process answers."""
    return {"status": "ok"}


NOT_READY: dict[int | str, dict[str, Any]] = {503: {"model": dict[str, str]}}


@router.get("/readyz", tags=["running"], response_model=dict[str, str], responses=NOT_READY)
@policy(ANYONE, lane=Lane.HEALTH)
async def ready(service: Here) -> Response:
    """The model is loaded and the database takes what is written; else 503."""
    fine = service.ready and await _takes_commits(service.store)
    return JSONResponse({"status": "ready" if fine else "not ready"}, 200 if fine else 503)


async def _takes_commits(store: Store) -> bool:
    """Whether somebody's commit succeeded lately, or one that is made to find out does within PROMPT seconds."""
    if time.monotonic() - store.committed < FRESH:
        return True
    trying = asyncio.wrap_future(store.pulse())
    trying.add_done_callback(lambda done: done.cancelled() or done.exception())  # also if it ends after PROMPT
    await asyncio.wait([trying], timeout=PROMPT)
    return trying.done() and trying.exception() is None


@router.get("/metrics", tags=["running"], response_class=PlainTextResponse)
@policy("viewer", lane=Lane.HEALTH)
async def metrics(service: Here) -> str:
    """Prometheus' text format."""
    scores = service.worklist.scores
    return service.metrics.text(
        {
            "visits": ("Visits in the worklist.", len(service.worklist)),
            "visits_scored": ("Visits whose suggestions are ready.", scores.done if scores else 0),
            "ready": ("Whether the service is ready.", float(service.ready)),
            **(scores.drift() if scores else {}),
        }
    )
