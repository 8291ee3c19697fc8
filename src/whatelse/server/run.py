"""serve: open everything, say where, and run until told to stop. SIGHUP loads the model file again."""

from __future__ import annotations

import asyncio
import gc
import logging
import signal
import socket
import sys
import time
from collections.abc import Callable
from contextlib import suppress

import uvicorn

from whatelse.errors import WhatelseError
from whatelse.io.files import stamp
from whatelse.server.app import create_app
from whatelse.server.ehr.cds import log as cards
from whatelse.server.ehr.smart import launches
from whatelse.server.security.auth import Gate
from whatelse.server.security.connections import protocol
from whatelse.server.service import Service, load_model
from whatelse.server.settings import Settings
from whatelse.server.worker_pools import Busy
from whatelse.server.workers import listen, supervise
from whatelse.sources import read_visits
from whatelse.store import Store, audit
from whatelse.tagger import Tagger
from whatelse.visits import Visit

log = logging.getLogger("whatelse.server")
KEEP_ALIVE = 30  # seconds that a connection may be idle
LOOK = 1.0  # seconds between looks at which model serves
PRUNE = 3600.0  # seconds between looks for what is old enough to go
SWEEP, AT_LAST = 600.0, 3600.0  # seconds between full collections: when nobody waits, and whoever waits
YOUNG, OLDER, NEVER = 2_000, 10, 1_000_000  # thresholds of the collector's three generations


def open_service(settings: Settings) -> Service:
    """Load the model, read the visits, open the database. The settings are checked by `serve` and `load_settings`."""
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
    settings.check()
    if settings.workers > 1:
        supervise(settings, announce, _serve)
    else:
        _serve(settings, announce)


def _serve(settings: Settings, announce: Callable[[str], None]) -> None:
    service, usual = open_service(settings), gc.get_threshold()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))  # uvicorn raises it again when done; the rest is closed too
    try:
        Gate(service).check()
        listening = listen(settings)
        settle()
        # uvicorn raises Ctrl-C again when all is closed: that is how serving ends
        server = server_of(service)
        with suppress(KeyboardInterrupt), asyncio.Runner(loop_factory=server.config.get_loop_factory()) as runner:
            runner.run(_run(service, server, listening, announce))
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


async def _run(
    service: Service, server: uvicorn.Server, listening: socket.socket, announce: Callable[[str], None]
) -> None:
    settings = service.settings
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


# ---- in the background: load a model file that was replaced, or a model that another process has loaded; delete old
# lines of the audit and old cards; run the garbage collector while no request is under way


def settle() -> None:
    """Switch automatic full collections off before serving: each stops every request for 50 ms or more.

    `chores` runs full collections instead. Model, visits and libraries are exempt from them (`gc.freeze`). Small
    collections of new objects go on. A request leaves nothing for the collector: a test counts.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(YOUNG, OLDER, NEVER)


async def chores(service: Service) -> None:
    """Run for as long as the server does."""
    seen: str | None = service.tagger.digest_
    pruned, every = float("-inf"), service.settings.watch_model
    swept = looked = time.monotonic()
    known = stamp(service.settings.model) if every else None
    while True:
        if every and time.monotonic() - looked >= every:
            looked, now = time.monotonic(), stamp(service.settings.model)
            if now not in (known, None) and load_again(service):
                known = now
        since = time.monotonic() - swept
        if since > (SWEEP if service.admissions.under_way == 0 else AT_LAST):
            gc.collect()
            swept = time.monotonic()
        try:
            newest = await service.pools.access.run(service.store.newest_model)
            if newest != seen and (newest in (None, service.tagger.digest_) or load_again(service, newest)):
                seen = newest
            if time.monotonic() - pruned > PRUNE:
                pruned = time.monotonic()
                await _forget(service)
        except Exception as problem:  # a database that is away, threads that are busy: whatever it is, look again
            log.warning("chores: %s", type(problem).__name__)
        await asyncio.sleep(min(LOOK, every or LOOK))


def load_again(service: Service, following: str | None = None) -> bool:
    """Load the model file in a thread; the old model answers meanwhile. False if too much waits already.

    following: digest of the model that another process on this database serves by now
    """

    def work() -> None:
        try:
            found = service.reload(announce=following is None)
        except Exception as error:  # nobody waits for this work: it is said here or nowhere
            said = error if isinstance(error, WhatelseError) else f"error={type(error).__name__}"
            log.error("the old model goes on serving: %s", said)
            return
        log.warning("model loaded again: digest=%s", found)
        if following not in (None, found):
            log.error("another process serves another model than the file here: digest=%s", following)

    try:
        service.pools.slow.submit(work)
    except Busy:
        log.error("the old model goes on serving: too much waits to load another now")
        return False
    return True


async def _forget(service: Service) -> None:
    settings, engine = service.settings, service.store.engine
    if settings.audit_days:
        count = await service.pools.slow.run(audit.prune, engine, settings.audit_days)
        log.info("audit lines removed by age: %d", count)
    if settings.cds_days:
        count = await service.pools.slow.run(cards.prune, engine, settings.cds_days)
        log.info("cards and looks removed by age: %d", count)
    if settings.smart_client_id:
        await service.pools.slow.run(launches.prune, engine)
