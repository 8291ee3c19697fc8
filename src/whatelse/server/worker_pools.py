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
import heapq
import itertools
import os
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from contextvars import ContextVar
from typing import Any, TypeVar

from fastapi import HTTPException

T = TypeVar("T")
URGENT, USUAL = 0, 1
urgency: ContextVar[int] = ContextVar("urgency", default=USUAL)
HEAD_START = 0.05  # seconds


class Busy(HTTPException):
    """Too much waits already: the client is told 503, and when to come again."""

    def __init__(self, wait: float) -> None:
        super().__init__(
            503, "too much is going on here; try again in a moment", {"Retry-After": str(self.after(wait))}
        )

    @staticmethod
    def after(wait: float) -> int:
        """Seconds after which to come again."""
        return min(30, int(wait) + 1)


class WorkerPool:
    """`threads` that take work in the order it came; what is URGENT, as if it had come HEAD_START earlier."""

    def __init__(self, name: str, threads: int, most: int = 100_000) -> None:
        self._most = most
        self._waiting: list[tuple[float, int, Future[Any], Callable[..., Any], tuple[object, ...]]] = []
        self._number = itertools.count()
        self._ready = threading.Condition()
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
        future: Future[T] = Future()
        with self._ready:
            if self._closed:
                raise RuntimeError("the service is closed")
            if len(self._waiting) >= self._most:
                raise Busy(1.0)
            turn = time.monotonic() + HEAD_START * urgency.get()
            heapq.heappush(self._waiting, (turn, next(self._number), future, work, args))
            self._ready.notify()
        return future

    def close(self) -> None:
        """Finish what has begun; what has not is cancelled."""
        with self._ready:
            self._closed = True
            for _, _, future, _, _ in self._waiting:
                future.cancel()
            self._waiting.clear()
            self._ready.notify_all()
        for thread in self._threads:
            thread.join()

    def _work(self) -> None:
        while True:
            with self._ready:
                while not self._waiting:
                    if self._closed:
                        return
                    self._ready.wait()
                _, _, future, work, args = heapq.heappop(self._waiting)
            if future.set_running_or_notify_cancel():
                self._do(future, work, args)
            del future, work, args  # or the last one would be kept until the next comes

    def _do(self, future: Future[Any], work: Callable[..., Any], args: tuple[object, ...]) -> None:
        try:
            result = work(*args)
        except BaseException as error:
            future.set_exception(error)
        else:
            future.set_result(result)


class WorkerPools:
    """The pools of one service."""

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
        """Close all pools."""
        for pool in (self.answers, self.asides, self.hooks, self.long, self.access, self.changes, self.slow):
            pool.close()
