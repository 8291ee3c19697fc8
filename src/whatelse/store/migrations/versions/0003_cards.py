"""Cards of CDS Hooks, looks, and their switch. Servers before this version made them by themselves: those stay."""

from alembic import op

from whatelse.store import schema

revision = "0003"
down_revision = "0002"
branch_labels = None
depends_on = None


def upgrade() -> None:
    tables = [schema.cds_card, schema.cds_look, schema.cds_switch]
    schema.metadata.create_all(op.get_bind(), tables=tables)
