"""Background tasks of the server: load a model file that was replaced, load a model that another process has loaded,
delete old lines of the audit and old cards, run the garbage collector while no request is under way.
"""

from __future__ import annotations

import asyncio
import gc
import logging
import time
from pathlib import Path

from whatelse.errors import WhatelseError
from whatelse.server.ehr.cds import log as cards
from whatelse.server.ehr.smart import launches
from whatelse.server.service import Service
from whatelse.server.worker_pools import Busy
from whatelse.store import audit

log = logging.getLogger("whatelse.server")
LOOK = 1.0  # seconds between looks at which model serves
PRUNE = 3600.0  # seconds between looks for what is old enough to go
SWEEP, AT_LAST = 600.0, 3600.0  # seconds between full collections: when nobody waits, and whoever waits
YOUNG, OLDER, NEVER = 2_000, 10, 1_000_000  # thresholds of the collector's three generations


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
    seen, pruned, every = service.tagger.digest_, float("-inf"), service.settings.watch_model
    swept = looked = time.monotonic()
    stamp = _stamp(service.settings.model) if every else None
    while True:
        if every and time.monotonic() - looked >= every:
            looked, now = time.monotonic(), _stamp(service.settings.model)
            if now not in (stamp, None) and load_again(service):
                stamp = now
        since = time.monotonic() - swept
        if since > (SWEEP if service.admissions.under_way == 0 else AT_LAST):
            gc.collect()
            swept = time.monotonic()
        try:
            newest = await service.pools.access.run(service.store.newest_model)
            if newest is not None and newest != seen:
                await _follow(service, newest)
                seen = newest
            if time.monotonic() - pruned > PRUNE:
                pruned = time.monotonic()
                await _forget(service)
        except Exception as problem:  # a database that is away, threads that are busy: whatever it is, look again
            log.warning("chores: %s", type(problem).__name__)
        await asyncio.sleep(min(LOOK, every or LOOK))


def load_again(service: Service) -> bool:
    """Load the model file in a thread; the old model answers meanwhile. False if too much waits already."""

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


def _stamp(path: Path) -> tuple[int, int, int] | None:
    """What changes when a file is replaced; None while there is none."""
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_ino, found.st_mtime_ns, found.st_size


async def _forget(service: Service) -> None:
    """Remove what the settings say is old enough."""
    settings, engine = service.settings, service.store.engine
    if settings.audit_days:
        count = await service.pools.slow.run(audit.prune, engine, settings.audit_days)
        log.info("audit lines removed by age: %d", count)
    if settings.cds_days:
        count = await service.pools.slow.run(cards.prune, engine, settings.cds_days)
        log.info("cards and looks removed by age: %d", count)
    if settings.smart_client_id:
        await service.pools.slow.run(launches.prune, engine)


async def _follow(service: Service, digest: str) -> None:
    """Another process on this database serves another model by now: load ours again, and do not announce it."""
    if digest == service.tagger.digest_:
        return
    try:
        found = await service.pools.slow.run(service.reload, False)
    except WhatelseError as refused:
        log.error("another process has loaded a model; the old one goes on serving here: %s", refused)
        return
    if found == digest:
        log.warning("model loaded again, as another process did: digest=%s", found)
    else:
        log.error("another process serves another model than the file here: digest=%s", found)
