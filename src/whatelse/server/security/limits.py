"""Limits kept in memory: token buckets by client, and how much text may be read for one question or of an EHR."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from dataclasses import replace

from cachetools import LRUCache

from whatelse.sources.fhir.visit import Seen
from whatelse.text.pieces import lower, pieces

CLIENTS = 10_000  # buckets remembered; the longest unused go first


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


def too_much_text(texts: Iterable[str | None], characters: int, words: int) -> str | None:
    """Why notes would take too long to read, or None. Words cost more than characters: a dash is one of each."""
    given = [text for text in texts if text]
    if sum(map(len, given)) > characters:
        return f"the notes have more than {characters:,} characters together; five times the setting max_words"
    if sum(len(pieces(lower(text))) for text in given) > words:
        return f"the notes have more than {words:,} words and signs together; the setting max_words allows no more"
    return None


def without_long_notes(seen: Seen, characters: int, words: int) -> Seen:
    """A visit of an EHR without the notes that would take too long to read: those are not seen, and said to be so."""
    visit, unseen = seen.visit, list(seen.unseen)
    notes = {"triage_note": "triage note", "md_comments": "provider note", "chief_complaint": "chief complaint"}
    for field, name in notes.items():
        if too_much_text([getattr(visit, field)], characters, words):
            visit, unseen = replace(visit, **{field: None}), [*unseen, name]  # type: ignore[arg-type]
    return replace(seen, visit=visit, unseen=tuple(dict.fromkeys(unseen)))
