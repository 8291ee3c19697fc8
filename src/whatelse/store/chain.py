"""Hash chains: tables of lines in which every change, move or removal of a line is detected.

Each line holds the SHA-256 of its content and of the hash of the line before it. The newest hash (the *head*) therefore
stands for all lines, and is stored in a table of its own. A changed line breaks the chain at its place. Lines that were
cut off at the end no longer lead to the head. Whoever can write to the database can also write a whole new chain; a
head that was noted elsewhere ('whatelse store verify' prints it) shows that too.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import sqlalchemy as sa

from whatelse.store import schema
from whatelse.store.engine import StoreError, reading

FIRST = "0" * 64  # what the first line follows
PAGE = 5_000
RETENTION = "retention"  # the event of an audit line that says how many old ones were removed
_KEEP = "a line there was changed, moved, added or taken out. Keep the database as it is and compare it with a backup"
_HEADS = schema.chain_head
CARD = [c.name for c in schema.cds_card.columns if c.name not in ("outcome", "reason")]  # what a card's digest is about
LOOK = [c.name for c in schema.cds_look.columns if c.name != "id"]


@dataclass(frozen=True, slots=True)
class Head:
    """How many lines there have ever been, and the hash of the newest."""

    lines: int
    hash: str

    def __str__(self) -> str:
        return f"{self.lines}:{self.hash}"

    @classmethod
    def parse(cls, text: str) -> Head:
        """From what `str` gave."""
        lines, _, found = text.strip().partition(":")
        if not lines.isascii() or not lines.isdigit() or len(found) != 64 or set(found) - set("0123456789abcdef"):
            raise StoreError("a head is written as 'verify' prints it: a number, a colon and 64 hexadecimal digits")
        return cls(int(lines), found)


def link(previous: str, content: Sequence[Any]) -> str:
    """The hash of a line with this content after the line with the hash `previous`."""
    text = json.dumps([_plain(value) for value in content], sort_keys=True, separators=(",", ":"), allow_nan=False)
    return hashlib.sha256(f"{previous}\n{text}".encode()).hexdigest()


def _follows(previous: str, content: Sequence[Any], found: str) -> bool:
    try:
        return link(previous, content) == found
    except (ValueError, TypeError):  # NaN, or bytes where text was
        return False


def _plain(value: Any) -> Any:
    if isinstance(value, datetime):  # SQLite gives times back without their zone; what was put in is UTC
        whole = value.replace(tzinfo=UTC) if value.tzinfo is None else value.astimezone(UTC)
        return whole.isoformat(timespec="microseconds")
    return value


def content_columns(table: sa.Table) -> list[sa.Column[Any]]:
    """What a line's hash is about: all but its number and the hash."""
    return [column for column in table.columns if column.name not in ("id", "chain")]


def lock(connection: sa.Connection, table: sa.Table) -> Head:
    """The head of a table's chain. Until the transaction ends no other process can add to the chain."""
    query = sa.select(_HEADS.c.lines, _HEADS.c.hash).where(_HEADS.c.name == table.name).with_for_update()
    row = connection.execute(query).one()
    return Head(row.lines, row.hash)


def append(connection: sa.Connection, table: sa.Table, rows: list[dict[str, Any]], head: Head) -> Head:
    """Add lines after `head`, which `lock` gave in this transaction; the new head."""
    names = [column.name for column in content_columns(table)]
    previous, linked = head.hash, []
    for row in rows:
        previous = link(previous, [row[name] for name in names])
        linked.append({**row, "chain": previous})
    connection.execute(table.insert(), linked)
    new = Head(head.lines + len(rows), previous)
    connection.execute(_HEADS.update().where(_HEADS.c.name == table.name).values(lines=new.lines, hash=new.hash))
    return new


def pages(engine: sa.Engine, table: sa.Table) -> Iterator[Sequence[Any]]:
    """The lines of a table in order, page by page; no connection is held between two pages.

    StoreError names a line with what is no time or no JSON: no line that was written here has that.
    """
    after, size = None, PAGE
    while True:
        query = sa.select(table).order_by(table.c.id).limit(size)
        if after is not None:  # numbers below 1 too: whoever adds a line may choose its number
            query = query.where(table.c.id > after)
        try:
            with reading(engine) as connection:
                rows = connection.execute(query).all()
        except (ValueError, TypeError):  # one line cannot be read: find out which
            if size == 1:
                raise StoreError(f"{table.name}: the line after line {after or 0} cannot be read: {_KEEP}") from None
            size = 1
            continue
        if not rows:
            return
        after = rows[-1].id
        yield rows


def verify(engine: sa.Engine, table: sa.Table, expect: Head | None = None) -> Head:
    """The head of a table's chain if every line follows the one before; StoreError names the first that does not.

    expect: a head noted earlier; it must be on the way. Cost: the whole table is read once.
    """
    while True:
        kept = _kept(engine, table)  # the head first: lines that are added meanwhile come after it
        try:
            return _walk(engine, table, kept, expect)
        except StoreError:
            if _kept(engine, table).removed == kept.removed:
                raise  # else retention took out meanwhile what was to be read: from where it left off


def _kept(engine: sa.Engine, table: sa.Table) -> Any:
    with reading(engine) as connection:
        kept = connection.execute(sa.select(_HEADS).where(_HEADS.c.name == table.name)).one_or_none()
    if kept is None:
        raise StoreError(f"{table.name}: the head of the chain is missing: somebody removed it")
    return kept


def _walk(engine: sa.Engine, table: sa.Table, kept: Any, expect: Head | None) -> Head:
    names = [column.name for column in content_columns(table)]
    previous, lines, met, last = kept.start, kept.removed_lines, False, kept.removed
    head_met, told = kept.lines == lines and kept.hash == previous, 0
    for page in pages(engine, table):
        for row in page:
            if not _follows(previous, [getattr(row, name) for name in names], row.chain):
                raise StoreError(f"{table.name}: line {row.id} does not follow line {last}: {_KEEP}")
            previous, last, lines = row.chain, row.id, lines + 1
            if table is schema.audit and row.event == RETENTION:
                told = row.detail.get("in_all", kept.removed_lines)  # lines of older versions do not say it
            met = met or (expect is not None and Head(lines, previous) == expect)
            head_met = head_met or (lines == kept.lines and previous == kept.hash)
    if not head_met:
        raise StoreError(
            f"{table.name}: there are {lines:,} lines but the chain had {kept.lines:,}: lines were cut off at the end"
        )
    if told != kept.removed_lines:
        raise StoreError(
            f"{table.name}: {kept.removed_lines:,} lines are gone from the old end, and its own lines tell of {told:,}"
            ": somebody else took them out. Compare it with a backup"
        )
    if expect is not None and not met and expect != Head(kept.removed_lines, kept.start):
        removed = expect.lines <= kept.removed_lines
        why = "its lines are past the retention time" if removed else "the chain is not the one that it was taken from"
        raise StoreError(f"{table.name}: the head {expect} was not met: {why}")
    return Head(lines, previous)
