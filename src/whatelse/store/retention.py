"""Retention: the time before which lines are old enough to go, as far as the clock can be believed.

What is removed never comes back, so a clock that jumps a year must not remove a year. Days in which nothing was
written are the mark that a jump leaves: of a hole among the lines, or between them and now, only the first `LIMIT` days
count. After a real pause lines stay for that much longer.
"""

from __future__ import annotations

import logging
from datetime import date, datetime, timedelta
from typing import Any

import sqlalchemy as sa

log = logging.getLogger("whatelse.store")
LIMIT = 14  # days of a hole that count; a quarter of the days to keep, if that is less


def cutoff(connection: sa.Connection, at: sa.Column[Any], days: float, now: datetime) -> datetime:
    """The time `days` before `now`, not counting long holes among the times `at`. Cost: the table is read once."""
    found = connection.execute(sa.select(sa.func.date(at)).distinct()).scalars()
    written = sorted({date.fromisoformat(str(day)) for day in found}, reverse=True)
    before, later, limit = now - timedelta(days=days), now.date(), max(1.0, min(LIMIT, days / 4))
    for day in written:
        if later <= before.date():  # older holes change nothing
            break
        if day > later:  # written while the clock was ahead
            continue
        hole = (later - day).days
        if hole > limit:
            before -= timedelta(days=hole - limit)
            log.warning(
                "%s: nothing was written for %d days until %s. If the clock has jumped, set it right; if there was a "
                "pause, nothing need be done. What is older is kept that much longer", at.table.name, hole, later,
            )  # fmt: skip
        later = day
    return before
