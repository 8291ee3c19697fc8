"""write_visits: visits to a file that `read_visits` reads back equal."""

from __future__ import annotations

import gzip
import itertools
import json
import os
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import IO, Any

import pyarrow as pa
import pyarrow.parquet as pq

from whatelse.errors import InputError
from whatelse.io.files import writing
from whatelse.sources.columns import CODES, FIELDS
from whatelse.visits import Code, Visit

BATCH = 5_000
CODE = pa.struct([("system", pa.string()), ("code", pa.string()), ("name", pa.string())])
TYPES = {
    "age": pa.float64(),
    "time": pa.timestamp("us"),
    "truth": pa.list_(pa.string()),
    "numbers": pa.map_(pa.string(), pa.float64()),
    **dict.fromkeys(CODES, pa.list_(CODE)),
}
SCHEMA = pa.schema([(field, TYPES.get(field, pa.string())) for field in FIELDS])


def write_visits(visits: Iterable[Visit], path: str | os.PathLike[str]) -> int:
    """Write visits as .jsonl, .jsonl.gz or .parquet; returns how many.

    The same visits give the same bytes. The file appears under its name only when it is complete: it is
    written beside it first. A field that is unknown (None) is left out of the JSON object.
    """
    target = Path(path)
    name = target.name.lower()
    if not name.endswith((".jsonl", ".jsonl.gz", ".parquet")):
        raise InputError("visits are written as .jsonl, .jsonl.gz or .parquet", file=target)
    if not target.parent.is_dir():
        raise InputError("its folder does not exist; make it first", file=target)
    with writing(target) as stream:
        if name.endswith(".parquet"):
            return _write_parquet(visits, stream)
        if name.endswith(".jsonl"):
            return _write_lines(visits, stream)
        # no file name and no time in the gzip header: they would differ from run to run
        with gzip.GzipFile(filename="", mode="wb", fileobj=stream, mtime=0, compresslevel=6) as packed:
            return _write_lines(visits, packed)


def _write_lines(visits: Iterable[Visit], stream: IO[bytes] | gzip.GzipFile) -> int:
    count = 0
    dump = json.JSONEncoder(ensure_ascii=False, separators=(",", ":")).encode
    for batch in _batches(visits):
        stream.write("".join([dump(visit_to_dict(visit)) + "\n" for visit in batch]).encode())
        count += len(batch)
    return count


def _write_parquet(visits: Iterable[Visit], stream: IO[bytes]) -> int:
    count = 0
    with pq.ParquetWriter(stream, SCHEMA, compression="zstd") as writer:
        for batch in _batches(visits):
            columns = [[_plain(getattr(visit, field)) for visit in batch] for field in FIELDS]
            arrays = [pa.array(values, type=SCHEMA.field(i).type) for i, values in enumerate(columns)]
            writer.write_batch(pa.record_batch(arrays, schema=SCHEMA))
            count += len(batch)
    return count


def visit_to_dict(visit: Visit) -> dict[str, Any]:
    """A visit as JSON has it: known fields only, codes as objects {system, code, name}, time as ISO 8601."""
    record = {}
    for field in FIELDS:
        value = getattr(visit, field)
        if value is not None:
            plain = dict(value) if field == "numbers" else _plain(value)
            record[field] = value.isoformat() if field == "time" else plain
    return record


def _plain(value: Any) -> Any:
    if isinstance(value, Code):
        plain = {"system": value.system, "code": value.code}
        return plain if value.name is None else {**plain, "name": value.name}
    return [_plain(item) if isinstance(item, Code) else item for item in value] if isinstance(value, tuple) else value


def _batches(visits: Iterable[Visit]) -> Iterator[list[Visit]]:
    iterator = iter(visits)
    while batch := list(itertools.islice(iterator, BATCH)):
        yield batch
