"""Store: records decisions and audit lines, many of them in one commit, and reads them back.

One thread writes. Whatever has been asked for while the last commit was on its way to the disk goes into the next one,
so the disk's latency limits how long a decision takes, not how many there are. The head of the chain is locked first:
processes that share a database write one after another, each on what is there by then.
"""

from __future__ import annotations

import logging
import math
import queue
import secrets
import threading
import time
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass, fields
from datetime import UTC, datetime
from itertools import starmap
from typing import Any

import sqlalchemy as sa

from whatelse.errors import WhatelseError
from whatelse.store import chain, history, schema
from whatelse.store.access import Access
from whatelse.store.audit import Event
from whatelse.store.engine import StoreError, open_engine, reading, writing
from whatelse.store.history import Decision, Entry, Line, Recorded, Reused, State

log = logging.getLogger("whatelse.store")
BATCH = 256  # decisions in one commit, at most
CHUNK = 500  # parameters of one IN (…)
PAGE = 2_000  # lines of an export read at a time
GATHER = 0.1  # seconds that audit lines wait for company, unless a decision is there to go with
RETRY = 1.0  # seconds between tries to write audit lines while the database is away
PATIENCE = 35.0  # seconds that `ping` waits for a commit
BACKLOG = 20_000  # audit lines that wait for a database, at most
_TABLE = schema.decision
_COLUMNS = [_TABLE.c[field.name] for field in fields(Entry)]
_BRIEF = _COLUMNS[: len(Line.__slots__)]  # what a state is made of, without times and JSON to take apart


@dataclass(slots=True, eq=False)
class _Wanted:
    """A decision that waits for its commit; None: only whether a commit succeeds is wanted."""

    decision: Decision | None
    future: Future[Any]


