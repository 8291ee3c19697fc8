"""create_app: the ASGI app of a service. Everything that its pages show comes from its API."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
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
from whatelse.io.templates import templates
from whatelse.server.ehr.cds.cors import Cors
from whatelse.server.policies import ANYONE, policy
from whatelse.server.routes import ad_hoc_visit, operations, visits
from whatelse.server.routing import Router
from whatelse.server.security.auth import Gate
from whatelse.server.security.guard import Guard, failure, where
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
    parts = [visits.router, ad_hoc_visit.router, operations.router, *_configured(app, service)]
    for router in (*parts, pages_router()):
        app.include_router(router)
        service.routes.add(router.routes)
    app.add_exception_handler(RequestValidationError, _invalid)
    app.add_exception_handler(HTTPException, _refused)
    app.add_exception_handler(StoreError, _unavailable)
    app.add_exception_handler(Exception, _failed)
    app.mount("/static", StaticFiles(directory=STATIC), name="static")

    guarded = Guard(app, service)
    return Cors(guarded, service.settings.cds_origins) if service.settings.cds_hooks else guarded


def _configured(app: FastAPI, service: Service) -> list[Router]:
    """The routers of CDS Hooks, of the SMART launch and of the workbench, if they are configured."""
    routers = []
    if service.settings.cds_hooks:
        from whatelse.server.ehr.cds import hooks

        app.state.cards = hooks.Cards(service)
        service.closing.append(app.state.cards.close)
        routers.append(hooks.make_router())
    if service.settings.smart_client_id:
        from whatelse.server.ehr.smart import launcher, routes

        app.state.smart = launcher.Smart(service)
        service.launched = app.state.smart.person
        service.closing.append(app.state.smart.close)
        routers.append(routes.router)
    if service.settings.workbench is not None:
        from whatelse.server.routes.workbench import anchors, curator_session, labels

        app.state.workbench = curator_session.CuratorSession(service)
        service.closing.append(app.state.workbench.close)
        routers += [anchors.router, labels.router, pages_router(curator_session.PAGES)]
    return routers


def _unheard(_: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
    """An error that nobody waits for, without its message: asyncio would log that, and it may quote a record."""
    error = context.get("exception")
    log.error("error=%s at=%s", type(error).__name__, where(error) if error else "none")


async def _invalid(_: Request, error: Exception) -> Response:
    """Where a request is wrong and how; not what was in it, which may be a record."""
    assert isinstance(error, RequestValidationError)
    wrong = [f"{'.'.join(str(part) for part in e['loc'][:3])}: {e['type']}" for e in error.errors()[:10]]
    return JSONResponse({"detail": "the request cannot be used: " + "; ".join(wrong)}, 422)


async def _refused(_: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    return JSONResponse({"detail": error.detail}, error.status_code, error.headers)


async def _unavailable(_: Request, __: Exception) -> Response:
    return JSONResponse({"detail": "the database does not answer; try again"}, 503, {"Retry-After": "2"})


async def _failed(request: Request, _: Exception) -> Response:
    """What the client is told; the guard, which sees the error next, logs it under the same number."""
    return JSONResponse(failure(request.scope), 500)


# ---- pages: one shell (`templates/base.html`), rendered once; all data on a page comes from the API


def pages_router(pages: Mapping[str, str] = PAGES) -> Router:
    """A route for each page: path -> template."""
    router = Router()
    for path, html in render_pages(pages).items():
        router.add_api_route(path, _page(html), include_in_schema=False, response_class=HTMLResponse)
    return router


def render_pages(pages: Mapping[str, str] = PAGES) -> dict[str, str]:
    """Path of a page -> its HTML."""
    shelf = templates("whatelse.server")
    return {path: shelf.get_template(file).render() for path, file in pages.items()}


def _page(html: str) -> Callable[[], Awaitable[HTMLResponse]]:
    @policy(ANYONE)
    async def page() -> HTMLResponse:
        return HTMLResponse(html)

    return page
