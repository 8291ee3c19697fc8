"""tag on Spark: a DataFrame of visits to a DataFrame of certified probabilities, in no particular order."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from whatelse.batch.answers import AT_ONCE, Asked, answers, schema_of
from whatelse.cohort.batches import BatchReader
from whatelse.sources.report import OnError
from whatelse.spark.mapping import mapped
from whatelse.spark.reading import SparkVisits, Stream, read_visits
from whatelse.tagger import Tagger

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def tag(
    visits: SparkVisits | DataFrame,
    model: Tagger | str | Path,
    *,
    confirmed: Iterable[str] = (),
    rejected: Iterable[str] = (),
    columns: str | Path | Mapping[str, Any] | None = None,
    on_error: OnError = "raise",
) -> DataFrame:
    """A DataFrame with a row a visit: id, the probability of every condition, error_bound and certified.

    The model is broadcast once; nothing runs before the DataFrame is used. A row that cannot be used ends the task
    with its file and row, or with on_error="skip" is not in the answer.
    """
    from pyspark.sql.pandas.types import from_arrow_schema

    tagger = model if isinstance(model, Tagger) else Tagger.load(model)
    asked = Asked.of(tagger, confirmed, rejected)
    if not isinstance(visits, SparkVisits):
        visits = read_visits(visits, columns, like=tagger.vocabulary_.source, on_error=on_error)
    schema = schema_of(tagger)
    given = visits.df.sparkSession.sparkContext.broadcast((visits.how, visits.on_error, tagger, asked))

    def work(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        how, wrong, tagger, asked = given.value
        found = (visit for _, _, visit in Stream(how, wrong).visits(batches))
        reader = BatchReader(tagger.vocabulary_)
        while some := list(islice(found, AT_ONCE)):
            yield answers(tagger, reader, some, asked)

    return mapped(visits.df, work, from_arrow_schema(schema))
