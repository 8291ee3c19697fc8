"""FhirServer: a FHIR R4 server by address. Reads and searches, page by page, within limits.

What a server answers is not trusted: no redirect is followed, pages and attachments are read from the server's own
address only (a token goes nowhere else), and size, pages and time of everything are bounded. Answers are unpacked no
further than the limit. Messages name the kind of resource and the status, never an id or anything of a record.
"""

from __future__ import annotations

import base64
import email.utils
import json
import re
import time
import zlib
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NoReturn
from urllib.parse import urljoin, urlsplit

import httpx

from whatelse.errors import InputError
from whatelse.sources.fhir.deadline import Deadline
from whatelse.sources.fhir.notes import LARGEST as LARGEST_NOTE
from whatelse.sources.fhir.resources import entries, next_page

JSON = "application/fhir+json"  # Oracle Health refuses application/json for documents
LARGEST_PAGE = 32_000_000  # bytes
PAGES = 200
TRIES = 5
LONGEST_WAIT = 60.0  # seconds, whatever Retry-After says
REFUSALS = {
    400: "the server does not take this search",
    401: "the access token is missing, wrong or expired",
    403: "the access token does not allow it",
    404: "there is no such thing",
    410: "it was deleted",
}
TRY_AGAIN = frozenset({429, 502, 503, 504})


class FhirError(InputError):
    """A request to a FHIR server failed. The message names the kind of resource and the cause.

    status: of its answer, if any; reason: one word for log and metrics
    """

    def __init__(self, problem: str, status: int | None = None, reason: str = "malformed") -> None:
        super().__init__(problem)
        self.status, self.reason = status, f"status_{status}" if status else reason


