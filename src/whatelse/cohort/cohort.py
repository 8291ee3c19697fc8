"""Cohort: many visits as arrays. `build.py` makes one of a stream of visits, `folder.py` says how it lies on disk."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import ArrayLike, NDArray
from scipy.sparse import csr_matrix

from whatelse.cohort.contingency import Tally
from whatelse.cohort.fields import FieldSets
from whatelse.cohort.folder import (
    VERSION,
    check_place,
    columns_of,
    fields_of,
    label_arrays,
    read_columns,
    read_header,
    write_columns,
    write_header,
)
from whatelse.cohort.vocabulary import HasVocabulary, Vocabulary
from whatelse.errors import CohortError
from whatelse.io.files import write_folder
from whatelse.io.text_table import TextTable
from whatelse.types import Bools

NAMED = 6  # conditions that `repr` names


@dataclass(frozen=True, eq=False)
class Cohort(HasVocabulary):
    """N visits, n findings, m conditions.

    X           (N, n) CSR of uint8 ones, anchors included as columns; indices sorted and distinct in each row
    vocabulary  the n findings
    ids         (N,) the visits' ids
    Y           (N, m) bool, labels; False where `known` is False; None: no visit has a label
    known       (N, m) bool: which labels are known; (N,) for whole rows, None for all of Y
    about       where it came from: JSON values
    fields      the fields that each visit has: findings of other fields are unobserved, not absent; None: not recorded
    """

    X: csr_matrix
    vocabulary: Vocabulary
    ids: NDArray[np.object_]
    Y: Bools | None = None
    known: Bools = field(default=None)  # type: ignore[arg-type]
    about: Mapping[str, Any] = field(default_factory=dict)
    fields: FieldSets | None = None

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

    def __repr__(self) -> str:
        labelled = int(self.known.any(axis=1).sum())
        names = ", ".join(self.conditions[:NAMED]) + (", …" if len(self.conditions) > NAMED else "")
        return (
            f"Cohort of {len(self):,} visits, {labelled:,} of them with labels\n"
            f"{len(self.vocabulary.names):,} findings, {self.X.nnz / max(1, len(self)):.1f} in a visit\n"
            f"{len(self.conditions):,} conditions: {names}"
        )

    def _repr_html_(self) -> str:
        """For a notebook: a row for each condition."""
        fires, known = self.A.sum(0), self.known.sum(0)
        true = known * 0 if self.Y is None else self.Y.sum(0)
        rows = zip(self.conditions, *([f"{n:,}" for n in counts] for counts in (fires, known, true)), strict=True)
        title, *below = repr(self).split("\n")[:2]
        header = ("condition", "visits in which its anchor fires", "labelled visits", "with the condition")
        return TextTable(title, header, tuple(rows), tuple(below)).html()

    def __len__(self) -> int:
        return int(self.X.shape[0])

    @cached_property
    def A(self) -> Bools:
        """(N, m) the anchors."""
        anchors: Bools = self.X[:, self.anchor_columns].toarray().astype(bool)
        return anchors

    @property
    def labelled(self) -> Bools:
        """(N,) visits with a label for every condition."""
        return np.asarray(self.known.all(axis=1))

    @property
    def fully_labelled(self) -> bool:
        """Whether every condition of every visit is known."""
        return self.Y is not None and bool(self.known.all())

    def labelled_part(self) -> tuple[NDArray[np.intp], Cohort]:
        """Row numbers of the visits with at least one label, and the cohort of these visits."""
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
        fields = None if self.fields is None else self.fields.rows(rows)
        return Cohort(self.X[rows], self.vocabulary, self.ids[rows], Y, self.known[rows], self.about, fields)

    def unobserved(self) -> csr_matrix | None:
        """(N, n) CSR of 0/1: the unobserved findings of each visit; None if `fields` is."""
        if self.fields is None:
            return None
        kinds = self.vocabulary.reader.hidden_rows(self.fields.kinds)
        return csr_matrix(kinds[self.fields.which])

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
        check_place(target)
        write_folder(target, self._write)
        return target

    def _write(self, folder: Path) -> None:
        X, Y = self.X, np.zeros_like(self.known) if self.Y is None else self.Y
        fields = None if self.fields is None else self.fields.of_names(sorted(self.vocabulary.fields))
        batch = columns_of(self.ids.tolist(), X.indptr, X.indices, Y, self.known, fields)
        checksum = write_columns(folder, batch)
        write_header(folder, VERSION, len(self), self.vocabulary, self.about, crc32=checksum)

    @classmethod
    def open(cls, folder: str | Path) -> Cohort:
        """Open a folder that `save` wrote. Findings stay on disk until they are used."""
        header = read_header(Path(folder))
        columns, path = read_columns(Path(folder), header)
        return cls.from_columns(columns, Vocabulary.from_json(header["vocabulary"]), header.get("about", {}), path)

    @classmethod
    def from_columns(
        cls, columns: pa.RecordBatch | pa.Table, vocabulary: Vocabulary, about: Mapping[str, Any], path: object
    ) -> Cohort:
        """The cohort of the columns that `columns_of` makes; `unknown` may be missing. path: for messages."""
        N, n, m = len(columns.column("id")), len(vocabulary.names), len(vocabulary.conditions)
        indptr, indices, Y, known = label_arrays(columns, m, path)
        if indices.size and not (indices.min() >= 0 and indices.max() < n):
            raise CohortError(f"{path} is damaged: it has findings that the vocabulary does not have")
        X = csr_matrix((np.ones(indices.size, dtype=np.uint8), indices, indptr), shape=(N, n), copy=False)
        ids = columns.column("id").to_numpy(zero_copy_only=False)
        fields = fields_of(columns, sorted(vocabulary.fields), path)
        return cls(X, vocabulary, ids, Y if known.any() else None, known, about, fields)
