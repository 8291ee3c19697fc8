"""Connections: who may hold one, how much head a request may have, and how long reading and writing may take.

uvicorn's protocol does the speaking. What it lacks is added here, because none of it can be seen from within a request:
a limit of bytes and number of headers; connections counted by address, and those that say nothing dropped first when
there are too many; readers that do not read dropped; work for somebody who hung up cancelled; a no without any work
where too much goes on.
"""

from __future__ import annotations

import asyncio
import json
from collections import Counter, OrderedDict
from typing import Any, cast

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from whatelse.server.admission_control import length_of
from whatelse.server.policies import Lane
from whatelse.server.security.addresses import Addresses
from whatelse.server.service import Service
from whatelse.server.settings import Settings
from whatelse.server.worker_pools import Busy

TASK, GONE = "whatelse.task", "whatelse.gone"  # entries of a scope: the task that answers, whether its client left
MAX_HEAD, MAX_HEADERS = 32_768, 100  # bytes of a request line with its headers; headers
SAID = json.dumps({"detail": Busy(0.0).detail}).encode()
BUSY = (
    b"HTTP/1.1 503 Service Unavailable\r\nretry-after: %d\r\nx-whatelse-model: %b\r\ncontent-length: %d\r\n"
    b"content-type: application/json\r\nx-content-type-options: nosniff\r\ncache-control: no-store\r\n\r\n%b"
)


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


def protocol(service: Service) -> type[HttpToolsProtocol]:
    """The protocol of one server, with its limiter."""
    settings, admissions = service.settings, service.admissions
    limiter, seconds = ConnectionLimiter(settings), settings.client_seconds
    most_bytes, most_headers = MAX_HEAD, MAX_HEADERS

    class Guarded(HttpToolsProtocol):
        _group = ""
        _head: asyncio.TimerHandle | None = None  # runs while a head is awaited
        _unread: asyncio.TimerHandle | None = None  # runs while the client does not read
        _loose = 0  # bytes that came since a request began or a piece of its body was taken
        _size = _number = 0  # of the headers of this request
        _whole = False  # whether all headers of this request are here
        _wait = 0.0  # seconds that this request would wait: it is refused

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
            if self._loose > most_bytes and not self.transport.is_closing():
                self._refuse(431, b"Request Header Fields Too Large")

        def on_message_begin(self) -> None:
            self._size = self._number = 0
            self._wait, self._whole = 0.0, False
            self._await_head()
            super().on_message_begin()

        def on_url(self, url: bytes) -> None:
            self._size += len(url)
            super().on_url(url)

        def on_header(self, name: bytes, value: bytes) -> None:
            if self._whole:  # a trailer: a proxy may let through there what it takes out of a head
                return
            self._size += len(name) + len(value)
            self._number += 1
            if self._number <= most_headers and self._size <= most_bytes:
                super().on_header(name, value)

        def on_headers_complete(self) -> None:
            self._loose, self._whole = 0, True
            self._cancel("_head")
            if self._number > most_headers or self._size > most_bytes:
                self._refuse(431, b"Request Header Fields Too Large")
                return
            self._wait = self._too_long()
            if self._wait and self._long():
                self._refuse(503, b"Service Unavailable", b"retry-after: %d\r\n" % Busy.after(self._wait))
            elif self._wait:
                self._await_head()  # the rest of it is read, as the head was, and forgotten
            elif not self.transport.is_closing():
                super().on_headers_complete()

        def on_body(self, body: bytes) -> None:
            self._loose = 0
            if not self._wait and not self.transport.is_closing():
                super().on_body(body)

        def on_message_complete(self) -> None:
            self._loose = 0
            if self._wait:
                self._cancel("_head")
                if not self.transport.is_closing():
                    self._busy()
                return
            limiter.waiting.pop(self, None)
            if not self.transport.is_closing():
                super().on_message_complete()

        # ---- too much

        def _too_long(self) -> float:
            """What this request would wait if that is too long and it can be refused here; else 0."""
            if self.cycle is not None and not self.cycle.response_complete:
                return 0.0  # answers go in the order of the requests: the guard refuses this one in its turn
            path = self.url.partition(b"?")[0].decode("latin-1")
            policy = service.routes.find(self.parser.get_method().decode("latin-1"), path)
            # where browsers call hooks the guard refuses them: a refusal needs CORS headers too
            if not policy.counted or (settings.cds_origins and policy.lane is Lane.HOOK):
                return 0.0
            return admissions.of(policy.lane, length_of(dict(self.headers))).wait(policy.urgent)

        def _long(self) -> bool:
            """Whether more will come than is worth reading for a no."""
            told = dict(self.headers)
            length = told.get(b"content-length", b"0")
            return bool({b"transfer-encoding", b"expect"} & told.keys()) or len(length) > 5 or int(length) > most_bytes

        def _busy(self) -> None:
            """Refuse without a task, a route or a person: at twice the load this is every second request."""
            service.metrics.count("requests", route="none", status="503")
            after, digest, head = Busy.after(self._wait), service.tagger.digest_.encode(), self.parser.get_method()
            self.transport.write(BUSY % (after, digest, len(SAID), b"" if head == b"HEAD" else SAID))
            if self.parser.get_http_version() == "1.0" or not self.parser.should_keep_alive():
                self.transport.close()
            self.on_response_complete()

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
