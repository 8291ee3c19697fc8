"""Limits: token buckets by client, how much text may be read at once, and where a request comes from."""

from __future__ import annotations

import ipaddress
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from functools import lru_cache

from cachetools import LRUCache
from starlette.types import Scope

from whatelse.sources.fhir.visit import Seen
from whatelse.text.pieces import lower, pieces

CLIENTS = 10_000  # buckets remembered; the longest unused go first
UNKNOWN = "unknown"  # an address that cannot be read


class Buckets:
    """`rate` a second lastingly, `burst` at once, for each name; rate 0 is no limit. For one thread: the event loop."""

    def __init__(self, rate: float, burst: float, clock: Callable[[], float] = time.monotonic) -> None:
        self.rate, self.burst, self._clock = rate, burst, clock
        self._levels: LRUCache[str, tuple[float, float]] = LRUCache(CLIENTS)

    def take(self, name: str, amount: float = 1.0) -> float:
        """Take from a bucket. Returns 0 if it has one to give, else the seconds to wait; then nothing is taken."""
        if self.rate == 0:
            return 0.0
        now = self._clock()
        level, then = self._levels.pop(name, (self.burst, now))
        level = min(self.burst, level + (now - then) * self.rate)
        wait = 0.0 if level >= 1.0 else (1.0 - level) / self.rate
        self._levels[name] = (level if wait else level - amount, now)
        return wait

    def peek(self, name: str) -> float:
        """Seconds until a bucket has one to give; nothing is taken."""
        return self.take(name, 0.0)


def too_much_text(texts: Iterable[str | None], words: int) -> str | None:
    """Why notes would take too long to read, or None. Words cost more than characters: a dash is one of each."""
    given, characters = [text for text in texts if text], 5 * words
    if sum(map(len, given)) > characters:
        return f"the notes have more than {characters:,} characters together; five times the setting max_words"
    if sum(len(pieces(lower(text))) for text in given) > words:
        return f"the notes have more than {words:,} words and signs together; the setting max_words allows no more"
    return None


def without_long_notes(seen: Seen, words: int) -> Seen:
    """A visit of an EHR without the notes that would take too long to read: those are not seen, and said to be so."""
    visit, unseen = seen.visit, list(seen.unseen)
    notes = {"triage_note": "triage note", "md_comments": "provider note", "chief_complaint": "chief complaint"}
    for field, name in notes.items():
        if too_much_text([getattr(visit, field)], words):
            visit, unseen = replace(visit, **{field: None}), [*unseen, name]  # type: ignore[arg-type]
    return replace(seen, visit=visit, unseen=tuple(dict.fromkeys(unseen)))


class Addresses:
    """Reads X-Forwarded-For where the proxy that wrote it is trusted: from the right, up to the first who is not."""

    def __init__(self, trusted: Sequence[str]) -> None:
        self._trusted = [ipaddress.ip_network(text.strip(), strict=False) for text in trusted]

    def of(self, scope: Scope) -> str:
        """The address that a request comes from, as `group` writes it."""
        client = scope.get("client")
        here = self.group(client[0] if client else "")
        lines = [value.decode("latin-1") for name, value in scope["headers"] if name == b"x-forwarded-for"]
        for entry in reversed(",".join(lines).split(",")[-20:]):
            before = self.group(entry.strip())
            if before == UNKNOWN or not self.trusts(here):
                break
            here = before
        return here

    def trusts(self, address: str) -> bool:
        """Whether this is a proxy of ours."""
        found = _parse(address)
        return found is not None and any(found in network for network in self._trusted)

    @staticmethod
    def group(text: str) -> str:
        """One name for what one client holds: an IPv4 address, or the first 64 bits of an IPv6 address."""
        found = _parse(text)
        if found is None:
            return UNKNOWN
        if isinstance(found, ipaddress.IPv6Address) and not found.is_loopback:
            return str(ipaddress.IPv6Address(int(found) >> 64 << 64))
        return str(found)


@lru_cache(4096)
def _parse(text: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    """An address, also with a port ("10.0.0.7:4711", "[::1]:80") or IPv4 written as IPv6."""
    if len(text) > 64:
        return None
    if text.startswith("["):
        text = text[1:].partition("]")[0]
    elif text.count(":") == 1:
        text = text.partition(":")[0]
    try:
        found = ipaddress.ip_address(text)
    except ValueError:
        return None
    return getattr(found, "ipv4_mapped", None) or found
