"""read_visits: one call for every source, and the checks that are the same for all of them."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

from whatelse.errors import InputError
from whatelse.sources.nhamcs import read_nhamcs
from whatelse.sources.report import OnError, Report
from whatelse.visits import Visit

SOURCES = ("nhamcs",)
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
    source: str = "nhamcs",
    *,
    on_error: OnError = "raise",
    labels: PathLike | None = None,
) -> VisitReader:
    """Visits of one or more files, in the order of the files.

    paths     a file or folder, or several
    source    "nhamcs" (zips as distributed)
    labels    NHAMCS: the folder of label tables (rfv_labels.csv, drug_labels.csv …)
    on_error  "raise" stops at the first row that cannot be used; "skip" counts it in `left_out` and goes on

    An id seen before is a row that cannot be used. Memory: one chunk of rows and the ids seen.
    """
    if source.replace("_", "-") not in SOURCES:
        raise InputError(f"unknown source {source!r}; known: {', '.join(SOURCES)}")
    files = [Path(paths)] if isinstance(paths, str | os.PathLike) else [Path(path) for path in paths]
    if not files:
        raise InputError("no files to read visits from")
    report = Report(on_error)

    def rows(file: Path) -> Iterator[tuple[int, Visit]]:
        return read_nhamcs(file, report, Path(labels) if labels is not None else None)

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
