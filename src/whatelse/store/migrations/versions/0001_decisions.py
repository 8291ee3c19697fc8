"""Decisions, tokens, sessions.

Tables that no later version has changed are those of `schema.py`. Whoever changes one copies it here as it was.
"""

import sqlalchemy as sa
from alembic import op

from whatelse.store import schema

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None

_Id = sa.BigInteger().with_variant(sa.Integer, "sqlite")


def upgrade() -> None:
    op.create_table(
        "decision",
        sa.Column("id", _Id, primary_key=True),
        sa.Column("visit", sa.Text, nullable=False),
        sa.Column("version", sa.Integer, nullable=False),
        sa.Column("kind", sa.String(8), nullable=False),
        sa.Column("subject", sa.Text, nullable=False),
        sa.Column("verdict", sa.String(10), nullable=False),
        sa.Column("undoes", sa.Integer),
        sa.Column("actor", sa.Text, nullable=False),
        sa.Column("at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("model", sa.String(64), nullable=False),
        sa.Column("shown", sa.JSON, nullable=False),
        sa.Column("request", sa.String(64), nullable=False, unique=True),
        sa.UniqueConstraint("visit", "version", name="decision_visit_version"),
    )
    schema.metadata.create_all(op.get_bind(), tables=[schema.token, schema.session, schema.secret])
    _append_only()


def _append_only() -> None:
    if op.get_bind().dialect.name == "sqlite":
        for what in ("UPDATE", "DELETE"):
            op.execute(
                f"CREATE TRIGGER decision_no_{what.lower()} BEFORE {what} ON decision "
                "BEGIN SELECT RAISE(ABORT, 'the history is append-only'); END"
            )
        return
    op.execute(
        "CREATE FUNCTION decision_append_only() RETURNS trigger LANGUAGE plpgsql AS "
        "$$ BEGIN RAISE EXCEPTION 'the history is append-only'; END $$"
    )
    op.execute(
        "CREATE TRIGGER decision_append_only BEFORE UPDATE OR DELETE OR TRUNCATE ON decision "
        "FOR EACH STATEMENT EXECUTE FUNCTION decision_append_only()"
    )
