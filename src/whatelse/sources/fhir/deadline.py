"""Deadline: a total time for all requests of an httpx client.

httpx limits the time of each read, and a server that sends one byte at a time keeps within that limit for ever. Here a
timer shuts the connections down when the total time is over. A read that is under way then fails or ends early.
"""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Mapping
from contextlib import suppress
from typing import Any, Self


class Deadline:
    """`seconds` from now on. The timer runs inside the `with` block.

    extensions  for every request of the client
    """

    def __init__(self, seconds: float) -> None:
        self._until = time.monotonic() + seconds
        self._sockets: list[socket.socket] = []
        self._timer = threading.Timer(seconds, self._shut_down)
        self._timer.daemon = True
        self.extensions = {"trace": self._trace}

    def __enter__(self) -> Self:
        self._timer.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._timer.cancel()

    @property
    def left(self) -> float:
        """Seconds until the time is over; 0 or less after that."""
        return self._until - time.monotonic()

    def _trace(self, event: str, info: Mapping[str, Any]) -> None:
        """Keep the socket of each new connection. httpx calls this at every step of a request."""
        if event in ("connection.connect_tcp.complete", "connection.start_tls.complete"):
            self._sockets.append(info["return_value"].get_extra_info("socket"))
            if self.left <= 0:
                self._shut_down()

    def _shut_down(self) -> None:
        for connection in self._sockets:
            with suppress(OSError):  # closed already
                socket.socket.shutdown(connection, socket.SHUT_RDWR)  # the TLS state stays: a read may be using it
