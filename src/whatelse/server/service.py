"""Service: everything that a running server holds, made once and handed to the routes."""

from __future__ import annotations

import re
import threading
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any, TypeVar

from whatelse.errors import ModelFileError, WhatelseError
from whatelse.model_file.signature import verify_model
from whatelse.server.admission_control import AdmissionControls
from whatelse.server.answers import Answers
from whatelse.server.metrics import Metrics
from whatelse.server.policies import RouteTable
from whatelse.server.settings import Settings
from whatelse.server.worker_pools import WorkerPools
from whatelse.server.worklist import Worklist
from whatelse.store import Person, Store
from whatelse.tagger import Tagger
from whatelse.visits import Known, Visit

T = TypeVar("T")


class Service:
    """Model, visits, decisions, threads and counters of one server. `close` it."""

    def __init__(self, settings: Settings, store: Store, tagger: Tagger, visits: list[Visit]) -> None:
        self.settings = settings
        self.store = store
        self.tagger = tagger
        self.worklist = Worklist(visits, store.secret("visits"))
        self.answers = Answers()
        self.metrics = Metrics()
        self.pools = WorkerPools()
        self.admissions = AdmissionControls(settings.max_wait)
        self.routes = RouteTable()  # of the app that serves
        self.ready = False
        self._loading = threading.Lock()  # or of two loads at once the older model might be the last
        self.launched: Callable[[Any], Awaitable[Person | None]] | None = None  # whom a launch of an EHR let in
        self.closing: list[Callable[[], None]] = []  # what others need done before the database is closed

    async def run(self, work: Callable[..., T], *args: object) -> T:
        """Do `work` in a thread, so that the event loop goes on answering others."""
        return await self.pools.answers.run(work, *args)

    def start(self) -> None:
        """Begin scoring the worklist in the background."""
        self.store.serving(self.tagger.digest_)
        self.worklist.score(self.tagger)
        self.ready = True

    def reload(self, announce: bool = True) -> str:
        """Load the model file again; a file that cannot be used leaves the old model serving. Returns the digest.

        announce: tell other processes on the database, which then load theirs again.
        """
        with self._loading:
            try:
                tagger = load_model(self.settings.model, self.settings.trusted_keys)
            except WhatelseError:
                self.metrics.count("model_reloads", outcome="refused")
                raise
            self.metrics.count("model_reloads", outcome="loaded")
            if announce:
                self.store.serving(tagger.digest_)
            self.tagger = tagger
            self.worklist.score(tagger)
            return tagger.digest_

    def close(self) -> None:
        self.ready = False
        self.worklist.stop()
        self.pools.close()
        for close in self.closing:
            close()
        self.store.close()


def without_folders(text: str, *known: Path) -> str:
    """A message with every absolute path cut to its file name: clients need not know the server's folders.

    known: folders that a message may name; their names may have blanks, at which a path would end otherwise.
    """
    for folder in sorted({str(each) for path in known for each in (path, path.resolve())}, key=len, reverse=True):
        text = text.replace(f"{folder}/", "") if folder not in ("/", ".") else text
    return re.sub(r"(?<![\w:/])/(?:[^/\s:'\",;]+/)+", "", text)


def load_model(path: Path, trusted: Sequence[Path] = ()) -> Tagger:
    """A model that has answered once: it is checked, and its kernels are compiled before anybody waits for them.

    trusted: public keys; with any, the model must be signed by one of them.
    """
    signed = verify_model(path, trusted) if trusted else None
    tagger = Tagger.load(path)
    if signed is not None and tagger.digest_ != signed:  # it was exchanged between the two looks at it
        raise ModelFileError(f"{path}: is not the model that was signed; load it again")
    trial = Visit("trial", age=50.0, sex="F", chief_complaint="", triage_note="", md_comments="")
    try:
        reading = tagger.read(trial)
        reading.suggest()
        reading.why(Known(), tagger.conditions_[0])
        reading.ask()
    except Exception as error:
        raise ModelFileError(f"{path}: it loads but does not answer ({type(error).__name__}); fit it again") from None
    return tagger
