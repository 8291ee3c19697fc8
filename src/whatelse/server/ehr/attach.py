"""attach: the routes of a service that is connected to an EHR, as the settings say."""

from __future__ import annotations

from fastapi import FastAPI
from starlette.types import ASGIApp

from whatelse.server.ehr.cds.cors import Cors
from whatelse.server.routing import Router
from whatelse.server.service import Service


def attach(app: FastAPI, service: Service) -> list[Router]:
    """The routers of CDS Hooks and of the SMART launch, if they are configured."""
    settings, routers = service.settings, []
    if settings.cds_hooks:
        from whatelse.server.ehr.cds import hooks

        app.state.cards = hooks.Cards(service)
        service.closing.append(app.state.cards.close)
        routers.append(hooks.make_router())
    if settings.smart_client_id:
        from whatelse.server.ehr.smart import launcher, routes

        app.state.smart = launcher.Smart(service)
        service.launched = app.state.smart.person
        service.closing.append(app.state.smart.close)
        routers.append(routes.router)
    return routers


def around(guarded: ASGIApp, service: Service) -> ASGIApp:
    """The guarded app; where hooks are called, also for the origins of EHRs that call from a browser."""
    settings = service.settings
    return Cors(guarded, settings.cds_origins) if settings.cds_hooks else guarded
