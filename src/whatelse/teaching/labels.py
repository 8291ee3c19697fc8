"""Labels for a few visits of a cohort, from a file.

Two forms, as CSV or Parquet, both with a column of visit ids (`visit`, `id` or `visit_id`):
- wide: one column for each condition, a cell 1 or 0 (yes/no, true/false), or empty where nobody knows;
- long: `condition` and `label` (or `value`), one row for each visit and condition, as `whatelse decisions export`
  writes it.

A column `weight` says how many visits a labelled visit stands for, as `whatelse anchors label-next` writes it; a file
without that column is of visits chosen at random. Other columns are passed over.
"""

from __future__ import annotations

import csv
from collections.abc import Collection, Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from whatelse.anchors.spelling import meant as meant_name
from whatelse.cohort import Cohort
from whatelse.errors import InputError
from whatelse.sources.columns import normal
from whatelse.sources.tables import LONGEST, find_delimiter
from whatelse.sources.textfile import inspect, open_text

IDS = ("visit", "id", "visit_id")
LABELS = ("label", "value")
WEIGHT = "weight"
SHEET = ("chance", WEIGHT, "condition", *LABELS)  # columns that are not conditions
Others = Literal["refuse", "skip"]
MEANING = {"1": 1, "1.0": 1, "yes": 1, "true": 1, "0": 0, "0.0": 0, "no": 0, "false": 0, "": -1, "none": -1, "nan": -1}


def read_labels(path: Path, cohort: Cohort, *, others: Others = "refuse") -> NDArray[np.int8]:
    """(N, m): 1 and 0 where the file says so of a visit of the cohort, -1 elsewhere.

    others  what to do with ids that are no visit of the cohort: refuse the file, or pass them over ("skip") where it is
            known to hold labels of other visits too

    A column or name that is a condition but for its spelling is an error with a suggestion.
    """
    rows = _rows(path, cohort.conditions)
    try:
        first = next(rows)
    except StopIteration:
        raise InputError("there are no rows: needs visit ids and labels", file=path) from None
    id_column = next((name for name in IDS if name in first), None)
    if id_column is None:
        raise InputError(f"needs a column of visit ids named {', '.join(IDS)}; it has {_names(first)}", file=path)
    label_column = next((name for name in LABELS if name in first), "")
    long = "condition" in first and bool(label_column)
    index = {c: i for i, c in enumerate(cohort.conditions)}
    if not long:
        _check_columns(first, index, path)
    visits = {str(visit): row for row, visit in enumerate(cohort.ids)}
    known = np.full((len(cohort), len(index)), -1, np.int8)
    unmatched: dict[str, int] = {}  # id -> its first row
    for number, row in enumerate((first, *rows), start=1):
        visit = visits.get(_text(row[id_column]))
        pairs = [(_text(row["condition"]), label_column)] if long else [(c, c) for c in index if c in row]
        labelled = False
        for condition, column in pairs:
            if condition not in index:
                raise InputError(
                    f"names a condition that the cohort does not have{_suggest(condition, index)}",
                    file=path, row=number, column="condition",
                )  # fmt: skip
            meant = MEANING.get(_text(row[column]).lower())
            if meant is None:
                raise InputError("must be 1 or 0, or empty where nobody knows", file=path, row=number, column=column)
            labelled = labelled or meant >= 0
            if visit is None or meant < 0:
                continue
            if known[visit, index[condition]] >= 0:
                raise InputError("labels a visit a second time: keep one label of each", file=path, row=number)
            known[visit, index[condition]] = meant
        if visit is None and labelled:
            unmatched.setdefault(_text(row[id_column]), number)
    if unmatched and (others == "refuse" or not (known >= 0).any()):
        _refuse_unmatched(unmatched, visits, path, id_column)
    return known


def _check_columns(row: dict[str, Any], index: dict[str, int], path: Path) -> None:
    """A wide file has a column for at least one condition, and none that is nearly one."""
    for column in row:
        if column not in (*IDS, *SHEET) and (known := meant_name(column, index)) is not None:
            raise InputError(f"is not a condition; did you mean {known!r}?", file=path, column=column)
    if not index.keys() & row.keys():
        raise InputError(
            "needs a column for each condition, or columns 'condition' and 'label'; "
            f"it has {_names(row)}, and the cohort's conditions are {', '.join(index)}",
            file=path,
        )


def _suggest(condition: str, index: dict[str, int]) -> str:
    near = meant_name(condition, index)
    return f"; did you mean {near!r}?" if near else f"; its conditions are {', '.join(index)}"


def _refuse_unmatched(unmatched: dict[str, int], visits: dict[str, int], path: Path, column: str) -> None:
    """Say how many ids are no visit of the cohort, and what spreadsheets may have done to them."""
    plain = {_plain_id(visit): visit for visit in visits}
    alike = sum(_plain_id(visit) in plain for visit in unmatched)
    if alike:
        hint = (
            f"{alike:,} of them differ from a visit's id by leading zeros, '.0', case or blanks only, as spreadsheets "
            "change them: keep that column as text"
        )
    else:
        hint = (
            "correct them; or, if the file is right and also has labels of other visits, pass those over with "
            "--skip-other-labels (in Python: others='skip')"
        )
    raise InputError(
        f"{len(unmatched):,} ids are no visit of the cohort; {hint}",
        file=path, row=min(unmatched.values()), column=column,
    )  # fmt: skip


