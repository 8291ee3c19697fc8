"""Upgrade and rollback of a database: version 0.2 opens, a newer schema is refused, a backup goes back."""

from __future__ import annotations

import shutil
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest
import sqlalchemy as sa

from whatelse.store import Decision, Store, StoreError
from whatelse.store.backup import backup, restore, verify
from whatelse.store.labels import labels

OLD = Path(__file__).parents[1] / "data" / "database-version-0.2.sqlite"


@pytest.fixture
def old(tmp_path: Path) -> str:
    shutil.copyfile(OLD, tmp_path / "whatelse.db")
    return f"sqlite:///{tmp_path / 'whatelse.db'}"


def test_database_of_version_0_2_opens_verifies_and_goes_on(old: str) -> None:
    store = Store(old)
    try:
        with store.engine.connect() as connection:
            assert connection.execute(sa.text("SELECT version_num FROM alembic_version")).scalar() == "0004"
        assert verify(store.engine).decisions.lines == 3
        assert store.state("v1").confirmed == ("fall",) and store.access.list()[0].name == "Dr. Ada"
        store.record(Decision("v1", 2, "tag", "gout", "confirmed", "ada", "d" * 64, "r4")).result()
        assert [(row["visit"], row["condition"]) for row in labels(store)] == [
            ("v1", "fall"), ("v1", "gout"), ("v2", "uti"),
        ]  # fmt: skip
        assert verify(store.engine).decisions.lines == 4
    finally:
        store.close()


def test_backup_before_an_upgrade_goes_back(old: str, tmp_path: Path) -> None:
    saved = tmp_path / "before.db"
    backup(old, saved)
    store = Store(old)
    store.record(Decision("v9", 0, "tag", "gout", "confirmed", "ada", "d" * 64, "r9")).result()
    store.close()
    for file in tmp_path.glob("whatelse.db*"):
        file.unlink()
    assert restore(saved, old).decisions.lines == 3
    store = Store(old)
    try:
        assert store.version("v9") == 0 and store.version("v1") == 2
    finally:
        store.close()


def test_database_of_a_newer_version_is_refused_and_left_as_it_is(old: str, tmp_path: Path) -> None:
    with closing(sqlite3.connect(tmp_path / "whatelse.db")) as connection, connection:
        connection.execute("UPDATE alembic_version SET version_num = '0099'")
    with pytest.raises(StoreError, match=r"made by another version of whatelse .* newer one"):
        Store(old)
    with closing(sqlite3.connect(tmp_path / "whatelse.db")) as connection:
        assert connection.execute("SELECT version_num FROM alembic_version").fetchone() == ("0099",)
        assert connection.execute("SELECT count(*) FROM decision").fetchone() == (3,)
