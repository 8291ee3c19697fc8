"""The tables of the database. `migrations/` creates and changes them; a test checks that both agree."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import sqlalchemy as sa

metadata = sa.MetaData()
_Id = sa.BigInteger().with_variant(sa.Integer, "sqlite")  # SQLite numbers rows by itself only if they are INTEGER


class Time(sa.TypeDecorator[datetime]):
    """A time in UTC. SQLite gives times back without their zone."""

    impl = sa.DateTime(timezone=True)
    cache_ok = True

    def process_result_value(self, value: datetime | None, _: Any) -> datetime | None:
        return value if value is None else value.replace(tzinfo=UTC) if value.tzinfo is None else value.astimezone(UTC)


# One line per decision, never changed and never removed: triggers of the database refuse it.
decision = sa.Table(
    "decision",
    metadata,
    sa.Column("id", _Id, primary_key=True),
    sa.Column("visit", sa.Text, nullable=False),
    sa.Column("version", sa.Integer, nullable=False),  # 1, 2, 3 … within a visit
    sa.Column("kind", sa.String(8), nullable=False),  # tag or finding
    sa.Column("subject", sa.Text, nullable=False),  # the condition or the finding
    sa.Column("verdict", sa.String(10), nullable=False),  # confirmed, rejected, present, absent or open
    sa.Column("undoes", sa.Integer),  # the version that this line takes back
    sa.Column("actor", sa.Text, nullable=False),
    sa.Column("at", Time, nullable=False),
    sa.Column("model", sa.String(64), nullable=False),  # digest of the model that was serving
    sa.Column("shown", sa.JSON, nullable=False),  # what was on the screen: probability, rank, what was decided before
    sa.Column("request", sa.String(64), nullable=False, unique=True),  # a repeated request is answered, not repeated
    sa.Column("chain", sa.String(64), nullable=False, server_default=""),  # see chain.py
    sa.UniqueConstraint("visit", "version", name="decision_visit_version"),
)

# Who did what, without what is in a record: a visit is named by the key that URLs have.
audit = sa.Table(
    "audit",
    metadata,
    sa.Column("id", _Id, primary_key=True),
    sa.Column("at", Time, nullable=False),
    sa.Column("event", sa.String(32), nullable=False),
    sa.Column("actor", sa.Text, nullable=False),
    sa.Column("address", sa.String(64), nullable=False),
    sa.Column("visit", sa.String(32)),
    sa.Column("detail", sa.JSON, nullable=False),
    sa.Column("chain", sa.String(64), nullable=False, server_default=""),
)

# The newest line of each chain, and the last one that retention has removed.
chain_head = sa.Table(
    "chain_head",
    metadata,
    sa.Column("name", sa.String(16), primary_key=True),
    sa.Column("lines", _Id, nullable=False),
    sa.Column("hash", sa.String(64), nullable=False),
    sa.Column("removed", _Id, nullable=False),  # lines up to this number may be deleted
    sa.Column("removed_lines", _Id, nullable=False),
    sa.Column("start", sa.String(64), nullable=False),  # the hash that the first line kept follows
)

# Models that have served, newest last: processes that share a database follow each other.
served = sa.Table(
    "served",
    metadata,
    sa.Column("id", _Id, primary_key=True),
    sa.Column("digest", sa.String(64), nullable=False),
    sa.Column("at", Time, nullable=False),
)

# Written to find out whether the database can be written to.
pulse = sa.Table(
    "pulse", metadata, sa.Column("name", sa.String(16), primary_key=True), sa.Column("at", Time, nullable=False)
)

token = sa.Table(
    "token",
    metadata,
    sa.Column("id", _Id, primary_key=True),
    sa.Column("name", sa.Text, nullable=False),
    sa.Column("role", sa.String(10), nullable=False),
    sa.Column("hash", sa.String(64), nullable=False, unique=True),  # SHA-256 of 32 random bytes: nothing to guess
    sa.Column("created", Time, nullable=False),
    sa.Column("expires", Time, nullable=False),
    sa.Column("revoked", Time),
)

session = sa.Table(
    "session",
    metadata,
    sa.Column("id", _Id, primary_key=True),
    sa.Column("hash", sa.String(64), nullable=False, unique=True),
    sa.Column("csrf", sa.String(64), nullable=False),
    sa.Column("name", sa.Text, nullable=False),
    sa.Column("role", sa.String(10), nullable=False),
    sa.Column("token", _Id, sa.ForeignKey("token.id")),  # none if it was a token of an identity provider
    sa.Column("expires", Time, nullable=False),
)

secret = sa.Table(
    "secret",
    metadata,
    sa.Column("name", sa.String(32), primary_key=True),
    sa.Column("value", sa.String(64), nullable=False),
)

# Cards of CDS Hooks, shown or computed in silence. Old ones may be removed: `server/ehr/cds/log.py`.
cds_card = sa.Table(
    "cds_card",
    metadata,
    sa.Column("uuid", sa.String(36), primary_key=True),
    sa.Column("visit", sa.Text, nullable=False, index=True),
    sa.Column("condition", sa.Text, nullable=False),
    sa.Column("suggestion", sa.String(36), nullable=False),
    sa.Column("probability", sa.Float, nullable=False),
    sa.Column("rank", sa.Integer, nullable=False),
    sa.Column("threshold", sa.Float, nullable=False),
    sa.Column("evidence", sa.String(64), nullable=False),  # digest of what the record said when it was made
    sa.Column("model", sa.String(64), nullable=False),
    sa.Column("hook", sa.String(40), nullable=False),
    sa.Column("actor", sa.Text, nullable=False),
    sa.Column("shown", sa.Boolean, nullable=False),
    sa.Column("at", Time, nullable=False),
    sa.Column("outcome", sa.String(12)),
    sa.Column("reason", sa.Text),
)

# One line per call of a hook that found an emergency visit.
cds_look = sa.Table(
    "cds_look",
    metadata,
    sa.Column("id", _Id, primary_key=True),
    sa.Column("at", Time, nullable=False, index=True),
    sa.Column("visit", sa.Text, nullable=False),
    sa.Column("hook", sa.String(40), nullable=False),
    sa.Column("actor", sa.Text, nullable=False),
    sa.Column("shown", sa.Boolean, nullable=False),
    sa.Column("cards", sa.Integer, nullable=False),
    sa.Column("top", sa.JSON, nullable=False),  # the likeliest tags and their probabilities
    sa.Column("unseen", sa.JSON, nullable=False),
)

# What somebody switched while servers run: off, silent, show.
cds_switch = sa.Table(
    "cds_switch", metadata, sa.Column("name", sa.String(32), primary_key=True), sa.Column("value", sa.String(32))
)

# SMART launches, at the EHR's sign-in (visit "") or open: `server/ehr/smart/launches.py`. Removed when they are over.
launch = sa.Table(
    "launch",
    metadata,
    sa.Column("name", sa.String(64), primary_key=True),  # SHA-256 of the launch's state, or of the browser's cookie
    sa.Column("visit", sa.String(32), primary_key=True),  # key of the visit
    sa.Column("sealed", sa.Text, nullable=False),  # the rest, which only the browser's cookie opens
    sa.Column("until", Time, nullable=False),
)
