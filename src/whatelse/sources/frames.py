"""Data frames as tables: pandas, polars, Arrow, DuckDB …, through the Arrow PyCapsule interface or the older dataframe
interchange protocol. None of those libraries is imported here.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pyarrow as pa

from whatelse.errors import InputError
from whatelse.sources.columns import ColumnMap
from whatelse.sources.report import Report
from whatelse.sources.tables import read_arrow
from whatelse.visits import Visit

FRAME = "the data frame"


def read_frame(frame: Any, report: Report, columns: ColumnMap) -> Iterator[tuple[int, Visit]]:
    """(row from 1, visit) of a data frame. A missing value (None, NaN, NaT, NA) is unknown."""
    table = to_arrow(frame)
    if not table.num_rows:
        raise InputError("has no rows", file=FRAME)
    return read_arrow(table.schema.names, table.to_batches(), report, columns, FRAME, FRAME)


def to_arrow(frame: Any) -> pa.Table:
    """The frame as an Arrow table, without its pandas index unless that has a name."""
    try:
        if isinstance(frame, pa.Table):
            return frame
        if hasattr(frame, "__arrow_c_stream__") or hasattr(frame, "__arrow_c_array__"):
            table = pa.table(frame)
        else:
            from pyarrow.interchange import from_dataframe

            table = from_dataframe(frame)
    except (pa.ArrowException, TypeError, ValueError, NotImplementedError):
        # Arrow names the column and, for mixed types, the type, but may quote a value: say neither
        raise InputError(
            "cannot be read as an Arrow table: a column holds values of several types; make each column one type "
            "(text columns: frame[column].astype('string'))",
            file=FRAME,
        ) from None
    unnamed = [name for name in table.schema.names if name.startswith("__index_level_")]
    return table.drop_columns(unnamed) if unnamed else table
