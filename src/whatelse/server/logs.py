"""Logging of a server. Only whatelse's own loggers write below WARNING.

HTTP clients write URLs with patient ids at INFO, database drivers write rows at DEBUG: their loggers stay at WARNING
whatever level is asked for.
"""

from __future__ import annotations

import json
import logging
from datetime import UTC, datetime


def configure_logging(level: int, log_format: str) -> None:
    """Write whatelse's lines from `level` on to standard error, as text or as JSON objects."""
    handler = logging.StreamHandler()
    text = logging.Formatter("%(asctime)s %(levelname)s %(name)s %(message)s")
    handler.setFormatter(JsonFormatter() if log_format == "json" else text)
    logging.basicConfig(level=max(level, logging.WARNING), handlers=[handler], force=True)
    logging.getLogger("whatelse").setLevel(level)


class JsonFormatter(logging.Formatter):
    """One JSON object for each line: time (UTC), level, logger, message."""

    def format(self, record: logging.LogRecord) -> str:
        at = datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds")
        line = {"time": at, "level": record.levelname, "logger": record.name, "message": record.getMessage()}
        return json.dumps(line, ensure_ascii=False)
