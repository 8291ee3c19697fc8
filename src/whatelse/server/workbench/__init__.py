"""attach: the workbench of a service, added to its app if the settings name a folder for it."""

from __future__ import annotations

from fastapi import FastAPI

from whatelse.server.service import Service


def attach(app: FastAPI, service: Service) -> None:
    """Add the pages and routes of the workbench, and begin to look for suggestions."""
    if service.settings.workbench is None:
        return
    from whatelse.server.pages import add_pages
    from whatelse.server.workbench import conditions, learning, phrases, queue
    from whatelse.server.workbench.desk import PAGES, Desk

    desk = app.state.workbench = Desk(service)
    service.closing.append(desk.close)
    for part in (conditions, phrases, queue, learning):
        app.include_router(part.router)
    add_pages(app, PAGES)
    desk.bench.start_hunt()
