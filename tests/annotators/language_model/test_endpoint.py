"""Where records may be sent, and how a question is put."""

from __future__ import annotations

import asyncio
import json
import socket
from collections.abc import AsyncIterator
from typing import Any

import httpx
import pytest

from whatelse.annotators.language_model.endpoint import (
    FIRST_WAIT,
    LARGEST,
    LONGEST_WAIT,
    TRIES,
    Client,
    Endpoint,
    EndpointError,
    NoAnswer,
    Reply,
)

GOOD = {"choices": [{"message": {"content": "hello"}}], "usage": {"prompt_tokens": 7, "completion_tokens": 2}}
INSIDE = Endpoint("http://127.0.0.1:1/v1/chat/completions", "model.local", "model.local:1", False)


@pytest.fixture
def names(monkeypatch: pytest.MonkeyPatch) -> dict[str, list[str]]:
    """Host names and their addresses; nothing else can be looked up."""
    known: dict[str, list[str]] = {}

    def lookup(host: str, port: int, **more: Any) -> list[Any]:
        if host in known:
            return [(socket.AF_INET, None, None, "", (address, port)) for address in known[host]]
        if host.replace(".", "").replace(":", "").isalnum() and (host[0].isdigit() or ":" in host):
            return [(socket.AF_INET, None, None, "", (host, port))]
        raise socket.gaierror

    monkeypatch.setattr(socket, "getaddrinfo", lookup)
    return known


@pytest.mark.parametrize(
    "address", ["127.0.0.1", "127.9.9.9", "10.1.2.3", "172.31.0.1", "192.168.1.1", "[::1]", "[fd00::1]"]
)
def test_inside(address: str, names: dict[str, list[str]]) -> None:
    found = Endpoint.of(f"http://{address}:8000/v1/")
    assert not found.remote and found.url == f"http://{address}:8000/v1/chat/completions"


@pytest.mark.parametrize(
    "address",
    ["8.8.8.8", "172.32.0.1", "169.254.169.254", "0.0.0.0", "100.64.0.1", "[2001:db8::1]", "[::ffff:8.8.8.8]"],
)
def test_outside_is_refused(address: str, names: dict[str, list[str]]) -> None:
    with pytest.raises(EndpointError, match="is outside"):
        Endpoint.of(f"https://{address}/v1")


def test_a_name_counts_by_all_its_addresses_and_the_checked_one_is_used(names: dict[str, list[str]]) -> None:
    names |= {"model.local": ["10.0.0.5"], "mixed": ["10.0.0.5", "8.8.8.8"]}
    found = Endpoint.of("http://model.local:8000")
    assert found.url == "http://10.0.0.5:8000/v1/chat/completions" and found.host == "model.local"
    with pytest.raises(EndpointError, match="outside"):
        Endpoint.of("http://mixed:8000/v1")


def test_a_host_outside_must_be_named_and_spoken_to_by_https(names: dict[str, list[str]]) -> None:
    names["api.example.org"] = ["8.8.8.8"]
    with pytest.raises(EndpointError, match=r"--allow-remote api\.example\.org"):
        Endpoint.of("https://api.example.org/v1", "other.example.org")
    with pytest.raises(EndpointError, match="https only"):
        Endpoint.of("http://api.example.org/v1", "api.example.org")
    assert Endpoint.of("https://api.example.org/v1", "API.example.org").remote


@pytest.mark.parametrize(
    "given", ["", "model", "ftp://127.0.0.1/v1", "http:///v1", "http://u:p@127.0.0.1/v1", "http://127.0.0.1/?key=1",
              "http://127.0.0.1:99999/v1", "http://unknown.local/v1"],
)  # fmt: skip
def test_no_address(given: str, names: dict[str, list[str]]) -> None:
    with pytest.raises(EndpointError) as problem:
        Endpoint.of(given)
    assert "p@" not in str(problem.value) and "key=1" not in str(problem.value)


class Body(httpx.AsyncByteStream):
    """A body that has not been read yet."""

    def __init__(self, content: bytes) -> None:
        self.content = content

    async def __aiter__(self) -> AsyncIterator[bytes]:
        yield self.content


