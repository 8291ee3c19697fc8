"""Deadline: HTTP connections that fail once a total time for all requests to a server is over.

The HTTP client's own limits are for each read: a server that sends its headers a byte at a time keeps within them for
ever.
"""

from __future__ import annotations

import ssl
from collections.abc import Callable
from typing import Any

import httpcore
import httpx


def within(left: Callable[[], float]) -> httpx.HTTPTransport:
    """A transport of which no read, write or connect lasts longer than `left()` seconds; left() raises when none are
    left."""
    transport = httpx.HTTPTransport(trust_env=False)
    transport._pool._network_backend = _Backend(left, transport._pool._network_backend)
    return transport


class _Backend(httpcore.NetworkBackend):
    def __init__(self, left: Callable[[], float], inner: httpcore.NetworkBackend) -> None:
        self._left, self._inner = left, inner

    def connect_tcp(self, host: str, port: int, timeout: float | None = None, *args: Any, **more: Any) -> _Stream:
        return _Stream(self._left, self._inner.connect_tcp(host, port, _least(self._left(), timeout), *args, **more))

    def sleep(self, seconds: float) -> None:
        self._inner.sleep(seconds)


class _Stream(httpcore.NetworkStream):
    def __init__(self, left: Callable[[], float], inner: httpcore.NetworkStream) -> None:
        self._left, self._inner = left, inner

    def read(self, max_bytes: int, timeout: float | None = None) -> bytes:
        return self._inner.read(max_bytes, _least(self._left(), timeout))

    def write(self, buffer: bytes, timeout: float | None = None) -> None:
        self._inner.write(buffer, _least(self._left(), timeout))

    def close(self) -> None:
        self._inner.close()

    def start_tls(
        self, ssl_context: ssl.SSLContext, server_hostname: str | None = None, timeout: float | None = None
    ) -> _Stream:
        inner = self._inner.start_tls(ssl_context, server_hostname, _least(self._left(), timeout))
        return _Stream(self._left, inner)

    def get_extra_info(self, info: str) -> Any:
        return self._inner.get_extra_info(info)


def _least(left: float, timeout: float | None) -> float:
    return left if timeout is None else min(left, timeout)
