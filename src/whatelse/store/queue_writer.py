"""QueueWriter: one thread that writes what others put in its queue."""

from __future__ import annotations

import queue
import threading
from typing import Any


class QueueWriter:
    """Starts the thread that runs `_write`, which ends when it takes None from the queue. Threads may share it."""

    def __init__(self, name: str) -> None:
        self._queue: queue.SimpleQueue[Any] = queue.SimpleQueue()
        self._closed = False
        self._writer = threading.Thread(target=self._write, name=name, daemon=True)
        self._writer.start()

    def _write(self) -> None:
        raise NotImplementedError

    def close(self) -> None:
        """Write what is waiting, and stop."""
        if not self._closed:
            self._closed = True
            self._queue.put(None)
            self._writer.join()
