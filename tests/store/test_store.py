"""The store: the same tests on SQLite and on a real PostgreSQL server."""

from __future__ import annotations

import io
import sqlite3
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
import sqlalchemy as sa
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext

from tests.support import postgres
from whatelse.store import Conflict, Decision, Reused, Store, StoreError, schema
from whatelse.store.labels import labels, to_csv, to_parquet

DIGEST = "d" * 64


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
    engine = sa.create_engine(whole.replace("postgresql:", "postgresql+psycopg:"))
    with engine.begin() as connection:
        connection.execute(sa.text("DROP SCHEMA public CASCADE"))
        connection.execute(sa.text("CREATE SCHEMA public"))
    engine.dispose()
    return whole


@pytest.fixture
def store(url: str) -> Iterator[Store]:
    store = Store(url)
    yield store
    store.close()


_count = iter(range(10**9))


def decide(version: int, subject: str = "fall", verdict: Any = "confirmed", **other: Any) -> Decision:
    kind = "undo" if verdict == "undo" else "finding" if verdict in ("present", "absent") else "tag"
    given = dict(visit="7", kind=kind, actor="dr a", model=DIGEST, request=f"r{next(_count)}", shown={"rank": 1})
    return Decision(
        **{**given, "version": version, "subject": subject, "verdict": "open" if kind == "undo" else verdict, **other}
    )


def test_a_decision_is_read_back_with_who_when_which_model_and_what_was_shown(store: Store) -> None:
    before = datetime.now(UTC)
    done = store.record(decide(0, shown={"probability": 0.25, "rank": 3})).result()
    (line,) = store.history("7")
    assert line == done.entry
    assert (line.version, line.kind, line.subject, line.verdict) == (1, "tag", "fall", "confirmed")
    assert (line.actor, line.model, line.shown) == ("dr a", DIGEST, {"probability": 0.25, "rank": 3})
    assert before - timedelta(seconds=1) <= line.at <= datetime.now(UTC)
    assert store.state("7").confirmed == ("fall",) and store.state("other").version == 0


def test_the_state_is_the_last_word_on_each_tag_and_finding(store: Store) -> None:
    for version, (subject, verdict) in enumerate(
        [
            ("fall", "confirmed"),
            ("uti", "rejected"),
            ("dizzy", "present"),
            ("fall", "rejected"),
            ("uti", "open"),
            ("cough", "absent"),
        ]
    ):
        store.record(decide(version, subject, verdict)).result()
    state = store.state("7")
    assert (state.version, state.confirmed, state.rejected) == (6, (), ("fall",))
    assert (state.present, state.absent) == (("dizzy",), ("cough",))
    assert store.states(["7", "8"]) == {"7": state} and store.decided() == {"7"}
    assert (store.version("7"), store.version("8")) == (6, 0)


def test_undo_walks_back_and_puts_each_tag_where_it_was(store: Store) -> None:
    for version, verdict in enumerate(["confirmed", "rejected", "undo", "undo"]):
        done = store.record(decide(version, "fall" if verdict != "undo" else "", verdict)).result()
        where = {"confirmed": done.state.confirmed, "rejected": done.state.rejected}
        expected = ["confirmed", "rejected", "confirmed", None][version]
        assert [name for name, tags in where.items() if tags] == ([expected] if expected else [])
        assert store.decided() == ({"7"} if expected else set())  # a decision that was taken back does not count
    assert [line.undoes for line in store.history("7")] == [None, None, 2, 1]
    with pytest.raises(Reused, match="nothing left to undo"):
        store.record(decide(4, "", "undo")).result()


def test_a_decision_on_an_old_version_is_refused_and_told_the_state(store: Store) -> None:
    store.record(decide(0)).result()
    with pytest.raises(Conflict) as caught:
        store.record(decide(0, "uti", actor="dr b")).result()
    assert caught.value.state.confirmed == ("fall",)
    assert caught.value.latest is not None and caught.value.latest.actor == "dr a"
    assert len(store.history("7")) == 1


