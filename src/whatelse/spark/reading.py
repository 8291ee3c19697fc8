"""DataFrame -> visits, batch by batch in the Python workers, by the functions that read a local table.

A row is named by file and row number if the DataFrame comes straight from Parquet files, else by partition and row
number.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote, urlparse

import numpy as np
import pyarrow as pa

from whatelse.errors import InputError
from whatelse.sources.columns import locate
from whatelse.sources.description import Description, describe
from whatelse.sources.report import OnError, Report
from whatelse.sources.tables import FRAME, positions, read_arrow
from whatelse.spark.mapping import partition
from whatelse.visits import Visit

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

FILE, ROW = "__whatelse_file", "__whatelse_row"
ROWS = 2_000  # rows that go to a worker at a time


@dataclass(frozen=True, eq=False)
class SparkVisits:
    """Visits of a DataFrame, for `build_cohort` and `tag`. Reading is lazy.

    df       the columns that are used and, if `located`, the file and the row there of each row
    how      which column is which field, as `read_visits` of local files has it
    files    in their order; of files not named here, by name after these
    """

    df: DataFrame
    how: Description
    on_error: OnError
    located: bool
    files: tuple[str, ...] = ()


def read_visits(
    df: DataFrame,
    columns: str | Path | Mapping[str, Any] | None = None,
    *,
    like: Mapping[str, Any] | None = None,
    on_error: OnError = "raise",
    files: Sequence[str] = (),
) -> SparkVisits:
    """The visits of a DataFrame, by a column map as for `whatelse.read_visits`.

    columns   the map, as a YAML file or a dict; like: the one that a cohort or model kept (`vocabulary.source`)
    on_error  "raise": the first row that cannot be used ends it; "skip": such rows are counted and left out
    """
    from pyspark.errors import AnalysisException

    how = describe(Path(columns) if isinstance(columns, str) else columns, saved=like)
    if how.source != "table":
        raise InputError(f"a DataFrame is a table, not {how.source!r}: give its columns")
    Report(on_error)  # which refuses anything else
    use = [df.columns[at] for at in positions(locate(how.columns, df.columns, FRAME))]
    wanted = [f"`{name.replace('`', '``')}`" for name in use]
    try:
        named = df.selectExpr(*wanted, f"_metadata.file_path as {FILE}", f"_metadata.row_index as {ROW}")
        return SparkVisits(named, how, on_error, True, tuple(files))
    except AnalysisException:  # it does not come straight from Parquet files
        return SparkVisits(df.selectExpr(*wanted), how, on_error, False)


def parquet_files(paths: Iterable[Path]) -> list[str]:
    """The Parquet files of some files and folders, folders in the order of names."""
    found: list[str] = []
    for path in paths:
        if not path.exists():
            raise InputError("no such file or folder", file=path)
        visible = (p for p in path.rglob("*.parquet") if not p.name.startswith((".", "_")))
        inside = sorted(visible) if path.is_dir() else []
        if path.is_dir() and not inside:
            raise InputError("holds no .parquet file: Spark reads Parquet here, write it so first", file=path)
        if path.is_file() and path.suffix.lower() not in (".parquet", ".pq"):
            raise InputError("is not a .parquet file: '--engine spark' reads Parquet files and folders", file=path)
        found += map(str, (p.absolute() for p in (inside or [path])))
    return found


class Stream:
    """The visits of one partition, in the worker: (file, row from 1, visit), and what was left out so far."""

    def __init__(self, how: Description, on_error: OnError) -> None:
        self.how, self.report = how, Report(on_error)

    def visits(self, batches: Iterable[pa.RecordBatch]) -> Iterator[tuple[str, int, Visit]]:
        """In order. InputError for a row that cannot be used, unless such rows are skipped."""
        count = 0
        for batch in batches:
            for file, rows, part in self._runs(batch, count):
                found = read_arrow(part.schema.names, [part], self.report, self.how.columns, file, rows)
                yield from ((file, row, visit) for row, visit in found)
            count += batch.num_rows

    def _runs(self, batch: pa.RecordBatch, count: int) -> Iterator[tuple[str, list[int], pa.RecordBatch]]:
        """(file, numbers of the rows, rows) for each file that rows of the batch come from."""
        if FILE not in batch.schema.names:
            counted = list(range(count + 1, count + batch.num_rows + 1))
            yield f"{FRAME}, partition {partition()}", counted, batch
            return
        plain, rows = batch.drop_columns([FILE, ROW]), np.asarray(batch.column(ROW)) + 1
        files = batch.column(FILE).dictionary_encode()
        which = np.asarray(files.indices)
        for k, file in enumerate(files.dictionary.to_pylist()):
            some = np.flatnonzero(which == k)
            part = plain if some.size == which.size else plain.take(pa.array(some))
            yield local_name(file), rows[some].tolist(), part


def local_name(address: str) -> str:
    """A file's address as Spark gives it, as a path where it is one."""
    parts = urlparse(address)
    return unquote(parts.path) if parts.scheme == "file" else address
