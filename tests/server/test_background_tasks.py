"""What a server does on its own goes on, whatever goes wrong with it, and says so."""

from __future__ import annotations

import asyncio
import logging
import threading
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from whatelse.errors import InputError, ModelFileError
from whatelse.server import run, service
from whatelse.server import run as chores
from whatelse.server.worker_pools import Busy, WorkerPool
from whatelse.server.workers import _said


def _until_idle(work: Any, done: asyncio.Event) -> None:
    """Run a task that never ends until it has done what is waited for."""

    async def both() -> None:
        task = asyncio.create_task(work)
        waited = asyncio.create_task(done.wait())
        await asyncio.wait({task, waited}, timeout=60, return_when=asyncio.FIRST_COMPLETED)
        assert waited.done() and not task.done(), "it has ended, or was never done"
        task.cancel()

    asyncio.run(both())


def test_another_process_s_model_is_followed_at_last(monkeypatch: pytest.MonkeyPatch) -> None:
    tries, done = iter((Busy(1.0), RuntimeError("secret"), None)), asyncio.Event()

    def submit(_: object) -> None:
        if (problem := next(tries)) is not None:
            raise problem
        done.set()

    async def newest(_: object) -> str:
        return "new"

    monkeypatch.setattr(chores, "LOOK", 0.0)
    opened: Any = SimpleNamespace(
        tagger=SimpleNamespace(digest_="old"),
        admissions=SimpleNamespace(under_way=1),
        pools=SimpleNamespace(access=SimpleNamespace(run=newest), slow=SimpleNamespace(submit=submit)),
        store=SimpleNamespace(newest_model=None, engine=None),
        settings=SimpleNamespace(audit_days=0, cds_days=0, watch_model=0),
    )
    _until_idle(chores.chores(opened), done)


def test_a_model_that_served_here_before_is_followed_again(monkeypatch: pytest.MonkeyPatch) -> None:
    done = asyncio.Event()
    announced = iter(["first", "second", "second"])  # the second by this process itself
    opened: Any = SimpleNamespace(
        tagger=SimpleNamespace(digest_="first"),
        admissions=SimpleNamespace(under_way=1),
        store=SimpleNamespace(newest_model=None, engine=None),
        settings=SimpleNamespace(audit_days=0, cds_days=0, watch_model=0, smart_client_id=""),
    )

    async def newest(_: object) -> str:
        found = next(announced, "first")  # and then the first by another
        opened.tagger.digest_ = "second" if found == "second" else opened.tagger.digest_
        return found

    opened.pools = SimpleNamespace(
        access=SimpleNamespace(run=newest), slow=SimpleNamespace(submit=lambda _: done.set())
    )
    monkeypatch.setattr(chores, "LOOK", 0.0)
    _until_idle(chores.chores(opened), done)


def test_a_model_file_is_watched_on_while_too_much_waits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model, tries, done = tmp_path / "model", [], asyncio.Event()
    model.write_bytes(b"1")

    def submit(_: object) -> None:
        tries.append(1)
        if len(tries) == 1:
            raise Busy(1.0)
        done.set()

    opened: Any = SimpleNamespace(
        settings=SimpleNamespace(model=model, watch_model=0.001),
        pools=SimpleNamespace(slow=SimpleNamespace(submit=submit)),
        tagger=SimpleNamespace(digest_=""),
        admissions=SimpleNamespace(under_way=0),
    )
    stamps = iter([(1, 1, 1)])
    monkeypatch.setattr(chores, "stamp", lambda _: next(stamps, (2, 2, 2)))
    _until_idle(chores.chores(opened), done)
    assert len(tries) == 2


@pytest.mark.parametrize("problem", [ModelFileError("m: cannot be read"), MemoryError("secret")])
def test_a_model_that_cannot_be_loaded_is_said_to_be_none(problem: Exception, caplog: pytest.LogCaptureFixture) -> None:
    def reload(announce: bool) -> str:
        raise problem

    slow = WorkerPool("slow", 1)
    opened: Any = SimpleNamespace(reload=reload, pools=SimpleNamespace(slow=slow))
    with caplog.at_level(logging.ERROR, "whatelse.server"):
        assert chores.load_again(opened)
        slow.submit(lambda: None).result(60)
        slow.close()
    assert "the old model goes on serving" in caplog.text and "secret" not in caplog.text


def test_of_two_loads_at_once_the_later_is_the_last(monkeypatch: pytest.MonkeyPatch) -> None:
    inside, met = [], threading.Event()

    def load(*_: object) -> Any:
        inside.append(1)
        if len(inside) > 1:
            met.set()
        overlaps.append(met.wait(0.2))
        inside.pop()
        return SimpleNamespace(digest_="new")

    overlaps: list[bool] = []
    monkeypatch.setattr(service, "load_model", load)
    nothing: Any = SimpleNamespace(
        secret=lambda _: b"", count=lambda *_, **__: None, score=lambda _: None, serving=lambda _: None
    )
    settings: Any = SimpleNamespace(model=Path("m"), trusted_keys=(), max_wait=1.0)
    opened = service.Service(settings, nothing, nothing, [])
    opened.metrics = opened.worklist = nothing
    loads = [opened.pools.slow.submit(opened.reload) for _ in range(2)]
    assert [load.result(60) for load in loads] == ["new", "new"]
    opened.pools.close()
    assert overlaps == [False, False]


def test_a_service_that_cannot_be_opened_leaves_no_database_open(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    closed: list[str] = []
    monkeypatch.setattr(run, "load_model", lambda *_: None)
    monkeypatch.setattr(run, "Store", lambda url: SimpleNamespace(close=lambda: closed.append(url)))

    def visits(*_: object) -> None:
        raise InputError("no such file or folder")

    monkeypatch.setattr(run, "_visits", visits)
    settings: Any = SimpleNamespace(check=lambda: None, model=tmp_path, trusted_keys=(), database="sqlite:///x.db")
    with pytest.raises(InputError):
        run.open_service(settings)
    assert closed == ["sqlite:///x.db"]


def test_a_worker_that_fails_quotes_no_record() -> None:
    assert _said(InputError("no such file\nor folder")) == "InputError: no such file or folder"
    assert _said(ValueError("could not convert 'chest pain'")) == "ValueError:"
