"""Workers: several processes that serve on one port and one PostgreSQL database, and one that looks after them.

Each worker listens on a socket of its own with SO_REUSEPORT, once it is ready; the kernel spreads connections over
them. A worker that dies is started again; SIGHUP loads the model again in one, and the others follow by the database.
"""

from __future__ import annotations

import logging
import multiprocessing
import os
import signal
import socket
import threading
from collections.abc import Callable
from contextlib import suppress
from multiprocessing.connection import Connection, wait
from typing import Any

from whatelse.errors import WhatelseError
from whatelse.server.settings import Settings, SettingsError

log = logging.getLogger("whatelse.server")
START_SECONDS = 300.0
PAUSE = 1.0  # seconds before a worker that ended is started again
Serve = Callable[[Settings, Callable[[str], None]], None]


def supervise(settings: Settings, announce: Callable[[str], None], serve: Serve) -> None:
    """Run `settings.workers` processes of `serve` until SIGINT or SIGTERM; SettingsError if one cannot start."""
    if not hasattr(os, "fork") or not hasattr(socket, "SO_REUSEPORT"):
        raise SettingsError("more than one worker needs a system with fork and SO_REUSEPORT; run one")
    with listen(settings, backlog=None) as reserved:  # workers bind the port too
        one = settings.model_copy(update={"port": reserved.getsockname()[1]})
        workers, stopping = list[Any](), threading.Event()
        signal.signal(signal.SIGTERM, lambda *_: stopping.set())
        signal.signal(signal.SIGINT, lambda *_: stopping.set())
        signal.signal(signal.SIGHUP, lambda *_: _tell(workers[:1], signal.SIGHUP))
        try:
            started = [_start(one, serve, workers) for _ in range(settings.workers)]
            urls = [_ready(worker, said) for worker, said in started]
            announce(urls[0])
            while not stopping.wait(0.2):
                for ended in [worker for worker in workers if not worker.is_alive()]:
                    log.error("a worker ended: status=%s; starting another", ended.exitcode)
                    workers.remove(ended)
                    stopping.wait(PAUSE)
                    try:
                        _ready(*_start(one, serve, workers))
                    except SettingsError as problem:
                        log.error("%s", problem)
        finally:
            _tell(workers, signal.SIGTERM)
            for worker in workers:
                worker.join()


def listen(settings: Settings, backlog: int | None = 2048) -> socket.socket:
    """A socket on the address and port of the settings; SettingsError if they cannot be had. backlog None: only bound.

    Several workers bind one port (SO_REUSEPORT).
    """
    made = socket.socket(socket.AF_INET6 if ":" in settings.host else socket.AF_INET)
    made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    if settings.workers > 1:
        made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
    # head and body of an answer are two writes: without this the second waits for the client, 40 ms, where the
    # event loop does not see to it
    made.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    try:
        made.bind((settings.host.strip("[]"), settings.port))
        if backlog is not None:
            made.listen(backlog)
    except OSError as error:
        made.close()
        where = f"{settings.host} port {settings.port}"
        raise SettingsError(f"cannot listen on {where} ({error.strerror}); choose another --port") from None
    return made


def _start(settings: Settings, serve: Serve, workers: list[Any]) -> tuple[Any, Connection]:
    """Start a worker: its process, and the pipe by which it says that it is ready."""
    context = multiprocessing.get_context("fork")
    heard, say = context.Pipe(duplex=False)
    worker = context.Process(target=_work, args=(settings, serve, say))
    worker.start()
    say.close()
    workers.append(worker)
    return worker, heard


def _ready(worker: Any, heard: Connection) -> str:
    """Wait until a worker is ready; its URL."""
    said = ""
    with heard, suppress(EOFError):
        said = heard.recv() if heard.poll(START_SECONDS) else ""
    if not said.startswith("http"):
        worker.kill()
        raise SettingsError(f"a worker did not start: {said or 'it ended without a word'}")
    return said


def _work(settings: Settings, serve: Serve, say: Connection) -> None:
    for name in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(name, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches all; the parent says when
    threading.Thread(target=_end_with_parent, daemon=True).start()
    try:
        serve(settings, say.send)
    except Exception as error:
        try:
            say.send(_said(error))
        except OSError:  # it was ready: nobody listens there any more
            log.error("a worker failed: error=%s", type(error).__name__)
        raise SystemExit(1) from None


def _said(error: BaseException) -> str:
    """Kind and, where the message is sure to quote no record, message of an error, on one line."""
    safe = isinstance(error, WhatelseError | OSError | ImportError)
    return " ".join(f"{type(error).__name__}: {error if safe else ''}".split())


def _end_with_parent() -> None:
    """Stop when the parent ends, even by SIGKILL."""
    parent = multiprocessing.parent_process()
    assert parent is not None
    wait([parent.sentinel])
    os.kill(os.getpid(), signal.SIGTERM)


def _tell(workers: list[Any], what: signal.Signals) -> None:
    for worker in workers:
        with suppress(ProcessLookupError, TypeError):  # it has ended
            os.kill(worker.pid, what)
