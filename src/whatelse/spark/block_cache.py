"""Block cache: blocks of visits in files on a worker's disk while a model is fitted.

Every step of a fit needs every visit, and only the parameters change. A task gets the number of its run of blocks and
maps the file of the run into memory (below `SPARK_LOCAL_DIRS`); all Python workers of a machine share the pages. A
missing file (first use, another machine, a lost disk) is made from the cohort's dataset. Files hold numbers of findings
and arrays computed from them, are readable by their owner only, and are removed when the fit ends. Files of a lost
executor are removed with Spark's own.
"""

from __future__ import annotations

import json
import mmap
import os
import shutil
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from whatelse.cohort.folder import label_arrays
from whatelse.errors import CohortError
from whatelse.noisyor.blocks import Arrays, Work

ALIGNED = 64  # bytes: arrays begin at multiples of it
Groups = dict[str, list[int]]
"""File of a dataset -> which of its row groups."""


@dataclass(frozen=True)
class Visits:
    """The files of the visits of each run of blocks. Run k has the visits k * span … (k + 1) * span - 1.

    size   visits of a block;  m: conditions
    """

    groups: tuple[Groups, ...]
    visits: int
    size: int
    span: int
    m: int

    @classmethod
    def of(cls, folder: Path, visits: int, size: int, span: int, m: int) -> Visits:
        """From a dataset. The footers of its files give the range of visit numbers of each row group."""
        groups: list[Groups] = [{} for _ in range(max(-(-visits // span), 1))]
        for file in sorted(folder.glob("*.parquet")):
            about = pq.read_metadata(file)
            at = about.schema.names.index("row")
            for g in range(about.num_row_groups):
                known = about.row_group(g).column(at).statistics
                low, high = (known.min, known.max) if known is not None and known.has_min_max else (0, visits - 1)
                for run in groups[max(low // span, 0) : high // span + 1]:
                    run.setdefault(str(file), []).append(g)
        return cls(tuple(groups), visits, size, span, m)

    def blocks(self, run: int) -> Iterator[Arrays]:
        """The blocks of a run, read from the dataset."""
        first, end = run * self.span, min((run + 1) * self.span, self.visits)
        names = ["row", "findings", "conditions", "unknown"]
        parts = []
        for file, groups in self.groups[run].items():
            for g in groups:  # one at a time: a group may hold far more than this run
                table = pq.ParquetFile(file).read_row_group(g, columns=names, use_threads=False)
                row = table.column("row").to_numpy()
                inside = np.flatnonzero((row >= first) & (row < end))
                parts.append(table if inside.size == row.size else table.take(pa.array(inside)))
        rows = pa.concat_tables(parts) if parts else pa.table({name: pa.array([], pa.int64()) for name in names[:1]})
        number = rows.column("row").to_numpy()
        order = np.argsort(number, kind="stable")
        if not np.array_equal(number[order], np.arange(first, end)):
            raise CohortError("the cohort's dataset is damaged: visits are missing or twice; build it again")
        if not np.array_equal(order, np.arange(order.size)):
            rows = rows.take(pa.array(order))
        for at in range(first, end, self.size):
            yield self._arrays(rows.slice(at - first, self.size), at)

    def _arrays(self, table: pa.Table, first: int) -> Arrays:
        indptr, indices, Y, known = label_arrays(table, self.m, "the cohort's dataset")
        own: Arrays = {"number": np.array(first // self.size), "first": np.array(first)}
        return own | {"indptr": indptr.astype(np.int64), "indices": indices, "Y": Y, "known": known}


def kept(names: Sequence[str], how: Sequence[Any], run: int) -> Iterator[Arrays]:
    """The blocks of a run, from the cache or made: Visits first, then one function of a block after the other.

    names   folders of the cache, one for each stage; the blocks of the last stage are returned
    how     broadcast variables, one for each stage: Visits, then functions as Spark serialises them
    """
    path = _place(names[-1]) / str(run)
    if not path.exists():
        source: Visits | bytes = how[-1].value
        if isinstance(source, Visits):
            _write(path, source.blocks(run))
        else:
            from pyspark.serializers import CloudPickleSerializer

            make: Work = CloudPickleSerializer().loads(source)
            _write(path, map(make, kept(names[:-1], how[:-1], run)))
    return _read(path)


def forget(name: str) -> None:
    """Remove a folder of the cache."""
    shutil.rmtree(_place(name), ignore_errors=True)


def _place(name: str) -> Path:
    spark = os.environ.get("SPARK_LOCAL_DIRS", "").split(",")[0]
    return Path(spark or tempfile.gettempdir()) / f"whatelse-{name}"


def _write(path: Path, blocks: Iterable[Arrays]) -> None:
    """Write a file of blocks atomically. A block is a JSON line of names, types and shapes, then its arrays."""
    path.parent.mkdir(mode=0o700, exist_ok=True)
    handle, scratch = tempfile.mkstemp(dir=path.parent, prefix=".")
    try:
        with os.fdopen(handle, "wb") as file:
            for block in blocks:
                arrays = {name: np.ascontiguousarray(array) for name, array in block.items()}
                shapes = [[name, array.dtype.str, np.shape(block[name])] for name, array in arrays.items()]
                head = json.dumps(shapes).encode()
                file.write(len(head).to_bytes(8, "little") + head)
                for array in arrays.values():
                    _pad(file)
                    file.write(array.data)
                _pad(file)
        Path(scratch).replace(path)
    finally:
        Path(scratch).unlink(missing_ok=True)


def _pad(file: IO[bytes]) -> None:
    file.write(bytes(-file.tell() % ALIGNED))


def _read(path: Path) -> Iterator[Arrays]:
    """The blocks of a file, mapped into memory. Changes of the arrays stay in this process."""
    with path.open("rb") as file:
        whole = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_COPY)
    at = 0
    while at < len(whole):
        start = at + 8
        at = start + int.from_bytes(whole[at:start], "little")
        block: Arrays = {}
        for name, dtype, shape in json.loads(whole[start:at]):
            at += -at % ALIGNED
            count = int(np.prod(shape))
            block[name] = np.frombuffer(whole, dtype, count, at).reshape(shape)
            at += block[name].nbytes
        at += -at % ALIGNED
        yield block
