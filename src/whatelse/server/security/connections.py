"""Connections: who may hold one, how much head a request may have, and how long reading and writing may take.

uvicorn's protocol does the speaking. What it lacks is added here, because none of it can be seen from within a request:
a limit of bytes and number of headers; connections counted by address, and those that say nothing dropped first when
there are too many; readers that do not read dropped; work for somebody who hung up cancelled.
"""

from __future__ import annotations

import asyncio
from collections import Counter, OrderedDict
from typing import Any, cast

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from whatelse.server.security.limits import Addresses
from whatelse.server.settings import Settings

TASK, GONE = "whatelse.task", "whatelse.gone"  # entries of a scope: the task that answers, whether its client left
MAX_HEAD, MAX_HEADERS = 32_768, 100  # bytes of a request line with its headers; headers


class ConnectionLimiter:
    """The connections of one server: counted by address, and in the order in which they last had something to say."""

    def __init__(self, settings: Settings) -> None:
        self.most, self.of_one = settings.max_connections, settings.connections_per_address
        self.addresses = Addresses(settings.trusted_proxies)
        self.count, self.by_address = 0, Counter[str]()
        self.waiting: OrderedDict[HttpToolsProtocol, None] = OrderedDict()  # those with no whole request under way

    def enter(self, connection: HttpToolsProtocol, group: str) -> bool:
        """Whether there is room for one more of this address; if need be, whoever was silent longest makes it."""
        self.count += 1
        self.by_address[group] += 1
        self.waiting[connection] = None
        if self.by_address[group] > self.of_one and not self.addresses.trusts(group):
            return False
        if self.count > self.most:
            silent = next(iter(self.waiting))
            if silent is connection:
                return False
            silent.transport.abort()
        return True

    def leave(self, connection: HttpToolsProtocol, group: str) -> None:
        """Take a connection that was closed out of the counts."""
        self.count -= 1
        self.by_address[group] -= 1
        if not self.by_address[group]:
            del self.by_address[group]
        self.waiting.pop(connection, None)


def protocol(settings: Settings) -> type[HttpToolsProtocol]:
    """The protocol of one server, with its limiter."""
    limiter, seconds = ConnectionLimiter(settings), settings.client_seconds

    class Guarded(HttpToolsProtocol):
        _group = ""
        _head: asyncio.TimerHandle | None = None  # runs while a head is awaited
        _unread: asyncio.TimerHandle | None = None  # runs while the client does not read
        _loose = 0  # bytes that came since a request began or a piece of its body was taken
        _whole = False  # whether all headers of this request are here

        # ---- coming and going

        def connection_made(self, transport: Any) -> None:
            super().connection_made(transport)
            self._group = limiter.addresses.group(self.client[0] if self.client else "")
            if limiter.enter(self, self._group):
                self._await_head()
            else:
                self._refuse(503, b"Service Unavailable", b"retry-after: 5\r\n")

        def connection_lost(self, exc: Exception | None) -> None:
            self._cancel("_head")
            self._cancel("_unread")
            limiter.leave(self, self._group)
            cycle = self.cycle
            super().connection_lost(exc)
            if cycle is not None and not cycle.response_complete:
                scope = cast(dict[str, Any], cycle.scope)
                scope[GONE] = True
                if (task := scope.get(TASK)) is not None:
                    task.cancel()

        # ---- reading

        def data_received(self, data: bytes) -> None:
            self._loose += len(data)
            super().data_received(data)
            if self._loose > MAX_HEAD and not self.transport.is_closing():
                self._refuse(431, b"Request Header Fields Too Large")

        def on_message_begin(self) -> None:
            self._whole = False
            self._await_head()
            super().on_message_begin()

        def on_header(self, name: bytes, value: bytes) -> None:
            if not self._whole:  # else a trailer: a proxy may let through there what it takes out of a head
                super().on_header(name, value)

        def on_headers_complete(self) -> None:
            self._loose, self._whole = 0, True
            self._cancel("_head")
            size = len(self.url) + sum(len(name) + len(value) for name, value in self.headers)
            if size > MAX_HEAD or len(self.headers) > MAX_HEADERS:
                self._refuse(431, b"Request Header Fields Too Large")
            elif not self.transport.is_closing():
                super().on_headers_complete()

        def on_body(self, body: bytes) -> None:
            self._loose = 0
            if not self.transport.is_closing():
                super().on_body(body)

        def on_message_complete(self) -> None:
            self._loose = 0
            limiter.waiting.pop(self, None)
            if not self.transport.is_closing():
                super().on_message_complete()

        # ---- writing

        def on_response_complete(self) -> None:
            super().on_response_complete()
            limiter.waiting[self] = None
            if self.transport.get_write_buffer_size():
                self._await_reader()

        def pause_writing(self) -> None:
            super().pause_writing()
            self._await_reader()

        def resume_writing(self) -> None:
            super().resume_writing()
            self._cancel("_unread")

        # ---- timers

        def _await_head(self) -> None:
            if self._head is None:
                self._head = self.loop.call_later(seconds, self.transport.abort)

        def _await_reader(self) -> None:
            self._cancel("_unread")
            self._unread = self.loop.call_later(seconds, self._not_read)

        def _not_read(self) -> None:
            if self.transport.get_write_buffer_size():
                self.transport.abort()

        def _cancel(self, timer: str) -> None:
            if (running := getattr(self, timer)) is not None:
                running.cancel()
                setattr(self, timer, None)

        def _refuse(self, status: int, said: bytes, more: bytes = b"") -> None:
            head = b"HTTP/1.1 %d %s\r\ncontent-length: 0\r\n%sconnection: close\r\n\r\n"
            self.transport.write(head % (status, said, more))
            self.transport.close()

    return Guarded
