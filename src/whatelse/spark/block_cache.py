"""Block cache: blocks of visits in files on a worker's disk while a model is fitted.

Every step of a fit needs every visit, and only the parameters change. A task gets the number of its run of blocks and
maps the arrays of the run into memory (files below `SPARK_LOCAL_DIRS`); all Python workers of a machine share the
pages. A missing file (first use, another machine, a lost disk) is made from the cohort's dataset. Files hold numbers of
findings and labels, are readable by their owner only, and are removed when the fit ends. Files of a lost executor are
removed with Spark's own.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from whatelse.cohort.folder import label_arrays
from whatelse.errors import CohortError
from whatelse.noisyor.blocks import Arrays, cut

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

    def arrays(self, run: int) -> Arrays:
        """The visits of a run, read from the dataset: indptr, indices, Y and known."""
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
        indptr, indices, Y, known = label_arrays(rows, self.m, "the cohort's dataset")
        return {"indptr": indptr.astype(np.int64), "indices": indices, "Y": Y, "known": known}


def kept(name: str, visits: Visits, run: int) -> Iterator[Arrays]:
    """The blocks of a run, from the folder `name` of the cache, where they are put on first use.

    Arrays are mapped into memory. Changes of the arrays stay in this process.
    """
    place = _place(name) / str(run)
    if not place.exists():
        _write(place, visits.arrays(run))
    arrays = {file.stem: np.load(file, mmap_mode="c") for file in place.iterdir()}
    return cut(arrays.pop("indptr"), arrays.pop("indices"), arrays, run * visits.span, visits.size)


def forget(name: str) -> None:
    """Remove a folder of the cache."""
    shutil.rmtree(_place(name), ignore_errors=True)


def _place(name: str) -> Path:
    spark = os.environ.get("SPARK_LOCAL_DIRS", "").split(",")[0]
    return Path(spark or tempfile.gettempdir()) / f"whatelse-{name}"


def _write(place: Path, arrays: Arrays) -> None:
    """Write a folder of arrays atomically. Where another worker was faster, its folder stays."""
    place.parent.mkdir(mode=0o700, exist_ok=True)
    scratch = Path(tempfile.mkdtemp(dir=place.parent, prefix="."))
    try:
        for name, array in arrays.items():
            np.save(scratch / f"{name}.npy", array)
        scratch.rename(place)
    except OSError:
        if not place.exists():
            raise
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
