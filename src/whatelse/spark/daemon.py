"""The process that Spark forks its Python workers from, with whatelse loaded, so that workers start at once.

After every task Spark invalidates the import caches (Python then reads the directory of Spark's archive again, 15 ms)
and runs the garbage collector (80 ms with compiled loops loaded). Both cost more than a step of a fit. Here the archive
stays cached, and objects loaded before the fork are frozen.
"""

from __future__ import annotations

import gc
import sys
from zipimport import zipimporter

import pyspark.worker  # noqa: F401
from pyspark.daemon import manager

import whatelse.learning.objective
import whatelse.spark.blocks
import whatelse.tagger
import whatelse.text.reader  # noqa: F401


def main() -> None:
    """`python -m whatelse.spark.daemon pyspark.worker`, as Spark starts it."""
    for finder in sys.path_importer_cache.values():
        if isinstance(finder, zipimporter):
            finder.invalidate_caches = lambda: None  # type: ignore[method-assign]
    gc.collect()
    gc.freeze()
    manager()


if __name__ == "__main__":
    main()
