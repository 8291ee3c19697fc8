"""The pages: one shell (`templates/base.html`) around what each of them has of its own.

Pages hold no data: everything that a page shows comes from the API. Pages are rendered once, when the app is made.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping

from fastapi.responses import HTMLResponse

from whatelse.io.templates import templates
from whatelse.server.policies import ANYONE, policy
from whatelse.server.routing import Router

PAGES = {"/": "worklist.html", "/visit/{key}": "visit.html", "/new": "new.html", "/signin": "signin.html"}


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
