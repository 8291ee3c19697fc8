"""serve: open everything, say where, and run until told to stop. SIGHUP loads the model file again."""

from __future__ import annotations

import asyncio
import gc
import logging
import signal
import socket
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import uvicorn

from whatelse.errors import WhatelseError
from whatelse.server.app import create_app
from whatelse.server.background_tasks import chores, settle
from whatelse.server.security.auth import Gate
from whatelse.server.security.connections import protocol
from whatelse.server.service import Service, load_model
from whatelse.server.settings import Settings, SettingsError
from whatelse.server.worker_pools import Busy
from whatelse.server.workers import supervise
from whatelse.sources import read_visits
from whatelse.store import Store
from whatelse.tagger import Tagger
from whatelse.visits import Visit

log = logging.getLogger("whatelse.server")
KEEP_ALIVE = 30  # seconds that a connection may be idle


def open_service(settings: Settings) -> Service:
    """Load the model, read the visits, open the database."""
    settings.check()
    tagger = load_model(settings.model, settings.trusted_keys)
    store = Store(settings.database)
    try:
        return Service(settings, store, tagger, _visits(settings, tagger))
    except BaseException:
        store.close()
        raise


def _visits(settings: Settings, tagger: Tagger) -> list[Visit]:
    """The visits of the files, read as the model's own were; rows that cannot be used are left out and counted."""
    if not settings.visits:
        return []
    how = dict(settings.visits_options)
    reader = read_visits(settings.visits, how.pop("source"), **how, on_error="skip", like=tagger.vocabulary_.source)
    visits = list(reader)
    for kind, count in sorted(reader.left_out.items()):
        log.warning("left out %d rows of the visits: %s", count, kind)
    return visits


def serve(settings: Settings, announce: Callable[[str], None]) -> None:
    """Serve until SIGINT or SIGTERM. `announce` gets the URL once the service listens."""
    if settings.workers > 1:
        settings.check()
        supervise(settings, announce, _serve)
    else:
        _serve(settings, announce)


def _serve(settings: Settings, announce: Callable[[str], None]) -> None:
    """Serve in this process."""
    service, usual = open_service(settings), gc.get_threshold()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))  # uvicorn raises it again when done; the rest is closed too
    try:
        Gate(service).check()
        listening = listen(settings)
        settle()
        # uvicorn raises Ctrl-C again when all is closed: that is how serving ends
        with suppress(KeyboardInterrupt), asyncio.Runner(loop_factory=_loop_factory()) as runner:
            runner.run(_run(service, listening, announce))
    finally:
        gc.unfreeze()  # or libraries complain at the end about what was never freed
        gc.set_threshold(*usual)
        service.close()


def listen(settings: Settings) -> socket.socket:
    """A socket on the address and port of the settings; SettingsError if they cannot be had."""
    family = socket.AF_INET6 if ":" in settings.host else socket.AF_INET
    try:
        made = socket.create_server(
            (settings.host.strip("[]"), settings.port), family=family, backlog=2048, reuse_port=settings.workers > 1
        )
    except OSError as error:
        raise SettingsError(
            f"cannot listen on {settings.host} port {settings.port} ({error.strerror}); choose another --port"
        ) from None
    # head and body of an answer are two writes: without this the second waits for the client, 40 ms, where the
    # event loop does not see to it
    made.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return made


def server_of(service: Service) -> uvicorn.Server:
    """The server of a service, with the limits of its settings."""
    config = uvicorn.Config(
        create_app(service),
        http=protocol(service),
        ws="none",
        log_config=None,
        log_level="error",  # a line for each malformed request is a stranger's way to fill a disk
        access_log=False,
        server_header=False,
        proxy_headers=False,
        timeout_keep_alive=KEEP_ALIVE,
        timeout_graceful_shutdown=10,
    )
    return uvicorn.Server(config)


async def _run(service: Service, listening: socket.socket, announce: Callable[[str], None]) -> None:
    settings, server = service.settings, server_of(service)
    if hasattr(signal, "SIGHUP"):
        asyncio.get_running_loop().add_signal_handler(signal.SIGHUP, lambda: _reload(service))
    port = listening.getsockname()[1]
    host = f"[{settings.host}]" if ":" in settings.host and not settings.host.startswith("[") else settings.host
    announce(f"http://{host}:{port}/")
    beside = [asyncio.create_task(chores(service))]
    if settings.watch_model:
        beside.append(asyncio.create_task(_watch(service)))
    try:
        await server.serve(sockets=[listening])
    finally:
        for task in beside:
            task.cancel()


async def _watch(service: Service) -> None:
    """Load the model file whenever another one has taken its place, as `whatelse refit` puts it there."""
    seen = _stamp(service.settings.model)
    while True:
        await asyncio.sleep(service.settings.watch_model)
        if (now := _stamp(service.settings.model)) not in (seen, None) and _reload(service):
            seen = now


def _stamp(path: Path) -> tuple[int, int, int] | None:
    """What changes when a file is replaced; None while there is none."""
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_ino, found.st_mtime_ns, found.st_size


def _reload(service: Service) -> bool:
    """Load in a thread: requests go on being answered by the old model meanwhile. False if too much waits already."""

    def work() -> None:
        try:
            log.warning("model loaded again: digest=%s", service.reload())
        except WhatelseError as refused:
            log.error("the old model goes on serving: %s", refused)
        except Exception as error:  # nobody waits for this work: it is said here or nowhere
            log.error("the old model goes on serving: error=%s", type(error).__name__)

    try:
        service.pools.slow.submit(work)
    except Busy:
        log.error("the old model goes on serving: too much waits to load another now")
        return False
    return True


def _loop_factory() -> Callable[[], asyncio.AbstractEventLoop] | None:
    try:
        import uvloop
    except ImportError:  # not on Windows
        return None
    factory: Callable[[], asyncio.AbstractEventLoop] = uvloop.new_event_loop
    return factory
