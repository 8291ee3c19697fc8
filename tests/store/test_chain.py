"""The history keeps what it was given: chains, poisoned decisions, the audit, backups, a database that goes away."""

from __future__ import annotations

import csv
import io
import json
import shutil
import signal
import sqlite3
import stat
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa
from typer.testing import CliRunner

from tests.support import postgres
from whatelse.annotators.decisions import opinions_of
from whatelse.cli import app as command_line
from whatelse.model_file.signature import new_key
from whatelse.store import Decision, Event, Reused, Store, StoreError, audit, chain, schema
from whatelse.store import store as store_module
from whatelse.store.audit import visit_key
from whatelse.store.backup import backup, restore, verify
from whatelse.store.labels import labels, to_csv

DIGEST = "d" * 64
_count = iter(range(10**9))


@pytest.fixture(scope="module")
def postgres_url() -> Iterator[str]:
    with postgres.server() as url:
        yield url


@pytest.fixture(params=["sqlite", "postgresql"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """An empty database."""
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path / 'decisions.db'}"
    whole: str = request.getfixturevalue("postgres_url")
    postgres.empty(whole)
    return whole


@pytest.fixture
def store(url: str) -> Iterator[Store]:
    store = Store(url)
    yield store
    store.close()


def decide(version: int = 0, subject: str = "fall", visit: str = "7", **other: Any) -> Decision:
    whole: dict[str, Any] = dict(kind="tag", verdict="confirmed", actor="dr a", model=DIGEST, shown={"rank": 1})
    whole |= {"visit": visit, "version": version, "subject": subject, "request": f"q{next(_count)}", **other}
    return Decision(**whole)


def fill(store: Store, visits: int, lines: int = 1) -> None:
    waiting = [store.record(decide(k, visit=f"v{i:05}")) for i in range(visits) for k in range(lines)]
    for future in waiting:
        future.result()


# ---- the chain


def by_force(store: Store, *statements: str) -> None:
    """What somebody does who has the database and takes the triggers away first."""
    with store.engine.connect().execution_options(writes=True) as connection, connection.begin():
        if connection.dialect.name == "sqlite":
            named = sa.text("SELECT name, sql FROM sqlite_master WHERE type = 'trigger'")
            triggers = connection.execute(named).all()
            for name, _ in triggers:
                connection.execute(sa.text(f"DROP TRIGGER {name}"))
        else:
            triggers = []
            for table in ("decision", "audit"):
                connection.execute(sa.text(f"ALTER TABLE {table} DISABLE TRIGGER USER"))
        for statement in statements:
            connection.execute(sa.text(statement))
        for _, made in triggers:
            connection.execute(sa.text(made))


@pytest.mark.parametrize(
    ("statements", "says"),
    [
        (["UPDATE decision SET verdict = 'rejected' WHERE id = 4"], "line 4 does not follow line 3"),
        (["UPDATE decision SET actor = 'dr b' WHERE id = 1"], "line 1 does not follow line 0"),
        (["UPDATE decision SET shown = '{\"rank\": 2}' WHERE id = 9"], "line 9 does not follow"),
        (["DELETE FROM decision WHERE id = 5"], "line 6 does not follow line 4"),
        (["DELETE FROM decision WHERE id > 8"], "cut off at the end"),
        (["DELETE FROM decision"], "cut off at the end"),
        (
            ["UPDATE decision SET id = 99 WHERE id = 2", "UPDATE decision SET id = 2 WHERE id = 3"],
            "line 2 does not follow line 1",
        ),
        (
            [
                "INSERT INTO decision (id, visit, version, kind, subject, verdict, actor, at, model, shown, request) "
                "VALUES (77, 'x', 1, 'tag', 'fall', 'confirmed', 'eve', '2026-01-01', 'm', '{}', 'r')"
            ],
            "line 77 does not follow line 10",
        ),
        (["DELETE FROM chain_head WHERE name = 'decision'"], "head of the chain is missing"),
        (
            [
                "INSERT INTO decision (id, visit, version, kind, subject, verdict, actor, at, model, shown, request) "
                "VALUES (-7, 'x', 1, 'tag', 'fall', 'confirmed', 'eve', '2026-01-01', 'm', '{}', 'r')"
            ],
            "line -7 does not follow line 0",
        ),
        (
            [
                "UPDATE chain_head SET removed = 4, removed_lines = 4, "
                "start = (SELECT chain FROM decision WHERE id = 4) WHERE name = 'decision'",
                "DELETE FROM decision WHERE id <= 4",
            ],
            "4 lines are gone from the old end",
        ),
        (["UPDATE decision SET shown = '{\"rank\": 1e999}' WHERE id = 3"], "line 3 does not follow line 2"),
    ],
)
def test_any_change_reordering_or_gap_is_found(store: Store, statements: list[str], says: str) -> None:
    fill(store, 5, 2)
    assert chain.verify(store.engine, schema.decision).lines == 10
    by_force(store, *statements)
    with pytest.raises(StoreError, match=says):
        chain.verify(store.engine, schema.decision)


@pytest.mark.parametrize("value", ["at = 'yesterday'", "shown = '{'", "actor = x'ff'"])
def test_a_line_that_cannot_be_read_is_named(tmp_path: Path, value: str) -> None:
    """SQLite keeps anything in any column."""
    store = Store(f"sqlite:///{tmp_path / 'd.db'}")
    fill(store, 5, 2)
    by_force(store, f"UPDATE decision SET {value} WHERE id = 4")
    with pytest.raises(StoreError, match=r"line after line 3 cannot be read|line 4 does not follow line 3"):
        chain.verify(store.engine, schema.decision)
    store.close()


def test_history_is_not_replaced(tmp_path: Path) -> None:
    """INSERT OR REPLACE deletes without asking the triggers for deletions."""
    store = Store(f"sqlite:///{tmp_path / 'd.db'}")
    store.record(decide(request="first")).result()
    columns = "visit, version, kind, subject, verdict, actor, at, model, shown, request"
    others = {
        "id": ("id, ", "1, ", "'9', 1", "'other'"),
        "place": ("", "", "'7', 1", "'other'"),
        "request": ("", "", "'9', 1", "'first'"),
    }
    for more, number, place, request in others.values():
        statement = (
            f"INSERT OR REPLACE INTO decision ({more}{columns}) VALUES "
            f"({number}{place}, 'tag', 'fall', 'rejected', 'eve', '2026-01-01', 'm', '{{}}', {request})"
        )
        with pytest.raises(sa.exc.DatabaseError, match="append-only"), store.engine.begin() as connection:
            connection.execute(sa.text(statement))
    assert [(line.actor, line.verdict) for line in store.history("7")] == [("dr a", "confirmed")]
    store.close()


def test_a_new_chain_from_somewhere_on_is_told_by_a_head_noted_elsewhere(store: Store) -> None:
    fill(store, 3)
    noted = chain.verify(store.engine, schema.decision)
    fill_more = store.record(decide(visit="later"))
    fill_more.result()
    assert chain.verify(store.engine, schema.decision, noted).lines == 4
    with store.engine.connect() as connection:
        rows = [dict(row._mapping) for row in connection.execute(sa.select(schema.decision).order_by(sa.text("id")))]
    by_force(store, "DELETE FROM decision")
    for row in rows:
        row.pop("chain"), row.pop("id")
    rows[1]["verdict"] = "rejected"
    with store.engine.connect().execution_options(writes=True) as connection, connection.begin():
        chain.append(connection, schema.decision, rows, chain.Head(0, chain.FIRST))
    assert chain.verify(store.engine, schema.decision).lines == 4  # whoever writes can also count
    with pytest.raises(StoreError, match="not the one that it was taken from"):
        chain.verify(store.engine, schema.decision, noted)
    assert chain.Head.parse(str(noted)) == noted
    with pytest.raises(StoreError, match="as 'verify' prints it"):
        chain.Head.parse("7")


def test_lines_from_before_there_was_a_chain_are_linked(tmp_path: Path) -> None:
    path = tmp_path / "d.db"
    first = Store(f"sqlite:///{path}")
    fill(first, 4, 2)
    head = chain.verify(first.engine, schema.decision)
    first.close()
    with closing(sqlite3.connect(path)) as old:  # as version 0001 left it
        for (name,) in old.execute("SELECT name FROM sqlite_master WHERE type = 'trigger'").fetchall():
            old.execute(f"DROP TRIGGER {name}")
        for table in ("audit", "chain_head", "served", "pulse", "launch"):
            old.execute(f"DROP TABLE {table}")
        old.execute("ALTER TABLE decision DROP COLUMN chain")
        for what in ("UPDATE", "DELETE"):
            old.execute(f"CREATE TRIGGER decision_no_{what.lower()} BEFORE {what} ON decision "
                        "BEGIN SELECT RAISE(ABORT, 'the history is append-only'); END")  # fmt: skip
        old.execute("UPDATE alembic_version SET version_num = '0001'")
        old.commit()
    second = Store(f"sqlite:///{path}")
    assert chain.verify(second.engine, schema.decision) == head
    second.record(decide(2, visit="v00000")).result()
    assert chain.verify(second.engine, schema.decision, head).lines == 9
    second.close()


def test_two_processes_write_one_chain(url: str) -> None:
    stores = [Store(url), Store(url)]
    waiting = [stores[k % 2].record(decide(visit=f"v{k}")) for k in range(200)]
    for future in waiting:
        future.result()
    assert chain.verify(stores[0].engine, schema.decision).lines == 200
    for store in stores:
        store.close()


# ---- what cannot be stored


@pytest.mark.parametrize(
    "other",
    [{"model": "\0"}, {"visit": "a\0b"}, {"subject": "\ud800"}, {"actor": "x" * 5000}, {"shown": {"p": float("nan")}},
     {"shown": {"p": "\0"}}],
)  # fmt: skip
def test_text_that_no_database_keeps_is_refused_before_the_writer(store: Store, other: dict[str, Any]) -> None:
    with pytest.raises(Reused, match="cannot be stored"):
        store.record(decide(**other)).result()


def test_a_poisoned_decision_fails_alone(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """Should the check before the writer miss one: the others of its batch are recorded all the same."""
    monkeypatch.setattr(store_module.history, "check", lambda _: None)
    with store.engine.connect().execution_options(writes=True) as connection, connection.begin():
        connection.execute(sa.select(schema.chain_head).with_for_update())  # everybody waits, so it is one batch
        waiting = [store.record(decide(visit=f"v{k}")) for k in range(20)]
        poison = store.record(decide(visit="p", shown={"p": {1, 2}}))  # no JSON
        store.note(Event("read", "somebody"))
        waiting += [store.record(decide(visit=f"w{k}")) for k in range(20)]
        time.sleep(0.1)
    assert all(future.result().entry.version == 1 for future in waiting)
    with pytest.raises(StoreError, match="did not take"):
        poison.result()
    store.ping()
    assert verify(store.engine).decisions.lines == 40


def test_formulas_in_ids_are_inert_in_csv(store: Store) -> None:
    for visit in ("=cmd|' /C calc'!A0", "@SUM(1)", "-7", "+1+1", "\tx"):
        store.record(decide(visit=visit)).result()
    rows = "".join(to_csv(labels(store))).splitlines()[1:]
    assert sorted(row.lstrip('"')[:2] for row in rows) == sorted(["'=", "'@", "-7", "'+", "'\t"])


def test_an_export_holds_no_connection_while_nobody_reads(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store_module, "PAGE", 10)
    fill(store, 30, 2)
    exports = [labels(store) for _ in range(40)]  # more than the pool has connections
    for rows in exports:
        next(rows)
    assert store.engine.pool.checkedout() == 0  # type: ignore[attr-defined]
    fill_more = store.record(decide(visit="later"))
    fill_more.result()
    assert len(list(exports[1])) in (29, 30)  # a line that came meanwhile is in it or not
    whole = list(labels(store))
    assert len(whole) == 31 and len({row["visit"] for row in whole}) == 31


def test_a_new_database_is_for_its_owner_only(tmp_path: Path) -> None:
    path = tmp_path / "d.db"
    store = Store(f"sqlite:///{path}")
    fill(store, 3)
    modes = {file.name: stat.S_IMODE(file.stat().st_mode) for file in tmp_path.iterdir()}
    store.close()
    assert modes and all(mode & 0o077 == 0 for mode in modes.values()), modes
    path.chmod(0o644)
    Store(f"sqlite:///{path}").close()
    assert stat.S_IMODE(path.stat().st_mode) == 0o640


def test_a_database_that_is_away_is_said_to_be_away(tmp_path: Path) -> None:
    with postgres.server() as url:
        store = Store(url)
        fill(store, 2)
    for ask in (lambda: store.state("v00000"), lambda: store.version("x"), lambda: store.history("x"),
                lambda: store.access.by_token("x"), store.decided, store.access.list, store.ping):  # fmt: skip
        with pytest.raises(StoreError, match="database"):
            ask()
    store.note(Event("read", "a"))
    start = time.monotonic()
    store.close()
    assert time.monotonic() - start < 20


def test_a_full_disk_is_found_by_a_pulse(tmp_path: Path) -> None:
    """The limit of a file's size stands in for the disk's: SQLite is told the same way."""
    code = """
import resource, signal, sys
from whatelse.store import Store, StoreError
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
store = Store(sys.argv[1])
store.ping()
resource.setrlimit(resource.RLIMIT_FSIZE, (1000, resource.RLIM_INFINITY))
try:
    store.ping()
except StoreError as error:
    print("full:", error)
resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
store.ping()
print("well again")
store.close()
"""
    run = subprocess.run(
        [sys.executable, "-c", code, f"sqlite:///{tmp_path / 'd.db'}"], capture_output=True, text=True, timeout=60
    )
    assert "full: the database did not take" in run.stdout and "well again" in run.stdout, run.stderr


# ---- the audit


def test_audit_lines_are_chained_exported_and_kept_for_as_long_as_configured(store: Store) -> None:
    now = datetime.now(UTC)
    for age in (36, 31, 29, 24, 18, 12, 6, 0):
        store.note(Event("visit read", "dr a", "10.0.0.7", "k" * 26, {"status": 200}, now - timedelta(days=age)))
    store.ping()
    before = chain.verify(store.engine, schema.audit)
    lines = [json.loads(line) for line in audit.lines(store.engine)]
    assert [line["event"] for line in lines] == ["visit read"] * 8 and lines[0]["detail"] == {"status": 200}
    previous = chain.FIRST  # a copy verifies without the database
    for line in lines:
        content = [line[name.name] for name in chain.content_columns(schema.audit)]
        previous = chain.link(previous, content)
        assert previous == line["chain"]
    for statement in (schema.audit.update().values(actor="x"), schema.audit.delete()):
        with pytest.raises(sa.exc.DatabaseError, match="append-only"), store.engine.begin() as connection:
            connection.execute(statement)
    assert audit.prune(store.engine, 30) == 2 and audit.prune(store.engine, 30) == 0
    assert chain.verify(store.engine, schema.audit, before).lines == 9
    kept = [json.loads(line)["event"] for line in audit.lines(store.engine)]
    assert kept == ["visit read"] * 6 + ["retention"]
    start = "start = (SELECT chain FROM audit WHERE id = 3)"  # as if retention had, and no line tells of it
    forged = f"UPDATE chain_head SET removed = 3, removed_lines = 3, {start} WHERE name = 'audit'"
    by_force(store, forged, "DELETE FROM audit WHERE id = 3")
    with pytest.raises(StoreError, match="3 lines are gone from the old end, and its own lines tell of 2"):
        chain.verify(store.engine, schema.audit)
    by_force(store, "UPDATE audit SET actor = 'dr b' WHERE actor = 'dr a'")
    with pytest.raises(StoreError, match="audit: line"):
        chain.verify(store.engine, schema.audit)


def test_retention_while_the_audit_is_verified_is_no_break(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    for age in (13, 11, 9, 7, 5, 3, 1):
        store.note(Event("visit read", "dr a", at=datetime.now(UTC) - timedelta(days=age)))
    store.ping()
    pages, pruned = chain.pages, list[int]()

    def meanwhile(*table: Any) -> Iterator[Any]:
        if not pruned:
            pruned.append(audit.prune(store.engine, 10))
        return pages(*table)

    monkeypatch.setattr(chain, "pages", meanwhile)
    assert chain.verify(store.engine, schema.audit).lines == 8 and pruned == [2]


def test_a_clock_that_jumps_removes_no_audit(store: Store, caplog: pytest.LogCaptureFixture) -> None:
    now, year = datetime.now(UTC), timedelta(days=365)

    def days_left() -> list[int]:
        ats = [datetime.fromisoformat(json.loads(line)["at"]) for line in audit.lines(store.engine)]
        return [(now - at).days for at in ats if at <= now]

    for age in range(100, -1, -5):
        store.note(Event("visit read", "dr a", at=now - timedelta(days=age)))
    store.ping()
    assert audit.prune(store.engine, 60, now + year) == 11  # 8 that are old enough, and those of two weeks more
    assert days_left() == list(range(45, -1, -5)) and "clock has jumped" in caplog.text
    store.note(Event("visit read", "dr a", at=now + year + timedelta(hours=1)))  # it goes on serving, a year ahead
    store.ping()
    assert audit.prune(store.engine, 60, now + year + timedelta(hours=2)) == 0
    assert chain.verify(store.engine, schema.audit).lines == 23
    for age in range(5, 101, 5):  # set right again
        store.note(Event("visit read", "dr a", at=now + timedelta(days=age)))
    store.ping()
    assert audit.prune(store.engine, 60, now + timedelta(days=100)) == 19  # with the line that was ahead
    assert days_left() == [] and chain.verify(store.engine, schema.audit).lines == 44


def test_audit_lines_wait_for_a_locked_database_and_are_then_written(tmp_path: Path) -> None:
    path = tmp_path / "d.db"
    store = Store(f"sqlite:///{path}")
    with closing(sqlite3.connect(path, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        for k in range(100):
            store.note(Event("visit read", f"p{k}", "", "\0odd\ud800", {"text": "\0"}))
        assert store.state("7").version == 0  # reads do not wait
        time.sleep(0.3)
        other.execute("ROLLBACK")
    store.ping()
    assert chain.verify(store.engine, schema.audit).lines == 100
    store.close()


def test_an_audit_that_cannot_be_written_stops_what_it_should_show(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(store_module, "BACKLOG", 5)
    store = Store(f"sqlite:///{tmp_path / 'd.db'}")
    gate = threading.Event()
    monkeypatch.setattr(store, "_apply", lambda *_: gate.wait(60) and [])
    for _ in range(5):
        store.note(Event("visit read", "a"))
    assert store.behind
    with pytest.raises(StoreError, match="audit cannot be written"):
        store.note(Event("visit read", "a"))
    gate.set()
    store.close()


# ---- models


def test_models_that_have_served(store: Store) -> None:
    assert store.newest_model() is None and not store.has_served(DIGEST)
    for digest in (DIGEST, DIGEST, "e" * 64):
        store.serving(digest)
    assert store.newest_model() == "e" * 64 and store.has_served(DIGEST) and not store.has_served("f" * 64)


# ---- backups


DRILL = """
import sys
from whatelse.store import Decision, Store
store = Store(sys.argv[1])
for k in range(10**6):
    store.record(Decision(f"v{k}", 0, "tag", "fall", "confirmed", "a", "m", f"q{k}")).result()
    print(k, flush=True)
"""


def test_the_drill_kill_restore_and_nothing_acknowledged_before_the_backup_is_missing(tmp_path: Path) -> None:
    path, saved = tmp_path / "d.db", tmp_path / "saved.db"
    server = subprocess.Popen([sys.executable, "-c", DRILL, f"sqlite:///{path}"], stdout=subprocess.PIPE, text=True)
    assert server.stdout is not None
    acknowledged = [int(server.stdout.readline()) for _ in range(100)]
    found = backup(f"sqlite:///{path}", saved)  # while it goes on
    more = int(server.stdout.readline())
    server.send_signal(signal.SIGKILL)
    server.wait()
    server.stdout.close()
    for file in tmp_path.glob("d.db*"):  # the disk is gone
        file.unlink()
    restored = restore(saved, f"sqlite:///{path}")
    assert restored == found and more >= 100
    store = Store(f"sqlite:///{path}")
    missing = [k for k in acknowledged if store.state(f"v{k}").confirmed != ("fall",)]
    assert missing == [] and verify(store.engine, found.decisions).decisions == found.decisions
    store.record(decide(visit="goes on")).result()
    store.close()
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_backups_refuse_to_overwrite_and_to_be_something_else(tmp_path: Path) -> None:
    url, saved = f"sqlite:///{tmp_path / 'd.db'}", tmp_path / "saved.db"
    Store(url).close()
    backup(url, saved)
    with pytest.raises(StoreError, match="does not overwrite"):
        backup(url, saved)
    with pytest.raises(StoreError, match=r"move d\.db away"):
        restore(saved, url)
    with pytest.raises(StoreError, match="pg_dump"):
        backup("postgresql://x/y", tmp_path / "new.db")
    with pytest.raises(StoreError, match="no such database"):
        backup(f"sqlite:///{tmp_path / 'none.db'}", tmp_path / "new.db")
    (tmp_path / "junk").write_bytes(b"junk" * 3000)
    with pytest.raises(StoreError, match=r"copy failed|not a database"):
        restore(tmp_path / "junk", f"sqlite:///{tmp_path / 'new.db'}")
    shutil.copy(saved, tmp_path / "edited.db")
    store = Store(f"sqlite:///{tmp_path / 'edited.db'}")
    fill(store, 2)
    by_force(store, "UPDATE decision SET actor = 'eve'")
    store.close()
    with pytest.raises(StoreError, match="does not follow"):
        restore(tmp_path / "edited.db", f"sqlite:///{tmp_path / 'new.db'}")
    assert not (tmp_path / "new.db").exists() and not list(tmp_path.glob(".*"))


def test_the_commands(tmp_path: Path) -> None:
    url, saved = f"sqlite:///{tmp_path / 'd.db'}", tmp_path / "saved.db"
    store = Store(url)
    fill(store, 3)
    for age in (33, 27, 21, 15, 9, 3):
        store.note(Event("sign-in", "dr a", at=datetime.now(UTC) - timedelta(days=age)))
    store.ping()

    def run(*command: str) -> tuple[int, str]:
        done = CliRunner().invoke(command_line, [*command, "--database", url])
        return done.exit_code, done.stdout + done.stderr

    code, said = run("store", "verify")
    head = said.splitlines()[0].split()[-1]
    assert code == 0 and said.startswith("3 decisions, unbroken") and head.startswith("3:")
    assert run("store", "verify", "--expect", head)[0] == 0
    assert run("store", "verify", "--expect", head[:-1] + ("0" if head[-1] != "0" else "1"))[0] == 2
    assert run("store", "backup", "--out", str(saved))[0] == 0 and saved.exists()
    assert run("store", "restore", str(saved))[0] == 2
    code, said = run("store", "verify", "--expect", head)
    assert code == 0 and "6 audit lines" in said
    said_audit = said.split()[-1]
    assert run("store", "verify", "--expect-audit", said_audit[:-1] + ("0" if said_audit[-1] != "0" else "1"))[0] == 2
    code, said = run("store", "audit")
    assert code == 0 and [json.loads(line)["event"] for line in said.splitlines()] == ["sign-in"] * 6
    assert (
        run("store", "verify", "--expect-audit", said_audit)[0] == 0
        and "removed 1 lines" in run("store", "audit", "--prune", "30")[1]
    )
    assert run("store", "audit", "--out", str(tmp_path / "a.jsonl"))[0] == 0
    code, said = run("store", "audit", "--out", str(tmp_path / "a.jsonl"))
    assert code == 2 and "does not overwrite" in said
    by_force(store, "DELETE FROM decision WHERE id = 2")
    code, said = run("store", "verify")
    assert code == 2 and "line 3 does not follow line 1" in said and "Traceback" not in said
    store.close()


@pytest.mark.parametrize(
    "command",
    [
        "decisions verify",
        "store decisions --out x.csv",
        "audit verify",
        "store audit",
        "store audit --prune 9",
        "store verify",
        "token list",
        "token revoke 1",
    ],
)
def test_a_name_that_was_mistyped_is_no_empty_database(tmp_path: Path, command: str) -> None:
    done = CliRunner().invoke(command_line, [*command.split(), "--database", f"sqlite:///{tmp_path / 'no.db'}"])
    assert done.exit_code == 2 and "there is no such database" in done.stderr
    assert not list(tmp_path.iterdir()) and not Path("x.csv").exists()


# ---- the audit and the history, one against the other


def test_control_characters_in_an_id_stay_inside_quotes(tmp_path: Path) -> None:
    at = datetime(2026, 1, 1, tzinfo=UTC)
    row = {"condition": "fall", "label": 1, "actor": "a", "at": at, "model": "m", "probability": 0.5, "rank": 1,
           "before": 0, "changes": 1}  # fmt: skip
    for odd in ("a\r=cmd|x", "a\n=1", "a\x0b=1", "a\x85=1", "a\u2028=1", "a\t=1", "a;=cmd|x"):
        text = "".join(to_csv([{**row, "visit": odd}]))
        body = text.partition("\n")[2]
        assert body.startswith(f'"{odd}"'), "the id is one quoted field"
        assert next(csv.reader(io.StringIO(body, newline="")))[0] == odd


def test_dismissed_cards_are_no_labels(tmp_path: Path) -> None:
    store = Store(f"sqlite:///{tmp_path / 'd.db'}")
    try:
        for number, reason in enumerate(("not-relevant", None, "other", "ruled-out", "not-present")):
            shown = {"card": f"c{number}", "reason": reason}
            store.record(Decision(f"v{number}", 0, "tag", "fall", "rejected", "a", "m", f"r{number}", shown)).result()
        store.record(Decision("page", 0, "tag", "fall", "rejected", "a", "m", "page", {})).result()
        assert [row["visit"] for row in labels(store)] == ["page", "v3", "v4"]
        assert {o.visit for o in opinions_of(store.tag_lines())} == {"page", "v3", "v4"}
    finally:
        store.close()


def cut_off(path: Path, table: str, lines: int) -> None:
    """As somebody with the file would: remove the newest lines and set the head back."""
    with closing(sqlite3.connect(path)) as connection, connection:
        for (name,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'trigger'").fetchall():
            connection.execute(f"DROP TRIGGER {name}")
        connection.execute(f"DELETE FROM {table} WHERE id > (SELECT max(id) FROM {table}) - ?", (lines,))
        kept, newest = connection.execute(f"SELECT count(*), max(id) FROM {table}").fetchone()
        hashed = connection.execute(f"SELECT chain FROM {table} WHERE id = ?", (newest,)).fetchone()
        connection.execute(
            "UPDATE chain_head SET lines = ?, hash = ? WHERE name = ?", (kept, hashed[0] if hashed else "0" * 64, table)
        )


def decided(folder: Path, count: int = 3) -> tuple[str, Path]:
    """A database with `count` decisions and their audit lines."""
    path = folder / "d.db"
    store = Store(f"sqlite:///{path}")
    secret = store.secret("visits")
    for n in range(count):
        done = store.record(Decision("v", n, "finding", f"f{n}", "present", "a", "m", f"r{n}")).result()
        store.note(Event("decision", "a", visit=visit_key("v", secret), detail={"version": done.entry.version}))
    store.close()
    return f"sqlite:///{path}", path


def test_history_cut_off_with_its_head_is_found_by_the_audit(tmp_path: Path) -> None:
    url, path = decided(tmp_path)
    store = Store(url)
    assert verify(store.engine).decisions.lines == 3
    store.close()
    cut_off(path, "decision", 1)
    store = Store(url)
    try:
        chain.verify(store.engine, schema.decision)  # the chain alone does not show it
        with pytest.raises(StoreError, match="the audit tells of version 3"):
            verify(store.engine)
    finally:
        store.close()


def test_signed_head_finds_history_and_audit_cut_off_together(tmp_path: Path) -> None:
    url, path = decided(tmp_path)
    key, other, head = tmp_path / "key.pem", tmp_path / "other.pem", tmp_path / "head.json"
    new_key(key), new_key(other)
    run = CliRunner().invoke(
        command_line, ["store", "verify", "--sign", str(key), "--out", str(head), "--database", url]
    )
    assert run.exit_code == 0, run.output

    def check(trusted: Path) -> Any:
        given = ["store", "verify", "--head", str(head), "--trusted-key", f"{trusted}.pub", "--database", url]
        return CliRunner().invoke(command_line, given)

    assert check(key).exit_code == 0 and check(other).exit_code == 2
    cut_off(path, "decision", 1)
    cut_off(path, "audit", 1)
    found = check(key)
    assert found.exit_code == 2 and "was not met" in found.stderr
    said = json.loads(head.read_text())
    head.write_text(json.dumps({**said, "decision": f"0:{'0' * 64}", "audit": f"0:{'0' * 64}"}))
    assert "signature is not valid" in check(key).stderr
