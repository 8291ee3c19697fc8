"""The server of a language model: where it may stand, and one question to it.

The server speaks the OpenAI chat API (vLLM, llama.cpp, Ollama, TGI). It must stand inside: at a loopback or private
address. The host name is looked up once and the connection goes to the address that was checked. Redirects are not
followed and proxies of the environment are not used. No message of this file quotes a question or an answer.
"""

from __future__ import annotations

import asyncio
import json
import socket
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from ipaddress import ip_address, ip_network
from typing import Any
from urllib.parse import urlsplit

import httpx

from whatelse.errors import WhatelseError

INSIDE = tuple(map(ip_network, ("127.0.0.0/8", "::1/128", "10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16", "fc00::/7")))
TRIES = 5
FIRST_WAIT, LONGEST_WAIT = 1.0, 60.0  # seconds between tries
LARGEST = 4_000_000  # bytes of an answer
CHARACTERS = 4  # of a token, about
AGAIN = {408, 409, 425, 429, 500, 502, 503, 504}
NO_ADDRESS = "--endpoint needs an address such as http://127.0.0.1:8000/v1"
NO_JSON_MODE = {400, 422}  # what servers say that do not know `response_format`


class EndpointError(WhatelseError):
    """A language model's server that must not be asked, or that no question can be put to."""


class NoAnswer(WhatelseError):
    """One question without an answer, after all tries. `reason`: one word for the count."""

    def __init__(self, reason: str) -> None:
        super().__init__(f"the language model's server gave no answer ({reason})")
        self.reason = reason


@dataclass(frozen=True)
class Endpoint:
    """A checked address: `url` goes to the numeric address; `host` and `netloc` (with port) are as given."""

    url: str
    host: str
    netloc: str
    remote: bool

    @classmethod
    def of(cls, given: str, allow_remote: str | None = None) -> Endpoint:
        """Check `given`, such as http://127.0.0.1:8000/v1. EndpointError unless it is inside, or its host allowed.

        allow_remote  the one host outside that records may be sent to, by https only
        """
        try:
            parts = urlsplit(given)
            port = parts.port or {"http": 80, "https": 443}[parts.scheme]
        except (ValueError, KeyError):
            raise EndpointError(NO_ADDRESS) from None
        host = (parts.hostname or "").lower()
        if not host or parts.query or parts.fragment or parts.username or parts.password:
            raise EndpointError(f"{NO_ADDRESS}, without password and question mark; a key goes in WHATELSE_LLM_KEY")
        try:
            found = sorted({str(entry[4][0]) for entry in socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)})
        except OSError:
            raise EndpointError(f"the host {host!r} of --endpoint is not known: check the address") from None
        outside = not all(_inside(address) for address in found)
        if outside and host != (allow_remote or "").lower():
            only = "records are sent to loopback and private addresses only"
            raise EndpointError(f"{host} is outside: {only}. If it may have them, say --allow-remote {host}")
        if outside and parts.scheme != "https":
            raise EndpointError(f"{host} is outside: records are sent there by https only")
        number = f"[{found[0]}]" if ":" in found[0] else found[0]
        path = parts.path.rstrip("/") or "/v1"
        return cls(f"{parts.scheme}://{number}:{port}{path}/chat/completions", host, parts.netloc, outside)


def _inside(text: str) -> bool:
    address = ip_address(text.partition("%")[0])
    address = getattr(address, "ipv4_mapped", None) or address
    return any(address in network for network in INSIDE if network.version == address.version)


@dataclass(frozen=True)
class Reply:
    """What the model said, and how many tokens question and answer had. refused: the server says that it refused."""

    text: str
    refused: bool
    asked: int
    answered: int


class Client:
    """Asks one endpoint. `tokens` and `retries` count over its life."""

    def __init__(
        self,
        endpoint: Endpoint,
        model: str,
        *,
        key: str | None = None,
        seconds: float = 120.0,
        sleep: Callable[[float], Awaitable[object]] = asyncio.sleep,
    ) -> None:
        headers = {"Accept-Encoding": "identity", "Host": endpoint.netloc}
        self._http = httpx.AsyncClient(
            headers=headers | ({"Authorization": f"Bearer {key}"} if key else {}),
            trust_env=False,
            follow_redirects=False,
            timeout=seconds,
            limits=httpx.Limits(max_connections=None),
        )
        self._endpoint, self._model, self._seconds, self._sleep = endpoint, model, seconds, sleep
        self._json_mode = True
        self.asked = self.answered = self.retries = 0

    async def __aenter__(self) -> Client:
        return self

    async def __aexit__(self, *problem: object) -> None:
        await self._http.aclose()

    async def ask(self, messages: Sequence[Mapping[str, str]], *, seed: int = 0) -> Reply:
        """Put one question. NoAnswer after TRIES tries, EndpointError where asking again cannot help."""
        question: dict[str, Any] = {"model": self._model, "messages": list(messages), "temperature": 0, "seed": seed}
        wait, reason = FIRST_WAIT, ""
        for attempt in range(TRIES):
            if attempt:
                self.retries += 1
                await self._sleep(wait)
                wait = min(2 * wait, LONGEST_WAIT)
            try:
                async with asyncio.timeout(self._seconds):  # of the whole: a server that drips keeps within httpx's
                    status, again, body = await self._post(question)
            except (TimeoutError, httpx.TimeoutException):
                reason = "timeout"
                continue
            except httpx.HTTPError:
                reason = "unreachable"
                continue
            if status == 200:
                reply = _reply(body)  # a server that does not count tokens is counted by characters
                self.asked += reply.asked or sum(len(message["content"]) for message in messages) // CHARACTERS
                self.answered += reply.answered or len(reply.text) // CHARACTERS
                return reply
            reason = f"status {status}"
            if status in (401, 403, 404) or 300 <= status < 400:
                advice = "check --endpoint, --model and the key in WHATELSE_LLM_KEY"
                raise EndpointError(f"the language model's server answers with status {status}: {advice}")
            if status in NO_JSON_MODE and self._json_mode:
                self._json_mode = False
            elif status not in AGAIN:
                break
            wait = max(wait, min(again, LONGEST_WAIT))
        raise NoAnswer(reason)

    async def _post(self, question: dict[str, Any]) -> tuple[int, float, bytes]:
        """Status, seconds that the server asks to wait, and body."""
        content = question | ({"response_format": {"type": "json_object"}} if self._json_mode else {})
        body = bytearray()
        name = {"sni_hostname": self._endpoint.host}
        async with self._http.stream("POST", self._endpoint.url, json=content, extensions=name) as answer:
            async for piece in answer.aiter_raw():
                body += piece
                if len(body) > LARGEST:
                    raise NoAnswer("too long")
            again = answer.headers.get("retry-after", "")
            return answer.status_code, float(again) if again.isdecimal() else 0.0, bytes(body)


def _reply(body: bytes) -> Reply:
    """Read a chat completion leniently; what is none has an empty text."""
    try:
        found = json.loads(body)
        choice = found["choices"][0]
        message = choice["message"]
        usage = found.get("usage") or {}
        refused = bool(message.get("refusal")) or choice.get("finish_reason") == "content_filter"
        text = message.get("content")
        asked, answered = (_count(usage.get(name)) for name in ("prompt_tokens", "completion_tokens"))
        return Reply(text if isinstance(text, str) else "", refused, asked, answered)
    except (ValueError, RecursionError, LookupError, TypeError, AttributeError):
        return Reply("", False, 0, 0)


def _count(value: Any) -> int:
    return value if isinstance(value, int) and 0 <= value < 10**9 else 0
