"""Many visits as rows of findings, and probabilities of many visits as a table.

Visits are held by a list of them, a cohort, a matrix of findings, or a data frame: of records (read as files are), or
of findings (`cohort.to_pandas()["finding"]`). pandas and polars are imported only where a frame of theirs is wanted.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import scipy.sparse as sp
from numpy.typing import NDArray

from whatelse.cohort import Cohort, Vocabulary
from whatelse.errors import QueryError
from whatelse.sources import read_visits
from whatelse.sources.reader import is_frame
from whatelse.visits import Visit

AT_ONCE = 1000  # visits read in one pass
Columns = str | Path | Mapping[str, Any] | None


@dataclass(frozen=True, eq=False)
class FindingRows:
    """V visits as findings.

    present     CSR (V, n) of ones
    unobserved  CSR (V, n) of what nobody looked for; None where that is not known: then nothing is unobserved
    ids         V ids; None where visits have none
    """

    present: sp.csr_matrix
    unobserved: sp.csr_matrix | None = None
    ids: Sequence[str] | None = None


def rows_of(given: Any, vocabulary: Vocabulary, columns: Columns = None) -> FindingRows:
    """The visits that `given` holds, as findings of the vocabulary. O(length of the records).

    columns  which column of a data frame of records is which field; None: as the model's own source was read
    """
    if isinstance(given, Cohort):
        vocabulary.check_same(given.vocabulary)
        return FindingRows(given.X, given.unobserved(), given.ids.tolist())
    if is_frame(given):
        return _rows_of_frame(given, vocabulary, columns)
    if sp.issparse(given) or isinstance(given, np.ndarray):
        return FindingRows(_checked(given, vocabulary))
    if isinstance(given, Visit):
        raise QueryError("one visit is given where many are wanted: give [visit], or ask with suggest(visit)")
    if isinstance(given, Iterable) and not isinstance(given, str | Path):
        return _rows_of_visits(list(given), vocabulary)
    forms = "a list of visits, a cohort, a data frame or a matrix of findings; a file is read with read_visits(path)"
    raise QueryError(f"visits are wanted, and {type(given).__name__} holds none: give {forms}")


def framed(values: NDArray[np.float64], conditions: Sequence[str], like: Any, ids: Sequence[str] | None) -> Any:
    """(V, m) values as a table with a column per condition, row by row like the visits they are of.

    A table of the library of `like`: pandas with the same index, polars, and Arrow for every other frame. Where `like`
    is no frame: pandas with the visits' ids as its index, or, where pandas is not installed, a dict of arrays.
    """
    columns = {name: values[:, i].copy() for i, name in enumerate(conditions)}
    library = type(like).__module__.partition(".")[0]
    if library == "polars":
        import polars

        return polars.DataFrame(columns)
    if library != "pandas" and is_frame(like):
        return pa.table(columns)
    try:
        import pandas
    except ImportError:
        return columns
    if library == "pandas":
        return pandas.DataFrame(columns, index=like.index)
    return pandas.DataFrame(columns, index=None if ids is None else pandas.Index(ids, name="visit"))


def _rows_of_visits(visits: list[Any], vocabulary: Vocabulary) -> FindingRows:
    for place, visit in enumerate(visits):
        if not isinstance(visit, Visit):
            raise QueryError(f"entry {place} is of type {type(visit).__name__}: give visits, as read_visits makes them")
    reader = vocabulary.reader
    parts = [visits[k : k + AT_ONCE] for k in range(0, len(visits), AT_ONCE)] or [[]]
    present = sp.vstack([reader.present(some) for some in parts], "csr")
    return FindingRows(present, reader.unobserved(visits), [visit.id for visit in visits])


def _rows_of_frame(frame: Any, vocabulary: Vocabulary, columns: Columns) -> FindingRows:
    names = list(getattr(frame, "column_names", getattr(frame, "columns", ())))
    known = sum(isinstance(name, str) and name in vocabulary.index for name in names)
    if columns is None and 2 * known > len(names):
        _check_names(names, vocabulary)
        return FindingRows(_checked(_matrix(frame), vocabulary))
    like = vocabulary.source if vocabulary.source.get("source", "table") == "table" else None
    return _rows_of_visits(list(read_visits(frame, columns=columns, like=like)), vocabulary)


def _check_names(names: list[Any], vocabulary: Vocabulary) -> None:
    """QueryError unless the columns are the findings of the model, in its order."""
    if tuple(names) == vocabulary.names:
        return
    missing = [name for name in vocabulary.names if name not in set(names)]
    other = [name for name in names if name not in vocabulary.index]
    if missing or other:
        says = "it lacks {0:,} of them, the first {1!r}" if missing else "{0:,} columns are none, the first {1!r}"
        problem = says.format(len(missing or other), (missing or other)[0])
    else:
        problem = "they are in another order"
    advice = "take frame[list(tagger.feature_names_in_)], of a cohort built like the one that was learned from"
    findings = f"the {len(vocabulary.names):,} findings of this model"
    raise QueryError(f"the data frame's columns are not {findings}: {problem}; {advice}")


def _matrix(frame: Any) -> sp.csr_matrix:
    if isinstance(frame, pa.Table):
        return sp.csr_matrix(np.column_stack([column.to_numpy() for column in frame.columns]))
    try:
        return sp.csr_matrix(frame.sparse.to_coo())
    except AttributeError:  # not of pandas, or not sparse
        return sp.csr_matrix(np.asarray(frame))


def _checked(matrix: Any, vocabulary: Vocabulary) -> sp.csr_matrix:
    """A matrix of findings: as wide as the vocabulary, nothing but 0 and 1 in it."""
    if matrix.ndim != 2 or matrix.shape[1] != len(vocabulary.names):
        needs = f"(visits, {len(vocabulary.names)}): a column for each finding of the model (feature_names_in_)"
        raise QueryError(f"the matrix has shape {matrix.shape}, needs {needs}")
    rows = sp.csr_matrix(matrix)
    if not np.isin(rows.data, (0, 1)).all():
        raise QueryError("the matrix of findings holds other values than 0 and 1 (absent and present)")
    return rows
