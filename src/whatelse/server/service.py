"""Service: everything that a running server holds, made once and handed to the routes."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TypeVar

from whatelse.errors import ModelFileError, WhatelseError
from whatelse.server.answers import Answers
from whatelse.server.metrics import Metrics
from whatelse.server.settings import Settings
from whatelse.server.worklist import Worklist
from whatelse.store import Store
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
        self.threads = ThreadPoolExecutor(settings.threads, thread_name_prefix="whatelse-answer")
        self.ready = False

    async def run(self, work: Callable[..., T], *args: object) -> T:
        """Do `work` in a thread, so that the event loop goes on answering others."""
        return await asyncio.get_running_loop().run_in_executor(self.threads, work, *args)

    def start(self) -> None:
        """Begin scoring the worklist in the background."""
        self.worklist.score(self.tagger)
        self.ready = True

    def reload(self) -> str:
        """Load the model file again; a file that cannot be used leaves the old model serving. Returns the digest."""
        try:
            tagger = load_model(self.settings.model)
        except WhatelseError:
            self.metrics.count("model_reloads", outcome="refused")
            raise
        self.metrics.count("model_reloads", outcome="loaded")
        self.tagger = tagger
        self.worklist.score(tagger)
        return tagger.digest_

    def close(self) -> None:
        """Stop threads and close the database."""
        self.ready = False
        self.worklist.stop()
        self.threads.shutdown(wait=True, cancel_futures=True)
        self.store.close()


def load_model(path: Path) -> Tagger:
    """A model that has answered once: it is checked, and its kernels are compiled before anybody waits for them."""
    tagger = Tagger.load(path)
    trial = Visit("trial", age=50.0, sex="F", chief_complaint="", triage_note="", md_comments="")
    try:
        reading = tagger.read(trial)
        reading.suggest()
        reading.why(Known(), tagger.conditions_[0])
        reading.ask()
    except Exception as error:
        raise ModelFileError(f"{path}: it loads but does not answer ({type(error).__name__}); fit it again") from None
    return tagger
