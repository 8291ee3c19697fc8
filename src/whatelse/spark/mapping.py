"""Functions that run in Spark's Python workers. Their errors name the place and quote no record."""

from __future__ import annotations

import traceback
import warnings
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import pyarrow as pa

from whatelse.errors import WhatelseError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

Batches = Iterable[pa.RecordBatch]
Given = TypeVar("Given")
Made = TypeVar("Made")


def mapped(df: DataFrame, work: Callable[[Batches], Iterator[pa.RecordBatch]], schema: Any) -> DataFrame:
    """`df.mapInArrow`, with errors that hold no record content: Spark logs them."""

    def safe(batches: Batches) -> Iterator[pa.RecordBatch]:
        with _discreet():
            yield from work(batches)

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)  # about pandas, which is not used
        return df.mapInArrow(safe, schema)


def guarded(work: Callable[[Given], Made]) -> Callable[[Given], Made]:
    """The function, with errors that hold no record content."""

    def safe(given: Given) -> Made:
        with _discreet():
            return work(given)

    return safe


def partition() -> int:
    """The number of the partition that this worker is at."""
    from pyspark import TaskContext

    context = TaskContext.get()
    return context.partitionId() if context else 0


@contextmanager
def _discreet() -> Iterator[None]:
    """Replace errors of libraries, whose messages may quote a value, by type and place."""
    try:
        yield
    except (WhatelseError, GeneratorExit):
        raise
    except Exception as error:
        last = traceback.extract_tb(error.__traceback__)[-1]
        place = f"{Path(last.filename).name}, line {last.lineno}"
        raise WhatelseError(f"a worker failed: {type(error).__name__} in {place}") from None
