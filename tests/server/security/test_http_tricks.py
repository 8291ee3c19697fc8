"""Requests that a proxy and the server could read differently, odd methods and paths: each is one trick."""

from __future__ import annotations

import json
import logging
import re
import socket
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from tests.support.serving import live, service, wait_until
from whatelse.server import Service
from whatelse.store import audit

POST = b"POST /api/suggest HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
GET = b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n"


@pytest.fixture(scope="module")
def opened(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    with service(tmp_path_factory.mktemp("open"), client_seconds=2.0) as made:
        yield made


@pytest.fixture(scope="module")
def url(opened: Service) -> Iterator[str]:
    with live(opened) as made:
        yield made


def said(url: str, data: bytes) -> list[int]:
    """The statuses of all that is answered to `data`, until the server hangs up or is silent."""
    with socket.create_connection(("127.0.0.1", int(url.rsplit(":", 1)[1])), timeout=60) as raw:
        raw.sendall(data)
        seen = b""
        try:
            while piece := raw.recv(65_536):
                seen += piece
                raw.settimeout(0.7)
        except TimeoutError:
            pass
    return [int(status) for status in re.findall(rb"HTTP/1\.1 (\d{3})", seen)]


@pytest.mark.parametrize(
    "data",
    [
        POST + b"Content-Length: 2\r\nContent-Length: 44\r\n\r\n{}" + GET + b"\r\n",
        POST + b"Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n" + GET + b"\r\n",
        POST + b"Transfer-Encoding: chunked\r\nTransfer-Encoding: identity\r\n\r\n0\r\n\r\n",
        POST + b"Transfer-Encoding: xchunked\r\n\r\n0\r\n\r\n",
        POST + b"Content-Length: +2\r\n\r\n{}",
        POST + b"Content-Length: " + b"9" * 40 + b"\r\n\r\n{}",
        POST + b"Transfer-Encoding: chunked\r\n\r\n-2\r\n{}\r\n0\r\n\r\n",
        b"GET /healthz HTTP/1.1\nHost: localhost\n\n",
        GET + b"X: a\r\n b\r\n\r\n",
        GET + b"X : a\r\n\r\n",
        GET + b"X: a\0b\r\n\r\n",
        GET + b"Host: evil.example\r\n\r\n",
        b"GET /api/visits HTTP/1.1\r\nHost: evil.example\r\nHost: localhost\r\n\r\n",
        POST + b"Origin: http://localhost\r\nOrigin: http://evil.example\r\nContent-Length: 2\r\n\r\n{}",
        b"GET /healthz HTTP/9.9\r\nHost: localhost\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + b"a" * 500,
    ],
)  # fmt: skip
def test_what_could_be_read_in_two_ways_is_not_read(url: str, data: bytes) -> None:
    assert said(url, data) == [400]


def test_a_trailer_is_no_header(tmp_path: Path) -> None:
    """Whoever takes X-Forwarded-For out of the head may still let a trailer through."""
    given = {"auth": "token", "trusted_proxies": ["127.0.0.1"]}
    with service(tmp_path, **given) as made, live(made) as url:
        head = b"Transfer-Encoding: chunked\r\nX-Forwarded-For: 192.0.2.1\r\n\r\n2\r\n{}\r\n0\r\n"
        assert said(url, POST + head + b"X-Forwarded-For: 198.51.100.7\r\nHost: evil.example\r\n\r\n") == [401]
        assert said(url, POST + head + b"X: y\r\n" * 20_000 + b"\r\n")[0] in (401, 431)
        wait_until(lambda: any(audit.lines(made.store.engine)))  # written beside the answer
        assert {json.loads(line)["address"] for line in audit.lines(made.store.engine)} == {"192.0.2.1"}


def test_nothing_is_upgraded_and_no_other_method_works(opened: Service, url: str) -> None:
    upgrade = b"Upgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Key: x\r\nSec-WebSocket-Version: 13\r\n\r\n"
    assert said(url, GET + upgrade) == [200]
    with httpx.Client(base_url=url) as web:
        for path in (f"/api/visits/{opened.worklist.keys[0]}/decisions", "/api/model", "/", "/static/api.js"):
            for method in ("TRACE", "PUT", "PATCH", "PROPFIND"):
                sent = {"Content-Type": "application/json"}
                assert web.request(method, path, headers=sent).status_code in (404, 405), (method, path)


def test_no_redirect_repeats_what_the_client_said(tmp_path: Path) -> None:
    with service(tmp_path, auth="token", host="0.0.0.0") as made, live(made) as url, httpx.Client(base_url=url) as web:
        for path in ("/static", "/api/visits/", "//evil.example/", "/%2f%2fevil.example", "/new?next=//evil.example"):
            answer = web.get(path, headers={"Host": "evil.example"})
            assert not answer.is_redirect and "location" not in answer.headers, path


def test_malformed_requests_write_no_lines(url: str, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        for _ in range(5):
            said(url, b"nonsense\r\n\r\n")
    assert not [line for line in caplog.records if line.name.startswith("uvicorn")]
