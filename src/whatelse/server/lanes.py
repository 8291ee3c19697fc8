"""Lanes: the threads that work for requests, one lane for each kind of work, so that none waits for another's.

    answers   the model's answers and the reads they need; the most urgent first
    access    whose token or session this is
    changes   sign-ins and sign-outs: they wait for the database's lock, and nobody waits for them
    slow      loading a model, exports

How many requests are under way and how fast they leave says how long a new one would wait. Who would wait too long is
told at once: an early no costs next to nothing, and what was accepted is answered in time. Work whose client has left
is never begun.
"""

from __future__ import annotations

import asyncio
import heapq
import itertools
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
FEW = 8  # requests that are let in whatever the time they take
TICK = 0.02  # seconds between two looks at how late the event loop is


class Busy(HTTPException):
    """Too much waits already: the client is told 503, and when to come again."""

    def __init__(self, wait: float) -> None:
        after = str(min(30, int(wait) + 1))
        super().__init__(503, "too much is going on here; try again in a moment", {"Retry-After": after})


class Lane:
    """`threads` that take the most urgent work first; equally urgent work in the order it came."""

    def __init__(self, name: str, threads: int, most: int = 100_000) -> None:
        self._most = most
        self._waiting: list[tuple[int, int, Future[Any], Callable[..., Any], tuple[object, ...]]] = []
        self._number = itertools.count()
        self._ready = threading.Condition()
        self._closed = False
        self._threads = [
            threading.Thread(target=self._work, name=f"whatelse-{name}-{k}", daemon=True) for k in range(threads)
        ]
        for thread in self._threads:
            thread.start()

    async def run(self, work: Callable[..., T], *args: object) -> T:
        """Do `work` in a thread of this lane, so that the event loop goes on answering others."""
        return await asyncio.wrap_future(self.submit(work, *args))

    def submit(self, work: Callable[..., T], *args: object) -> Future[T]:
        """Put `work` in line; its result is for a thread that waits, or for nobody. Busy if too much waits already."""
        future: Future[T] = Future()
        with self._ready:
            if self._closed:
                raise RuntimeError("the service is closed")
            if len(self._waiting) >= self._most:
                raise Busy(1.0)
            heapq.heappush(self._waiting, (urgency.get(), next(self._number), future, work, args))
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


class Lanes:
    """The lanes of one service, and how late its event loop is."""

    def __init__(self, threads: int, patience: float) -> None:
        self._patience = patience
        self.answers = Lane("answer", threads)
        self.access = Lane("access", 2, 2_000)
        self.changes = Lane("changes", 2, 200)
        self.slow = Lane("slow", 2, 20)
        self.lag = 0.0  # seconds that the event loop is late; a mean over some hundred milliseconds
        self.under_way = 0  # requests let in
        self._gap, self._left = 0.002, time.monotonic()
        self._timer: asyncio.TimerHandle | None = None

    def enter(self, urgent: bool, arriving: int = 0) -> None:
        """Count a request in, or Busy if its answer would come too late; who was let in must `leave`.

        Those who were let in before leave one every `gap` seconds, whatever it is that takes the time: so long times
        their number is what a new one waits (Little's law). A few are always let in: it is not their number
        that makes it slow. Decisions are still taken when nothing else is. arriving: those of them whose bodies are
        still on their way, who keep nobody waiting.
        """
        before = self.under_way - arriving
        wait = before * self._gap + self.lag
        if before >= FEW and wait > self._patience * (1.5 if urgent else 1.0):
            raise Busy(wait)
        self.under_way += 1

    def leave(self, arriving: int = 0) -> None:
        """A request that was let in is answered."""
        now = time.monotonic()
        if self.under_way - arriving >= FEW:
            gap = min(now - self._left, 4 * self._gap + 0.005)  # one long pause is no trend
            self._gap += 0.05 * (gap - self._gap)
        self._left, self.under_way = now, self.under_way - 1

    def watch(self) -> None:
        """Begin to measure how late the event loop is; called in it."""
        loop = asyncio.get_running_loop()

        def tick(due: float) -> None:
            self.lag += 0.2 * (max(0.0, loop.time() - due) - self.lag)
            self._timer = loop.call_later(TICK, tick, loop.time() + TICK)

        tick(loop.time())

    def rest(self) -> None:
        """Stop measuring."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def close(self) -> None:
        """Close all lanes."""
        for lane in (self.answers, self.access, self.changes, self.slow):
            lane.close()
