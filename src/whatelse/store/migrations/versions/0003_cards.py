"""Cards of CDS Hooks, looks, and their switch. Servers before this version made them by themselves: those stay."""

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"
branch_labels = None
depends_on = None

_Id = sa.BigInteger().with_variant(sa.Integer, "sqlite")


def upgrade() -> None:
    there = set(sa.inspect(op.get_bind()).get_table_names())
    if "cds_card" not in there:
        op.create_table(
            "cds_card",
            sa.Column("uuid", sa.String(36), primary_key=True),
            sa.Column("visit", sa.Text, nullable=False),
            sa.Column("condition", sa.Text, nullable=False),
            sa.Column("suggestion", sa.String(36), nullable=False),
            sa.Column("probability", sa.Float, nullable=False),
            sa.Column("rank", sa.Integer, nullable=False),
            sa.Column("threshold", sa.Float, nullable=False),
            sa.Column("evidence", sa.String(64), nullable=False),
            sa.Column("model", sa.String(64), nullable=False),
            sa.Column("hook", sa.String(40), nullable=False),
            sa.Column("actor", sa.Text, nullable=False),
            sa.Column("shown", sa.Boolean, nullable=False),
            sa.Column("at", sa.DateTime(timezone=True), nullable=False),
            sa.Column("outcome", sa.String(12)),
            sa.Column("reason", sa.Text),
        )
        op.create_index("ix_cds_card_visit", "cds_card", ["visit"])
    if "cds_look" not in there:
        op.create_table(
            "cds_look",
            sa.Column("id", _Id, primary_key=True),
            sa.Column("at", sa.DateTime(timezone=True), nullable=False),
            sa.Column("visit", sa.Text, nullable=False),
            sa.Column("hook", sa.String(40), nullable=False),
            sa.Column("actor", sa.Text, nullable=False),
            sa.Column("shown", sa.Boolean, nullable=False),
            sa.Column("cards", sa.Integer, nullable=False),
            sa.Column("top", sa.JSON, nullable=False),
            sa.Column("unseen", sa.JSON, nullable=False),
        )
        op.create_index("ix_cds_look_at", "cds_look", ["at"])
    if "cds_switch" not in there:
        op.create_table(
            "cds_switch", sa.Column("name", sa.String(32), primary_key=True), sa.Column("value", sa.String(32))
        )
