"""Routes for signing in and for those who run the service: model, labels, health, metrics."""

from __future__ import annotations

import io
from collections.abc import Iterator
from typing import Annotated, Literal

from fastapi import APIRouter, Depends, HTTPException, Request, Response
from fastapi.responses import JSONResponse, PlainTextResponse, StreamingResponse

from whatelse.errors import WhatelseError
from whatelse.server import schemas
from whatelse.server.auth import COOKIE, Gate, needs
from whatelse.server.service import Service
from whatelse.server.visits import REFUSALS, Here, Viewer
from whatelse.store import Person, StoreError
from whatelse.store.labels import labels, to_csv, to_parquet

router = APIRouter()
Admin = Annotated[Person, Depends(needs("admin"))]


@router.get("/api/model", tags=["model"], responses=REFUSALS)
async def model(service: Here, _: Viewer) -> schemas.Model:
    """The conditions that the model was taught: it suggests nothing else."""
    return _model(service)


def _model(service: Service) -> schemas.Model:
    known = service.tagger.vocabulary_.anchors.conditions
    conditions = [schemas.Condition(name=c.name, title=c.title, kind=c.kind) for c in known]
    return schemas.Model(model=service.tagger.digest_, conditions=conditions)


@router.post("/admin/model", tags=["model"], responses=REFUSALS)
async def reload_model(service: Here, _: Admin) -> schemas.Model:
    """Load the model file again. If it cannot be used the old model goes on serving, and 422 says why."""
    try:
        await service.run(service.reload)
    except WhatelseError as refused:
        raise HTTPException(422, f"the old model goes on serving: {refused}") from None
    return _model(service)


@router.get("/api/decisions/export", tags=["decisions"], responses=REFUSALS)
async def export(service: Here, _: Admin, format: Literal["csv", "parquet"] = "csv") -> Response:
    """Decisions as labels: one row per visit and tag that stands confirmed or rejected."""
    name = {"Content-Disposition": f'attachment; filename="labels.{format}"'}
    if format == "csv":

        def lines() -> Iterator[str]:
            yield from to_csv(labels(service.store))

        return StreamingResponse(lines(), media_type="text/csv", headers=name)

    def whole() -> bytes:
        stream = io.BytesIO()
        to_parquet(labels(service.store), stream)
        return stream.getvalue()

    return Response(await service.run(whole), media_type="application/vnd.apache.parquet", headers=name)


# ---- signing in


@router.post("/api/session", tags=["session"], responses=REFUSALS)
async def sign_in(request: Request, response: Response, service: Here, given: schemas.SignIn) -> schemas.SessionOut:
    """Exchange a token for a session cookie."""
    settings, gate = service.settings, gate_of(request)
    if settings.auth == "none":
        raise HTTPException(422, "nobody has to sign in here")
    person = await gate.signing_in(given.token, request.client.host if request.client else "unknown")
    text, session = await service.run(service.store.access.open_session, person, settings.session_hours)
    response.set_cookie(
        COOKIE,
        text,
        max_age=int(settings.session_hours * 3600),
        httponly=True,
        secure=settings.cookie_secure,
        samesite=settings.cookie_samesite,
    )
    return schemas.SessionOut(name=session.name, role=session.role, auth=settings.auth, csrf=session.csrf)


def gate_of(request: Request) -> Gate:
    """The gate of this app."""
    gate: Gate = request.app.state.gate
    return gate


@router.get("/api/session", tags=["session"], responses=REFUSALS)
async def session(service: Here, person: Viewer) -> schemas.SessionOut:
    """Who is signed in, and the CSRF token that the page sends with what it changes."""
    return schemas.SessionOut(name=person.name, role=person.role, auth=service.settings.auth, csrf=person.csrf)


@router.delete("/api/session", tags=["session"], status_code=204, responses=REFUSALS)
async def sign_out(request: Request, response: Response, service: Here, _: Viewer) -> None:
    """End the session."""
    if cookie := request.cookies.get(COOKIE):
        await service.run(service.store.access.close_session, cookie)
        gate_of(request).forget()
    response.delete_cookie(COOKIE)


# ---- running


@router.get("/healthz", tags=["running"])
async def health() -> dict[str, str]:
    """The process answers."""
    return {"status": "ok"}


@router.get("/readyz", tags=["running"], response_model=dict[str, str])
async def ready(service: Here) -> Response:
    """The model is loaded and the database answers; else 503."""
    try:
        await service.run(service.store.ping)
        fine = service.ready
    except (StoreError, RuntimeError):
        fine = False
    return JSONResponse({"status": "ready" if fine else "not ready"}, 200 if fine else 503)


@router.get("/metrics", tags=["running"], response_class=PlainTextResponse)
async def metrics(service: Here, _: Viewer) -> str:
    """Prometheus' text format."""
    scores = service.worklist.scores
    return service.metrics.text(
        {
            "visits": ("Visits in the worklist.", len(service.worklist)),
            "visits_scored": ("Visits whose suggestions are ready.", scores.done if scores else 0),
            "ready": ("Whether the service is ready.", float(service.ready)),
        }
    )
