"""Workers: several processes that serve on one port and one PostgreSQL database, and one that looks after them.

Each worker listens on a socket of its own with SO_REUSEPORT, once it is ready; the kernel spreads connections over
them. A worker that dies is started again; SIGHUP loads the model again in one, and the others follow by the database.
"""

from __future__ import annotations

import logging
import os
import select
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable

from whatelse.errors import WhatelseError
from whatelse.server.settings import Settings, SettingsError

log = logging.getLogger("whatelse.server")
START_SECONDS = 300.0
Serve = Callable[[Settings, Callable[[str], None]], None]


def supervise(settings: Settings, announce: Callable[[str], None], serve: Serve) -> None:
    """Run `settings.workers` processes of `serve` until SIGINT or SIGTERM; SettingsError if one cannot start."""
    if not hasattr(os, "fork") or not hasattr(socket, "SO_REUSEPORT"):
        raise SettingsError("more than one worker needs a system with fork and SO_REUSEPORT; run one")
    with _reserve(settings) as reserved:
        one = settings.model_copy(update={"port": reserved.getsockname()[1]})
        workers: dict[int, float] = {}
        stopping = False

        def stop(*_: object) -> None:
            nonlocal stopping
            stopping = True
            _tell(list(workers), signal.SIGTERM)

        held, parent_end = os.pipe()  # closed with this process, however it ends
        signal.signal(signal.SIGTERM, stop)
        signal.signal(signal.SIGINT, stop)
        signal.signal(signal.SIGHUP, lambda *_: _tell(list(workers)[:1], signal.SIGHUP))
        try:
            started = [_fork(one, serve, workers, held, parent_end) for _ in range(settings.workers)]
            urls = [_await(workers, number, heard) for number, heard in started]
            announce(urls[0])
            while workers:
                _look_after(one, serve, workers, held, parent_end, lambda: stopping)
        finally:
            _tell(list(workers), signal.SIGTERM)
            for number in list(workers):
                _wait(number)
            os.close(parent_end)
            os.close(held)


def _reserve(settings: Settings) -> socket.socket:
    """The port, bound and not listened on: workers bind it too."""
    made = socket.socket(socket.AF_INET6 if ":" in settings.host else socket.AF_INET)
    made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
    try:
        made.bind((settings.host.strip("[]"), settings.port))
    except OSError as error:
        made.close()
        raise SettingsError(
            f"cannot listen on {settings.host} port {settings.port} ({error.strerror}); choose another --port"
        ) from None
    return made


def _fork(settings: Settings, serve: Serve, workers: dict[int, float], held: int, parent_end: int) -> tuple[int, int]:
    """Start a worker: its process, and the pipe by which it says that it is ready."""
    heard, say = os.pipe()
    number = os.fork()
    if number == 0:
        os.close(heard)
        os.close(parent_end)
        _work(settings, serve, say, held)
    os.close(say)
    workers[number] = time.monotonic()
    return number, heard


def _await(workers: dict[int, float], number: int, heard: int) -> str:
    """Wait until a worker is ready; its URL."""
    with os.fdopen(heard, encoding="utf-8") as pipe:
        ready, _, _ = select.select([pipe], [], [], START_SECONDS)
        said = pipe.readline() if ready else ""
    if not said.startswith("http"):
        workers.pop(number, None)
        _tell([number], signal.SIGKILL)
        _wait(number)
        raise SettingsError(f"a worker did not start: {said.strip() or 'it ended without a word'}")
    return said.strip()


def _work(settings: Settings, serve: Serve, say: int, held: int) -> None:
    """What a worker does; never returns."""
    status = 1
    try:
        for name in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            signal.signal(name, signal.SIG_DFL)
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches all; the parent says when
        threading.Thread(target=_end_with_parent, args=(held,), daemon=True).start()

        def ready(url: str) -> None:
            with os.fdopen(say, "w", encoding="utf-8") as pipe:
                pipe.write(url + "\n")

        serve(settings, ready)
        status = 0
    except SystemExit:
        status = 0
    except BaseException as error:
        try:
            os.write(say, f"{_said(error)}\n".encode())
        except OSError:  # it was ready: nobody listens there any more
            log.error("a worker failed: error=%s", type(error).__name__)
    finally:
        sys.stdout.flush()
        os._exit(status)


def _said(error: BaseException) -> str:
    """Kind and, where the message is sure to quote no record, message of an error, on one line."""
    safe = isinstance(error, WhatelseError | OSError | ImportError)
    return " ".join(f"{type(error).__name__}: {error if safe else ''}".split())


def _end_with_parent(held: int) -> None:
    """Nothing is ever written to this pipe: it ends when the parent does, even by SIGKILL."""
    os.read(held, 1)
    os.kill(os.getpid(), signal.SIGTERM)


def _look_after(
    settings: Settings,
    serve: Serve,
    workers: dict[int, float],
    held: int,
    parent_end: int,
    stopping: Callable[[], bool],
) -> None:
    """Wait for a worker to end; start another unless all are to stop."""
    try:
        number, status = os.waitpid(-1, os.WNOHANG)
    except ChildProcessError:
        workers.clear()
        return
    if number == 0:
        time.sleep(0.2)
        return
    since = workers.pop(number, None)
    if since is None or stopping():
        return
    log.error("a worker ended: status=%d; starting another", os.waitstatus_to_exitcode(status))
    time.sleep(max(0.0, 1.0 - (time.monotonic() - since)))  # one that ends at once is not to keep a core busy
    while not stopping():
        try:
            _await(workers, *_fork(settings, serve, workers, held, parent_end))
            return
        except SettingsError as problem:
            log.error("%s", problem)
            time.sleep(5.0)


def _tell(numbers: list[int], what: signal.Signals) -> None:
    for number in numbers:
        try:
            os.kill(number, what)
        except ProcessLookupError:
            continue


def _wait(number: int) -> None:
    try:
        os.waitpid(number, 0)
    except ChildProcessError:
        return
