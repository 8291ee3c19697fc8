"""Files of labels and of votes, CSV or Parquet, read once.

Two forms, both with a column of visit ids (`visit`, `id` or `visit_id`):
- wide: one column for each condition; a cell is 1 or 0 (yes/no, true/false), or empty where nobody knows;
- long: `condition` and `label` (or `value`), one row for each visit and condition, as `whatelse store decisions`
  writes it. A column `annotator` makes the rows votes of programs or people who may err; without it they are labels.

A column `weight` says how many visits a labelled visit stands for, as `whatelse anchors label-next` writes it. Without
that column the visits were chosen at random. Other columns are ignored.
"""

from __future__ import annotations

import csv
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from whatelse.annotators.spelling import meant as meant_name
from whatelse.annotators.votes import Kind, Votes
from whatelse.cohort import Cohort
from whatelse.errors import InputError
from whatelse.sources.columns import normal
from whatelse.sources.tables import DAMAGED, open_csv
from whatelse.sources.textfile import detect_encoding, open_text
from whatelse.types import Floats

IDS = ("visit", "id", "visit_id")
LABELS = ("label", "value")
WEIGHT = "weight"
ANNOTATOR = "annotator"
SHEET = ("chance", WEIGHT, "condition", ANNOTATOR, *LABELS)  # columns that are not conditions
MOST_ANNOTATORS = 100  # of one file: each takes 2 N m bytes
Others = Literal["refuse", "skip"]
MEANING = {"1": 1, "1.0": 1, "yes": 1, "true": 1, "0": 0, "0.0": 0, "no": 0, "false": 0, "": -1, "none": -1, "nan": -1}


def read_votes(path: str | Path, cohort: Cohort, *, others: Others = "refuse") -> tuple[Votes, ...]:
    """Votes of a file on the visits of a cohort, one entry for each annotator. See `read_vote_file`."""
    return read_vote_file(Path(path), cohort, others=others)[0]


def read_vote_file(
    path: Path, cohort: Cohort, *, others: Others = "refuse"
) -> tuple[tuple[Votes, ...], tuple[str, ...]]:
    """Votes, one entry for each annotator, and columns that hold 1, 0 and blanks but are no condition. O(rows m).

    others  ids that are not in the cohort: "refuse" the file, or "skip" them where the file is known to hold labels of
            other visits too

    A column or name that is nearly a condition is an error with a suggestion.
    """
    rows = table_rows(path, cohort.conditions)
    first = next(rows, None)
    if first is None:
        raise InputError("has no rows; 'whatelse anchors label-next' writes a sheet for labels", file=path)
    form = _Form.of(first, cohort.conditions, path)
    visits = {str(visit): row for row, visit in enumerate(cohort.ids)}
    cells: dict[str, NDArray[np.int8]] = {}  # annotator -> (N, m) 1, 0 or -1 where the annotator abstained
    if not form.annotator:
        cells[""] = np.full((len(cohort), len(form.index)), -1, np.int8)
    weight = np.full(len(cohort), np.nan)
    unmatched: dict[str, int] = {}  # id -> its first row
    unused, filled = form.unused, set[str]()
    for number, row in enumerate(chain((first,), rows), start=1):
        visit = visits.get(_text(row[form.id]))
        if WEIGHT in first:
            _read_weight(row, visit, weight, path, number)
        unused = {column for column in unused if _text(row[column]).lower() in MEANING}
        filled |= {column for column in unused if _text(row[column])}
        name = _text(row[form.annotator]) if form.annotator else ""
        if name not in cells:
            if not name or len(cells) == MOST_ANNOTATORS:
                what = f"names more than {MOST_ANNOTATORS} annotators" if name else "must name the annotator"
                raise InputError(what, file=path, row=number, column=ANNOTATOR)
            cells[name] = np.full((len(cohort), len(form.index)), -1, np.int8)
        found = form.votes(row, number, path)
        if visit is None:
            if found:
                unmatched.setdefault(_text(row[form.id]), number)
            continue
        for i, value in found:
            if cells[name][visit, i] >= 0:
                raise InputError("labels a visit a second time: keep one label of each", file=path, row=number)
            cells[name][visit, i] = value
    if unmatched and (others == "refuse" or not any((own >= 0).any() for own in cells.values())):
        _refuse_unmatched(unmatched, visits, path, form.id)
    weight[np.isnan(weight)] = 1.0
    kind: Kind = "program" if form.annotator else "label"
    votes = tuple(Votes(name or path.name, own == 1, own >= 0, weight, kind) for name, own in cells.items())
    return votes, tuple(sorted(unused & filled))


