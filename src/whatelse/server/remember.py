"""What is read in a record is read once: a vocabulary and an evidence that remember the visits being looked at.

Every answer about a visit begins with its notes and what they tell about each condition; a visit that is open on a
screen is asked about many times, and a decision changes neither. Both keep the last of their answers.
"""

from __future__ import annotations

import copy
from collections import OrderedDict
from collections.abc import Callable, Hashable
from dataclasses import dataclass, field, fields
from threading import Lock
from typing import Any, TypeVar

from whatelse.cohort.vocabulary import Found, Ints, Vocabulary
from whatelse.noisyor.evidence import Evidence
from whatelse.noisyor.params import Floats
from whatelse.tagger import Tagger
from whatelse.visits import Visit

VISITS = 2_000
OPEN = 256  # visits on a screen: their mentions, and lines of m x n numbers (23 conditions, 1,000 findings: 47 MB)
T = TypeVar("T")


def remembering(tagger: Tagger) -> Tagger:
    """The same tagger with a memory."""
    same = copy.copy(tagger)
    same.vocabulary_ = RememberingVocabulary(**_content(tagger.vocabulary_, Vocabulary))
    if tagger.evidence_ is not None:
        same.evidence_ = RememberingEvidence(**_content(tagger.evidence_, Evidence))
    return same


def _content(of: Any, kind: type) -> dict[str, Any]:
    return {f.name: getattr(of, f.name) for f in fields(kind)}


class Memory:
    """The last `most` answers by key. Threads may share it; what it gives back is shared and not to be changed."""

    def __init__(self, most: int) -> None:
        self._most, self._lock = most, Lock()
        self._known: OrderedDict[Hashable, Any] = OrderedDict()

    def get(self, key: Hashable, work: Callable[[], T]) -> T:
        """The answer under `key`, made if it is not there."""
        with self._lock:
            if key in self._known:
                self._known.move_to_end(key)
                found: T = self._known[key]
                return found
        made = work()
        with self._lock:
            self._known[key] = made
            while len(self._known) > self._most:
                self._known.popitem(last=False)
        return made


@dataclass(frozen=True, eq=False)
class RememberingVocabulary(Vocabulary):
    """The same findings."""

    _found: Memory = field(default_factory=lambda: Memory(OPEN))
    _memory: Memory = field(default_factory=lambda: Memory(2 * VISITS))

    def find(self, visit: Visit) -> list[Found]:
        """As Vocabulary.find."""
        return _once(self._found, "find", visit, super().find)

    def present(self, visit: Visit) -> Ints:
        """As Vocabulary.present."""
        return _once(self._memory, "present", visit, super().present)

    def unobserved(self, visit: Visit) -> Ints:
        """As Vocabulary.unobserved."""
        return _once(self._memory, "unobserved", visit, super().unobserved)


def _once(memory: Memory, what: str, visit: Visit, work: Callable[[Visit], T]) -> T:
    # kept with the visit itself, so that no other visit can have its address meanwhile
    return memory.get((what, id(visit)), lambda: (visit, work(visit)))[1]


@dataclass(frozen=True, eq=False)
class RememberingEvidence(Evidence):
    """The same evidence."""

    _memory: Memory = field(default_factory=lambda: Memory(VISITS))
    _lines: Memory = field(default_factory=lambda: Memory(OPEN))

    def __call__(self, X: Any, unobserved: Any = None) -> Floats:
        """As Evidence; remembered for one visit given as indices."""
        if unobserved is None or not isinstance(X, list) or len(X) != 1:
            return super().__call__(X, unobserved)
        key = (X[0].tobytes(), unobserved[0].tobytes())
        return self._memory.get(key, lambda: super(RememberingEvidence, self).__call__(X, unobserved))

    def lines(self, present: Any, unobserved: Any) -> Floats:
        """As Evidence.lines; the caller's own copy."""
        key = (present.tobytes(), unobserved.tobytes())
        return self._lines.get(key, lambda: super(RememberingEvidence, self).lines(present, unobserved)).copy()
