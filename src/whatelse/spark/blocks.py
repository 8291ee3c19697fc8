"""SparkBlocks: `noisyor/blocks.py` with the blocks on Spark's workers.

A block has BLOCK consecutive visits, and a task adds an aligned run of blocks. Sums are therefore equal to those of the
local engine to the last bit, wherever and however often Spark runs a task. A task gets the number of its run and the
function; workers keep the blocks (`block_cache.py`).
"""

from __future__ import annotations

import uuid
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import scipy.sparse as sp
from safetensors.numpy import load, save

from whatelse.noisyor.blocks import BLOCK, Arrays, Blocks, Merge, Work, added, joined, tree
from whatelse.spark.block_cache import Visits, forget, kept
from whatelse.spark.mapping import guarded

if TYPE_CHECKING:
    from whatelse.spark.dataset import SparkCohort

MOST_RUNS = 256  # most tasks of a sum: each sends one partial sum to the driver


class SparkBlocks(Blocks):
    """The visits of a cohort: findings and what is known of labels.

    runs    RDD of run numbers. Spark persists it, so a task goes to the worker that had the run before
    name    folder of the block cache
    where   broadcast variable: the files that each run is made from
    """

    def __init__(self, cohort: SparkCohort) -> None:
        context, N = cohort.df.sparkSession.sparkContext, len(cohort)
        span = BLOCK * run_of(max(-(-N // BLOCK), 1), context.defaultParallelism)
        where = Visits.of(cohort.folder / "visits.parquet", N, BLOCK, span, len(cohort.conditions))
        count = len(where.groups)
        self.runs = context.parallelize(range(count), count).map(int).persist()
        self.name, self.where = uuid.uuid4().hex, context.broadcast(where)
        self.shape = (N, len(cohort.vocabulary.names))

    def total(self, of: Work, merge: Merge = added) -> Arrays:
        name, where = self.name, self.where

        def work(run: int) -> bytes:
            return pack(tree(map(of, kept(name, where.value, run)), merge))

        return tree(map(unpack, self.runs.map(guarded(work)).collect()), merge)

    def __getitem__(self, rows: Any) -> sp.csr_matrix:
        wanted = np.asarray(rows, np.int64)

        def of(block: Arrays) -> Arrays:
            first, sizes = int(block["first"]), np.diff(block["indptr"])
            low, high = np.searchsorted(wanted, [first, first + sizes.size])
            own = np.zeros(sizes.size, bool)
            own[wanted[low:high] - first] = True
            return {"size": sizes[own], "indices": block["indices"][np.repeat(own, sizes)]}

        found = self.total(of, joined)
        ends = np.concatenate([[0], np.cumsum(found["size"])])
        values = np.ones(found["indices"].size, np.uint8)
        return sp.csr_matrix((values, found["indices"], ends), shape=(wanted.size, self.shape[1]))

    def release(self) -> None:
        """The blocks are no longer needed."""
        name = self.name
        self.runs.foreach(lambda run: forget(name))
        self.where.unpersist()
        self.runs.unpersist()


def run_of(blocks: int, cores: int) -> int:
    """Blocks in a run: the least power of two with at most two runs a core. A task costs about 60 ms."""
    width = 1
    while -(-blocks // width) > min(MOST_RUNS, 2 * cores):
        width *= 2
    return width


def pack(arrays: Arrays) -> bytes:
    """Arrays as bytes: their length, then safetensors, compressed: counts are mostly zeros."""
    plain = save({name: np.asarray(array, order="C") for name, array in arrays.items()})
    packed: bytes = pa.compress(plain, codec="lz4", asbytes=True)
    return len(plain).to_bytes(8, "little") + packed


def unpack(given: bytes) -> Arrays:
    """The arrays of `pack`, aligned and writable."""
    size = int.from_bytes(given[:8], "little")
    found: Arrays = load(pa.decompress(given[8:], size, codec="lz4", asbytes=True))
    return found
