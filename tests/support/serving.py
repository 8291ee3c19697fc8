"""A small department to serve in tests: a model of some hundred simulated visits, and servers on it."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any

import httpx

from whatelse.annotators import AnchorSet
from whatelse.cohort import build_cohort
from whatelse.server import Service, Settings
from whatelse.server.run import server_of
from whatelse.server.workers import listen
from whatelse.simulate import simulate
from whatelse.store import Store
from whatelse.tagger import Tagger
from whatelse.visits import Code, Visit

SCRIPT = "<script>window.hacked = 1</script><img src=x onerror='window.hacked = 1'>"
FALLEN = Visit(
    "fallen",
    age=81.0,
    sex="F",
    chief_complaint="s/p fall",
    triage_note="81F fell from standing, hit head, headache. denies loc, nausea, fever. hx htn",
    md_comments="hpi: 81F s/p fall, r wrist pain, hematoma. ct head neg, xr wrist",
    medication_history=(Code("name", "warfarin", "warfarin"), Code("name", "simvastatin", "simvastatin")),
    dispensed=(Code("name", "acetaminophen", "acetaminophen"),),
)
HOSTILE = Visit(
    f"x'; DROP TABLE decision; -- {SCRIPT}",
    age=30.0,
    sex="M",
    chief_complaint=f"fall {SCRIPT}",
    triage_note=f"🤕 fell 😵 hit head, {SCRIPT} denies fever",
    md_comments="",
    medication_history=(Code("name", SCRIPT, SCRIPT),),
)


@cache
def department() -> tuple[Tagger, tuple[Visit, ...]]:
    """A fitted tagger and 120 visits; the first two are FALLEN and HOSTILE. Made once a process."""
    learned_from = list(simulate(800, 11))
    tagger = Tagger("oracle").fit(build_cohort(learned_from, AnchorSet.shipped(), max_terms=300))
    return tagger, (FALLEN, HOSTILE, *learned_from[:118])


def save_model(folder: Path) -> Path:
    """The department's model as a file, with the digest that a loaded one has."""
    path = folder / "small.model"
    if not path.exists():
        department()[0].save(path)
    return path


@contextmanager
def service(folder: Path, served: tuple[Tagger, Sequence[Visit]] | None = None, **settings: Any) -> Iterator[Service]:
    """An open service on a new SQLite database (or the `database` given). served: model and visits, if not the
    department's."""
    path = save_model(folder) if served is None else Path("emergency")
    given = {"model": path, "database": f"sqlite:///{folder / 'decisions.db'}", "rate_limit": 0, **settings}
    tagger, visits = served or department()
    checked = Settings(**given)
    opened = Service(checked, Store(checked.database), tagger, list(visits))
    try:
        yield opened
    finally:
        opened.close()


@contextmanager
def live(opened: Service) -> Iterator[str]:
    """A real server in a thread; its URL."""
    listening = listen(opened.settings.model_copy(update={"port": 0}))
    server = server_of(opened)
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]}, daemon=True)
    thread.start()
    wait_until(lambda: server.started or not thread.is_alive())
    assert server.started
    try:
        yield f"http://127.0.0.1:{listening.getsockname()[1]}"
    finally:
        server.should_exit = True
        thread.join(60)
        listening.close()


@contextmanager
def client(opened: Service) -> Iterator[httpx.Client]:
    """A client of a real server."""
    with live(opened) as url, httpx.Client(base_url=url, timeout=60) as made:
        yield made


def wait_until(true: Callable[[], bool]) -> None:
    """Until it is, for as long as a busy machine may take."""
    until = time.monotonic() + 60
    while not true():
        assert time.monotonic() < until
        time.sleep(0.02)


def wait_until_scored(opened: Service) -> None:
    """Until every visit of the worklist is scored."""
    wait_until(lambda: opened.worklist.scores is not None and opened.worklist.scores.done == len(opened.worklist))


_numbers = iter(range(10**9))


def wanted(subject: str, verdict: str = "confirmed", version: int = 0, **more: Any) -> dict[str, Any]:
    """The body of a decision."""
    return {"subject": subject, "verdict": verdict, "version": version, "request": f"request-{next(_numbers)}", **more}
