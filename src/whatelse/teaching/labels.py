"""Labels for a few visits of a cohort, from a file, and the noise rates that follow from them.

Two forms, as CSV or Parquet, both with a column of visit ids (`visit`, `id` or `visit_id`):
- wide: one column for each condition, a cell 1 or 0 (yes/no, true/false), or empty where nobody knows;
- long: `condition` and `label` (or `value`), one row for each visit and condition, as `whatelse decisions export`
  writes it.

A column `weight` says how many visits a labelled visit stands for, as `whatelse anchors label-next` writes it; a file
without that column is of visits chosen at random.
"""

from __future__ import annotations

import csv
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from whatelse.anchors import NoiseRates
from whatelse.cohort import Cohort
from whatelse.errors import InputError

IDS = ("visit", "id", "visit_id")
LABELS = ("label", "value")
WEIGHT = "weight"
MEANING = {"1": 1, "1.0": 1, "yes": 1, "true": 1, "0": 0, "0.0": 0, "no": 0, "false": 0, "": -1, "none": -1, "nan": -1}


def read_labels(path: Path, cohort: Cohort) -> NDArray[np.int8]:
    """(N, m): 1 and 0 where the file says so of a visit of the cohort, -1 elsewhere. Other visits are passed over."""
    rows = _rows(path)
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
    if not long and not index.keys() & first.keys():
        raise InputError(
            "needs a column for each condition, or columns 'condition' and 'label'; "
            f"it has {_names(first)}, and the cohort's conditions are {', '.join(index)}",
            file=path,
        )
    visits = {str(visit): row for row, visit in enumerate(cohort.ids)}
    known = np.full((len(cohort), len(index)), -1, np.int8)
    for number, row in enumerate((first, *rows), start=1):
        visit = visits.get(_text(row[id_column]))
        pairs = [(row["condition"], label_column)] if long else [(c, c) for c in index if c in row]
        for condition, column in pairs:
            if condition not in index:
                raise InputError("names a condition that the cohort does not have", file=path, row=number)
            meant = MEANING.get(_text(row[column]).lower())
            if meant is None:
                raise InputError("must be 1 or 0, or empty where nobody knows", file=path, row=number, column=column)
            if visit is None or meant < 0:
                continue
            if known[visit, index[condition]] >= 0:
                raise InputError("labels a visit a second time: keep one label of each", file=path, row=number)
            known[visit, index[condition]] = meant
    return known


def read_weights(path: Path, cohort: Cohort) -> NDArray[np.float64] | None:
    """(N,) how many visits each visit of the file stands for, NaN for visits not in it; None: no such column."""
    visits = {str(visit): row for row, visit in enumerate(cohort.ids)}
    weights = np.full(len(cohort), np.nan)
    for number, row in enumerate(_rows(path), start=1):
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


def rates_from_labels(path: Path, cohort: Cohort) -> tuple[NoiseRates, int]:
    """Noise rates from the labels of a file and the anchors of all visits; and how many visits had labels.

    Each condition is estimated from the visits labelled for it, so a visit need not be labelled for all.
    """
    known, weights = read_labels(path, cohort), read_weights(path, cohort)
    if not (some := (known >= 0).any(0)).all():
        condition = cohort.conditions[int(np.argmin(some))]
        raise InputError(f"no visit of the cohort is labelled for {condition!r}; label some", file=path)
    rows = np.flatnonzero((known >= 0).any(1))
    rates = NoiseRates.from_sample(
        cohort.A, known[rows] == 1, rows, cohort.conditions,
        weights=None if weights is None else weights[rows], known=known[rows] >= 0,
    )  # fmt: skip
    return rates, len(rows)


def _rows(path: Path) -> Iterator[dict[str, Any]]:
    if path.suffix.lower() in (".parquet", ".pq"):
        try:
            with pq.ParquetFile(path) as file:
                for batch in file.iter_batches():
                    yield from batch.to_pylist()
        except pa.ArrowInvalid:
            raise InputError("is not a Parquet file, or is damaged", file=path) from None
        return
    try:
        with path.open(newline="", encoding="utf-8-sig") as stream:
            for number, row in enumerate(csv.DictReader(stream), start=1):
                if None in row or None in row.values():
                    raise InputError("has more or fewer cells than there are columns", file=path, row=number)
                yield row
    except (UnicodeDecodeError, csv.Error):
        raise InputError("is not a CSV file in UTF-8", file=path) from None


def _text(value: Any) -> str:
    return "" if value is None else str(int(value)) if isinstance(value, bool) else str(value).strip()


def _names(row: dict[str, Any]) -> str:
    return ", ".join(list(row)[:8])
