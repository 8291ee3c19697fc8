"""The audit: who signed in, read, decided, exported, changed the model or was refused. No record is in it.

A line is a chain's (chain.py): appended, never changed, and removed only from the old end, by `prune`, which leaves the
chain whole and a line that says so. A visit is named by the opaque key that its URL has; who has the database and
a visit's id can work the key out.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

import sqlalchemy as sa

from whatelse.store import chain, schema
from whatelse.store.engine import cutoff, reading, writing

_AUDIT, _HEADS = schema.audit, schema.chain_head


@dataclass(frozen=True, slots=True)
class Event:
    """Something that happened. `detail` holds short codes and numbers, such as a route, a status or a digest."""

    event: str
    actor: str
    address: str = ""
    visit: str | None = None
    detail: dict[str, Any] = field(default_factory=dict)
    at: datetime = field(default_factory=lambda: datetime.now(UTC))

    def row(self) -> dict[str, Any]:
        """The event as a row of the table, without characters that a database would choke on."""
        return {
            "at": self.at,
            "event": self.event[:32],
            "actor": _storable(self.actor)[:200],
            "address": _storable(self.address)[:64],
            "visit": None if self.visit is None else _storable(self.visit)[:32],
            "detail": {key: _storable(v) if isinstance(v, str) else v for key, v in self.detail.items()},
        }


def visit_key(visit: str, secret: bytes) -> str:
    """The key of a visit in URLs and audit lines: 26 letters and digits that do not reveal the id (HMAC-SHA256)."""
    digest = hmac.digest(secret, visit.encode("utf-8", "surrogatepass"), hashlib.sha256)
    return base64.b32encode(digest[:16]).decode().rstrip("=").lower()


def _storable(text: str) -> str:
    return text.replace("\0", "�").encode("utf-8", "replace").decode()


def lines(engine: sa.Engine) -> Iterator[str]:
    """The audit as JSON lines, oldest first, with the chain: whoever keeps a copy can verify it without us."""
    for page in chain.pages(engine, _AUDIT):
        for row in page:
            whole = {**row._mapping, "at": row.at.isoformat(timespec="microseconds")}
            yield json.dumps(whole, sort_keys=True) + "\n"


def prune(engine: sa.Engine, days: float, now: datetime | None = None) -> int:
    """Remove lines older than `days`, as configured; returns how many. What is left verifies as before."""
    now = now or datetime.now(UTC)
    with reading(engine) as connection:
        before = cutoff(connection, _AUDIT.c.at, days, now)
        # a line of the future, of a clock that was ahead for a while, keeps nothing else from going
        newer = sa.select(sa.func.min(_AUDIT.c.id)).where(_AUDIT.c.at.between(before, now))
        first_kept = connection.execute(newer).scalar()
        older = sa.select(sa.func.max(_AUDIT.c.id)).where(_AUDIT.c.at < before)
        if first_kept is not None:  # times of several machines may be out of step: remove no line after one to keep
            older = older.where(_AUDIT.c.id < first_kept)
        last = connection.execute(older).scalar()
    if last is None:
        return 0
    with writing(engine) as connection:
        head = chain.lock(connection, _AUDIT)
        kept = connection.execute(sa.select(_HEADS).where(_HEADS.c.name == _AUDIT.name)).one()
        gone = _AUDIT.c.id <= last
        count = connection.execute(sa.select(sa.func.count()).select_from(_AUDIT).where(gone)).scalar() or 0
        if count == 0:  # another process was faster
            return 0
        start = connection.execute(sa.select(_AUDIT.c.chain).where(_AUDIT.c.id == last)).scalar_one()
        moved = {"removed": last, "removed_lines": kept.removed_lines + count, "start": start}
        connection.execute(_HEADS.update().where(_HEADS.c.name == _AUDIT.name).values(**moved))
        connection.execute(_AUDIT.delete().where(gone))
        told = {"removed": count, "days": days, "in_all": moved["removed_lines"]}
        event = Event(chain.RETENTION, "whatelse", detail=told)
        chain.append(connection, _AUDIT, [event.row()], head)
    return count
