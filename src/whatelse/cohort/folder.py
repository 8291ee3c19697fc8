"""The folder form of a cohort.

It holds two files:
- `visits.arrow`, one Arrow record batch that is opened by memory map: `id`, `findings` (a list of finding numbers for
  each visit: its offsets and values are the CSR matrix itself), `conditions` (a list of the numbers of the conditions
  that are true, or null where nothing is known) and `unknown` (a list of the numbers of the conditions of which nobody
  knows, null where nothing is known; version 1 did not have it: all or nothing was known of a visit), and `fields` (a
  list of the fields that the record had, as places in the sorted list of fields that findings come from; cohorts of
  version 0.2 and before do not have it);
- `cohort.json`: the vocabulary, where the visits came from, and what `visits.arrow` must be like.
A cohort that Spark built has, instead of `visits.arrow`, the folder `visits.parquet` (version 3): the same columns, and
`row`, the number of each visit, for they stand there in any order.
No text of a record is in either.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from whatelse.cohort.fields import FieldCollector, FieldSets
from whatelse.cohort.vocabulary import Vocabulary
from whatelse.errors import CohortError
from whatelse.types import Bools

VERSION = 2
DATASET = 3  # the version of a header beside a Parquet dataset
READABLE = (1, 2, DATASET)


def check_place(folder: Path) -> None:
    """CohortError if something is there that is not a cohort: only a cohort is replaced."""
    if folder.exists() and not (folder / "cohort.json").is_file() and (folder.is_file() or any(folder.iterdir())):
        raise CohortError(f"{folder} exists and is not a cohort: choose another place, or remove it first")


# ---- the header


def write_header(
    folder: Path, version: int, visits: int, vocabulary: Vocabulary, about: Mapping[str, Any], **more: Any
) -> None:
    """Write cohort.json."""
    header = {
        "format": "whatelse cohort",
        "version": version,
        "visits": visits,
        **more,
        "about": dict(about),
        "vocabulary": vocabulary.to_json(),
    }
    (folder / "cohort.json").write_text(json.dumps(header, indent=1, ensure_ascii=False), encoding="utf-8")


def read_header(folder: Path) -> dict[str, Any]:
    """The content of cohort.json, or a CohortError that says why this is not a cohort."""
    path = folder / "cohort.json"
    if not path.is_file():
        if left := sorted(folder.absolute().parent.glob(f".{folder.name}-*/old/cohort.json")):
            where = left[-1].parent.relative_to(folder.absolute().parent)
            problem = f"{folder} is not there: writing it was interrupted"
            raise CohortError(f"{problem}. The cohort from before is beside it as '{where}': move it back")
        problem = "is not a cohort: it has no cohort.json" if folder.exists() else "is not there"
        raise CohortError(f"{folder} {problem}; make a cohort with 'whatelse build'")
    try:
        header = json.loads(path.read_text("utf-8"))
    except ValueError:
        raise CohortError(f"{path} is damaged: it is not JSON; build the cohort again") from None
    if not isinstance(header, dict) or header.get("format") != "whatelse cohort":
        raise CohortError(f"{path} is not the header of a cohort")
    if header.get("version") not in READABLE:
        raise CohortError(f"{path} is of version {header.get('version')}, needs {VERSION}; build the cohort again")
    needed = {"vocabulary"} | ({"crc32"} if header["version"] != DATASET else set())
    if missing := needed - set(header):
        raise CohortError(f"{path} is damaged: it has no {sorted(missing)[0]!r}; build the cohort again")
    return header


def vocabulary_of(folder: str | Path) -> Vocabulary:
    """The vocabulary of a cohort's folder; its visits are not opened."""
    return Vocabulary.from_json(read_header(Path(folder))["vocabulary"])


# ---- the visits


def columns_of(
    ids: list[str],
    indptr: NDArray[Any],
    indices: NDArray[Any],
    Y: Bools,
    known: Bools,
    fields: list[list[int]] | None = None,
) -> pa.RecordBatch:
    """Visits as Arrow columns: id, findings, true conditions, conditions without a label, fields."""
    some = np.asarray(known.any(axis=1))
    return pa.record_batch(
        {
            "id": pa.array(ids, pa.string()),
            "findings": pa.ListArray.from_arrays(indptr.astype(np.int32), indices.astype(np.int32)),
            "conditions": _lists(Y, ~some),
            "unknown": _lists(~known & some[:, None], ~some),
            **({} if fields is None else {"fields": pa.array(fields, pa.list_(pa.int32()))}),
        }
    )


