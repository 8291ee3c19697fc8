"""Chains over the history and the audit, models that have served, and a row to try writing on."""

import sqlalchemy as sa
from alembic import op

from whatelse.store import schema
from whatelse.store.chain import FIRST, link

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None

_LINE = ("visit", "version", "kind", "subject", "verdict", "undoes", "actor", "at", "model", "shown", "request")


def upgrade() -> None:
    new = [schema.audit, schema.chain_head, schema.served, schema.pulse]
    schema.metadata.create_all(op.get_bind(), tables=new)
    sqlite = op.get_bind().dialect.name == "sqlite"
    for name in ("decision_no_update", "decision_no_delete") if sqlite else ("decision_append_only ON decision",):
        op.execute(f"DROP TRIGGER IF EXISTS {name}")
    if "chain" not in {column["name"] for column in sa.inspect(op.get_bind()).get_columns("decision")}:
        op.add_column("decision", sa.Column("chain", sa.String(64), nullable=False, server_default=""))
    lines, newest = _link_what_is_there()
    empty = {"removed": 0, "removed_lines": 0, "start": FIRST}
    op.bulk_insert(
        schema.chain_head,
        [
            {"name": "decision", "lines": lines, "hash": newest, **empty},
            {"name": "audit", "lines": 0, "hash": FIRST, **empty},
        ],
    )
    _keep_sqlite() if sqlite else _keep_postgresql()


def _link_what_is_there() -> tuple[int, str]:
    """Lines from before there was a chain, in the order of their numbers. Returns how many, and the newest hash."""
    table, connection, after, lines, newest = schema.decision, op.get_bind(), -1, 0, FIRST
    while True:
        rows = connection.execute(sa.select(table).where(table.c.id > after).order_by(table.c.id).limit(5_000)).all()
        if not rows:
            return lines, newest
        new = []
        for row in rows:
            newest, after = link(newest, [getattr(row, name) for name in _LINE]), row.id
            new.append({"number": row.id, "value": newest})
        lines += len(new)
        change = table.update().where(table.c.id == sa.bindparam("number")).values(chain=sa.bindparam("value"))
        connection.execute(change, new)


def _keep_sqlite() -> None:
    refuse = "BEGIN SELECT RAISE(ABORT, 'the history is append-only'); END"
    for what in ("UPDATE", "DELETE"):
        op.execute(f"CREATE TRIGGER decision_no_{what.lower()} BEFORE {what} ON decision {refuse}")
    # INSERT OR REPLACE deletes what is in its way without asking the triggers for deletions
    there = "id = NEW.id OR request = NEW.request OR (visit = NEW.visit AND version = NEW.version)"
    op.execute(
        "CREATE TRIGGER decision_no_replace BEFORE INSERT ON decision "
        f"WHEN EXISTS (SELECT 1 FROM decision WHERE {there}) {refuse}"
    )
    op.execute(f"CREATE TRIGGER audit_no_update BEFORE UPDATE ON audit {refuse}")
    op.execute(
        "CREATE TRIGGER audit_no_replace BEFORE INSERT ON audit "
        f"WHEN EXISTS (SELECT 1 FROM audit WHERE id = NEW.id) {refuse}"
    )
    op.execute(
        "CREATE TRIGGER audit_no_delete BEFORE DELETE ON audit "
        f"WHEN OLD.id > (SELECT removed FROM chain_head WHERE name = 'audit') {refuse}"
    )


def _keep_postgresql() -> None:
    op.execute(
        "CREATE OR REPLACE FUNCTION decision_append_only() RETURNS trigger LANGUAGE plpgsql AS "
        "$$ BEGIN RAISE EXCEPTION 'the history is append-only'; END $$"
    )
    op.execute(
        "CREATE TRIGGER decision_append_only BEFORE UPDATE OR DELETE OR TRUNCATE ON decision "
        "FOR EACH STATEMENT EXECUTE FUNCTION decision_append_only()"
    )
    op.execute(
        "CREATE TRIGGER audit_append_only BEFORE UPDATE OR TRUNCATE ON audit "
        "FOR EACH STATEMENT EXECUTE FUNCTION decision_append_only()"
    )
    op.execute(
        "CREATE FUNCTION audit_retention() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN "
        "IF OLD.id > (SELECT removed FROM chain_head WHERE name = 'audit') THEN "
        "RAISE EXCEPTION 'the history is append-only'; END IF; RETURN OLD; END $$"
    )
    op.execute("CREATE TRIGGER audit_retention BEFORE DELETE ON audit FOR EACH ROW EXECUTE FUNCTION audit_retention()")
