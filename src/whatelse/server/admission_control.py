"""Admission control: rejects a request at once (503) if its expected wait is longer than `max_wait`.

The number of requests under way and the rate at which they are answered give the expected wait. A request that would
wait too long is refused before its body is read. An early refusal is cheap, and the requests let in are answered in
time.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping

from whatelse.server.policies import Lane
from whatelse.server.worker_pools import Busy

HOOK_PATIENCE = 0.35  # seconds: an EHR gives a hook about half a second in all
LONG = 500_000  # bytes of a hook call above which it waits in a line of its own: reading it takes that long
FEW = 8  # requests that are let in whatever their expected wait
BURST = 50  # the same for hook calls: many charts may be opened at one instant, and a refused hook is not sent again
STRICT, CALM = 0.4, 1.0  # share of the patience that is left after a refusal, and for how many seconds
SPAN = 0.1  # seconds over which those who leave are counted
TICK = 0.02  # seconds between two looks at how late the event loop is


def length_of(headers: Mapping[bytes, bytes]) -> int:
    """The bytes of a body that a head announces; more than LONG if it says that there is one and not how long."""
    length = headers.get(b"content-length", b"0")
    return LONG + 1 if b"transfer-encoding" in headers else int(length) if length.isdigit() else 0


class AdmissionControls:
    """One for pages, one for hooks and one for long hooks, so that none is refused because many of another wait."""

    def __init__(self, patience: float) -> None:
        # a hook that is refused is not asked again, as a page is: there is no line to be kept short
        self.pages = AdmissionControl(patience)
        patient = max(patience, HOOK_PATIENCE)
        self.hooks = AdmissionControl(patient, strict=1.0, few=BURST)
        self.long = AdmissionControl(patient, strict=1.0)
        self._all = (self.pages, self.hooks, self.long)
        self._timer: asyncio.TimerHandle | None = None

    def of(self, lane: Lane, length: int = 0) -> AdmissionControl:
        """The admission control of a lane, for a body of this length."""
        if lane is not Lane.HOOK:
            return self.pages
        return self.long if length > LONG else self.hooks

    @property
    def under_way(self) -> int:
        return sum(each.under_way for each in self._all)

    def watch(self) -> None:
        """Begin to measure how late the event loop is; called in it."""
        loop = asyncio.get_running_loop()

        def tick(due: float) -> None:
            late = max(0.0, loop.time() - due)
            for each in self._all:
                each.lag += 0.2 * (late - each.lag)
            self._timer = loop.call_later(TICK, tick, loop.time() + TICK)

        tick(loop.time())

    def rest(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None


class AdmissionControl:
    """Counts the requests of one kind in and out. For the event loop only.

    patience  seconds that a request may wait
    strict    share of the patience that is left for CALM seconds after a refusal
    few       requests that are let in whatever their expected wait
    """

    def __init__(self, patience: float, strict: float = STRICT, few: int = FEW) -> None:
        self._patience, self._strict, self._few = patience, strict, few
        self.lag = 0.0  # seconds that the event loop is late; a mean over some hundred milliseconds
        self.under_way = 0  # requests let in
        # those of them whose bodies are still on their way, who keep nobody waiting; whether each is pressing
        self.arriving: dict[object, bool] = {}
        self._gap = 0.002  # seconds from one leaving to the next
        self._since: float | None = None  # when the counting of those who leave began
        self._gone = 0
        self._strict_until = 0.0

    def wait(self, pressing: bool) -> float:
        """The seconds that a new request would wait, if that is too long; else 0.

        Those who were let in before leave one every `gap` seconds, whatever it is that takes the time: so long times
        their number is what a new one waits (Little's law). A few are always let in: it is not their number
        that makes it slow. Decisions are still taken when nothing else is. Once somebody had to be refused, and until
        that was a while ago, less is let in: a burst is worth a wait, but a line that never ends only makes everybody
        in it late, and leaves no room for a disk that takes its time.
        """
        before, now = self.under_way - len(self.arriving), time.monotonic()
        wait = before * self._gap + self.lag
        patience = self._patience * (1.5 if pressing else 1.0) * (self._strict if now < self._strict_until else 1.0)
        if before < self._few or wait <= patience:
            return 0.0
        self._strict_until = now + CALM
        return wait

    def enter(self, pressing: bool) -> None:
        """Count a request in, or Busy if its answer would come too late; who was let in must `leave`."""
        if wait := self.wait(pressing):
            raise Busy(wait)
        self.under_way += 1
        self._count()

    def arrived(self, body: object) -> None:
        """The body of one that was let in is here. Busy if too many others came meanwhile: it would wait from now."""
        if body in self.arriving:
            if wait := self.wait(self.arriving.pop(body)):
                raise Busy(wait)
            self._count()

    def leave(self) -> None:
        self.under_way -= 1
        self._gone += 1
        self._count()

    def _count(self) -> None:
        """Find out how fast they leave, while there are always some to leave.

        Many leave at once, as many are written at once, so they are counted over some time.
        """
        now = time.monotonic()
        if self.under_way - len(self.arriving) < FEW // 2:  # it is those who come that are waited for
            self._since = None
        elif self._since is None:
            self._since, self._gone = now, 0
        elif self._gone and now - self._since > SPAN:
            gap = min((now - self._since) / self._gone, 4 * self._gap)  # one long pause is no trend
            self._gap += 0.3 * (gap - self._gap)
            self._since, self._gone = now, 0
