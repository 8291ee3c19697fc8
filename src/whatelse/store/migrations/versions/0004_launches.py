"""SMART launches, sealed: they survive a restart, and several processes know them."""

from alembic import op

from whatelse.store import schema

revision = "0004"
down_revision = "0003"
branch_labels = None
depends_on = None


def upgrade() -> None:
    schema.metadata.create_all(op.get_bind(), tables=[schema.launch])
