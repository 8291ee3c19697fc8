"""Opens a database (SQLite with commits flushed to disk, or PostgreSQL), migrates it, and begins its transactions.

Also: the time before which lines are old enough to be removed.
"""

from __future__ import annotations

import logging
import os
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import date, datetime, timedelta
from pathlib import Path
from typing import Any

import sqlalchemy as sa
from alembic import command
from alembic.config import Config
from sqlalchemy.engine import URL, make_url

from whatelse.errors import WhatelseError

log = logging.getLogger("whatelse.store")
LIMIT = 14  # days of a hole that count; a quarter of the days to keep, if that is less
_LOCK = 7237001  # PostgreSQL advisory lock: one server migrates, the others wait

POOL: dict[str, Any] = {"pool_size": 10, "pool_timeout": 5, "hide_parameters": True}  # errors quote no row


class StoreError(WhatelseError):
    """A database that cannot be opened, is not ours, or refuses to write."""


def open_engine(url: str) -> sa.Engine:
    """Connect and migrate to the newest schema. Messages never show the password of the URL."""
    try:
        parsed = make_url(url)
        if parsed.drivername in ("postgresql", "postgres"):
            parsed = parsed.set(drivername="postgresql+psycopg")
        if parsed.get_backend_name() == "sqlite":
            engine = _sqlite(parsed)
        elif parsed.get_backend_name() == "postgresql":
            engine = _postgresql(parsed)
        else:
            raise StoreError(f"decisions are kept in sqlite or postgresql, not in {parsed.get_backend_name()!r}")
    except (sa.exc.ArgumentError, sa.exc.NoSuchModuleError):
        raise StoreError(
            "the database URL cannot be read; write sqlite:///decisions.db or postgresql://user@host/name"
        ) from None
    try:
        migrate(engine)
    except sa.exc.SQLAlchemyError as error:
        engine.dispose()
        raise StoreError(
            f"{parsed.render_as_string()}: the database cannot be opened ({type(error.__cause__ or error).__name__}); "
            "check that it runs, that the folder exists and that it may be written"
        ) from None
    return engine


@contextmanager
def reading(engine: sa.Engine) -> Iterator[sa.Connection]:
    """A connection to read with; StoreError if the database does not answer."""
    try:
        with engine.connect() as connection:
            yield connection
    except (sa.exc.DBAPIError, sa.exc.TimeoutError) as error:
        raise StoreError(f"the database does not answer ({type(error).__name__})") from None


@contextmanager
def writing(engine: sa.Engine) -> Iterator[sa.Connection]:
    """A connection for one transaction that writes; StoreError as of `reading`, an IntegrityError is left as it is."""
    try:
        with engine.connect().execution_options(writes=True) as connection, connection.begin():
            yield connection
    except sa.exc.IntegrityError:
        raise
    except (sa.exc.DBAPIError, sa.exc.TimeoutError) as error:
        raise StoreError(f"the database cannot be written to ({type(error).__name__})") from None


def _postgresql(url: URL) -> sa.Engine:
    """A server that hangs is given up after seconds, so that those who wait are told."""
    patience: dict[str, Any] = {"connect_timeout": 5, "tcp_user_timeout": 10_000, "keepalives_idle": 10}
    if "options" not in url.query:
        patience["options"] = "-c statement_timeout=15s -c lock_timeout=10s -c idle_in_transaction_session_timeout=30s"
    return sa.create_engine(url, pool_pre_ping=True, connect_args=patience, **POOL)


def _sqlite(url: URL) -> sa.Engine:
    if not url.database or url.database == ":memory:":
        raise StoreError("decisions need a file: sqlite:///decisions.db")
    if not Path(url.database).absolute().parent.is_dir():
        raise StoreError(f"{url.database}: its folder does not exist; make it first")
    _private(Path(url.database))
    patience = {"timeout": 30, "check_same_thread": False}
    engine = sa.create_engine(url, connect_args=patience, **POOL)

    @sa.event.listens_for(engine, "connect")
    def prepare(connection: sqlite3.Connection, _: Any) -> None:
        connection.isolation_level = None  # transactions begin where we say, also around DDL
        connection.execute("PRAGMA journal_mode=WAL")
        connection.execute("PRAGMA synchronous=FULL")  # a commit returns when it is on the disk
        connection.execute("PRAGMA foreign_keys=ON")

    @sa.event.listens_for(engine, "begin")
    def begin(connection: sa.Connection) -> None:
        if connection.get_execution_options().get("writes", False):  # a single SELECT is a transaction of its own
            connection.exec_driver_sql("BEGIN IMMEDIATE")

    return engine


def _private(path: Path) -> None:
    """Nobody else on this machine reads who decided what. SQLite gives its other files the mode of this one."""
    try:
        os.close(os.open(path, os.O_RDWR | os.O_CREAT | getattr(os, "O_CLOEXEC", 0), 0o600))
        if path.stat().st_mode & 0o007:
            path.chmod(path.stat().st_mode & 0o770)
    except OSError as error:
        raise StoreError(f"{path}: the database cannot be opened ({error.strerror})") from None


def migrate(engine: sa.Engine) -> None:
    """Bring the schema up to date in one transaction, so that a crash leaves it as it was."""
    config = Config()
    config.set_main_option("script_location", str(Path(__file__).parent / "migrations").replace("%", "%%"))
    with engine.connect().execution_options(writes=True) as connection, connection.begin():
        if engine.dialect.name == "postgresql":
            for patience in ("statement_timeout", "lock_timeout"):  # a large history takes its time
                connection.execute(sa.text(f"SET LOCAL {patience} = 0"))
            connection.execute(sa.text("SELECT pg_advisory_xact_lock(:n)"), {"n": _LOCK})
        config.attributes["connection"] = connection
        try:
            command.upgrade(config, "head")
        except Exception as error:
            if isinstance(error, sa.exc.SQLAlchemyError):
                raise
            raise StoreError(
                f"the database was made by another version of whatelse ({type(error).__name__}); "
                "serve it with that version or a newer one"
            ) from None


def cutoff(connection: sa.Connection, at: sa.Column[Any], days: float, now: datetime) -> datetime:
    """The time `days` before `now`, not counting long holes among the times `at`. Cost: the table is read once.

    What is removed never comes back, so a clock that jumps a year must not remove a year. A jump leaves a hole: days in
    which nothing was written. Only the first LIMIT days of a hole count. After a real pause lines stay for longer.
    """
    found = connection.execute(sa.select(sa.func.date(at)).distinct()).scalars()
    written = sorted({date.fromisoformat(str(day)) for day in found}, reverse=True)
    before, later, limit = now - timedelta(days=days), now.date(), max(1.0, min(LIMIT, days / 4))
    for day in written:
        if later <= before.date():  # older holes change nothing
            break
        if day > later:  # written while the clock was ahead
            continue
        hole = (later - day).days
        if hole > limit:
            before -= timedelta(days=hole - limit)
            log.warning(
                "%s: nothing was written for %d days until %s. If the clock has jumped, set it right; if there was a "
                "pause, nothing need be done. What is older is kept that much longer", at.table.name, hole, later,
            )  # fmt: skip
        later = day
    return before
