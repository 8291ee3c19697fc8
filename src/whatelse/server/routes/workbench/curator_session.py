"""CuratorSession: the open workbench for the routes: keys instead of ids, one thread, errors as answers.

Nothing is decided here: every route calls a function of `workbench/`, which a command calls too.
"""

from __future__ import annotations

import asyncio
import errno
import logging
from collections.abc import Callable
from typing import Annotated, TypeVar

from fastapi import Depends, HTTPException, Request

from whatelse.errors import WhatelseError
from whatelse.server.service import Service, without_folders
from whatelse.server.worker_pools import WorkerPool
from whatelse.workbench.label_queue import Queue
from whatelse.workbench.workbench import Workbench

T = TypeVar("T")
log = logging.getLogger("whatelse.server")
PAGES = {
    "/workbench": "workbench/conditions.html",
    "/workbench/condition": "workbench/condition.html",
    "/workbench/labels": "workbench/labels.html",
    "/workbench/learn": "workbench/learn.html",
}


class CuratorSession:
    """The workbench of one service. Its pool has one thread: two edits of a file never cross."""

    def __init__(self, service: Service) -> None:
        settings = service.settings
        assert settings.workbench is not None
        self.service = service
        self.bench = Workbench(settings.workbench, settings.model)
        self.queue = Queue(self.bench)
        self.key = service.worklist.key  # id of a visit -> its opaque key
        self._id_of = {self.key(visit.id): visit.id for visit in self.bench.records.visits}
        self._pool = WorkerPool("workbench", 1, 100)
        self.bench.start_hunt()

    def visit(self, key: str) -> str:
        """The id of the visit with this key; 404 if there is none."""
        if key not in self._id_of:
            raise HTTPException(404, "there is no such visit in this workbench")
        return self._id_of[key]

    def say(self, problem: str) -> str:
        """A message without the server's folders."""
        root = self.bench.folder.root
        return without_folders(problem, root, root.parent, self.bench.model.parent)

    async def run(self, work: Callable[..., T], *args: object) -> T:
        """Do `work` in the workbench's thread; 422 with what was wrong if it was refused."""
        try:
            return await asyncio.wrap_future(self._pool.submit(work, *args))
        except WhatelseError as refused:
            raise HTTPException(422, self.say(str(refused))) from None
        except OSError as error:
            log.error("the workbench could not write: %s", errno.errorcode.get(error.errno or 0, "OSError"))
            full = error.errno in (errno.ENOSPC, errno.EDQUOT)
            says = "the disk of the server is full" if full else "a file of the workbench cannot be read or written"
            raise HTTPException(503, f"{says}; nothing was changed", {"Retry-After": "60"}) from None

    def close(self) -> None:
        """End what is under way."""
        self.bench.close()
        self._pool.close()


async def session_of(request: Request) -> CuratorSession:
    """The workbench of this app."""
    session: CuratorSession = request.app.state.workbench
    return session


Here = Annotated[CuratorSession, Depends(session_of)]
