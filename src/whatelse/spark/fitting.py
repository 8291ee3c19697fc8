"""fit on Spark: the learners of `learning/` with sums over blocks of visits on the workers (`blocks.py`).

Samples of bounded size (docs/scale.md) come to the driver, as numbers of findings. Other visits stay on the workers.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from heapq import nsmallest
from typing import Any, cast

import pyarrow as pa

from whatelse.annotators import NoiseRates
from whatelse.annotators.data_checks import SKETCH, hashed
from whatelse.cohort import Cohort
from whatelse.errors import ModelError
from whatelse.learning.learners import DEFAULT, Progress
from whatelse.spark.dataset import SparkCohort
from whatelse.spark.mapping import mapped
from whatelse.tagger import Tagger

LEARNERS = (DEFAULT, "moments", "naive", "oracle")


def fit(
    cohort: SparkCohort,
    learner: str = DEFAULT,
    *,
    rates: NoiseRates | None = None,
    seed: int = 0,
    settings: dict[str, Any] | None = None,
    progress: Progress | None = None,
) -> Tagger:
    """A Tagger that learned from a cohort in Spark, as `Tagger.fit` does from a local one."""
    if learner not in LEARNERS:
        raise ModelError(f"learner {learner!r} runs on one machine; on Spark there are {', '.join(LEARNERS)}")
    tagger = Tagger(learner, settings=settings, seed=seed)
    try:
        tagger.fit(cast(Cohort, cohort), rates=rates, progress=progress)
    finally:
        cohort.release()
    tagger.notes_["learned_from"] = sketch(cohort)
    return tagger


def sketch(cohort: SparkCohort) -> list[str]:
    """`annotators.data_checks.sketch` on Spark: the smallest hashes of visit ids, to recognise the visits later."""

    def work(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        least: list[str] = []
        for batch in batches:
            least = nsmallest(SKETCH, {*least, *map(hashed, batch.column(0).to_pylist())})
        yield pa.record_batch([pa.array(least, pa.string())], names=["hash"])

    rows = mapped(cohort.df.select("id"), work, "hash string").collect()
    return nsmallest(SKETCH, {row.hash for row in rows})
