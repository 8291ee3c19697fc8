"""read_visits: one call for every source, and the checks that are the same for all of them."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from whatelse.errors import InputError
from whatelse.sources.columns import read_columns
from whatelse.sources.mimic_ed import read_mimic_ed
from whatelse.sources.nhamcs import read_nhamcs
from whatelse.sources.report import OnError, Report
from whatelse.sources.tables import read_table
from whatelse.visits import Visit

SOURCES = ("table", "mimic-ed", "nhamcs")
PathLike = str | os.PathLike[str]


class VisitReader(Iterator[Visit]):
    """Visits one after another, as `read_visits` returns them.

    left_out  rows left out so far, {kind of problem: count}; final once the iteration is over
    notes     what the files do not have (columns of another survey year, a table with the ages …)
    """

    def __init__(self, visits: Iterator[Visit], report: Report) -> None:
        self._visits, self._report = visits, report

    def __iter__(self) -> VisitReader:
        return self

    def __next__(self) -> Visit:
        return next(self._visits)

    @property
    def left_out(self) -> Counter[str]:
        return self._report.left_out

    @property
    def notes(self) -> list[str]:
        return self._report.notes


def read_visits(
    paths: PathLike | Sequence[PathLike],
    source: str = "table",
    *,
    columns: PathLike | Mapping[str, Any] | None = None,
    on_error: OnError = "raise",
    delimiter: str | None = None,
    encoding: str | None = None,
    labels: PathLike | None = None,
) -> VisitReader:
    """Visits of one or more files, in the order of the files.

    paths      a file or folder, or several
    source     "table" (CSV, TSV, JSON Lines, Parquet, compressed or not), "mimic-ed" (the folder as
               downloaded), "nhamcs" (the zips as distributed)
    columns    table: which column is which field, as a YAML file or a dict; see `columns.py`
    delimiter  table: the column separator of a text table, found out if not given
    encoding   table: the encoding of a text table, found out if not given
    labels     nhamcs: the folder of label tables (rfv_labels.csv, drug_labels.csv …)
    on_error   "raise" stops at the first row that cannot be used; "skip" counts it in `left_out` and goes on

    An id seen before is a row that cannot be used. Memory: one batch of rows and the ids seen.
    """
    source = source.replace("_", "-")
    if source not in SOURCES:
        raise InputError(f"unknown source {source!r}; known: {', '.join(SOURCES)}")
    if source != "table" and (columns, delimiter, encoding) != (None, None, None):
        raise InputError(f"columns, delimiter and encoding are for tables; the source {source!r} has its own")
    if source != "nhamcs" and labels is not None:
        raise InputError("labels are for the source 'nhamcs'")
    files = [Path(paths)] if isinstance(paths, str | os.PathLike) else [Path(path) for path in paths]
    if not files:
        raise InputError("no files to read visits from")
    report = Report(on_error)
    column_map = read_columns(columns if columns is None or isinstance(columns, Mapping) else Path(columns))
    label_folder = Path(labels) if labels is not None else None

    def rows(file: Path) -> Iterator[tuple[int, Visit]]:
        if source == "nhamcs":
            return read_nhamcs(file, report, label_folder)
        if source == "mimic-ed":
            return read_mimic_ed(file, report)
        return read_table(file, report, column_map, delimiter=delimiter, encoding=encoding)

    def visits() -> Iterator[Visit]:
        seen: set[str] = set()
        for file in files:
            if not file.exists():
                raise InputError("no such file or folder", file=file)
            for row, visit in rows(file):
                if visit.id in seen:
                    problem = "this id was seen before; every visit needs an id of its own"
                    report.leave_out("duplicate id", InputError(problem, file=file, row=row, column="id"))
                    continue
                seen.add(visit.id)
                yield visit

    return VisitReader(visits(), report)
