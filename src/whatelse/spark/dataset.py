"""SparkCohort: a cohort as a Parquet dataset, `visits.parquet`, beside its `cohort.json`.

Its columns are those of a local cohort and `row`, the number of each visit; `whatelse.cohort.Cohort.open` opens it too.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
from numpy.typing import ArrayLike, NDArray

from whatelse.cohort import Cohort, Vocabulary
from whatelse.cohort.contingency import Tally
from whatelse.cohort.folder import DATASET, check_place, read_header, write_header
from whatelse.cohort.vocabulary import HasVocabulary
from whatelse.errors import CohortError
from whatelse.io.files import write_folder
from whatelse.noisyor.blocks import Arrays, fires
from whatelse.spark.blocks import SparkBlocks
from whatelse.spark.mapping import mapped, partition

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

COLUMNS = ("row", "id", "findings", "conditions", "unknown", "fields")
PARQUET = "row bigint, id string, findings array<int>, conditions array<int>, unknown array<int>, fields array<int>"
MOST_LABELLED = 100_000  # labelled visits that are learned from, at most: they come to the driver
GROUP = 4 << 20  # bytes of a row group, some 50,000 visits: a worker that wants a run of blocks reads little else
MOST_ROWS = 500_000  # visits that come to the driver at once, at most


@dataclass(frozen=True, eq=False)
class SparkCohort(HasVocabulary):
    """N visits in a dataset on disk; vocabulary and `about` as in a local cohort."""

    df: DataFrame
    vocabulary: Vocabulary
    visits: int
    folder: Path
    about: Mapping[str, Any]

    @classmethod
    def open(cls, folder: str | Path, spark: SparkSession) -> SparkCohort:
        """Open a cohort that Spark built; CohortError for one that the local engine built."""
        place = Path(folder).absolute()
        header = read_header(place)
        if header["version"] != DATASET:
            problem = f"{place} was built by the local engine"
            raise CohortError(f"{problem}: fit it without --engine spark, or build it with it")
        df = spark.read.schema(PARQUET).parquet((place / "visits.parquet").as_uri())
        vocabulary = Vocabulary.from_json(header["vocabulary"])
        return cls(df, vocabulary, int(header["visits"]), place, header.get("about", {}))

    def __len__(self) -> int:
        return self.visits

    @cached_property
    def X(self) -> SparkBlocks:
        """The visits in blocks, which learners sum over. Spark keeps them until `release`."""
        return SparkBlocks(self)

    def release(self) -> None:
        """Blocks are no longer needed."""
        if "X" in self.__dict__:
            self.X.release()
            del self.__dict__["X"]

    Y = None  # labels stay where the visits are

    @cached_property
    def _tally(self) -> Tally:
        columns, n = self.anchor_columns.astype(np.int64), len(self.vocabulary.names)

        def of(block: Arrays) -> Arrays:
            tally = Tally.of(fires(block, columns, n), block["Y"], block["known"])
            return {name: np.asarray(value) for name, value in vars(tally).items()}

        found = self.X.total(of)
        counts = (found[name] for name in ("fires", "known", "true", "both", "fires_known"))
        return Tally(int(found["visits"]), int(found["some"]), int(found["whole"]), *counts)

    def tally(self) -> Tally:
        """Counts of anchors, labels and both."""
        return self._tally

    @property
    def fully_labelled(self) -> bool:
        """Whether every condition of every visit is known."""
        return self._tally.whole == len(self)

    def labelled_part(self) -> tuple[NDArray[np.intp], Cohort]:
        """Row numbers of the visits with a label, and these visits; at most MOST_LABELLED, at random."""
        rows = np.sort(self.df.where("conditions is not null").select("row").toArrow().column("row").to_numpy())
        if rows.size > MOST_LABELLED:
            rows = np.sort(np.random.default_rng(0).choice(rows, MOST_LABELLED, replace=False))
        return rows.astype(np.intp), self.rows(rows)

    def rows(self, which: ArrayLike) -> Cohort:
        """Some of the visits, by number, rising, as a local cohort on the driver."""
        numbers = np.asarray(which, dtype=np.int64)
        if numbers.size > MOST_ROWS:
            raise CohortError(f"{numbers.size:,} visits do not come to the driver; at most {MOST_ROWS:,} do")
        table = self.table(pa.array(numbers))
        return Cohort.from_columns(table, self.vocabulary, self.about, self.folder)

    def table(self, numbers: pa.Array) -> pa.Table:
        """The rows of these numbers as Arrow columns, in order of number."""
        from pyspark.sql import functions as F

        wanted = F.broadcast(self.df.sparkSession.createDataFrame(pa.table({"row": numbers})))
        table = self.df.join(wanted, "row", "left_semi").select(*COLUMNS).toArrow()
        return table.take(pa.array(np.argsort(table.column("row").to_numpy(), kind="stable")))


def save(
    rows: DataFrame,
    vocabulary: Vocabulary,
    count: int,
    out: Path,
    about: Mapping[str, Any],
    *,
    order: tuple[str, ...] | None,
) -> SparkCohort:
    """Write rows and header; the folder appears whole or not at all.

    order   the columns by which rows are put in order and numbered; None: they have their numbers
    """
    check_place(out)
    kept = None if order is None else rows.orderBy(*order).select(*COLUMNS).persist()
    final = rows.select(*COLUMNS) if kept is None else _numbered(kept)

    def fill(folder: Path) -> None:
        final.write.option("parquet.block.size", GROUP).parquet((folder / "visits.parquet").absolute().as_uri())
        write_header(folder, DATASET, count, vocabulary, about)

    write_folder(out, fill)
    if kept is not None:
        kept.unpersist()
    return SparkCohort.open(out, rows.sparkSession)


def _numbered(rows: DataFrame) -> DataFrame:
    """Rows that are in order, with their numbers."""
    from pyspark.sql import functions as F

    sizes = rows.groupBy(F.spark_partition_id().alias("p")).agg(F.count("*").alias("n")).orderBy("p").collect()
    starts = {row.p: end - row.n for row, end in zip(sizes, accumulate(row.n for row in sizes), strict=True)}

    def work(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        number = starts.get(partition(), 0)
        for batch in batches:
            row = pa.array(np.arange(number, number + batch.num_rows), pa.int64())
            yield pa.record_batch([row, *batch.columns[1:]], names=batch.schema.names)
            number += batch.num_rows

    return mapped(rows, work, PARQUET)
