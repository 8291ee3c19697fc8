"""Lru: a cachetools.LRUCache that threads may share. A value that is given out is shared, too."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from threading import Lock
from typing import Generic, TypeVar

from cachetools import LRUCache

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


class Lru(Generic[K, V]):
    """At most `most` values; the least recently used one is dropped first."""

    def __init__(self, most: int) -> None:
        self._kept: LRUCache[K, V] = LRUCache(most)
        self._lock = Lock()

    def get(self, key: K) -> V | None:
        with self._lock:
            return self._kept.get(key)

    def put(self, key: K, value: V) -> V:
        with self._lock:
            self._kept[key] = value
        return value

    def drop(self, key: K) -> None:
        with self._lock:
            self._kept.pop(key, None)

    def made(self, key: K, make: Callable[[], V]) -> V:
        """The value of `key`, made if it is not kept. `make` may run twice if two threads ask at once."""
        found = self.get(key)
        return self.put(key, make()) if found is None else found
