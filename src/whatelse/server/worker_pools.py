"""Worker pools: threads that work for requests, one pool for each kind of work, so that no kind waits for another.

    answers   the model's answers and the reads they need
    asides    what a page shows a moment later: why, marks, questions, what moved
    access    whose token or session this is
    changes   sign-ins and sign-outs: they wait for the database's lock, and nobody waits for them
    hooks     calls of an EHR, which come by the hundred and may wait longer than a person at a page
    long      those of them that bring megabytes
    slow      loading a model, exports

Work whose client has left is never begun. Urgent work has a head start over what came before it, and not all the way:
else a stream of decisions would keep a suggestion that was let in waiting for ever.
"""

from __future__ import annotations

import asyncio
import itertools
import math
import os
import queue
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import suppress
from contextvars import ContextVar
from functools import partial
from typing import Any, TypeVar

from fastapi import HTTPException

T = TypeVar("T")
URGENT, USUAL = 0, 1
Waiting = tuple[float, int, Future[Any], Callable[[], Any]]  # turn, number, result, work
urgency: ContextVar[int] = ContextVar("urgency", default=USUAL)
HEAD_START = 0.05  # seconds
LAST = math.inf  # turn of what ends a thread


class Busy(HTTPException):
    """Too much waits already: the client is told 503, and when to come again."""

    def __init__(self, wait: float) -> None:
        after = {"Retry-After": str(min(30, int(wait) + 1))}
        super().__init__(503, "too much is going on here; try again in a moment", after)


class WorkerPool:
    """`threads` that take work in the order it came; what is URGENT, as if it had come HEAD_START earlier."""

    def __init__(self, name: str, threads: int, most: int = 100_000) -> None:
        self._waiting: queue.PriorityQueue[Waiting] = queue.PriorityQueue(most)
        self._number = itertools.count()
        self._closed = False
        self._threads = [
            threading.Thread(target=self._work, name=f"whatelse-{name}-{k}", daemon=True) for k in range(threads)
        ]
        for thread in self._threads:
            thread.start()

    async def run(self, work: Callable[..., T], *args: object) -> T:
        """Do `work` in a thread of this pool, so that the event loop goes on answering others."""
        return await asyncio.wrap_future(self.submit(work, *args))

    def submit(self, work: Callable[..., T], *args: object) -> Future[T]:
        """Put `work` in line; its result is for a thread that waits, or for nobody. Busy if too much waits already."""
        if self._closed:
            raise RuntimeError("the service is closed")
        future: Future[T] = Future()
        turn = time.monotonic() + HEAD_START * urgency.get()
        try:
            self._waiting.put_nowait((turn, next(self._number), future, partial(work, *args)))
        except queue.Full:
            raise Busy(1.0) from None
        return future

    def close(self) -> None:
        self._closed = True
        with suppress(queue.Empty):
            while True:
                self._waiting.get_nowait()[2].cancel()
        for _ in self._threads:
            self._waiting.put((LAST, next(self._number), Future(), str))
        for thread in self._threads:
            thread.join()

    def _work(self) -> None:
        while True:
            turn, _, future, work = self._waiting.get()
            if turn == LAST:
                return
            if future.set_running_or_notify_cancel():
                try:
                    future.set_result(work())
                except BaseException as error:
                    future.set_exception(error)
            del future, work  # or the last one would be kept until the next comes


class WorkerPools:
    def __init__(self) -> None:
        self.answers = WorkerPool("answer", 1)  # queries hold the interpreter: more threads answer no faster
        self.asides = WorkerPool("aside", 1)
        # calls come many at once, and a model of a thousand conditions spends its time outside the interpreter
        self.hooks = WorkerPool("hook", min(4, os.cpu_count() or 1))
        self.long = WorkerPool("long", 1)
        self.access = WorkerPool("access", 2, 2_000)
        self.changes = WorkerPool("changes", 2, 200)
        self.slow = WorkerPool("slow", 2, 20)

    def close(self) -> None:
        for pool in (self.answers, self.asides, self.hooks, self.long, self.access, self.changes, self.slow):
            pool.close()
