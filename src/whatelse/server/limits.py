"""Limits kept in memory: token buckets by client, and connections that take too long to say what they want."""

from __future__ import annotations

import asyncio
import time
from collections import OrderedDict
from collections.abc import Callable
from typing import Any

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

CLIENTS = 10_000  # buckets remembered; the longest unused go first


class Buckets:
    """`rate` a second lastingly, `burst` at once, for each name; rate 0 is no limit. For one thread: the event loop."""

    def __init__(self, rate: float, burst: float, clock: Callable[[], float] = time.monotonic) -> None:
        self.rate, self.burst, self._clock = rate, burst, clock
        self._levels: OrderedDict[str, tuple[float, float]] = OrderedDict()

    def take(self, name: str, amount: float = 1.0) -> float:
        """Take from a bucket. Returns 0 if there was enough, else the seconds to wait for it; then nothing is taken."""
        if self.rate == 0:
            return 0.0
        now = self._clock()
        level, then = self._levels.pop(name, (self.burst, now))
        level = min(self.burst, level + (now - then) * self.rate)
        wait = 0.0 if level >= amount else (amount - level) / self.rate
        self._levels[name] = (level if wait else level - amount, now)
        while len(self._levels) > CLIENTS:
            self._levels.popitem(last=False)
        return wait

    def peek(self, name: str) -> float:
        """Seconds to wait for one; nothing is taken."""
        return self.take(name, 0.0) or self._wait(name)

    def _wait(self, name: str) -> float:
        level = self._levels[name][0] if name in self._levels else self.burst
        return 0.0 if self.rate == 0 or level >= 1.0 else (1.0 - level) / self.rate


def impatient(seconds: float) -> type[HttpToolsProtocol]:
    """uvicorn's protocol, but a connection must send a whole head of a request within `seconds` or is closed.

    Slow bodies are ended in `guard.py`; idle connections by uvicorn's own keep-alive timer.
    """

    class Impatient(HttpToolsProtocol):
        _timer: asyncio.TimerHandle | None = None

        def connection_made(self, transport: Any) -> None:
            super().connection_made(transport)
            self._start()

        def connection_lost(self, exc: Exception | None) -> None:
            self._cancel()
            super().connection_lost(exc)

        def on_message_begin(self) -> None:
            self._start()
            super().on_message_begin()

        def on_headers_complete(self) -> None:
            self._cancel()
            super().on_headers_complete()

        def _start(self) -> None:
            if self._timer is None:
                self._timer = self.loop.call_later(seconds, self._give_up)

        def _cancel(self) -> None:
            if self._timer is not None:
                self._timer.cancel()
                self._timer = None

        def _give_up(self) -> None:
            self._timer = None
            if self.transport is not None and not self.transport.is_closing():
                self.transport.close()

    return Impatient