def test_a_retry_is_answered_and_not_repeated(store: Store) -> None:
    wanted = decide(0, request="once")
    first = store.record(wanted).result()
    store.record(decide(1, "uti")).result()
    again = store.record(wanted).result()
    assert again.repeated and not first.repeated and again.entry == first.entry
    assert again.state.confirmed == ("fall", "uti")
    with pytest.raises(Reused, match="used for another decision"):
        store.record(decide(2, "cva", request="once")).result()
    both = [store.record(decide(2, "cva", request="twin")) for _ in range(2)]
    assert sorted(f.result().repeated for f in both) == [False, True]
    assert len(store.history("7")) == 3


def test_many_at_once_lose_nothing_and_versions_have_no_gap(url: str) -> None:
    """Two stores on one database, as two server processes would be."""
    stores = [Store(url), Store(url)]
    names = [f"c{k}" for k in range(24)]

    def insist(k: int) -> None:
        version = 0
        while True:
            try:
                stores[k % 2].record(decide(version, names[k], actor=f"p{k}")).result()
                return
            except Conflict as moved:
                version = moved.state.version

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(insist, range(24)))
    lines = stores[0].history("7")
    assert [line.version for line in lines] == list(range(1, 25))
    assert sorted(line.subject for line in lines) == sorted(names)
    for store in stores:
        store.close()


def test_one_commit_takes_many_decisions(store: Store) -> None:
    """While one commit is on its way the others gather: 400 decisions need far fewer commits."""
    commits = []
    sa.event.listen(store.engine, "commit", lambda _: commits.append(threading.current_thread().name))
    waiting = [store.record(decide(0, visit=f"v{k}")) for k in range(400)]
    assert all(f.result().entry.version == 1 for f in waiting)
    assert len([name for name in commits if name == "whatelse-writer"]) < 100


def test_history_cannot_be_changed(store: Store) -> None:
    store.record(decide(0)).result()
    for statement in (schema.decision.update().values(verdict="rejected"), schema.decision.delete()):
        with pytest.raises(sa.exc.DatabaseError, match="append-only"), store.engine.begin() as connection:
            connection.execute(statement)
    assert store.state("7").confirmed == ("fall",)


def test_a_database_error_reaches_who_asked(store: Store) -> None:
    with store.engine.begin() as connection:
        connection.execute(sa.text("DROP TABLE decision"))
    with pytest.raises(StoreError, match="did not take the decision"):
        store.record(decide(0)).result()


def test_it_opens_again_on_the_same_database(url: str) -> None:
    first = Store(url)
    first.record(decide(0)).result()
    key = first.secret("visits")
    first.close()
    second = Store(url)
    assert second.state("7").confirmed == ("fall",) and second.secret("visits") == key
    assert second.secret("other") != key and len(key) == 32
    second.close()
    with pytest.raises(StoreError, match="closed"):
        second.record(decide(1))


def test_migrations_make_the_tables_that_the_code_uses(store: Store) -> None:
    with store.engine.connect() as connection:
        assert compare_metadata(MigrationContext.configure(connection), schema.metadata) == []


def test_labels_are_what_stands(store: Store) -> None:
    for version, (subject, verdict) in enumerate(
        [("fall", "rejected"), ("uti", "confirmed"), ("fall", "confirmed"), ("uti", "open")]
    ):
        store.record(decide(version, subject, verdict, actor="=cmd()", shown={"probability": 0.5, "rank": 2})).result()
    store.record(decide(0, "cva", "rejected", visit="-8")).result()
    rows = list(labels(store))
    assert [(r["visit"], r["condition"], r["label"], r["changes"]) for r in rows] == [
        ("-8", "cva", 0, 1),
        ("7", "fall", 1, 2),
    ]
    header, *lines = "".join(to_csv(rows)).splitlines()
    assert header.startswith("visit,condition,label,actor,at,model") and len(lines) == 2
    assert lines[1].startswith("7,fall,1,'=cmd()")  # a spreadsheet must not run it
    stream = io.BytesIO()
    assert to_parquet(labels(store), stream) == 2
    assert pq.read_table(stream).column("label").to_pylist() == [0, 1]


