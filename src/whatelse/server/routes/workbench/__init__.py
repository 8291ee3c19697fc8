"""attach: the workbench of a service, if the settings name a folder for it."""

from __future__ import annotations

from fastapi import FastAPI

from whatelse.server.routing import Router
from whatelse.server.service import Service


def attach(app: FastAPI, service: Service) -> list[Router]:
    """The routers of the workbench and its pages; the search for suggestions begins."""
    if service.settings.workbench is None:
        return []
    from whatelse.server.routes.pages import pages_router
    from whatelse.server.routes.workbench import conditions, learning, phrases, queue
    from whatelse.server.routes.workbench.curator_session import PAGES, CuratorSession

    session = app.state.workbench = CuratorSession(service)
    service.closing.append(session.close)
    session.bench.start_hunt()
    return [*(part.router for part in (conditions, phrases, queue, learning)), pages_router(PAGES)]