class Store:
    """Decisions in the database at `url`. Threads may share it; `close` it."""

    def __init__(self, url: str) -> None:
        self.engine = open_engine(url)
        self.access = Access(self.engine)
        self._events: list[Event] = []  # the writer's own: lines that no commit has taken yet
        self._waiting = 0  # audit lines asked for and not written
        self.committed = -math.inf  # when the last commit succeeded (time.monotonic), unless one has failed since
        self._queue: queue.SimpleQueue[_Wanted | Event | None] = queue.SimpleQueue()  # None ends the thread
        self._closed = False
        self._trying: Future[None] = Future()  # the last pulse
        self._trying.set_result(None)
        self._writer = threading.Thread(target=self._write, name="whatelse-writer", daemon=True)
        self._writer.start()

    def close(self) -> None:
        if not self._closed:
            self._closed = True
            self._queue.put(None)
            self._writer.join()
        self.engine.dispose()

    # ---- writing

    def record(self, decision: Decision) -> Future[Recorded]:
        """Ask for a decision; the result is there once it is durable. Raises Conflict, Reused or StoreError in it."""
        if self._closed:
            raise StoreError("the store is closed")
        future: Future[Recorded] = Future()
        try:
            history.check(decision)
        except Reused as refused:
            future.set_exception(refused)
        else:
            self._queue.put(_Wanted(decision, future))
        return future

    def note(self, event: Event) -> None:
        """Add to the audit, soon. StoreError when too many lines wait for the database: then nothing may go on."""
        if self.behind:
            raise StoreError("the audit cannot be written; nothing that it should show may happen now")
        self._waiting += 1
        self._queue.put(event)

    @property
    def behind(self) -> bool:
        """Whether the audit has fallen so far behind that what it should show must wait."""
        return self._closed or self._waiting >= BACKLOG

    def pulse(self) -> Future[None]:
        """Try a commit, one at a time; StoreError in the future if the database, its disk or the writer fails."""
        if self._trying.done():
            self._trying = Future()
            if self._closed or not self._writer.is_alive():
                self._trying.set_exception(StoreError("the writer has stopped"))
            else:
                self._queue.put(_Wanted(None, self._trying))
        return self._trying

    def _write(self) -> None:
        last = False
        while not last:
            batch, last = self._gather()
            batch = [item for item in batch if item.future.set_running_or_notify_cancel()]
            events, self._events = self._events, []
            if batch or events:
                self._commit(batch, events)

    def _gather(self) -> tuple[list[_Wanted], bool]:
        """What there is to write. Waits for the first, and a little longer if it is only for the audit."""
        batch: list[_Wanted] = []
        until = time.monotonic() + RETRY if self._events else None  # left over: the database was away
        seen = 0
        while len(batch) < BATCH and seen < 4 * BATCH:
            patience = None if until is None else max(0.0, until - time.monotonic())
            try:
                item = self._queue.get(block=not batch, timeout=patience)
            except queue.Empty:
                break
            seen += 1
            if item is None:
                return batch, True
            if isinstance(item, Event):
                self._events.append(item)
                until = min(until or math.inf, time.monotonic() + GATHER)
            else:
                batch.append(item)
        return batch, False

    def _commit(self, batch: list[_Wanted], events: list[Event]) -> None:
        try:
            outcomes = self._insist([item.decision for item in batch], events)
        except Exception as error:  # whatever it is, nobody is told that their decision was kept
            away = _is_away(error)
            if not away and len(batch) + len(events) > 1:  # one of them cannot be stored: it is to fail alone
                b, e = (len(batch), 0) if batch and events else (len(batch) // 2, len(events) // 2)
                self._commit(batch[:b], events[:e])
                self._commit(batch[b:], events[e:])
                return
            self.committed = -math.inf
            failed = StoreError(f"the database did not take the decision ({type(error).__name__})")
            for item in batch:
                item.future.set_exception(failed)
            if away and not self._closed:
                self._events += events
            elif events:
                self._waiting -= len(events)
                log.error("audit lines were not taken: lines=%d error=%s", len(events), type(error).__name__)
            return
        self._waiting -= len(events)
        self.committed = time.monotonic()
        for item, outcome in zip(batch, outcomes, strict=True):
            if isinstance(outcome, Exception):
                item.future.set_exception(outcome)
            else:
                item.future.set_result(outcome)

    def _insist(self, batch: list[Decision | None], events: list[Event]) -> list[Recorded | Exception | None]:
        for _ in range(4):
            try:
                return self._apply(batch, events)
            except sa.exc.IntegrityError:  # what was read has changed meanwhile: look again
                continue
        return self._apply(batch, events)

    def _apply(self, batch: list[Decision | None], events: list[Event]) -> list[Recorded | Exception | None]:
        """Judge a batch in order and insert what is accepted, with the audit's lines, in one transaction."""
        outcomes: list[Recorded | Exception] = []
        decisions, now = [wanted for wanted in batch if wanted is not None], datetime.now(UTC)
        with self.engine.connect().execution_options(writes=True) as connection, connection.begin():
            if decisions:
                head = chain.lock(connection, _TABLE)
                outcomes = self._judge(connection, decisions, now)
                new = [done.entry for done in outcomes if isinstance(done, Recorded) and not done.repeated]
                if new:
                    rows = [{c.name: getattr(line, c.name) for c in _COLUMNS} for line in new]
                    chain.append(connection, _TABLE, rows, head)
            if events:
                head = chain.lock(connection, schema.audit)
                chain.append(connection, schema.audit, [event.row() for event in events], head)
            if None in batch:
                beat = {"name": "writer", "at": now}
                connection.execute(schema.pulse.delete().where(schema.pulse.c.name == "writer"))
                connection.execute(schema.pulse.insert(), [beat])
        judged = iter(outcomes)
        return [None if wanted is None else next(judged) for wanted in batch]

    def _judge(self, connection: sa.Connection, batch: list[Decision], now: datetime) -> list[Recorded | Exception]:
        """What is said to each of those who asked; lines that are not repeated are to be written."""
        outcomes: list[Recorded | Exception] = []
        histories = _brief(connection, {d.visit for d in batch})
        requests = _rows(connection, _WHOLE_OF_REQUESTS, {d.request for d in batch})
        known = {line.request: line for line in starmap(Entry, requests)}
        for wanted in batch:
            lines = histories.setdefault(wanted.visit, [])
            try:
                if (earlier := known.get(wanted.request)) is not None:
                    if not history.same_request(earlier, wanted):
                        raise Reused("this request key was used for another decision; make a new one for each")
                    outcomes.append(Recorded(earlier, history.state_of(lines), repeated=True))
                    continue
                line = history.next_line(lines, wanted, now)
            except WhatelseError as refused:
                # without the frames it came through: they hold `outcomes`, and only the garbage collector, which stops
                # everybody, would find that nobody needs either
                outcomes.append(refused.with_traceback(None))
                continue
            lines.append(line)
            known[line.request] = line
            outcomes.append(Recorded(line, history.state_of(lines)))
        return outcomes

    # ---- reading

    def history(self, visit: str) -> list[Entry]:
        with reading(self.engine) as connection:
            return list(starmap(Entry, _rows(connection, _WHOLE_OF_VISITS, [visit])))

    def version(self, visit: str) -> int:
        """How many lines a visit has."""
        with reading(self.engine) as connection:
            return connection.execute(_VERSION, {"visit": visit}).scalar() or 0

    def state(self, visit: str) -> State:
        """What is decided about a visit now."""
        return self.states([visit]).get(visit, State())

    def states(self, visits: Sequence[str]) -> dict[str, State]:
        """What is decided about each of many visits now; those that nobody decided on are left out."""
        with reading(self.engine) as connection:
            histories = _brief(connection, visits)
        return {visit: history.state_of(lines) for visit, lines in histories.items()}

    def decided(self) -> set[str]:
        """Visits with a decision that stands: one that was not taken back or reopened."""
        line, later = _TABLE.c, _TABLE.alias().c
        same = (later.visit == line.visit, later.kind == line.kind, later.subject == line.subject)
        replaced = sa.exists().where(*same, later.version > line.version)
        standing = sa.select(line.visit).where(line.verdict != "open", ~replaced).distinct()
        with reading(self.engine) as connection:
            return set(connection.execute(standing).scalars())

    def ping(self) -> None:
        """StoreError unless the writer lives and the database can be written to."""
        try:
            self.pulse().result(PATIENCE)
        except TimeoutError:
            raise StoreError("the database does not answer (TimeoutError)") from None

    def secret(self, name: str) -> bytes:
        """A random key that stays the same for this database, made when it is first asked for."""
        table = schema.secret
        with reading(self.engine) as connection:
            found = connection.execute(sa.select(table.c.value).where(table.c.name == name)).scalar()
        if found is not None:
            return bytes.fromhex(found)
        with suppress(sa.exc.IntegrityError), writing(self.engine) as connection:  # another process made it first
            connection.execute(table.insert().values(name=name, value=secrets.token_hex(32)))
        return self.secret(name)

    def tag_lines(self) -> Iterator[Entry]:
        """Every line that is a label of a tag, by visit and version, page by page. Dismissed cards are left out.

        Between two pages no connection is held.
        """
        place = sa.tuple_(_TABLE.c.visit, _TABLE.c.version)
        query = sa.select(*_COLUMNS).where(_TABLE.c.kind == "tag").order_by(_TABLE.c.visit, _TABLE.c.version)
        rows: Sequence[Any] = ()
        while True:
            after = query.where(place > (rows[-1].visit, rows[-1].version)) if rows else query
            with reading(self.engine) as connection:
                rows = connection.execute(after.limit(PAGE)).all()
            if not rows:
                return
            yield from (line for line in starmap(Entry, rows) if not dismissed(line))

    # ---- models that have served

    def serving(self, digest: str) -> None:
        """Say that a model serves from now on; other processes on this database look for it."""
        if self.newest_model() != digest:
            with writing(self.engine) as connection:
                connection.execute(schema.served.insert().values(digest=digest, at=datetime.now(UTC)))

    def newest_model(self) -> str | None:
        with reading(self.engine) as connection:
            query = sa.select(schema.served.c.digest).order_by(schema.served.c.id.desc()).limit(1)
            return connection.execute(query).scalar()

    def has_served(self, digest: str) -> bool:
        with reading(self.engine) as connection:
            query = sa.select(schema.served.c.id).where(schema.served.c.digest == digest).limit(1)
            return connection.execute(query).scalar() is not None


def _is_away(error: Exception) -> bool:
    """Whether the database is at fault, and not what was to be written: then trying line by line is of no use."""
    faults = (sa.exc.OperationalError, sa.exc.InterfaceError, sa.exc.InternalError, sa.exc.TimeoutError)
    return isinstance(error, (*faults, sa.exc.IntegrityError))


def _among(columns: Sequence[sa.Column[Any]], where: sa.Column[Any]) -> sa.Select[Any]:
    """A query for rows whose `where` is among `values`, by visit and version. Made once: making one costs more than
    running it."""
    chosen = sa.select(*columns).where(where.in_(sa.bindparam("values", expanding=True)))
    return chosen.order_by(_TABLE.c.visit, _TABLE.c.version)


_VERSION = sa.select(sa.func.max(_TABLE.c.version)).where(_TABLE.c.visit == sa.bindparam("visit"))
_BRIEF_OF_VISITS = _among(_BRIEF, _TABLE.c.visit)
_WHOLE_OF_VISITS = _among(_COLUMNS, _TABLE.c.visit)
_WHOLE_OF_REQUESTS = _among(_COLUMNS, _TABLE.c.request)


def _rows(connection: sa.Connection, query: sa.Select[Any], values: Iterable[str]) -> Iterator[Any]:
    """The rows of a query of `_among`, in as many steps as a database takes parameters."""
    wanted = list(values)
    for start in range(0, len(wanted), CHUNK):
        yield from connection.execute(query, {"values": wanted[start : start + CHUNK]}).all()


def _brief(connection: sa.Connection, visits: Iterable[str]) -> dict[str, list[Line]]:
    """Visit -> its history in brief; visits without one are left out."""
    histories: dict[str, list[Line]] = {}
    for row in _rows(connection, _BRIEF_OF_VISITS, visits):
        histories.setdefault(row[0], []).append(Line(*row))
    return histories


def dismissed(line: Entry) -> bool:
    """Whether a line is a card of an EHR that was dismissed, which versions up to 0.2 recorded as a rejection.

    Only the reasons "not-present" and "ruled-out" say that the patient does not have the condition.
    """
    shown = line.shown
    return line.verdict == "rejected" and "card" in shown and shown.get("reason") not in ("not-present", "ruled-out")
