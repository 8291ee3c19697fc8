"""Job: work in the background, one at a time, with what it is doing, how far it is, and how it ended.

Learning runs in a process of its own, so that a service goes on answering while it does; looking for suggestions runs
in a thread, because what it finds stays in memory.
"""

from __future__ import annotations

import errno
import multiprocessing
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from whatelse.errors import WhatelseError
from whatelse.learning.learners import Progress
from whatelse.lifecycle.rebuild import records_of
from whatelse.workbench.folder import BenchFolder
from whatelse.workbench.training import learn_in


@dataclass(frozen=True)
class Status:
    """How a job stands. problem: why it failed, in words that quote no record."""

    kind: str
    what: str
    done: int
    total: int
    seconds: float
    running: bool
    problem: str = ""


class Job:
    """One piece of work under way or ended; `work` is told how to report progress."""

    def __init__(self, kind: str, work: Callable[[Progress], None]) -> None:
        self.kind, self._work = kind, work
        self._told = ("starting", 0, 1)
        self._began, self._ended = time.monotonic(), 0.0
        self._problem = ""
        self._thread = threading.Thread(target=self._run, name=f"whatelse-{kind}", daemon=True)
        self._thread.start()

    def status(self) -> Status:
        """How it stands now."""
        running = self._ended == 0
        seconds = (time.monotonic() if running else self._ended) - self._began
        return Status(self.kind, *self._told, seconds, running, self._problem)

    def wait(self, seconds: float | None = None) -> None:
        """Wait until it has ended."""
        self._thread.join(seconds)

    def _run(self) -> None:
        try:
            self._work(self._tell)
        except Exception as error:
            self._problem = problem_of(error)
        finally:
            self._ended = time.monotonic()

    def _tell(self, what: str, done: int, total: int) -> None:
        self._told = (what, done, total)


class Apart:
    """Learning in another process. `stop` ends it."""

    def __init__(self, root: Path, model: Path, visits: tuple[Path, ...]) -> None:
        self._args = (root, model, visits)
        self._process: Any = None

    def run(self, progress: Progress) -> None:
        """Learn, and report what the process reports; WhatelseError if it failed."""
        context = multiprocessing.get_context("spawn")
        mine, theirs = context.Pipe(duplex=False)
        self._process = context.Process(target=learn_apart, args=(theirs, *self._args), daemon=True)
        self._process.start()
        theirs.close()
        problem = "the process that was learning has ended before it was done"
        with mine, suppress(EOFError):  # which is how a pipe says that the other side has ended
            while True:
                heard: tuple[str, Any] = mine.recv()
                if heard[0] == "progress":
                    progress(*heard[1])
                else:
                    problem = heard[1]
        self._process.join()
        if problem:
            raise WhatelseError(problem)

    def stop(self) -> None:
        """End the process if there is one."""
        if self._process is not None and self._process.is_alive():
            self._process.terminate()


def learn_apart(tell: Connection, root: Path, model: Path, visits: tuple[Path, ...]) -> None:
    """What the process does: `learn_in`, progress and the end told through a pipe ("" if all went well)."""
    try:
        folder = BenchFolder(root)
        tell.send(("progress", ("reading the records", 0, 4)))
        records = list(records_of(folder.open(), list(visits) or None))
        learn_in(folder, model, records, progress=lambda *now: tell.send(("progress", now)))
        tell.send(("ended", ""))
    except Exception as error:
        tell.send(("ended", problem_of(error)))


def problem_of(error: Exception) -> str:
    """Why a job failed. Messages that are not our own are left out: they may quote a record."""
    if isinstance(error, WhatelseError):
        return str(error)
    if isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT):
        return "the disk of the server is full; nothing was changed"
    return f"it failed ({type(error).__name__}); the command line says more"
