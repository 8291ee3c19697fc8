"""attach: what a service that is connected to an EHR has beside its pages, added to its app as the settings say."""

from __future__ import annotations

from fastapi import FastAPI
from starlette.types import ASGIApp

from whatelse.server.cds.cors import Cors
from whatelse.server.service import Service


def attach(app: FastAPI, service: Service) -> None:
    """Add the routes of CDS Hooks and of the SMART launch, if they are configured."""
    settings = service.settings
    if settings.cds_hooks:
        from whatelse.server.cds import hooks

        app.state.cards = hooks.Cards(service)
        service.closing.append(app.state.cards.close)
        app.include_router(hooks.router)
    if settings.smart_client_id:
        from whatelse.server.smart import routes

        app.state.smart = routes.Smart(service)
        service.launched = app.state.smart.launches.person
        service.closing.append(app.state.smart.close)
        app.include_router(routes.router)


def around(guarded: ASGIApp, service: Service) -> ASGIApp:
    """The guarded app, open to the EHRs' own origins where hooks are called."""
    settings = service.settings
    return Cors(guarded, settings.cds_origins) if settings.cds_hooks else guarded
