"""The sheet that people fill in: visits to label, what their records say, and an empty cell for each condition.

`whatelse anchors label-next` writes it; `vote_files.py` reads it back. It is a CSV file in UTF-8 with a byte order
mark, so that spreadsheets show its letters right. With the records in it, it must be kept as the records are.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Mapping
from pathlib import Path

from whatelse.annotators.record_text import NAMES, record_cells
from whatelse.annotators.vote_files import labels_in
from whatelse.cohort import Cohort
from whatelse.errors import InputError
from whatelse.io.files import write_whole
from whatelse.io.spreadsheet import escape_formula
from whatelse.lifecycle.label_next import LabelNext
from whatelse.visits import Visit

RECORD = "record: "  # begins the columns that quote the record, so that none can be taken for a condition


def write_sheet(path: Path, cohort: Cohort, chosen: LabelNext, records: Mapping[str, Visit] | None = None) -> None:
    """Write the sheet. A file that is there is replaced only if it is such a sheet without a label in it.

    records  the records by id, to decide by; columns that are empty for all of them are left out
    """
    if path.exists() and (count := labels_in(path, cohort.conditions)) != 0:
        what = f"holds {count:,} labels" if count is not None else "is not a list of visits to label"
        raise InputError(
            f"{what}, and would be overwritten: write to another file with --out, and give this one with --labels to "
            "go on after it",
            file=path,
        )
    ids = [str(cohort.ids[row]) for row in chosen.rows]
    shown = [record_cells(records[visit]) if records and visit in records else {} for visit in ids]
    columns = [name for name in NAMES if any(cells.get(name) for cells in shown)]
    out = io.StringIO()
    table = csv.writer(out)
    table.writerow(["visit", "chance", "weight", *(RECORD + name for name in columns), *cohort.conditions])
    for visit, cells, chance, weight in zip(ids, shown, chosen.chance, chosen.weights, strict=True):
        empty = [""] * len(cohort.conditions)
        table.writerow(
            [visit, f"{chance:.6g}", f"{weight:.6g}", *(escape_formula(cells.get(c, "")) for c in columns), *empty]
        )
    write_whole(path, out.getvalue().encode("utf-8-sig"))
