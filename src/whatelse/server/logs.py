"""Logging of a server. Only whatelse's own loggers write below WARNING.

HTTP clients write URLs with patient ids at INFO, database drivers write rows at DEBUG: their loggers stay at WARNING
whatever level is asked for.
"""

from __future__ import annotations

import json
import logging
import threading
from datetime import UTC, datetime
from typing import TextIO

log = logging.getLogger("whatelse.server")


def configure_logging(level: int, log_format: str) -> None:
    """Write whatelse's lines from `level` on to standard error, as text or as JSON objects."""
    handler = _Standard()
    text = logging.Formatter("%(asctime)s %(levelname)s %(name)s %(message)s")
    handler.setFormatter(JsonFormatter() if log_format == "json" else text)
    logging.basicConfig(level=max(level, logging.WARNING), handlers=[handler], force=True)
    logging.getLogger("whatelse").setLevel(level)
    threading.excepthook = _ended


def _ended(args: threading.ExceptHookArgs) -> None:
    """A thread that an error ended, without the error's message, which may quote a record."""
    log.error("a thread ended: thread=%s error=%s", args.thread.name if args.thread else "", args.exc_type.__name__)


class _Standard(logging.StreamHandler[TextIO]):
    """Writes to standard error. A line that cannot be written is dropped.

    The default of `logging` prints a traceback instead, and the traceback quotes the error that was being handled.
    """

    def handleError(self, record: logging.LogRecord) -> None:
        pass


class JsonFormatter(logging.Formatter):
    """One JSON object for each line: time (UTC), level, logger, message."""

    def format(self, record: logging.LogRecord) -> str:
        at = datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds")
        line = {"time": at, "level": record.levelname, "logger": record.name, "message": record.getMessage()}
        return json.dumps(line, ensure_ascii=False)
