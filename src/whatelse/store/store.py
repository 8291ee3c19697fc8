"""Store: records decisions, many of them in one commit, and reads them back.

One thread writes. Whatever has been asked for while the last commit was on its way to the disk goes into the next one,
so the disk's latency limits how long a decision takes, not how many there are. The unique keys of the table hold
between processes: if another one was faster, the batch is judged again on what is there now.
"""

from __future__ import annotations

import queue
import secrets
import threading
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import Future
from dataclasses import fields, replace
from datetime import UTC, datetime
from typing import Any

import sqlalchemy as sa

from whatelse.errors import WhatelseError
from whatelse.store import schema
from whatelse.store.access import Access
from whatelse.store.engine import StoreError, open_engine
from whatelse.store.history import Decision, Entry, Line, Recorded, Reused, State, next_line, same_request, state_of

BATCH = 256  # decisions in one commit, at most
CHUNK = 500  # parameters of one IN (…)
_TABLE = schema.decision
_COLUMNS = [_TABLE.c[field.name] for field in fields(Entry)]
_BRIEF = _COLUMNS[: len(Line.__slots__)]  # what a state is made of, without times and JSON to take apart
_Waiting = tuple[Decision, "Future[Recorded]"]


class Store:
    """Decisions in the database at `url`. Threads may share it; `close` it."""

    def __init__(self, url: str) -> None:
        self.engine = open_engine(url)
        self.access = Access(self.engine)
        self._queue: queue.SimpleQueue[_Waiting | None] = queue.SimpleQueue()
        self._closed = False
        self._writer = threading.Thread(target=self._write, name="whatelse-writer", daemon=True)
        self._writer.start()

    def close(self) -> None:
        """Finish what was asked for and disconnect."""
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
        self._queue.put((decision, future))
        return future

    def _write(self) -> None:
        while (first := self._queue.get()) is not None:
            batch, last = [first], False
            while len(batch) < BATCH and not self._queue.empty():
                if (item := self._queue.get()) is None:
                    last = True
                    break
                batch.append(item)
            self._commit([item for item in batch if item[1].set_running_or_notify_cancel()])
            if last:
                return

    def _commit(self, batch: list[_Waiting]) -> None:
        for attempt in range(5):
            try:
                outcomes = self._apply([decision for decision, _ in batch])
                break
            except sa.exc.IntegrityError:  # another process wrote to one of these visits meanwhile: look again
                if attempt == 4:
                    outcomes = [StoreError("the database is too busy; try again")] * len(batch)
            except Exception as error:  # whatever it is, nobody is told that their decision was kept
                outcomes = [StoreError(f"the database did not take the decision ({type(error).__name__})")] * len(batch)
                break
        for (_, future), outcome in zip(batch, outcomes, strict=True):
            if isinstance(outcome, Exception):
                future.set_exception(outcome)
            else:
                future.set_result(outcome)

    def _apply(self, batch: list[Decision]) -> list[Recorded | Exception]:
        """Judge a batch in order and insert what is accepted, in one transaction."""
        outcomes: list[Recorded | Exception] = []
        new: list[Entry] = []
        now = datetime.now(UTC)
        with self.engine.connect().execution_options(writes=True) as connection, connection.begin():
            histories = _brief(connection, {d.visit for d in batch})
            requests = _rows(connection, _WHOLE_OF_REQUESTS, {d.request for d in batch})
            known = {line.request: line for line in map(entry, requests)}
            for wanted in batch:
                history = histories.setdefault(wanted.visit, [])
                try:
                    if (earlier := known.get(wanted.request)) is not None:
                        if not same_request(earlier, wanted):
                            raise Reused("this request key was used for another decision; make a new one for each")
                        outcomes.append(Recorded(earlier, state_of(history), repeated=True))
                        continue
                    line = next_line(history, wanted, now)
                except WhatelseError as refused:
                    outcomes.append(refused)
                    continue
                history.append(line)
                known[line.request] = line
                new.append(line)
                outcomes.append(Recorded(line, state_of(history)))
            if new:
                connection.execute(_TABLE.insert(), [{c.name: getattr(line, c.name) for c in _COLUMNS} for line in new])
        return outcomes

    # ---- reading

    def history(self, visit: str) -> list[Entry]:
        """All lines of a visit, oldest first."""
        with self.engine.connect() as connection:
            return list(map(entry, _rows(connection, _WHOLE_OF_VISITS, [visit])))

    def version(self, visit: str) -> int:
        """How many lines a visit has."""
        with self.engine.connect() as connection:
            return connection.execute(_VERSION, {"visit": visit}).scalar() or 0

    def state(self, visit: str) -> State:
        """What is decided about a visit now."""
        return self.states([visit]).get(visit, State())

    def states(self, visits: Sequence[str]) -> dict[str, State]:
        """The same for many; visits nobody decided on are left out."""
        with self.engine.connect() as connection:
            histories = _brief(connection, visits)
        return {visit: state_of(lines) for visit, lines in histories.items()}

    def decided(self) -> set[str]:
        """Visits with any decision in their history."""
        with self.engine.connect() as connection:
            return set(connection.execute(sa.select(_TABLE.c.visit).distinct()).scalars())

    def ping(self) -> None:
        """StoreError unless the database answers and the writer lives."""
        if self._closed or not self._writer.is_alive():
            raise StoreError("the writer has stopped")
        try:
            with self.engine.connect() as connection:
                connection.execute(sa.select(1))
        except sa.exc.SQLAlchemyError as error:
            raise StoreError(f"the database does not answer ({type(error).__name__})") from None

    def secret(self, name: str) -> bytes:
        """A random key that stays the same for this database, made when it is first asked for."""
        table = schema.secret
        for _ in range(2):
            with self.engine.connect().execution_options(writes=True) as connection:
                found = connection.execute(sa.select(table.c.value).where(table.c.name == name)).scalar()
                if found is not None:
                    return bytes.fromhex(found)
                try:
                    connection.execute(table.insert().values(name=name, value=secrets.token_hex(32)))
                    connection.commit()
                except sa.exc.IntegrityError:  # another process made it first
                    connection.rollback()
        return self.secret(name)

    def tag_lines(self) -> Iterator[Entry]:
        """Every line about a tag, by visit and version, streamed."""
        query = sa.select(*_COLUMNS).where(_TABLE.c.kind == "tag").order_by(_TABLE.c.visit, _TABLE.c.version)
        with self.engine.connect().execution_options(yield_per=5_000) as connection:
            yield from map(entry, connection.execute(query))


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


def entry(row: Any) -> Entry:
    """A row of the table. SQLite gives times back without their zone; what was put in is UTC."""
    line = Entry(*row)
    return line if line.at.tzinfo else replace(line, at=line.at.replace(tzinfo=UTC))
