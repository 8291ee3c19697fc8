"""Hash chains: tables of lines in which every change, move or removal of a line is detected.

Each line holds the SHA-256 of its content and of the hash of the line before it. The newest hash (the *head*) therefore
stands for all lines, and is stored in a table of its own. A changed line breaks the chain at its place. Lines that were
cut off at the end no longer lead to the head. Whoever can write to the database can also write a whole new chain; a
head that was noted elsewhere ('whatelse store verify' prints it) shows that too.
"""

from __future__ import annotations

import hashlib
import itertools
import json
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

import sqlalchemy as sa

from whatelse.store import schema
from whatelse.store.engine import StoreError, reading

FIRST = "0" * 64  # what the first line follows
PAGE = 5_000
RETENTION = "retention"  # the event of an audit line that says how many old ones were removed
_KEEP = "Keep the database as it is and compare it with a backup"
_BROKEN = f"a line there was changed, moved, added or taken out. {_KEEP}"
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
    plain = [v.isoformat(timespec="microseconds") if isinstance(v, datetime) else v for v in content]
    text = json.dumps(plain, sort_keys=True, separators=(",", ":"), allow_nan=False)
    return hashlib.sha256(f"{previous}\n{text}".encode()).hexdigest()


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
                raise StoreError(f"{table.name}: the line after line {after or 0} cannot be read: {_BROKEN}") from None
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
            try:
                expected = link(previous, [getattr(row, name) for name in names])
            except (ValueError, TypeError):  # NaN, or bytes where text was
                expected = None
            if row.chain != expected:
                raise StoreError(f"{table.name}: line {row.id} does not follow line {last}: {_BROKEN}")
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


CARDS_WRITTEN = "cards written"  # event, of the commit that wrote them: digests of cards and looks, outcomes
CARDS_REMOVED = "cards removed"  # event: cards before `detail.before` are past their retention time
LATER = timedelta(minutes=1)  # that a card may be written after it was made
EPOCH, NEVER = datetime(1970, 1, 1, tzinfo=UTC), datetime(9999, 1, 1, tzinfo=UTC)


def digest(row: Any, names: list[str]) -> str:
    """A digest of a card or look as it was made, for the audit: one that was changed later does not fit it."""
    return link("", [getattr(row, name) for name in names])


def cross_check(engine: sa.Engine, key_of: Callable[[str], str]) -> None:
    """StoreError if the audit tells of a decision or a card that is missing or different.

    A chain alone does not show that its newest lines were cut off together with its head. The audit is a chain of its
    own and names, for each decision, the version that the visit reached, for each card its digest and outcome, and for
    each look its digest. A decision is durable before the audit tells of it; cards and looks are written by the same
    commit.

    key_of: visit id -> the key that the audit names it by. Cost: audit, cards and decisions are read once.
    """
    try:
        _compare(engine, key_of)
    except StoreError:
        time.sleep(1.0)  # a server may be writing: what was told first may be there now
        _compare(engine, key_of)


def _compare(engine: sa.Engine, key_of: Callable[[str], str]) -> None:
    versions: dict[str, int] = {}  # of visits, by key; like the next three, as the audit tells
    made: dict[str, tuple[str, datetime]] = {}  # digest and time of each card
    outcomes: dict[str, str] = {}
    looked: dict[str, datetime] = {}  # time of each look
    removed_before, first, last = EPOCH, NEVER, EPOCH  # first line about cards, newest line
    for row in itertools.chain.from_iterable(pages(engine, schema.audit)):
        detail, at = row.detail, row.at
        last = max(last, at)
        reached = dict(detail.get("versions", {}))
        if row.visit is not None and isinstance(detail.get("version"), int):
            reached[row.visit] = detail["version"]
        for key, version in reached.items():
            versions[key] = max(version, versions.get(key, 0))
        if row.event == CARDS_WRITTEN:
            made.update({uuid: (digest, at) for uuid, digest in detail["cards"].items()})
            outcomes.update(detail["outcomes"])
            looked.update(dict.fromkeys(detail.get("looks", ()), at))
            first = min(first, at)
        if row.event == CARDS_REMOVED:
            removed_before = max(removed_before, datetime.fromisoformat(detail["before"]))
    d = schema.decision.c
    with reading(engine) as connection:
        newest = connection.execute(sa.select(d.visit, sa.func.max(d.version)).group_by(d.visit)).all()
        cards = {row.uuid: row for row in connection.execute(sa.select(schema.cds_card))}
        looks = {digest(row, LOOK) for row in connection.execute(sa.select(schema.cds_look))}
    there = {key_of(visit): version for visit, version in newest}
    for key, version in versions.items():
        if there.get(key, 0) < version:
            raise StoreError(
                f"decision: the audit tells of version {version} of a visit (key {key}) and the history ends at "
                f"{there.get(key, 0)}: lines were cut off. {_KEEP}"
            )
    for uuid, (expected, at) in made.items():
        row = cards.get(uuid)
        if row is None:
            if at >= removed_before + LATER:
                raise StoreError(f"cds_card: card {uuid} of the audit is missing. {_KEEP}")
        elif digest(row, CARD) != expected:
            raise StoreError(f"cds_card: card {uuid} is not the one that the audit tells of: it was changed. {_KEEP}")
        elif row.outcome != outcomes.get(uuid):
            raise StoreError(f"cds_card: the outcome of card {uuid} is not the one that the audit tells of. {_KEEP}")
    for uuid, row in cards.items():
        if uuid not in made and first + LATER < row.at < last - LATER:
            raise StoreError(f"cds_card: the audit does not tell of card {uuid}: it was added. {_KEEP}")
    for one, at in looked.items():
        if one not in looks and at >= removed_before + LATER:
            raise StoreError(f"cds_look: a look of {at:%Y-%m-%d %H:%M} was changed or is missing. {_KEEP}")