def _plain_id(visit: str) -> str:
    return visit.strip().casefold().removesuffix(".0").replace(" ", "").lstrip("0")


def read_weights(path: Path, cohort: Cohort) -> NDArray[np.float64] | None:
    """(N,) how many visits each visit of the file stands for, NaN for visits not in it; None: no such column."""
    visits = {str(visit): row for row, visit in enumerate(cohort.ids)}
    weights = np.full(len(cohort), np.nan)
    for number, row in enumerate(_rows(path, cohort.conditions), start=1):
        if WEIGHT not in row:
            return None
        visit = visits.get(_text(next((row[name] for name in IDS if name in row), None)))
        try:
            weight = float(_text(row[WEIGHT]))
        except ValueError:
            weight = np.nan
        if not 0 < weight < np.inf:
            raise InputError(
                "must be a number above 0: copy it from the list of 'whatelse anchors label-next', and keep visits "
                "chosen in another way in a file of their own",
                file=path, row=number, column=WEIGHT,
            )  # fmt: skip
        if visit is not None:
            if not np.isnan(weights[visit]) and weights[visit] != weight:
                raise InputError("gives a visit two weights: keep one", file=path, row=number, column=WEIGHT)
            weights[visit] = weight
    return weights


def with_labels(cohort: Cohort, path: Path, *, others: Others = "refuse") -> Cohort:
    """The cohort with the labels of a file put in where it had none; what people said counts for more than billing."""
    said = read_labels(path, cohort, others=others)
    before = np.zeros(said.shape, dtype=bool) if cohort.Y is None else cohort.Y
    Y = np.where(said >= 0, said == 1, before)
    return replace(cohort, Y=Y, known=cohort.known | (said >= 0))


def passed_over(path: Path, conditions: Collection[str]) -> list[str]:
    """Columns of a wide file that hold 1, 0 and blanks only, as labels do, and are no condition."""
    found: set[str] | None = None
    labelled: set[str] = set()
    for row in _rows(path, conditions):
        if found is None:
            long = "condition" in row and any(name in row for name in LABELS)
            found = set() if long else {c for c in row if c not in conditions and c not in (*IDS, *SHEET)}
        found = {column for column in found if _text(row[column]).lower() in MEANING}
        labelled |= {column for column in found if _text(row[column])}
        if not found:
            break
    return sorted((found or set()) & labelled)


def labels_in(path: Path, conditions: Iterable[str]) -> int | None:
    """How many labels a file holds; None if it is no file of labels of these conditions."""
    names = set(conditions)
    count = None
    try:
        for row in _rows(path, names):
            long = "condition" in row and any(name in row for name in LABELS)
            if not any(name in row for name in IDS) or not (long or names & row.keys()):
                return None
            cells = [row[name] for name in LABELS if name in row] if long else [row[c] for c in names & row.keys()]
            count = (count or 0) + sum(_text(cell) != "" for cell in cells)
    except InputError:
        return None
    return count


def _rows(path: Path, conditions: Collection[str]) -> Iterator[dict[str, Any]]:
    """The rows of a table, as spreadsheets save it: any of four separators, UTF-8 or the western code page."""
    if not path.is_file():
        raise InputError("no such file of labels", file=path)
    if path.suffix.lower() in (".parquet", ".pq"):
        try:
            with pq.ParquetFile(path) as file:
                for batch in file.iter_batches():
                    yield from batch.to_pylist()
        except pa.ArrowInvalid:
            raise InputError("is not a Parquet file, or is damaged", file=path) from None
        return
    if not path.stat().st_size:
        return
    csv.field_size_limit(max(csv.field_size_limit(), LONGEST))
    with open_text(path, inspect(path), newline="") as stream:
        head = next((line for line in stream if line.strip()), "")
        delimiter = find_delimiter(head, path, [*IDS, *LABELS, "condition", *map(normal, conditions)])
        stream.seek(0)
        try:
            table = csv.DictReader(stream, delimiter=delimiter, strict=True)
            names = [name for name in table.fieldnames or () if name in (*IDS, *SHEET) or name in conditions]
            if twice := sorted({name for name in names if names.count(name) > 1}):
                raise InputError("two columns have this name: keep one", file=path, column=twice[0])
            for number, row in enumerate(table, start=1):
                if None in row or None in row.values():
                    raise InputError("has more or fewer cells than there are columns", file=path, row=number)
                yield row
        except csv.Error:
            raise InputError("is not a valid CSV file: quotes do not match", file=path) from None


def _text(value: Any) -> str:
    return "" if value is None else str(int(value)) if isinstance(value, bool) else str(value).strip()


def _names(row: dict[str, Any]) -> str:
    return ", ".join(list(row)[:8])
