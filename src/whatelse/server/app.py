"""create_app: the ASGI app of a service. Everything that its pages show comes from its API."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import HTMLResponse, JSONResponse, Response
from fastapi.staticfiles import StaticFiles
from starlette.exceptions import HTTPException
from starlette.types import ASGIApp

from whatelse import __version__
from whatelse.errors import QueryError
from whatelse.io.templates import templates
from whatelse.server.policies import ANYONE, policy
from whatelse.server.routes import operations, visits
from whatelse.server.routing import Router
from whatelse.server.security.auth import Gate
from whatelse.server.security.guard import Guard, HookCors, failure, where
from whatelse.server.service import Service
from whatelse.store import StoreError

log = logging.getLogger("whatelse.server")
PAGES = {"/": "worklist.html", "/visit/{key}": "visit.html", "/new": "new.html", "/signin": "signin.html"}
STATIC = Path(__file__).parent / "static"
ABOUT = (
    "Given a visit's record and the conditions already confirmed, what else might the patient have? "
    "It supports judgement and does not replace it; it suggests nothing but the conditions it was taught, "
    "and writes nothing into the record."
)


def create_app(service: Service) -> ASGIApp:
    """The app inside its guard. Its start begins to score the worklist; its end leaves the service open, for the caller
    to close."""

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        asyncio.get_running_loop().set_exception_handler(_unheard)
        service.start()
        service.admissions.watch()
        yield
        service.admissions.rest()
        service.ready = False

    app = FastAPI(
        title="whatelse",
        version=__version__,
        description=ABOUT,
        docs_url=None,
        redoc_url=None,
        redirect_slashes=False,  # a redirect repeats the name that the client gave, and http where a proxy speaks https
        lifespan=lifespan,
    )
    app.state.service, app.state.gate = service, Gate(service)
    for router in (visits.router, operations.router, *_configured(app, service), pages_router()):
        app.include_router(router)
        service.routes.add(router.routes)
    for kind in (RequestValidationError, HTTPException, StoreError, QueryError, Exception):
        app.add_exception_handler(kind, _told)
    app.mount("/static", StaticFiles(directory=STATIC), name="static")

    guarded = Guard(app, service)
    return HookCors(guarded, service.settings.cds_origins) if service.settings.cds_hooks else guarded


def _configured(app: FastAPI, service: Service) -> list[Router]:
    """The routers of CDS Hooks, of the SMART launch and of the workbench, if they are configured."""
    routers = []
    if service.settings.cds_hooks:
        from whatelse.server.ehr.cds import hooks

        app.state.cards = hooks.Cards(service)
        service.closing.append(app.state.cards.close)
        routers.append(hooks.make_router())
    if service.settings.smart_client_id:
        from whatelse.server.ehr.smart import routes

        app.state.smart = routes.Smart(service)
        service.launched = app.state.smart.person
        service.closing.append(app.state.smart.close)
        routers.append(routes.router)
    if service.settings.workbench is not None:
        from whatelse.server.routes import workbench

        app.state.workbench = workbench.CuratorSession(service)
        service.closing.append(app.state.workbench.close)
        routers += [workbench.router, pages_router(workbench.PAGES)]
    return routers


def _unheard(_: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
    """An error that nobody waits for, without its message: asyncio would log that, and it may quote a record."""
    error = context.get("exception")
    log.error("error=%s at=%s", type(error).__name__, where(error) if error else "none")


async def _told(request: Request, error: Exception) -> Response:
    """What a client is told of an error.

    Of a request that is wrong, where and how; not what was in it, which may be a record. Of an error inside, a number:
    the guard, which sees the error next, logs it under the same number.
    """
    if isinstance(error, RequestValidationError):
        wrong = [f"{'.'.join(str(part) for part in e['loc'][:3])}: {e['type']}" for e in error.errors()[:10]]
        return JSONResponse({"detail": "the request cannot be used: " + "; ".join(wrong)}, 422)
    if isinstance(error, HTTPException):
        return JSONResponse({"detail": error.detail}, error.status_code, error.headers)
    if isinstance(error, StoreError):
        return JSONResponse({"detail": "the database does not answer; try again"}, 503, {"Retry-After": "2"})
    if isinstance(error, QueryError):
        return JSONResponse({"detail": str(error)}, 422)
    return JSONResponse(failure(request.scope), 500)


# ---- pages: one shell (`templates/base.html`), rendered once; all data on a page comes from the API


def pages_router(pages: Mapping[str, str] = PAGES) -> Router:
    """A route for each page: path -> template."""
    router = Router()

    def add(path: str, html: str) -> None:
        @router.get(path, include_in_schema=False)
        @policy(ANYONE)
        async def page() -> HTMLResponse:
            return HTMLResponse(html)

    for path, html in render_pages(pages).items():
        add(path, html)
    return router


def render_pages(pages: Mapping[str, str] = PAGES) -> dict[str, str]:
    shelf = templates("whatelse.server")
    return {path: shelf.get_template(file).render() for path, file in pages.items()}