def fields_of(columns: pa.RecordBatch | pa.Table, names: list[str], path: object) -> FieldSets | None:
    """The fields of each visit, from the columns of `columns_of`; None if they were not kept."""
    if "fields" not in columns.schema.names:
        return None
    lists = columns.column("fields")
    if lists.null_count:
        return None
    gathered = FieldCollector()
    kinds: dict[tuple[int, ...], frozenset[str]] = {}
    for given in lists.to_pylist():
        key = tuple(given)
        if key not in kinds:
            if not all(0 <= k < len(names) for k in key):
                raise CohortError(f"{path} is damaged: it has fields that the vocabulary does not have")
            kinds[key] = frozenset(names[k] for k in key)
        gathered.add(kinds[key])
    return gathered.done()


def label_arrays(
    columns: pa.RecordBatch | pa.Table, m: int, path: object
) -> tuple[NDArray[np.int32], NDArray[np.int32], Bools, Bools]:
    """indptr and indices of the findings, and Y and known (N, m), from the columns of `columns_of`."""
    lists, truth = _whole(columns.column("findings")), _whole(columns.column("conditions"))
    known = np.repeat(truth.is_valid().to_numpy(zero_copy_only=False)[:, None], m, axis=1)
    if "unknown" in columns.schema.names:
        known &= ~_matrix(_whole(columns.column("unknown")), m, path)
    return lists.offsets.to_numpy(), lists.values.to_numpy(), _matrix(truth, m, path), known


def write_columns(folder: Path, batch: pa.RecordBatch) -> int:
    """Write visits.arrow; its checksum."""
    path = folder / "visits.arrow"
    with pa.OSFile(str(path), "wb") as sink, pa.ipc.new_file(sink, batch.schema) as writer:
        writer.write_batch(batch)
    return _crc32(path)


def read_columns(folder: Path, header: Mapping[str, Any]) -> tuple[pa.RecordBatch | pa.Table, Path]:
    """What `columns_of` made, mapped or (of Spark) read in the order of its rows; and where it is."""
    if header["version"] == DATASET:
        path = folder / "visits.parquet"
        return _dataset(path, int(header.get("visits", -1))), path
    path = folder / "visits.arrow"
    try:
        if _crc32(path) != header["crc32"]:
            raise CohortError(f"{path} is damaged: its checksum is wrong; build the cohort again")
        with pa.memory_map(str(path)) as source:
            return pa.ipc.open_file(source).get_batch(0), path
    except (OSError, pa.ArrowInvalid, KeyError) as problem:
        raise CohortError(f"{path} cannot be opened ({type(problem).__name__}); build the cohort again") from None


def _dataset(path: Path, visits: int) -> pa.Table:
    """The visits of a Parquet dataset in their order."""
    try:
        table = pq.read_table(path)
        row = table.column("row").to_numpy()
    except (OSError, pa.ArrowException, KeyError) as problem:
        raise CohortError(f"{path} cannot be opened ({type(problem).__name__}); build the cohort again") from None
    order = np.argsort(row, kind="stable")
    if len(row) != visits or not np.array_equal(row[order], np.arange(visits)):
        raise CohortError(f"{path} is damaged: it has not the {visits:,} visits that cohort.json says; build it again")
    return table if np.array_equal(order, np.arange(visits)) else table.take(pa.array(order))


def _whole(column: pa.ChunkedArray | pa.Array) -> pa.ListArray:
    """A column of lists in one piece, its offsets from 0."""
    lists = column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column
    if isinstance(lists, pa.ChunkedArray):  # of no rows, or too many for one
        lists = pa.concat_arrays(lists.chunks) if lists.num_chunks else pa.array([], pa.list_(pa.int32()))
    if lists.offset or (len(lists) and lists.offsets[0].as_py()):
        lists = pa.concat_arrays([lists, pa.array([], lists.type)])
    return lists


def _lists(marks: Bools, null: Bools) -> pa.ListArray:
    """(N, m) bool as a list of column numbers for each row, null where `null` says so."""
    ends = np.concatenate([[0], np.cumsum(marks.sum(axis=1))]).astype(np.int32)
    return pa.ListArray.from_arrays(ends, np.nonzero(marks)[1].astype(np.int32), mask=pa.array(null))


def _matrix(lists: pa.ListArray, m: int, path: object) -> Bools:
    """What `_lists` wrote: (N, m) bool, False throughout where a list is null."""
    marks = np.zeros((len(lists), m), dtype=bool)
    values = lists.values.to_numpy()
    if values.size and not (values.min() >= 0 and values.max() < m):
        raise CohortError(f"{path} is damaged: it has conditions that the vocabulary does not have")
    marks[np.repeat(np.arange(len(lists)), np.diff(lists.offsets.to_numpy())), values] = True
    return marks


def _crc32(path: Path) -> int:
    value = 0
    with path.open("rb") as stream:
        while block := stream.read(1 << 20):
            value = zlib.crc32(block, value)
    return value
