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

import uvicorn

from whatelse.server.app import create_app
from whatelse.server.background_tasks import chores, load_again, settle
from whatelse.server.security.auth import Gate
from whatelse.server.security.connections import protocol
from whatelse.server.service import Service, load_model
from whatelse.server.settings import Settings
from whatelse.server.workers import listen, supervise
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


def server_of(service: Service) -> uvicorn.Server:
    """The server of a service, with the limits of its settings."""
    config = uvicorn.Config(
        create_app(service),
        http=protocol(service.settings),
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
        asyncio.get_running_loop().add_signal_handler(signal.SIGHUP, lambda: load_again(service))
    port = listening.getsockname()[1]
    host = f"[{settings.host}]" if ":" in settings.host and not settings.host.startswith("[") else settings.host
    announce(f"http://{host}:{port}/")
    beside = asyncio.create_task(chores(service))
    try:
        await server.serve(sockets=[listening])
    finally:
        beside.cancel()


def _loop_factory() -> Callable[[], asyncio.AbstractEventLoop] | None:
    try:
        import uvloop
    except ImportError:  # not on Windows
        return None
    factory: Callable[[], asyncio.AbstractEventLoop] = uvloop.new_event_loop
    return factory
