"""read_visits: one call for every source, and the checks that are the same for all of them."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from whatelse.errors import InputError
from whatelse.sources.address import PathLike, hide_password, place
from whatelse.sources.description import Description, describe
from whatelse.sources.registry import find_source
from whatelse.sources.report import SEEN_BEFORE, OnError, Report, unread_cells
from whatelse.visits import Visit


class VisitReader(Iterator[Visit]):
    """Visits one after another, as `read_visits` returns them.

    left_out     rows left out so far, {kind of problem: count}; final once the iteration is over
    notes        what the files do not have (columns of another survey year, a table with the ages …)
    description  how they are read, as JSON values: a cohort keeps it, and `read_visits(…, like=…)` takes it
    about        where they come from, as JSON values and without passwords: a cohort keeps it, so that records can be
                 looked at again
    """

    def __init__(
        self, visits: Iterator[Visit], report: Report, how: Description, files: Sequence[Path | str] = ()
    ) -> None:
        self._visits, self._report = visits, report
        self.left_out, self.notes, self.description = report.left_out, report.notes, how.given
        places = [str(file.absolute()) if isinstance(file, Path) else hide_password(file) for file in files]
        labels = str(how.labels.absolute()) if how.labels else None
        about = {"source": how.given["source"], "files": places, "reading": dict(how.given), "labels": labels}
        self.about: dict[str, Any] = about if files else {}

    def __next__(self) -> Visit:
        return next(self._visits)

    def quietly(self) -> VisitReader:
        """The same visits; notes are kept and not said, for files that were read before."""
        self._report.quiet = True
        return self


def read_visits(
    paths: PathLike | Sequence[PathLike] | Any,
    source: str | None = None,
    *,
    columns: PathLike | Mapping[str, Any] | None = None,
    on_error: OnError = "raise",
    delimiter: str | None = None,
    encoding: str | None = None,
    labels: PathLike | None = None,
    like: Mapping[str, Any] | None = None,
    options: Mapping[str, str] | None = None,
    once: bool = True,
) -> VisitReader:
    """Visits of one or more files, in the order of the files; or of a data frame.

    paths      a file or folder, or several; or a pandas or polars data frame or an Arrow table
    source     "table" (CSV, TSV, JSON Lines, Parquet, compressed or not), "mimic-ed" (the folder as
               downloaded), "nhamcs" (the zips as distributed), "fhir", "omop": see `registry.py`
    columns    the description of the source as a YAML file or a dict: see `description.py`
    delimiter  table: the column separator of a text table, found out if not given
    encoding   table: the encoding of a text table, found out if not given
    labels     nhamcs: the folder of label tables (rfv_labels.csv, drug_labels.csv …)
    like       the description that a cohort or model kept (`vocabulary.source`), for files like those it was made of;
               used where neither `source` nor `columns` is given
    options    what else a source takes, by name: those of `registry.py`
    once       an id seen before is a row that cannot be used; False: nobody remembers ids
    on_error   "raise" stops at the first row that cannot be used; "skip" counts it in `left_out` and goes on

    Memory: one batch of rows and, with `once`, the ids seen.
    """
    given = columns if columns is None or isinstance(columns, Mapping) else Path(columns)
    where, folder = {"delimiter": delimiter, "encoding": encoding}, None if labels is None else Path(labels)
    how = describe(given, saved=like, source=source, **where, labels=folder, options=options)
    kind = find_source(how)
    report = Report(on_error)
    if is_frame(paths):
        from whatelse.sources.tables import read_frame

        if kind.name != "table":
            raise InputError(f"a data frame is a table, not {kind.name!r}")
        rows = read_frame(paths, report, how.columns)
        return VisitReader(_once(rows, set(), report, "the data frame", once), report, how)
    files = [place(p) for p in ([paths] if isinstance(paths, str | os.PathLike) else paths)]
    if not files:
        raise InputError("no files to read visits from")

    def visits() -> Iterator[Visit]:
        seen: set[str] = set()
        for file in files:
            if isinstance(file, Path) and not file.exists():
                raise InputError("no such file or folder; check the path", file=file)
            if isinstance(file, str) and not kind.addresses:
                raise InputError(f"{kind.name} is read from files; an address is for fhir and omop")
            shown = hide_password(file) if isinstance(file, str) else file
            yield from _once(kind.read(file, report, how), seen, report, shown, once)

    return VisitReader(visits(), report, how, files)


def is_frame(value: Any) -> bool:
    """Whether this is a table in memory (pandas, polars, Arrow …) rather than a path, several, or visits."""
    return any(hasattr(value, name) for name in ("__arrow_c_stream__", "__arrow_c_array__", "__dataframe__"))


def _once(
    rows: Iterator[tuple[int, Visit]], seen: set[str], report: Report, file: object, once: bool
) -> Iterator[Visit]:
    """The visits whose id was not seen before; and at the end, how many cells of numbers were none."""
    for row, visit in rows:
        if once and visit.id in seen:
            report.leave_out("duplicate id", InputError(SEEN_BEFORE, file=file, row=row, column="id"))
            continue
        if once:
            seen.add(visit.id)
        yield visit
    for column, count in report.unread.items():
        report.note(unread_cells(column, count))
    report.unread.clear()
