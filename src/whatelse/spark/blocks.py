"""SparkBlocks: visits in blocks that lie with Spark's workers, and sums over them, as `noisyor/sums.py` has them.

Blocks of BLOCK consecutive visits are cut by the visits' numbers, and a task adds up an aligned run of them: so sums
are those of the local engine, to the last bit, however often Spark runs a task again, and wherever. A task receives the
number of its run and what is to be computed; workers keep the blocks (`kept.py`).
"""

from __future__ import annotations

import json
import uuid
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import scipy.sparse as sp

from whatelse.noisyor.sums import BLOCK, Arrays, Blocks, Merge, Work, added, joined, tree
from whatelse.spark.kept import Visits, forget, kept
from whatelse.spark.mapping import guarded

if TYPE_CHECKING:
    from whatelse.spark.dataset import SparkCohort

MOST_RUNS = 256  # tasks of a sum, at most: what comes to the driver is so many parts of it
SMALL = 1 << 16  # bytes from which on an array is packed: counts are mostly zeros


class SparkBlocks(Blocks):
    """Blocks of visits, or made of these one by one.

    runs    an RDD of the numbers of runs, kept by Spark: so a task goes where its run was before
    names   of what workers keep: of the visits' blocks, of those made of them, …
    how     broadcast beside each: how it is made
    """

    def __init__(self, runs: Any, names: tuple[str, ...], how: tuple[Any, ...], shape: tuple[int, int]) -> None:
        self.runs, self.names, self.how, self.shape = runs, names, how, shape

    @classmethod
    def of(cls, cohort: SparkCohort) -> SparkBlocks:
        """The visits of a cohort: findings and what is known of labels."""
        context, N = cohort.df.sparkSession.sparkContext, len(cohort)
        span = BLOCK * run_of(max(-(-N // BLOCK), 1), context.defaultParallelism)
        where = Visits.of(cohort.folder / "visits.parquet", N, BLOCK, span, len(cohort.conditions))
        count = len(where.groups)
        runs = context.parallelize(range(count), count).map(int).persist()
        return cls(runs, (uuid.uuid4().hex,), (context.broadcast(where),), (N, len(cohort.vocabulary.names)))

    def total(self, of: Work, merge: Merge = added) -> Arrays:
        names, how = self.names, self.how

        def work(run: int) -> bytes:
            return pack(tree(map(of, kept(names, how, run)), merge))

        return tree(map(unpack, self.runs.map(guarded(work)).collect()), merge)

    def derive(self, make: Work) -> Blocks:
        from pyspark.serializers import CloudPickleSerializer

        how = self.runs.context.broadcast(CloudPickleSerializer().dumps(make))  # plain pickle has no inner functions
        name = f"{self.names[0]}/{uuid.uuid4().hex}"  # within the visits' folder: it goes with that at the latest
        return SparkBlocks(self.runs, (*self.names, name), (*self.how, how), self.shape)

    def __getitem__(self, rows: Any) -> sp.csr_matrix:
        if len(self.names) > 1:
            raise TypeError("blocks that were derived have no rows")
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
        name = self.names[-1]
        self.runs.foreach(lambda run: forget(name))
        self.how[-1].unpersist()
        if len(self.names) == 1:
            self.runs.unpersist()


def run_of(blocks: int, cores: int) -> int:
    """Blocks in a run: the least power of two that gives two runs a core at most: a task costs some 60 ms."""
    width = 1
    while -(-blocks // width) > min(MOST_RUNS, 2 * cores):
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


def unpack(given: bytes) -> Arrays:
    """What `pack` made. Arrays are copies: compiled loops want them aligned, and to be able to write."""
    view = memoryview(given)
    at = 8 + int.from_bytes(view[:8], "little")
    out: Arrays = {}
    for name, dtype, shape, size, packed in json.loads(bytes(view[8:at])):
        body: Any = view[at : at + size]
        at += size
        if packed:
            body = pa.decompress(body, int(np.prod(shape)) * np.dtype(dtype).itemsize, codec="lz4")
        out[name] = np.frombuffer(body, dtype).reshape(shape).copy()
    return out
