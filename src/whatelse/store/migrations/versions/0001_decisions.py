"""Decisions, tokens, sessions."""

import sqlalchemy as sa
from alembic import op

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
    op.create_table(
        "token",
        sa.Column("id", _Id, primary_key=True),
        sa.Column("name", sa.Text, nullable=False),
        sa.Column("role", sa.String(10), nullable=False),
        sa.Column("hash", sa.String(64), nullable=False, unique=True),
        sa.Column("created", sa.DateTime(timezone=True), nullable=False),
        sa.Column("expires", sa.DateTime(timezone=True), nullable=False),
        sa.Column("revoked", sa.DateTime(timezone=True)),
    )
    op.create_table(
        "session",
        sa.Column("id", _Id, primary_key=True),
        sa.Column("hash", sa.String(64), nullable=False, unique=True),
        sa.Column("csrf", sa.String(64), nullable=False),
        sa.Column("name", sa.Text, nullable=False),
        sa.Column("role", sa.String(10), nullable=False),
        sa.Column("token", _Id, sa.ForeignKey("token.id")),
        sa.Column("expires", sa.DateTime(timezone=True), nullable=False),
    )
    op.create_table(
        "secret", sa.Column("name", sa.String(32), primary_key=True), sa.Column("value", sa.String(64), nullable=False)
    )
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
