"""Lru: the last so many values by key. Threads may share one; a value that is given out is shared, too."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Hashable
from threading import Lock
from typing import Generic, TypeVar

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


class Lru(Generic[K, V]):
    """At most `most` values; the one that was asked for longest ago goes first."""

    def __init__(self, most: int) -> None:
        self._most, self._lock = most, Lock()
        self._kept: OrderedDict[K, V] = OrderedDict()

    def get(self, key: K) -> V | None:
        """The value under `key`, if it is still kept."""
        with self._lock:
            if key in self._kept:
                self._kept.move_to_end(key)
            return self._kept.get(key)

    def put(self, key: K, value: V) -> V:
        """Keep a value, and give it back."""
        with self._lock:
            self._kept[key] = value
            self._kept.move_to_end(key)
            while len(self._kept) > self._most:
                self._kept.popitem(last=False)
        return value

    def made(self, key: K, make: Callable[[], V]) -> V:
        """The value under `key`, made if it is not kept. `make` may run twice if two threads ask at once."""
        found = self.get(key)
        return self.put(key, make()) if found is None else found
