"""Decisions, tokens, sessions.

Tables are made as `schema.py` has them now; a version that changes a table looks whether the change is there already.
"""

from alembic import op

from whatelse.store import schema

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None


def upgrade() -> None:
    new = [schema.decision, schema.token, schema.session, schema.secret]
    schema.metadata.create_all(op.get_bind(), tables=new)
