"""Rows of tags to a Parquet, CSV or JSON Lines file, written atomically."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import IO

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pacsv
import pyarrow.parquet as pq

from whatelse.errors import OutputError
from whatelse.io.files import writing

FORMATS = (".parquet", ".csv", ".jsonl")
DIGITS = 6  # of a probability in text; the certified error is a thousandth


def check_output(path: Path) -> None:
    """OutputError unless the file's name says a format and its folder is there."""
    if path.suffix.lower() not in FORMATS:
        raise OutputError(f"{path}: tags are written as {', '.join(FORMATS)}: give the file such a name")
    if not path.parent.is_dir():
        raise OutputError(f"{path}: its folder does not exist; make it first")


def write_rows(batches: Iterable[pa.RecordBatch], schema: pa.Schema, path: Path) -> int:
    """Write the file; returns how many rows are not certified."""
    counts = [0]

    def counted() -> Iterator[pa.RecordBatch]:
        for batch in batches:
            counts[0] += batch.num_rows - (pc.sum(batch.column("certified")).as_py() or 0)
            yield batch

    with writing(path) as stream:
        kind = path.suffix.lower()
        if kind == ".parquet":
            with pq.ParquetWriter(stream, schema, compression="zstd") as writer:
                for batch in counted():
                    writer.write_batch(batch)
        elif kind == ".csv":
            with pacsv.CSVWriter(stream, schema) as writer:
                for batch in counted():
                    writer.write_batch(_rounded(batch))
        else:
            _write_lines(counted(), stream)
    return counts[0]


def _write_lines(batches: Iterable[pa.RecordBatch], stream: IO[bytes]) -> None:
    dump = json.JSONEncoder(ensure_ascii=False, separators=(",", ":")).encode
    for batch in batches:
        stream.write("".join([dump(row) + "\n" for row in _rounded(batch).to_pylist()]).encode())


def _rounded(batch: pa.RecordBatch) -> pa.RecordBatch:
    columns = [pc.round(c, DIGITS) if pa.types.is_floating(c.type) else c for c in batch.columns]
    return pa.record_batch(columns, schema=batch.schema)
