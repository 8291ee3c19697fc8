"""A vocabulary that remembers what it found in the visits that are being looked at.

Every answer about a visit begins by reading its notes again, and a visit that is open on a screen is asked about many
times. Records do not change while they are served, so what was found in one is kept, for the last VISITS of them.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, field, fields
from threading import Lock
from typing import Any, TypeVar

from whatelse.visits import Visit
from whatelse.vocabulary import Found, Ints, Vocabulary

VISITS = 2_000
T = TypeVar("T")


@dataclass(frozen=True, eq=False)
class RememberingVocabulary(Vocabulary):
    """The same findings. What it gives back is shared: it is not to be changed."""

    _known: OrderedDict[tuple[str, int], tuple[Visit, Any]] = field(default_factory=OrderedDict)
    _lock: Lock = field(default_factory=Lock)

    @classmethod
    def of(cls, vocabulary: Vocabulary) -> RememberingVocabulary:
        """The same vocabulary, with a memory."""
        return cls(**{f.name: getattr(vocabulary, f.name) for f in fields(Vocabulary)})

    def find(self, visit: Visit) -> list[Found]:
        """As Vocabulary.find."""
        return self._remember("find", visit, super().find)

    def present(self, visit: Visit) -> Ints:
        """As Vocabulary.present."""
        return self._remember("present", visit, super().present)

    def unobserved(self, visit: Visit) -> Ints:
        """As Vocabulary.unobserved."""
        return self._remember("unobserved", visit, super().unobserved)

    def _remember(self, what: str, visit: Visit, work: Callable[[Visit], T]) -> T:
        key = (what, id(visit))  # the visit is kept with the answer, so no other can have its address meanwhile
        with self._lock:
            if (known := self._known.get(key)) is not None:
                self._known.move_to_end(key)
                found: T = known[1]
                return found
        made = work(visit)
        with self._lock:
            self._known[key] = (visit, made)
            while len(self._known) > 3 * VISITS:
                self._known.popitem(last=False)
        return made
