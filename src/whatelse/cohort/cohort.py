"""Cohort: many visits as arrays, and their folder form. `build.py` makes one of a stream of visits.

A cohort folder holds two files:
- `visits.arrow`, one Arrow record batch that is opened by memory map: `id`, `findings` (a list of finding numbers for
  each visit: its offsets and values are the CSR matrix itself), `conditions` (a list of the numbers of the conditions
  that are true, or null where nothing is known) and `unknown` (a list of the numbers of the conditions of which nobody
  knows, null where nothing is known; version 1 did not have it: all or nothing was known of a visit);
- `cohort.json`: the vocabulary, where the visits came from, and what `visits.arrow` must be like.
A cohort that Spark built has, instead of `visits.arrow`, the folder `visits.parquet` (version 3): the same columns, and
`row`, the number of each visit, for they stand there in any order.
No text of a record is in either.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import ArrayLike, NDArray
from scipy.sparse import csr_matrix

from whatelse.cohort.tally import Tally
from whatelse.cohort.vocabulary import Vocabulary
from whatelse.errors import CohortError
from whatelse.files import write_folder

VERSION = 2
DATASET = 3  # the version of a header beside a Parquet dataset
READABLE = (1, 2, DATASET)
Bools = NDArray[np.bool_]


@dataclass(frozen=True, eq=False)
class Cohort:
    """N visits, n findings, m conditions.

    X           (N, n) CSR of uint8 ones, anchors included as columns; indices sorted and distinct in each row
    vocabulary  the n findings
    ids         (N,) the visits' ids
    Y           (N, m) bool, or None where nothing is known of any visit; False where nobody knows
    known       (N, m) bool: the labels of Y that are known; (N,) for whole rows, None for all of Y
    about       where it came from: JSON values
    """

    X: csr_matrix
    vocabulary: Vocabulary
    ids: NDArray[np.object_]
    Y: Bools | None = None
    known: Bools = field(default=None)  # type: ignore[arg-type]
    about: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        (N, n), m = self.X.shape, len(self.conditions)
        if n != len(self.vocabulary.names):
            raise CohortError(f"X has {n} columns but the vocabulary has {len(self.vocabulary.names)} findings")
        if len(self.ids) != N:
            raise CohortError(f"X has {N} rows but there are {len(self.ids)} ids")
        if self.Y is not None and self.Y.shape != (N, m):
            raise CohortError(f"Y has shape {self.Y.shape}, needs {(N, m)}")
        known = np.asarray(self.Y is not None if self.known is None else self.known, dtype=bool)
        known = known[:, None] if known.shape == (N,) else known
        if known.shape not in ((), (N, 1), (N, m)):
            raise CohortError(f"known has shape {known.shape}, needs {(N, m)} or {(N,)}")
        known = np.broadcast_to(known, (N, m)) if self.Y is not None else np.zeros((N, m), dtype=bool)
        object.__setattr__(self, "known", known)
        if self.Y is not None and (self.Y & ~known).any():
            object.__setattr__(self, "Y", self.Y & known)

    def __len__(self) -> int:
        return int(self.X.shape[0])

    @property
    def conditions(self) -> tuple[str, ...]:
        """The m conditions' names."""
        return self.vocabulary.conditions

    @property
    def anchor_columns(self) -> NDArray[np.intp]:
        """(m,) the columns of X that are anchors."""
        return self.vocabulary.anchor_columns

    @cached_property
    def A(self) -> Bools:
        """(N, m) the anchors."""
        anchors: Bools = self.X[:, self.anchor_columns].toarray().astype(bool)
        return anchors

    @property
    def labelled(self) -> Bools:
        """(N,) the visits of which every condition is known."""
        return np.asarray(self.known.all(axis=1))

    @property
    def fully_labelled(self) -> bool:
        """Whether every condition of every visit is known."""
        return self.Y is not None and bool(self.known.all())

    def labelled_part(self) -> tuple[NDArray[np.intp], Cohort]:
        """The numbers of the visits of which something is known, and these visits."""
        rows = np.flatnonzero(self.known.any(axis=1))
        return rows, self.rows(rows)

    def tally(self) -> Tally:
        """How anchors and labels go together."""
        return Tally.of(self.A, self.Y, self.known)

    @property
    def shape(self) -> tuple[int, int]:
        """(N, n), that of X."""
        return len(self), len(self.vocabulary.names)

    def __getitem__(self, which: Any) -> Cohort:
        """`rows`, of a slice too: cohort[:1000], cohort[mask], cohort[row_numbers]; one number is a cohort of one."""
        if isinstance(which, tuple) and len(which) == 2 and which[1] is Ellipsis:
            which = which[0]  # as scikit-learn asks for rows of what has a shape
        return self.rows(np.atleast_1d(np.arange(len(self))[which]))

    def rows(self, which: ArrayLike) -> Cohort:
        """The visits of a boolean mask or of row numbers, in that order."""
        rows = np.asarray(which)
        rows = np.flatnonzero(rows) if rows.dtype == bool else rows.astype(np.intp)
        Y = None if self.Y is None else self.Y[rows]
        return Cohort(self.X[rows], self.vocabulary, self.ids[rows], Y, self.known[rows], self.about)

    def multi(self, at_least: int = 2) -> Cohort:
        """The visits with at least so many true conditions: the paper's cohort. Needs labels."""
        if self.Y is None:
            raise CohortError("which visits have several conditions is not known: this cohort has no labels")
        return self.rows(self.Y.sum(axis=1) >= at_least)

    def to_pandas(self) -> Any:
        """A pandas DataFrame with a row a visit. Needs pandas, which whatelse itself does not.

        Columns are ("finding", name), sparse 0/1, and ("condition", name), booleans that are <NA> where nobody knows.
        """
        import pandas

        ids = pandas.Index(self.ids, name="visit")
        columns = pandas.MultiIndex.from_product([["finding"], self.vocabulary.names])
        findings = pandas.DataFrame.sparse.from_spmatrix(self.X, index=ids, columns=columns)
        labels = {
            ("condition", name): pandas.arrays.BooleanArray(
                np.zeros(len(self), bool) if self.Y is None else self.Y[:, i].copy(), ~self.known[:, i]
            )
            for i, name in enumerate(self.conditions)
        }
        return pandas.concat([findings, pandas.DataFrame(labels, index=ids)], axis=1)

    # ---- folder

    def save(self, folder: str | Path) -> Path:
        """Write the folder; it appears whole or not at all. A cohort already there is replaced, nothing else is."""
        target = Path(folder)
        if target.exists() and not (target / "cohort.json").is_file() and (target.is_file() or any(target.iterdir())):
            raise CohortError(f"{target} exists and is not a cohort: choose another place, or remove it first")
        write_folder(target, self._write)
        return target

    def _write(self, folder: Path) -> None:
        X, Y = self.X, np.zeros_like(self.known) if self.Y is None else self.Y
        batch = columns_of(self.ids.tolist(), X.indptr, X.indices, Y, self.known)
        path = folder / "visits.arrow"
        with pa.OSFile(str(path), "wb") as sink, pa.ipc.new_file(sink, batch.schema) as writer:
            writer.write_batch(batch)
        write_header(folder, VERSION, len(self), self.vocabulary, self.about, crc32=_crc32(path))

    @classmethod
    def open(cls, folder: str | Path) -> Cohort:
        """Open a folder that `save` wrote. Findings stay on disk until they are used."""
        folder = Path(folder)
        header = read_header(folder)
        vocabulary = Vocabulary.from_json(header["vocabulary"])
        if header["version"] == DATASET:
            path = folder / "visits.parquet"
            table = _dataset(path, int(header.get("visits", -1)))
            return cls.from_columns(table, vocabulary, header.get("about", {}), path)
        path = folder / "visits.arrow"
        try:
            if _crc32(path) != header["crc32"]:
                raise CohortError(f"{path} is damaged: its checksum is wrong; build the cohort again")
            with pa.memory_map(str(path)) as source:
                batch = pa.ipc.open_file(source).get_batch(0)
        except (OSError, pa.ArrowInvalid, KeyError) as problem:
            raise CohortError(f"{path} cannot be opened ({type(problem).__name__}); build the cohort again") from None
        return cls.from_columns(batch, vocabulary, header.get("about", {}), path)

    @classmethod
    def from_columns(
        cls, columns: pa.RecordBatch | pa.Table, vocabulary: Vocabulary, about: Mapping[str, Any], path: object
    ) -> Cohort:
        """The visits of what `columns_of` made, read from `path`; `unknown` may be missing."""
        N, n, m = len(columns.column("id")), len(vocabulary.names), len(vocabulary.conditions)
        indptr, indices, Y, known = label_arrays(columns, m, path)
        if indices.size and not (indices.min() >= 0 and indices.max() < n):
            raise CohortError(f"{path} is damaged: it has findings that the vocabulary does not have")
        X = csr_matrix((np.ones(indices.size, dtype=np.uint8), indices, indptr), shape=(N, n), copy=False)
        ids = columns.column("id").to_numpy(zero_copy_only=False)
        return cls(X, vocabulary, ids, Y if known.any() else None, known, about)


