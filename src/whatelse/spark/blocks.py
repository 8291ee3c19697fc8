"""SparkBlocks: visits in blocks that lie in Spark, and sums over them, as `noisyor/sums.py` has them.

A row of the DataFrame is one block, its arrays packed into bytes. Blocks of BLOCK consecutive visits are cut by the
visits' numbers, and a task adds up an aligned run of them: so sums are those of the local engine, to the last bit,
however Spark partitions the visits and however often it runs a task again.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator
from itertools import groupby, pairwise
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import scipy.sparse as sp
from numpy.typing import NDArray

from whatelse.cohort.cohort import label_arrays
from whatelse.noisyor.sums import BLOCK, Arrays, Blocks, Merge, Work, added, tree
from whatelse.spark.mapping import mapped
from whatelse.spark.session import rows_at_once

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from whatelse.spark.dataset import SparkCohort

MOST_RUNS = 256  # tasks of a sum, at most: what comes to the driver is so many parts of it
ROWS = 16_384  # visits to a worker at a time while blocks are made
BLOCKS = 8  # blocks to a worker at a time
SMALL = 1 << 16  # bytes from which on an array is packed: counts are mostly zeros
SCHEMA = "run bigint, block bigint, arrays binary"


class SparkBlocks(Blocks):
    """Blocks of one DataFrame. `sample` gives the visits of some numbers; derived blocks have none."""

    def __init__(
        self, df: DataFrame, shape: tuple[int, int], sample: Callable[[NDArray[np.int64]], sp.csr_matrix] | None
    ) -> None:
        from pyspark import StorageLevel

        self.df, self.shape, self._sample = df.persist(StorageLevel.MEMORY_AND_DISK), shape, sample

    @classmethod
    def of(cls, cohort: SparkCohort) -> SparkBlocks:
        """The visits of a cohort: findings and, where every label is known, `Y`."""
        spark = cohort.df.sparkSession
        count, m = max(-(-len(cohort) // BLOCK), 1), len(cohort.conditions)
        width = run_of(count, spark.sparkContext.defaultParallelism)
        runs = -(-count // width)
        rows = cohort.df.selectExpr("row", "findings", "conditions", "unknown", f"row div {BLOCK * width} as run")
        parted: Any = rows.repartitionById(runs, rows.run.cast("int"))
        given = spark.sparkContext.broadcast((m, width, BLOCK))

        def work(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            m, width, size = given.value
            for block, table in _blocks(batches, size):
                yield _row(block // width, block, _arrays(table, block, block * size, m))

        made = mapped(parted.sortWithinPartitions("row"), work, SCHEMA)
        with rows_at_once(spark, ROWS):
            blocks = cls(made, (len(cohort), len(cohort.vocabulary.names)), lambda rows: cohort.rows(rows).X)
            blocks.df.count()  # made here, with batches of this size
        return blocks

    def total(self, of: Work, merge: Merge = added) -> Arrays:
        def work(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            for run, blocks in groupby(_unpacked(batches), key=lambda block: block[0]):
                total = tree((of(arrays) for _, _, arrays in blocks), merge)
                yield _row(run, 0, {name: np.asarray(value) for name, value in total.items()})

        with rows_at_once(self.df.sparkSession, BLOCKS):
            rows = mapped(self.df, work, SCHEMA).select("run", "arrays").collect()
        rows.sort(key=lambda row: row.run)
        return tree((unpack(pa.py_buffer(row.arrays)) for row in rows), merge)

    def derive(self, make: Work) -> Blocks:
        def work(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            for run, block, arrays in _unpacked(batches):
                yield _row(run, block, make(arrays))

        made = SparkBlocks(mapped(self.df, work, SCHEMA), self.shape, None)
        with rows_at_once(self.df.sparkSession, BLOCKS):
            made.df.count()
        return made

    def __getitem__(self, rows: Any) -> sp.csr_matrix:
        if self._sample is None:
            raise TypeError("blocks that were derived have no rows")
        return self._sample(np.asarray(rows, np.int64))

    def release(self) -> None:
        self.df.unpersist()


def run_of(blocks: int, cores: int) -> int:
    """Blocks in a run: the least power of two that gives few enough runs; several a core where there are as many."""
    width = 1
    while -(-blocks // width) > min(MOST_RUNS, max(4 * cores, 8)):
        width *= 2
    return width


def pack(arrays: Arrays) -> bytes:
    """Arrays as bytes: a line of JSON that says names, types, shapes and sizes, then the arrays one after the other."""
    bodies, heads = [], []
    for name, given in arrays.items():
        array = np.ascontiguousarray(given)
        body: Any = array.tobytes()
        if packed := array.nbytes >= SMALL and array.dtype.kind == "f":
            body = pa.compress(body, codec="lz4", asbytes=True)
        heads.append([name, array.dtype.str, np.shape(given), len(body), packed])
        bodies.append(body)
    head = json.dumps(heads).encode()
    return b"".join([len(head).to_bytes(8, "little"), head, *bodies])


def unpack(buffer: pa.Buffer) -> Arrays:
    """What `pack` made. Arrays are copies: compiled loops want them aligned, and to be able to write."""
    view = memoryview(buffer)
    at = 8 + int.from_bytes(view[:8], "little")
    out: Arrays = {}
    for name, dtype, shape, size, packed in json.loads(bytes(view[8:at])):
        body: Any = view[at : at + size]
        at += size
        if packed:
            body = pa.decompress(body, int(np.prod(shape)) * np.dtype(dtype).itemsize, codec="lz4")
        out[name] = np.frombuffer(body, dtype).reshape(shape).copy()
    return out


def _row(run: int, block: int, arrays: Arrays) -> pa.RecordBatch:
    names = ["run", "block", "arrays"]
    return pa.record_batch([pa.array([run]), pa.array([block]), pa.array([pack(arrays)], pa.binary())], names=names)


def _unpacked(batches: Iterable[pa.RecordBatch]) -> Iterator[tuple[int, int, Arrays]]:
    """(run, block, its arrays), in the order of blocks within a partition."""
    for batch in batches:
        for k in range(batch.num_rows):
            arrays = unpack(batch.column(2)[k].as_buffer())
            yield batch.column(0)[k].as_py(), batch.column(1)[k].as_py(), arrays


def _blocks(batches: Iterable[pa.RecordBatch], size: int) -> Iterator[tuple[int, pa.Table]]:
    """(block, its rows, `size` at most) of rows that are in the order of their numbers."""
    waiting: list[pa.RecordBatch] = []
    for batch in batches:
        numbers = batch.column("row").to_numpy() // size
        cuts = [0, *(np.flatnonzero(np.diff(numbers)) + 1).tolist(), len(numbers)]
        for start, end in pairwise(cuts):
            if end == start:
                continue
            if waiting and waiting[-1].column("row")[0].as_py() // size != numbers[start]:
                yield waiting[0].column("row")[0].as_py() // size, pa.Table.from_batches(waiting)
                waiting = []
            waiting.append(batch.slice(start, end - start))
    if waiting:
        yield waiting[0].column("row")[0].as_py() // size, pa.Table.from_batches(waiting)


def _arrays(table: pa.Table, number: int, first: int, m: int) -> Arrays:
    """The arrays of one block of visits."""
    indptr, indices, Y, known = label_arrays(table, m, "the cohort's dataset")
    own: Arrays = {"number": np.array(number), "first": np.array(first)}
    return own | {"indptr": indptr.astype(np.int64), "indices": indices, "Y": Y, "known": known}