def test_tokens_are_found_until_they_expire_or_are_revoked(store: Store) -> None:
    access = store.access
    text = access.create("Dr. Ada", "clinician", days=1)
    person = access.by_token(text)
    assert person is not None and (person.name, person.role) == ("Dr. Ada", "clinician")
    assert person.may("viewer") and person.may("clinician") and not person.may("admin")
    assert access.by_token(text + "x") is None and access.by_token("") is None
    with store.engine.connect() as connection:
        assert text not in str(connection.execute(sa.select(schema.token)).all())
    cookie, session = access.open_session(person, hours=1)
    assert access.by_session(cookie) == session and session.csrf
    (listed,) = access.list()
    access.revoke(listed.id)
    assert access.by_token(text) is None and access.by_session(cookie) is None
    assert access.list()[0].status == "revoked"
    with pytest.raises(StoreError, match="no token 99"):
        access.revoke(99)
    short = access.create("b", "viewer", days=1e-9)
    assert access.by_token(short) is None and access.list()[1].status == "expired"


def test_a_session_ends_with_its_token_and_on_signing_out(store: Store) -> None:
    person = store.access.by_token(store.access.create("a", "viewer", days=1 / 24))
    assert person is not None and person.expires is not None
    cookie, session = store.access.open_session(person, hours=10)
    assert session.expires == person.expires
    store.access.close_session(cookie)
    assert store.access.by_session(cookie) is None


@pytest.mark.parametrize(
    ("name", "role", "days"),
    [("", "viewer", 1), ("a\nb", "viewer", 1), ("a", "root", 1), ("a", "viewer", 0), ("a", "viewer", 1e9)],
)
def test_tokens_that_cannot_be_made(tmp_path: Path, name: str, role: str, days: float) -> None:
    store = Store(f"sqlite:///{tmp_path / 'd.db'}")
    with pytest.raises(StoreError):
        store.access.create(name, role, days)
    store.close()


def test_sqlite_is_durable_by_its_settings(tmp_path: Path) -> None:
    store = Store(f"sqlite:///{tmp_path / 'd.db'}")
    with store.engine.connect() as connection:
        assert connection.execute(sa.text("PRAGMA journal_mode")).scalar() == "wal"
        assert connection.execute(sa.text("PRAGMA synchronous")).scalar() == 2  # FULL
    store.close()


@pytest.mark.parametrize(
    ("url", "says"),
    [
        ("nonsense", "cannot be read"),
        ("mysql://x/y", "not in 'mysql'|cannot be read"),
        ("sqlite://", "need a file"),
        ("sqlite:////nowhere/at/all.db", "does not exist"),
        ("postgresql://me:secret@127.0.0.1:1/x", r"me:\*\*\*@.*cannot be opened"),
    ],
)
def test_urls_that_cannot_be_opened(url: str, says: str) -> None:
    with pytest.raises(StoreError, match=says) as caught:
        Store(url)
    assert "secret" not in str(caught.value)


def test_a_file_that_is_not_ours(tmp_path: Path) -> None:
    path = tmp_path / "x.db"
    path.write_text("not a database, but long enough to look at " * 50)
    with pytest.raises(StoreError, match="cannot be opened"):
        Store(f"sqlite:///{path}")


def test_a_database_of_a_newer_version(tmp_path: Path) -> None:
    path = tmp_path / "d.db"
    Store(f"sqlite:///{path}").close()
    with sqlite3.connect(path) as connection:
        connection.execute("UPDATE alembic_version SET version_num = '9999'")
    connection.close()
    with pytest.raises(StoreError, match="another version"):
        Store(f"sqlite:///{path}")
