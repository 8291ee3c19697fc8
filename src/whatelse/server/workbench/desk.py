"""Desk: an open workbench as routes need it: keys instead of ids, one thread for its work, errors as answers.

Nothing is decided here: every route calls a function of `teaching/`, which a command calls too.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Annotated, TypeVar

from fastapi import Depends, HTTPException, Request

from whatelse.errors import WhatelseError
from whatelse.server.auth import needs
from whatelse.server.lanes import Lane
from whatelse.server.service import Service
from whatelse.server.worklist import visit_key
from whatelse.store import Person
from whatelse.teaching.bench.bench import Bench
from whatelse.teaching.bench.queue import Queue

T = TypeVar("T")
PAGES = {
    "/workbench": "workbench/conditions.html",
    "/workbench/condition": "workbench/condition.html",
    "/workbench/labels": "workbench/labels.html",
    "/workbench/learn": "workbench/learn.html",
}
Curator = Annotated[Person, Depends(needs("curator"))]


class Desk:
    """The workbench of one service. Its lane has one thread: two edits of a file never cross."""

    def __init__(self, service: Service) -> None:
        settings = service.settings
        assert settings.workbench is not None
        self.service = service
        self.bench = Bench(settings.workbench, settings.model)
        self.queue = Queue(self.bench)
        self._secret = service.store.secret("visits")
        self._id_of = {self.key(visit.id): visit.id for visit in self.bench.records.visits}
        self._lane = Lane("workbench", 1, 100)

    def key(self, visit: str) -> str:
        """The opaque key of a visit, the same as in the worklist."""
        return visit_key(visit, self._secret)

    def visit(self, key: str) -> str:
        """The id of the visit with this key; 404 if there is none."""
        if key not in self._id_of:
            raise HTTPException(404, "there is no such visit in this workbench")
        return self._id_of[key]

    async def run(self, work: Callable[..., T], *args: object) -> T:
        """Do `work` in the workbench's thread; 422 with what was wrong if it was refused."""
        try:
            return await asyncio.wrap_future(self._lane.submit(work, *args))
        except WhatelseError as refused:
            raise HTTPException(422, str(refused)) from None

    def close(self) -> None:
        """End what is under way."""
        self.bench.close()
        self._lane.close()


async def desk_of(request: Request) -> Desk:
    """The workbench of this app."""
    desk: Desk = request.app.state.workbench
    return desk


Here = Annotated[Desk, Depends(desk_of)]
