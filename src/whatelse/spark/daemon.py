"""The process that Spark forks its Python workers from, with whatelse loaded: workers begin at once, and share it.

Two things that Spark's own does after every task cost more than a step of a fit. It looks for modules anew, for which
Python reads the directory of Spark's archive again (some 15 ms), and it goes through all objects for garbage (80 ms
with compiled loops loaded). The archive does not change, and what was loaded before the fork is no garbage.
"""

from __future__ import annotations

import gc
import sys
from zipimport import zipimporter

import pyspark.worker  # noqa: F401
from pyspark.daemon import manager

import whatelse.noisyor.anchored.learner
import whatelse.spark.blocks
import whatelse.tagger
import whatelse.text.compiled  # noqa: F401


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