class FhirServer:
    """A server at `base`, with an access token if it wants one. `seconds` is for everything that is asked of it."""

    def __init__(
        self,
        base: str,
        token: str | None = None,
        *,
        seconds: float = 3600.0,
        patience: float = 30.0,
        pages: int = PAGES,
        transport: httpx.BaseTransport | None = None,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self.base = check_base(base)
        self._deadline, self._patience, self._pages, self._sleep = Deadline(seconds), patience, pages, sleep
        headers = {"Accept": JSON, "Accept-Encoding": "gzip"}
        if token:
            if not token.isascii() or not token.isprintable() or " " in token:
                raise FhirError("the access token has characters that no token has", reason="token")
            headers["Authorization"] = f"Bearer {token}"
        self._http = httpx.Client(headers=headers, follow_redirects=False, transport=transport, trust_env=False)

    def __enter__(self) -> FhirServer:
        self._deadline.__enter__()
        return self

    def __exit__(self, *_: object) -> None:
        self._deadline.__exit__()
        self._http.close()

    def read(self, kind: str, number: str) -> dict[str, Any]:
        """One resource by its id, which must be one (`models.ID`): it becomes part of an address."""
        return self._json(f"{self.base}/{kind}/{number}", kind)

    def capabilities(self) -> dict[str, Any]:
        """What the server says of itself."""
        return self._json(f"{self.base}/metadata", "CapabilityStatement")

    def search(self, kind: str, parameters: Mapping[str, str]) -> Iterator[dict[str, Any]]:
        """The resources of a search, page by page; FhirError if there are more pages than anybody has."""
        for page in self.pages(kind, parameters):
            yield from (r for r in entries(page) if isinstance(r, dict))

    def pages(self, kind: str, parameters: Mapping[str, str]) -> Iterator[dict[str, Any]]:
        """The Bundles of a search."""
        page = self._json(f"{self.base}/{kind}", kind, parameters)
        seen: set[str] = set()
        for _ in range(self._pages):
            if page.get("resourceType") != "Bundle":
                raise FhirError(f"{kind}: a search was answered with something else than a Bundle")
            yield page
            following = next_page(page)
            if following is None:
                return
            url = urljoin(self.base + "/", following)
            if origin(url) != origin(self.base):
                raise FhirError(f"{kind}: the next page is at another address than the server; it was not followed")
            if url in seen:
                raise FhirError(f"{kind}: the pages of a search go round in a circle")
            seen.add(url)
            page = self._json(url, kind)
        raise FhirError(f"{kind}: a search has more than {self._pages} pages; ask for less at a time")

    def binary(self, number: str, expected: str | None = None) -> dict[str, Any]:
        """A Binary as a resource, however the server sends it: FHIR JSON, or the document's own bytes.

        expected: media type that the document names. FhirError for HTML where another type is expected, and for a page
        with a password field: a sign-in page is not a note.
        """
        kind, body = self._get(f"{self.base}/Binary/{number}", "Binary", largest=2 * LARGEST_NOTE)
        if "json" in kind:
            found = _parse(body, "Binary")
            if found.get("resourceType") == "Binary":
                return found
            raise FhirError("Binary: answered with another resource")
        start = body[:20_000].lower()
        html = "html" in kind or start.lstrip().startswith((b"<!doctype html", b"<html"))
        if html and ("html" not in (expected or "") or re.search(rb"type\s*=\s*[\"']?password", start)):
            raise FhirError("Binary: answered with a web page instead of the note", reason="web_page")
        return {"resourceType": "Binary", "id": number, "contentType": kind, "data": base64.b64encode(body).decode()}

    # ---- one request

    def _json(self, url: str, what: str, parameters: Mapping[str, str] | None = None) -> dict[str, Any]:
        return _parse(self._get(url, what, parameters)[1], what)

    def _get(
        self, url: str, what: str, parameters: Mapping[str, str] | None = None, largest: int = LARGEST_PAGE
    ) -> tuple[str, bytes]:
        """Media type and body of an answer, tried again while the server says that it is busy."""
        wait, extensions = 0.5, self._deadline.extensions
        for attempt in range(1, TRIES + 1):
            again, limit = LONGEST_WAIT, min(self._patience, self._left(what))
            try:
                with self._http.stream("GET", url, params=parameters, timeout=limit, extensions=extensions) as answer:
                    status = answer.status_code
                    if status == 200:
                        return answer.headers.get("content-type", ""), self._body(answer, what, largest)
                    again = _retry_after(answer.headers.get("retry-after"), wait)
            except httpx.TimeoutException:
                raise FhirError(f"{what}: the server took too long to answer", reason="slow") from None
            except (httpx.HTTPError, httpx.InvalidURL) as error:
                self._left(what)  # a connection that was shut down looks lost
                if attempt == TRIES:
                    problem = f"{what}: the server cannot be reached ({type(error).__name__})"
                    raise FhirError(problem, reason="unreachable") from None
                again = wait
            else:
                if status not in TRY_AGAIN or attempt == TRIES:
                    _refuse(status, what)
            if again > self._left(what):
                raise FhirError(f"{what}: the server asks to wait longer than there is time for", 429)
            self._sleep(again)
            wait *= 2
        raise AssertionError("not reached")

    def _body(self, answer: httpx.Response, what: str, largest: int) -> bytes:
        """The body, unpacked by ourselves so that a small answer cannot become a large one."""
        packing = answer.headers.get("content-encoding", "identity").strip().lower()
        if packing not in ("identity", "gzip", ""):
            raise FhirError(f"{what}: the answer is packed in a way that was not asked for")
        unpack = zlib.decompressobj(wbits=31) if packing == "gzip" else None
        body = bytearray()
        for piece in answer.iter_raw():  # as it comes: one that drips must be noticed
            self._left(what)
            try:
                body += unpack.decompress(piece, largest + 1 - len(body)) if unpack else piece
            except zlib.error:
                raise FhirError(f"{what}: the answer is damaged") from None
            if len(body) > largest:
                raise FhirError(f"{what}: the answer is larger than {largest:,} bytes")
        self._left(what)  # a connection that was shut down looks like the end of the body
        return bytes(body)

    def _left(self, what: str) -> float:
        if (left := self._deadline.left) <= 0:
            raise FhirError(f"{what}: the server took too long to answer", reason="slow")
        return left


def check_base(base: str) -> str:
    """An address without its last slash; FhirError if it is none, or carries a password."""
    parts = urlsplit(base)
    if parts.scheme not in ("http", "https") or not parts.hostname or parts.query or parts.fragment:
        raise FhirError("a FHIR server's address looks like https://fhir.example.org/r4")
    if parts.username or parts.password:
        raise FhirError("a FHIR server's address must not hold a password: give a token")
    return base.rstrip("/")


def origin(url: str) -> tuple[str, str | None, int | None]:
    """Scheme, host and port."""
    try:
        parts = urlsplit(url)
        return parts.scheme, parts.hostname, parts.port or {"http": 80, "https": 443}.get(parts.scheme)
    except ValueError:
        return "", None, None


def _parse(body: bytes, what: str) -> dict[str, Any]:
    try:
        found = json.loads(body)
    except (ValueError, RecursionError):
        raise FhirError(f"{what}: the answer is not JSON") from None
    if not isinstance(found, dict):
        raise FhirError(f"{what}: the answer is not a resource")
    return found


def _refuse(status: int, what: str) -> NoReturn:
    elsewhere = "the server leads elsewhere; give the address it really has"
    says = elsewhere if 300 <= status < 400 else REFUSALS.get(status, "the server failed")
    raise FhirError(f"{what}: {says} (status {status})", status)


def _retry_after(text: str | None, otherwise: float) -> float:
    """Seconds to wait: the Retry-After header, a number or a date, at most LONGEST_WAIT."""
    if not text:
        return otherwise
    try:
        seconds = float(text)
    except ValueError:
        try:
            seconds = email.utils.parsedate_to_datetime(text).timestamp() - time.time()
        except (TypeError, ValueError):
            return otherwise
    return min(max(seconds, 0.0), LONGEST_WAIT) if seconds == seconds else otherwise
