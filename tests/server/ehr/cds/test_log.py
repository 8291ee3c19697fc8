"""The tables of cards and looks: how they are made, and how long they are kept."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest
import sqlalchemy as sa
from alembic import command
from alembic.autogenerate import compare_metadata
from alembic.config import Config
from alembic.migration import MigrationContext

from tests.support.hooking import VIEW, cards, written
from tests.support.serving import client, service
from whatelse import store as whatelse_store
from whatelse.server.ehr.cds import log as cds_log
from whatelse.server.ehr.cds.log import Card, CardLog, Look, now, prune
from whatelse.server.run import _forget, chores
from whatelse.store import Store, schema
from whatelse.store.engine import writing

CARDS = (schema.cds_card, schema.cds_look, schema.cds_switch)


def made(visit: str, days_ago: float) -> tuple[Card, Look]:
    at = now() - timedelta(days=days_ago)
    whose = ("patient-view", "Practitioner/7", True)
    card = Card(f"card of {visit}", visit, "fall", "s", 0.7, 1, 0.5, "e", "m", *whose, at)
    return card, Look(at, visit, *whose, 1, [["fall", 0.7]], [])


def test_a_database_of_a_server_that_made_the_tables_itself_goes_on(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'old.db'}"
    engine, config = sa.create_engine(url), Config()
    config.set_main_option("script_location", str(Path(whatelse_store.__file__).parent / "migrations"))
    with engine.begin() as connection:
        config.attributes["connection"] = connection
        command.upgrade(config, "0002")
        schema.metadata.create_all(connection, tables=CARDS)
        connection.execute(schema.cds_switch.insert().values(name="mode", value="silent"))
    engine.dispose()
    for _ in range(2):
        store = Store(url)
        with store.engine.connect() as connection:
            assert compare_metadata(MigrationContext.configure(connection), schema.metadata) == []
        log = CardLog(store.engine)
        assert log.mode() == "silent"
        log.close()
        store.close()


def test_the_server_forgets_cards_that_are_old_enough_and_no_decision(tmp_path: Path) -> None:
    with service(tmp_path, cds_hooks=True, cds_threshold=0.15, cds_days=30) as opened:
        log = CardLog(opened.store.engine)
        for visit, days in (("old", 30.1), ("young", 29.9), *((f"{days} days", days) for days in (24, 18, 12, 6))):
            card, look = made(visit, days)
            log.keep([card], look)
        with client(opened) as http:
            shown = cards(http)[0]["uuid"]
            http.post(VIEW + "/feedback", json={"feedback": [{"card": shown, "outcome": "accepted"}]})
        log.flush()
        written(opened)
        with writing(opened.store.engine) as connection:  # a card that was decided on, and is old by now
            ago = now() - timedelta(days=40)
            connection.execute(schema.cds_card.update().where(schema.cds_card.c.uuid == shown).values(at=ago))

        async def until_forgotten() -> None:
            task, until = asyncio.create_task(chores(opened)), time.monotonic() + 60
            while len(log.all_cards()) > 5 and time.monotonic() < until:
                await asyncio.sleep(0.05)
            task.cancel()

        asyncio.run(until_forgotten())
        young = ["young", "24 days", "18 days", "12 days", "6 days"]
        assert [card.visit for card in log.all_cards()] == young
        assert [look.visit for look in log.looks()] == [*young, "e1"]
        (line,) = opened.store.history("e1")
        assert line.verdict == "confirmed" and line.shown["card"] == shown
        log.close()


def test_a_clock_that_jumps_removes_no_cards(tmp_path: Path) -> None:
    store = Store(f"sqlite:///{tmp_path / 'd.db'}")
    log = CardLog(store.engine)
    for days in range(40, -1, -5):
        card, look = made(f"{days}", days + 0.1)
        log.keep([card], look)
    log.flush()
    assert prune(store.engine, 30, now() + timedelta(days=365)) == 2 * 4  # a week too many, and not all of them
    assert [card.visit for card in log.all_cards()] == ["20", "15", "10", "5", "0"]
    log.close()
    store.close()


def test_what_was_flushed_can_be_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    @contextmanager
    def slow_commit(engine: sa.Engine) -> Iterator[sa.Connection]:
        with writing(engine) as connection:
            yield connection
            time.sleep(0.2)

    monkeypatch.setattr(cds_log, "writing", slow_commit)
    store = Store(f"sqlite:///{tmp_path / 'd.db'}")
    log = CardLog(store.engine)
    card, look = made("1", 0)
    log.keep([card], look)
    assert [card.visit for card in log.all_cards()] == ["1"]
    log.close()
    store.close()


def test_a_card_that_cannot_be_written_takes_no_other_with_it_and_is_logged(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    store = Store(f"sqlite:///{tmp_path / 'd.db'}")
    log = CardLog(store.engine)
    for visit, probability in (("good", 0.7), ("bad", float("nan"))):
        card, look = made(visit, 0)
        log.keep([replace(card, probability=probability)], look)
    assert [card.visit for card in log.all_cards()] == ["good"]
    assert "was not written: error=IntegrityError" in caplog.text and "bad" not in caplog.text
    log.close()
    store.close()


def test_cards_are_kept_for_ever_unless_told(tmp_path: Path) -> None:
    with service(tmp_path, cds_hooks=True, audit_days=1) as opened:
        log = CardLog(opened.store.engine)
        card, look = made("ancient", 5_000)
        log.keep([card], look)
        log.flush()

        asyncio.run(_forget(opened))
        assert [card.visit for card in log.all_cards()] == ["ancient"]
        log.close()