@dataclass(frozen=True)
class _Form:
    """Which column of a file is which. label is empty in a wide file, annotator where the file holds labels."""

    id: str
    label: str
    annotator: str
    index: dict[str, int]
    unused: set[str]

    @classmethod
    def of(cls, row: dict[str, Any], conditions: tuple[str, ...], path: Path) -> _Form:
        id_column = next((name for name in IDS if name in row), None)
        if id_column is None:
            has = ", ".join(list(row)[:8])
            raise InputError(f"needs a column of visit ids named {', '.join(IDS)}; it has {has}", file=path)
        index = {c: i for i, c in enumerate(conditions)}
        if (label := _label_column(row)) is not None:
            return cls(id_column, label, ANNOTATOR if ANNOTATOR in row else "", index, set())
        _check_columns(row, index, path)
        return cls(id_column, "", "", index, {c for c in row if c not in index and c not in (*IDS, *SHEET)})

    def votes(self, row: dict[str, Any], number: int, path: Path) -> list[tuple[int, int]]:
        """(condition, 1 or 0) of each vote in a row; InputError for a cell that is none."""
        if self.label:
            condition = _text(row["condition"])
            if condition not in self.index:
                near = meant_name(condition, self.index)
                hint = f"did you mean {near!r}?" if near else f"its conditions are {', '.join(self.index)}"
                problem = f"names a condition that the cohort does not have; {hint}"
                raise InputError(problem, file=path, row=number, column="condition")
            pairs = [(self.index[condition], self.label)]
        else:
            pairs = [(i, c) for c, i in self.index.items() if c in row]
        found = []
        for i, column in pairs:
            meant = MEANING.get(_text(row[column]).lower())
            if meant is None:
                raise InputError("must be 1 or 0, or empty where nobody knows", file=path, row=number, column=column)
            if meant >= 0:
                found.append((i, meant))
        return found


def _label_column(row: dict[str, Any]) -> str | None:
    """The column of labels of a long file; None for a wide one."""
    return next((name for name in LABELS if name in row), None) if "condition" in row else None


def _read_weight(row: dict[str, Any], visit: int | None, weights: Floats, path: Path, number: int) -> None:
    try:
        weight = float(_text(row[WEIGHT]))
    except ValueError:
        weight = np.nan
    if not 0 < weight < np.inf:
        problem = "must be a number above 0, as 'anchors label-next' wrote it; visits chosen otherwise go elsewhere"
        raise InputError(problem, file=path, row=number, column=WEIGHT)
    if visit is not None:
        if not np.isnan(weights[visit]) and weights[visit] != weight:
            raise InputError("gives a visit two weights: keep one", file=path, row=number, column=WEIGHT)
        weights[visit] = weight


def _check_columns(row: dict[str, Any], index: dict[str, int], path: Path) -> None:
    """A wide file has a column for at least one condition, and none that is nearly one."""
    for column in row:
        if column not in (*IDS, *SHEET) and (known := meant_name(column, index)) is not None:
            raise InputError(f"is not a condition; did you mean {known!r}?", file=path, column=column)
    if not index.keys() & row.keys():
        has = f"it has {', '.join(list(row)[:8])}, and the cohort's conditions are {', '.join(index)}"
        raise InputError(f"needs a column for each condition, or columns 'condition' and 'label'; {has}", file=path)


def _refuse_unmatched(unmatched: dict[str, int], visits: dict[str, int], path: Path, column: str) -> None:
    """Say how many ids are no visit of the cohort, and what spreadsheets may have done to them."""
    plain = {_plain_id(visit): visit for visit in visits}
    alike = sum(_plain_id(visit) in plain for visit in unmatched)
    hint = "correct them, or pass labels of other visits over with --skip-other-labels (in Python: others='skip')"
    if alike:
        hint = (
            f"{alike:,} differ by leading zeros, '.0', case or blanks only, as spreadsheets do: keep the column as text"
        )
    problem = f"{len(unmatched):,} ids are no visit of the cohort; {hint}"
    raise InputError(problem, file=path, row=min(unmatched.values()), column=column)


def _plain_id(visit: str) -> str:
    return visit.strip().casefold().removesuffix(".0").replace(" ", "").lstrip("0")


def labels_in(path: Path, conditions: Iterable[str]) -> int | None:
    """How many labels a file holds; None if it is no file of labels of these conditions."""
    names = set(conditions)
    count = None
    try:
        for row in table_rows(path, names):
            label = _label_column(row)
            if not any(name in row for name in IDS) or not (label or names & row.keys()):
                return None
            cells = [row[label]] if label else [row[c] for c in names & row.keys()]
            count = (count or 0) + sum(_text(cell) != "" for cell in cells)
    except InputError:
        return None
    return count


def table_rows(path: Path, conditions: Collection[str] = ()) -> Iterator[dict[str, Any]]:
    """The rows of a table, as spreadsheets save it: any of four separators and any encoding."""
    if not path.is_file():
        problem = "is a folder; give one file, CSV or Parquet" if path.is_dir() else "no such file; check the path"
        raise InputError(problem, file=path)
    if path.suffix.lower() in (".parquet", ".pq"):
        try:
            with pq.ParquetFile(path) as file:
                for batch in file.iter_batches():
                    yield from batch.to_pylist()
        except pa.ArrowInvalid:
            raise InputError(DAMAGED, file=path) from None
        return
    if not path.stat().st_size:
        return
    with open_text(path, detect_encoding(path), newline="") as stream:
        try:
            table = open_csv(stream, path, None, [*IDS, *LABELS, "condition", *map(normal, conditions)])
            names = [name for name in table.header if name in (*IDS, *SHEET) or name in conditions]
            if twice := sorted({name for name in names if names.count(name) > 1}):
                raise InputError("two columns have this name: keep one", file=path, column=twice[0])
            for number, cells in enumerate(filter(None, table.rows), start=1):
                if len(cells) != len(table.header):
                    raise InputError("has more or fewer cells than there are columns", file=path, row=number)
                yield dict(zip(table.header, cells, strict=True))
        except csv.Error:
            raise InputError("is not a valid CSV file: quotes do not match", file=path) from None


def _text(value: Any) -> str:
    return "" if value is None else str(int(value)) if isinstance(value, bool) else str(value).strip()
