"""SMART launches, sealed: they survive a restart, and several processes know them."""

import sqlalchemy as sa
from alembic import op

revision = "0004"
down_revision = "0003"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "launch",
        sa.Column("name", sa.String(64), primary_key=True),
        sa.Column("visit", sa.String(32), primary_key=True),
        sa.Column("sealed", sa.Text, nullable=False),
        sa.Column("until", sa.DateTime(timezone=True), nullable=False),
    )
