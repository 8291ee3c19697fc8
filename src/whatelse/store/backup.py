"""Backup, restore and verification of a whole database; and heads of its chains, signed to be kept elsewhere.

SQLite is copied while it is in use, by its own backup: the copy is the database as it was at one moment. PostgreSQL
has tools of its own for that (docs/serving.md); `verify` reads both.
"""

from __future__ import annotations

import os
import sqlite3
import tempfile
from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import sqlalchemy as sa
from sqlalchemy.engine import make_url

from whatelse.io.files import sync
from whatelse.model_file.signature import read_signed, write_signed
from whatelse.store import chain, schema
from whatelse.store.audit import visit_key
from whatelse.store.chain import cross_check
from whatelse.store.engine import StoreError, reading

FORMAT = "whatelse-head-1"


@dataclass(frozen=True, slots=True)
class Verified:
    """What a database holds, verified."""

    decisions: chain.Head
    audit: chain.Head


def verify(engine: sa.Engine, expect: chain.Head | None = None, expect_audit: chain.Head | None = None) -> Verified:
    """Verify both chains, one against the other, and for SQLite the file. StoreError says what is wrong.

    expect, expect_audit: heads of decisions and audit that were noted earlier.
    """
    if engine.dialect.name == "sqlite":
        with reading(engine) as connection:
            said = connection.execute(sa.text("PRAGMA integrity_check")).scalars().all()
        if said != ["ok"]:
            raise StoreError(f"the database file is damaged ({len(said)} problems); restore a backup")
    decisions = chain.verify(engine, schema.decision, expect)
    audit = chain.verify(engine, schema.audit, expect_audit)
    with reading(engine) as connection:
        secret = connection.execute(sa.select(schema.secret.c.value).where(schema.secret.c.name == "visits")).scalar()
    if secret is not None:  # a database that served
        cross_check(engine, lambda visit: visit_key(visit, bytes.fromhex(secret)))
    return Verified(decisions, audit)


def backup(url: str, out: Path) -> Verified:
    """Copy the SQLite database at `url` to the new file `out`, verified; it appears whole or not at all."""
    source = file_of(url)
    if not source.is_file():
        raise StoreError(f"{source}: there is no such database")
    if out.exists():
        raise StoreError(f"{out}: is there already; a backup does not overwrite another one")
    return _copy(source, out)


def restore(saved: Path, url: str) -> Verified:
    """Put a backup where the SQLite database at `url` is to be; there must be none: move the old one away first."""
    target = file_of(url)
    if not saved.is_file():
        raise StoreError(f"{saved}: there is no such backup")
    beside = [target, target.with_name(target.name + "-wal"), target.with_name(target.name + "-shm")]
    if there := [path for path in beside if path.exists()]:
        raise StoreError(
            f"{there[0]}: is there already; stop the server and move {', '.join(p.name for p in there)} away first"
        )
    return _copy(saved, target)


def file_of(url: str) -> Path:
    """The file of a SQLite URL."""
    try:
        parsed = make_url(url)
    except sa.exc.ArgumentError:
        raise StoreError("the database URL cannot be read; write sqlite:///decisions.db") from None
    if parsed.get_backend_name() != "sqlite" or not parsed.database:
        raise StoreError(
            "only SQLite is copied by this command; for PostgreSQL use pg_dump --format=custom and pg_restore, "
            "then 'whatelse store verify'"
        )
    return Path(parsed.database)


def _copy(source: Path, target: Path) -> Verified:
    if not target.absolute().parent.is_dir():
        raise StoreError(f"{target}: its folder does not exist; make it first")
    handle, name = tempfile.mkstemp(dir=target.absolute().parent, prefix=f".{target.name}.")  # mode 0600
    os.close(handle)
    temporary = Path(name)
    try:
        place = f"{source.absolute().as_uri()}?mode=rw"  # a log that a crash has left is read too
        with closing(sqlite3.connect(place, uri=True, timeout=30)) as old, closing(sqlite3.connect(temporary)) as new:
            # in one step: nobody waits for it in WAL mode; in several each commit would start it afresh
            old.backup(new)
            new.execute("PRAGMA journal_mode=DELETE")  # one file, nothing beside it
        engine = sa.create_engine(f"sqlite:///{temporary}")
        try:
            found = verify(engine)
        finally:
            engine.dispose()
        sync(temporary)
        os.link(temporary, target)  # unlike a rename, fails if somebody made the file meanwhile
        sync(target.absolute().parent)
    except sa.exc.SQLAlchemyError as error:
        raise StoreError(f"{source}: is not a database of whatelse ({type(error).__name__})") from None
    except (sqlite3.Error, OSError) as error:
        raise StoreError(f"{target}: the copy failed ({error}); nothing was written") from None
    finally:
        temporary.unlink(missing_ok=True)
    return found


# ---- a signed head, kept elsewhere, shows that history and audit were cut off or written anew, both together too


def sign_head(engine: sa.Engine, key: Path, out: Path) -> None:
    """Verify both chains, and write their heads with a signature to `out`."""
    heads = {table.name: str(chain.verify(engine, table)) for table in (schema.decision, schema.audit)}
    write_signed(out, {"format": FORMAT, "at": datetime.now(UTC).isoformat(timespec="seconds"), **heads}, key)


def read_head(file: Path, trusted: Sequence[Path]) -> tuple[chain.Head, chain.Head]:
    """The heads of decisions and audit of a signed head; SignatureError unless a trusted key has signed them."""
    said = read_signed(file, ("format", "at", "decision", "audit"), FORMAT, trusted)
    return chain.Head.parse(said["decision"]), chain.Head.parse(said["audit"])