def label_arrays(
    columns: pa.RecordBatch | pa.Table, m: int, path: object
) -> tuple[NDArray[np.int32], NDArray[np.int32], Bools, Bools]:
    """indptr and indices of the findings, and Y and known (N, m), of what `columns_of` made."""
    lists, truth = _whole(columns.column("findings")), _whole(columns.column("conditions"))
    known = np.repeat(truth.is_valid().to_numpy(zero_copy_only=False)[:, None], m, axis=1)
    if "unknown" in columns.schema.names:
        known &= ~_matrix(_whole(columns.column("unknown")), m, path)
    return lists.offsets.to_numpy(), lists.values.to_numpy(), _matrix(truth, m, path), known


def columns_of(ids: list[str], indptr: NDArray[Any], indices: NDArray[Any], Y: Bools, known: Bools) -> pa.RecordBatch:
    """Visits as Arrow columns: id, findings, conditions that are true, and those of which nobody knows."""
    some = np.asarray(known.any(axis=1))
    return pa.record_batch(
        {
            "id": pa.array(ids, pa.string()),
            "findings": pa.ListArray.from_arrays(indptr.astype(np.int32), indices.astype(np.int32)),
            "conditions": _lists(Y, ~some),
            "unknown": _lists(~known & some[:, None], ~some),
        }
    )


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


def read_header(folder: Path) -> dict[str, Any]:
    """The content of cohort.json, or a CohortError that says why this is not a cohort."""
    path = folder / "cohort.json"
    if not path.is_file():
        raise CohortError(f"{folder} is not a cohort: it has no cohort.json; make one with 'whatelse build'")
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


def _crc32(path: Path) -> int:
    value = 0
    with path.open("rb") as stream:
        while block := stream.read(1 << 20):
            value = zlib.crc32(block, value)
    return value
