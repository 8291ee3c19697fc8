"""The pages: one shell (`templates/base.html`) around what each of them has of its own.

They hold no data: everything a page shows it asks of the API. So they are rendered once, when the app is made.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping

from fastapi import FastAPI
from fastapi.responses import HTMLResponse

from whatelse.templating import templates

PAGES = {"/": "worklist.html", "/visit/{key}": "visit.html", "/new": "new.html", "/signin": "signin.html"}


def add_pages(app: FastAPI, pages: Mapping[str, str] = PAGES) -> None:
    """Give the app a route for each page: path -> template."""
    for path, html in render_pages(pages).items():
        app.add_api_route(path, _page(html), include_in_schema=False, response_class=HTMLResponse)


def render_pages(pages: Mapping[str, str] = PAGES) -> dict[str, str]:
    """Path of a page -> its HTML."""
    shelf = templates("whatelse.server")
    return {path: shelf.get_template(file).render() for path, file in pages.items()}


def _page(html: str) -> Callable[[], Awaitable[HTMLResponse]]:
    async def page() -> HTMLResponse:
        return HTMLResponse(html)

    return page
