"""Router: an APIRouter whose routes must declare a policy, and enforce its permission before the route is called.

A route that is a coroutine runs in the event loop. A plain function runs in a thread of the `session` or `service` that
it takes.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from functools import partial, wraps
from typing import Annotated, Any

from fastapi import APIRouter, Depends, Request
from fastapi.routing import APIRoute

from whatelse.server import schemas
from whatelse.server.policies import ANYONE, Policy
from whatelse.server.security.auth import needs
from whatelse.server.service import Service
from whatelse.store import Person

STATUSES = (400, 401, 403, 404, 405, 413, 415, 421, 422, 429, 500, 503)
# a POST must be declared as JSON, or another site could send it; what its body says does not matter to some routes
ANY_JSON = {"requestBody": {"required": True, "content": {"application/json": {"schema": {}}}}}
REFUSALS: dict[int | str, dict[str, Any]] = {status: {"model": schemas.Problem} for status in STATUSES}


class DeclaredRoute(APIRoute):
    def __init__(self, path: str, endpoint: Callable[..., Any], **more: Any) -> None:
        declared = getattr(endpoint, "policy", None)
        if not isinstance(declared, Policy):
            raise TypeError(f"route {path}: declare its permission with @policy(…) below the route")
        check = declared.check or (None if declared.permission == ANYONE else needs(declared.permission))
        if check is not None:
            more["dependencies"] = [Depends(check), *(more.get("dependencies") or ())]
        more["responses"] = {**REFUSALS, **(more.get("responses") or {})}
        super().__init__(path, _in_thread(endpoint, declared.aside), **more)


def _in_thread(endpoint: Callable[..., Any], aside: bool) -> Callable[..., Any]:
    if inspect.iscoroutinefunction(endpoint):
        return endpoint

    @wraps(endpoint)
    async def run(**values: Any) -> Any:
        host = values.get("session") or values["service"]
        return await (host.pools.asides.run if aside else host.run)(partial(endpoint, **values))

    return run


class Router(APIRouter):
    def __init__(self, **more: Any) -> None:
        super().__init__(route_class=DeclaredRoute, **more)


def kept(name: str) -> Any:
    """A dependency: `name` of what the app keeps in its state."""

    async def get(request: Request) -> Any:
        return getattr(request.app.state, name)

    return Depends(get)


async def person_of(request: Request) -> Person:
    """The person that the policy of the route let in."""
    person: Person = request.state.person
    return person


Here = Annotated[Service, kept("service")]
Somebody = Annotated[Person, Depends(person_of)]