def ask(answers: list[Any], **settings: Any) -> tuple[Any, list[httpx.Request], list[float], Client]:
    """Put one question to a server that gives these answers one after the other, the last for ever."""
    requests: list[httpx.Request] = []
    waits: list[float] = []

    def answer(request: httpx.Request) -> httpx.Response:
        requests.append(request)
        found = answers.pop(0) if len(answers) > 1 else answers[0]
        if isinstance(found, Exception):
            raise found
        given = found if isinstance(found, httpx.Response) else httpx.Response(200, json=found)
        return httpx.Response(given.status_code, headers=given.headers, stream=Body(given.content))

    async def sleep(seconds: float) -> None:
        waits.append(seconds)

    async def go() -> Any:
        async with Client(INSIDE, "llama", sleep=sleep, **settings) as client:
            client._http = httpx.AsyncClient(transport=httpx.MockTransport(answer), headers=client._http.headers)
            try:
                return await client.ask([{"role": "user", "content": "SECRET"}]), client
            except (NoAnswer, EndpointError) as problem:
                return problem, client

    found, client = asyncio.run(go())
    return found, requests, waits, client


def test_question_and_reply() -> None:
    found, (request,), waits, client = ask([GOOD], key="k")
    assert found == Reply("hello", False, 7, 2) and client.asked + client.answered == 9 and not waits
    sent = json.loads(request.content)
    assert sent["model"] == "llama" and sent["temperature"] == 0 and sent["response_format"] == {"type": "json_object"}
    assert request.headers["authorization"] == "Bearer k" and request.headers["host"] == "model.local:1"
    assert "SECRET" not in str(request.url)


def test_tries_again_with_growing_waits() -> None:
    found, requests, waits, client = ask(
        [httpx.Response(503), httpx.ConnectError("no"), httpx.ReadTimeout("slow"), GOOD]
    )
    assert isinstance(found, Reply) and len(requests) == 4 and client.retries == 3
    assert waits == [FIRST_WAIT, 2 * FIRST_WAIT, 4 * FIRST_WAIT]


def test_waits_as_long_as_the_server_asks_within_limits() -> None:
    _, _, waits, _ = ask([httpx.Response(429, headers={"Retry-After": "7"}), GOOD])
    assert waits == [7.0]
    _, _, waits, _ = ask([httpx.Response(429, headers={"Retry-After": "99999"}), GOOD])
    assert waits == [LONGEST_WAIT]


@pytest.mark.parametrize("answer", [httpx.Response(500), httpx.ConnectError("SECRET"), httpx.ReadTimeout("SECRET")])
def test_gives_up_after_some_tries_without_quoting(answer: Any) -> None:
    found, requests, _, _ = ask([answer])
    assert isinstance(found, NoAnswer) and len(requests) == TRIES and "SECRET" not in str(found)


@pytest.mark.parametrize("status", [401, 403, 404, 307])
def test_stops_at_once_where_asking_again_cannot_help(status: int) -> None:
    found, requests, _, _ = ask([httpx.Response(status, headers={"Location": "http://8.8.8.8/"})])
    assert isinstance(found, EndpointError) and len(requests) == 1


def test_asks_without_json_mode_if_the_server_has_none() -> None:
    found, requests, _, _ = ask([httpx.Response(400), GOOD])
    assert isinstance(found, Reply) and "response_format" not in json.loads(requests[1].content)
    found, requests, _, _ = ask([httpx.Response(400)])
    assert isinstance(found, NoAnswer) and len(requests) == 2


def test_refusals_and_bodies_that_are_no_completion() -> None:
    assert ask([{"choices": [{"message": {"content": None, "refusal": "no"}}]}])[0] == Reply("", True, 0, 0)
    filtered = {"choices": [{"message": {"content": "x"}, "finish_reason": "content_filter"}]}
    assert ask([filtered])[0].refused
    for odd in ({}, [], {"choices": []}, {"choices": [3]}, {"choices": [{"message": "x"}], "usage": 3}):
        assert ask([odd])[0] == Reply("", False, 0, 0)
    assert ask([httpx.Response(200, text="<html>")])[0] == Reply("", False, 0, 0)
    odd_usage = GOOD | {"usage": {"prompt_tokens": "many", "completion_tokens": -5}}
    assert ask([odd_usage])[0] == Reply("hello", False, 0, 0)


def test_tokens_are_counted_by_characters_if_the_server_does_not_count() -> None:
    _, _, _, client = ask([{"choices": [{"message": {"content": "x" * 400}}]}])
    assert client.answered == 100 and client.asked == len("SECRET") // 4


def test_an_endless_answer_is_left() -> None:
    found, requests, _, _ = ask([httpx.Response(200, content=b"x" * (LARGEST + 1))])
    assert isinstance(found, NoAnswer) and found.reason == "too long" and len(requests) == 1
