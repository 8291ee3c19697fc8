"""A Spark session for the commands. A program with a session of its own passes its DataFrames instead."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from whatelse.errors import WhatelseError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

LOCAL = "local[*]"
ROWS_AT_ONCE = "spark.sql.execution.arrow.maxRecordsPerBatch"


def session(master: str | None = None, settings: dict[str, str] | None = None) -> SparkSession:
    """A session on `master` (all cores of this machine if None), or the one that runs already.

    Python workers run this interpreter; no web page is served; nothing is written to an event log.
    """
    try:
        from pyspark.sql import SparkSession
    except ImportError:
        raise WhatelseError("this needs pyspark, which is not installed: pip install 'whatelse[spark]'") from None
    if not java():
        raise WhatelseError("Spark needs Java 17 or newer, and there is none here: install it, or set JAVA_HOME")
    own = {
        "spark.pyspark.python": sys.executable,
        "spark.pyspark.driver.python": sys.executable,
        "spark.python.daemon.module": "whatelse.spark.daemon",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "true" if sys.stderr.isatty() else "false",
        "spark.eventLog.enabled": "false",
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.shuffle.partitions": "16",
        "spark.driver.memory": "1g",
        "spark.log.level": "ERROR",
    }
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    builder: Any = SparkSession.builder
    builder = builder.appName("whatelse").master(master or LOCAL)
    for name, value in (own | (settings or {})).items():
        builder = builder.config(name, value)
    made: SparkSession = builder.getOrCreate()
    return made


def java() -> bool:
    """Whether there is a Java to run Spark with."""
    home = os.environ.get("JAVA_HOME")
    return shutil.which("java") is not None or (home is not None and (Path(home) / "bin" / "java").is_file())


@contextmanager
def rows_at_once(spark: SparkSession, rows: int) -> Iterator[None]:
    """Set the number of rows in a batch from Spark to Python: a row may be a chunk of thousands of visits."""
    before = spark.conf.get(ROWS_AT_ONCE)
    spark.conf.set(ROWS_AT_ONCE, str(rows))
    try:
        yield
    finally:
        spark.conf.set(ROWS_AT_ONCE, str(before))
