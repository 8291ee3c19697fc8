"""CardLog: the cards of each visit, what came of them, and every look that was taken, shown or not.

Feedback names a card by its number alone, so cards are kept: in memory for those just shown, in the database for as
long as the setting `cds_days` says. Rows are written by a thread of their own, many in one commit: nobody waits for the
disk to see a card. The same commit writes an audit line with the digests of cards and looks and with outcomes, so the
audit tells of no card that a crash or a full disk has taken.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, fields, replace
from datetime import UTC, datetime
from typing import Any

import sqlalchemy as sa

from whatelse.server.lru import Lru
from whatelse.store import Event, StoreError, chain, schema
from whatelse.store.chain import CARDS_REMOVED, CARDS_WRITTEN, digest
from whatelse.store.engine import cutoff, reading, writing

log = logging.getLogger("whatelse.server")
VISITS = 5_000  # whose cards are in memory
BATCH = 500
_card, _look, _switch = schema.cds_card, schema.cds_look, schema.cds_switch
Write = Callable[[sa.Connection, dict[str, dict[str, str]]], None]  # adds to what the audit is told, by kind and card


@dataclass(frozen=True, slots=True)
class Card:
    """One card as it was made: for whom, about what, how likely, by which model on which evidence, and what came of
    it."""

    uuid: str
    visit: str
    condition: str
    suggestion: str
    probability: float
    rank: int
    threshold: float
    evidence: str
    model: str
    hook: str
    actor: str
    shown: bool
    at: datetime
    outcome: str | None = None
    reason: str | None = None


@dataclass(frozen=True, slots=True)
class Look:
    """One call of a hook: what was likeliest, how many cards there were, and what of the record was not seen."""

    at: datetime
    visit: str
    hook: str
    actor: str
    shown: bool
    cards: int
    top: list[list[Any]]
    unseen: list[str]


class CardLog:
    """Cards and looks in the store's database. `close` it before the store."""

    def __init__(self, engine: sa.Engine) -> None:
        self._engine = engine
        self._visits: Lru[str, tuple[Card, ...]] = Lru(VISITS)
        self._cards: Lru[str, Card] = Lru(4 * VISITS)
        self._changing = threading.Lock()  # of the two above
        self._mode: tuple[float, str | None] = (-10.0, None)
        self._pending: deque[Write] = deque()
        self._writer = ThreadPoolExecutor(1, "whatelse-cards")

    # ---- cards

    def of_visit(self, visit: str) -> tuple[Card, ...]:
        """The cards of a visit, oldest first."""
        return self._visits.made(visit, lambda: self._read(_card.c.visit == visit))

    def find(self, uuid: str) -> Card | None:
        found = self._cards.get(uuid)
        if found is None:
            self.flush()
            found = next(iter(self._read(_card.c.uuid == uuid)), None)
        return found

    def keep(self, cards: Sequence[Card], look: Look) -> None:
        """Remember a look and the cards it gave; a card that is there already stays as it was."""
        new = []
        with self._changing:
            for card in cards:
                known = self.of_visit(card.visit)
                if all(card.uuid != other.uuid for other in known):
                    self._visits.put(card.visit, (*known, card))
                    self._cards.put(card.uuid, card)
                    new.append(card)

        def write(connection: sa.Connection, told: dict[str, dict[str, str]]) -> None:
            for card in new:
                if connection.execute(sa.select(_card.c.uuid).where(_card.c.uuid == card.uuid)).first() is None:
                    connection.execute(_card.insert().values(**asdict(card)))
                    told["cards"][card.uuid] = digest(card, chain.CARD)
            connection.execute(_look.insert().values(**asdict(look)))
            told["looks"][digest(look, chain.LOOK)] = ""

        self._put(write)

    def settle(self, card: Card, outcome: str, reason: str | None) -> None:
        done = replace(card, outcome=outcome, reason=reason)
        with self._changing:
            self._cards.put(card.uuid, done)
            self._visits.put(card.visit, tuple(done if c.uuid == card.uuid else c for c in self.of_visit(card.visit)))
        change = _card.update().where(_card.c.uuid == card.uuid).values(outcome=outcome, reason=reason)

        def write(connection: sa.Connection, told: dict[str, dict[str, str]]) -> None:
            if connection.execute(change).rowcount:
                told["outcomes"][card.uuid] = outcome

        self._put(write)

    def _read(self, where: Any) -> tuple[Card, ...]:
        with reading(self._engine) as connection:
            rows = connection.execute(sa.select(*(_card.c[f.name] for f in fields(Card))).where(where).order_by("at"))
            return tuple(Card(*row) for row in rows)

    # ---- looks

    def looks(self, since: datetime = chain.EPOCH) -> list[Look]:
        self.flush()
        query = sa.select(*(_look.c[f.name] for f in fields(Look))).where(_look.c.at >= since)
        with reading(self._engine) as connection:
            return [Look(*row) for row in connection.execute(query.order_by(_look.c.at, _look.c.id))]

    def all_cards(self, since: datetime = chain.EPOCH) -> list[Card]:
        self.flush()
        return list(self._read(_card.c.at >= since))

    def tops(self, visits: int) -> list[list[float]]:
        """The probabilities of the likeliest tags at the last look at each of the newest visits."""
        query = sa.select(_look.c.visit, _look.c.top).order_by(_look.c.at.desc(), _look.c.id.desc()).limit(3 * visits)
        with reading(self._engine) as connection:
            newest = {visit: top for visit, top in reversed(connection.execute(query).all())}
        return [[float(p) for _, p in top] for top in list(newest.values())[-visits:]]

    # ---- the switch

    def mode(self) -> str | None:
        """off, silent or show, as somebody switched it while the service runs; None for what the settings say."""
        then, value = self._mode
        if time.monotonic() - then > 1.0:
            with reading(self._engine) as connection:
                value = connection.execute(sa.select(_switch.c.value).where(_switch.c.name == "mode")).scalar()
            self._mode = (time.monotonic(), value)
        return value

    def switch(self, mode: str | None) -> None:
        """Switch cards: every server on this database follows within a second."""
        with writing(self._engine) as connection:
            connection.execute(_switch.delete().where(_switch.c.name == "mode"))
            if mode is not None:
                connection.execute(_switch.insert().values(name="mode", value=mode))
        self._mode = (-10.0, None)

    # ---- writing

    def _put(self, work: Write) -> None:
        self._pending.append(work)
        self._writer.submit(self._drain)

    def _drain(self) -> None:
        """Write what waits by now in one commit; those who asked for it later find nothing left to do."""
        if batch := [self._pending.popleft() for _ in range(min(BATCH, len(self._pending)))]:
            self._commit(batch)

    def flush(self) -> None:
        """Wait until everything asked for so far is written."""
        self._writer.submit(lambda: None).result(30)

    def close(self) -> None:
        self._writer.shutdown()

    def _commit(self, batch: list[Write]) -> None:
        told: dict[str, dict[str, str]] = {"cards": {}, "outcomes": {}, "looks": {}}
        try:
            with writing(self._engine) as connection:
                for work in batch:
                    work(connection, told)
                if any(told.values()):
                    _audit(connection, CARDS_WRITTEN, {**told, "looks": list(told["looks"])})
        except (StoreError, sa.exc.SQLAlchemyError, ValueError) as error:
            if len(batch) == 1:
                log.error("a card, look or outcome was not written: error=%s", type(error).__name__)
            for work in batch if len(batch) > 1 else ():  # one that the database refuses must not take others with it
                self._commit([work])


def prune(engine: sa.Engine, days: float, at: datetime | None = None) -> int:
    """Remove cards and looks older than `days`; returns how many, and leaves an audit line. Decisions stay."""
    with reading(engine) as connection:
        before = cutoff(connection, _look.c.at, days, at or now())
    with writing(engine) as connection:
        count = sum(connection.execute(t.delete().where(t.c.at < before)).rowcount for t in (_card, _look))
        if count:
            told = {"removed": count, "days": days, "before": before.astimezone(UTC).isoformat()}
            _audit(connection, CARDS_REMOVED, told)
        return count


def _audit(connection: sa.Connection, event: str, detail: dict[str, Any]) -> None:
    head = chain.lock(connection, schema.audit)
    chain.append(connection, schema.audit, [Event(event, "whatelse", detail=detail).row()], head)


def now() -> datetime:
    return datetime.now(UTC)
