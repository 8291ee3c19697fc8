"""cross_check: does the database have what the audit tells of?

A chain alone does not show that its newest lines were cut off together with its head. The audit is a chain of its own
and names, for each decision, the version that the visit reached, for each card its digest and outcome, and for each
look its digest. A decision is durable before the audit tells of it; cards and looks are written by the same commit.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

import sqlalchemy as sa

from whatelse.store import chain, schema
from whatelse.store.engine import StoreError, reading

CARDS_WRITTEN = "cards written"  # event, of the commit that wrote them: digests of cards and looks, outcomes
CARDS_REMOVED = "cards removed"  # event: cards before `detail.before` are past their retention time
LATER = timedelta(minutes=1)  # that a card may be written after it was made
EPOCH, NEVER = datetime(1970, 1, 1, tzinfo=UTC), datetime(9999, 1, 1, tzinfo=UTC)
_KEEP = "Keep the database as it is and compare it with a backup"


@dataclass(slots=True)
class _Told:
    """What the audit tells: visit key -> version; uuid of a card -> (digest, time); uuid -> outcome; look -> time.

    first, last   time of the first line about cards, and of the newest line
    """

    versions: dict[str, int] = field(default_factory=dict)
    cards: dict[str, tuple[str, datetime]] = field(default_factory=dict)
    outcomes: dict[str, str] = field(default_factory=dict)
    looks: dict[str, datetime] = field(default_factory=dict)
    removed_before: datetime = EPOCH
    first: datetime = NEVER
    last: datetime = EPOCH


def digest(row: Any, names: list[str]) -> str:
    """A digest of a card or look as it was made, for the audit: one that was changed later does not fit it."""
    return chain.link("", [getattr(row, name) for name in names])


def cross_check(engine: sa.Engine, key_of: Callable[[str], str]) -> None:
    """StoreError if the audit tells of a decision or a card that is missing or different.

    key_of: visit id -> the key that the audit names it by. Cost: audit, cards and decisions are read once.
    """
    try:
        _compare(engine, key_of)
    except StoreError:
        time.sleep(1.0)  # a server may be writing: what was told first may be there now
        _compare(engine, key_of)


def _compare(engine: sa.Engine, key_of: Callable[[str], str]) -> None:
    told, d = _read_audit(engine), schema.decision.c
    with reading(engine) as connection:
        newest = connection.execute(sa.select(d.visit, sa.func.max(d.version)).group_by(d.visit)).all()
        cards = {row.uuid: row for row in connection.execute(sa.select(schema.cds_card))}
        looks = {digest(row, chain.LOOK) for row in connection.execute(sa.select(schema.cds_look))}
    versions = {key_of(visit): version for visit, version in newest}
    for key, version in told.versions.items():
        if versions.get(key, 0) < version:
            raise StoreError(
                f"decision: the audit tells of version {version} of a visit (key {key}) and the history ends at "
                f"{versions.get(key, 0)}: lines were cut off. {_KEEP}"
            )
    for uuid, (made, at) in told.cards.items():
        row = cards.get(uuid)
        if row is None:
            if at >= told.removed_before + LATER:
                raise StoreError(f"cds_card: card {uuid} of the audit is missing. {_KEEP}")
            continue
        if digest(row, chain.CARD) != made:
            raise StoreError(f"cds_card: card {uuid} is not the one that the audit tells of: it was changed. {_KEEP}")
        if row.outcome != told.outcomes.get(uuid):
            raise StoreError(f"cds_card: the outcome of card {uuid} is not the one that the audit tells of. {_KEEP}")
    for uuid, row in cards.items():
        if uuid not in told.cards and told.first + LATER < _utc(row.at) < told.last - LATER:
            raise StoreError(f"cds_card: the audit does not tell of card {uuid}: it was added. {_KEEP}")
    for made, at in told.looks.items():
        if made not in looks and at >= told.removed_before + LATER:
            raise StoreError(f"cds_look: a look of {at:%Y-%m-%d %H:%M} was changed or is missing. {_KEEP}")


def _read_audit(engine: sa.Engine) -> _Told:
    told = _Told()
    for page in chain.pages(engine, schema.audit):
        for row in page:
            _add(told, row)
    return told


def _add(told: _Told, row: Any) -> None:
    detail, at = row.detail, _utc(row.at)
    told.last = max(told.last, at)
    reached = dict(detail.get("versions", {}))
    if row.visit is not None and isinstance(detail.get("version"), int):
        reached[row.visit] = detail["version"]
    for key, version in reached.items():
        told.versions[key] = max(version, told.versions.get(key, 0))
    if row.event == CARDS_WRITTEN:
        told.cards.update({uuid: (digest, at) for uuid, digest in detail["cards"].items()})
        told.outcomes.update(detail["outcomes"])
        told.looks.update(dict.fromkeys(detail.get("looks", ()), at))
        told.first = min(told.first, at)
    if row.event == CARDS_REMOVED:
        told.removed_before = max(told.removed_before, datetime.fromisoformat(detail["before"]))


def _utc(at: datetime) -> datetime:
    return at if at.tzinfo else at.replace(tzinfo=UTC)
