"""The label queue: the sheet that 'whatelse anchors label-next' writes, filled in one visit after another.

The queue is the order of the sheet. A visit is done once any cell of its row is filled in, or once somebody has looked
at it and could tell nothing. Taking back the last one empties the row of the last visit that is done. Every change
writes the whole file, as a spreadsheet would.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from whatelse.cohort import Cohort
from whatelse.errors import InputError
from whatelse.io.files import write_whole
from whatelse.learning.learners import Progress
from whatelse.lifecycle.label_next import RECORD, guess_probabilities, label_next, write_sheet
from whatelse.tagger import Tagger
from whatelse.types import Floats
from whatelse.visits import Visit
from whatelse.workbench.workbench import Workbench

COUNT = 200
LOOKED = RECORD + "looked at"  # column: somebody could tell nothing of the visit


@dataclass
class Sheet:
    """The rows of a sheet in order, each a cell by column."""

    path: Path
    columns: list[str]
    rows: list[dict[str, str]]

    @classmethod
    def read(cls, path: Path) -> Sheet:
        """InputError if it is no sheet with a line a visit."""
        try:
            table = csv.DictReader(io.StringIO(path.read_text("utf-8-sig"), newline=""))
            rows = [{name: cell or "" for name, cell in row.items() if name is not None} for row in table]
        except (UnicodeDecodeError, csv.Error):
            raise InputError("is not a CSV file in UTF-8", file=path) from None
        columns = list(table.fieldnames or ())
        if "visit" not in columns or "weight" not in columns:
            raise InputError(
                "is not a sheet of 'whatelse anchors label-next', which has columns 'visit' and 'weight': keep other "
                "labels in a file of their own",
                file=path,
            )
        return cls(path, columns, rows)

    def write(self) -> None:
        out = io.StringIO()
        table = csv.DictWriter(out, self.columns, restval="")
        table.writeheader()
        table.writerows(self.rows)
        write_whole(self.path, out.getvalue().encode("utf-8-sig"))

    def waiting(self, conditions: Iterable[str]) -> list[str]:
        """The visits that nothing is said of yet, in order."""
        names = {*conditions, LOOKED}
        return [row["visit"] for row in self.rows if not any(row.get(name, "").strip() for name in names)]

    def fill(self, visit: str, labels: Mapping[str, bool | None]) -> None:
        """Write what was said of a visit: 1, 0, or empty where nobody can tell. A new condition gets a new column."""
        row = self.row(visit)
        cells = {name: "" if label is None else str(int(label)) for name, label in labels.items()}
        if LOOKED in self.columns or not any(cells.values()):
            cells[LOOKED] = "" if any(cells.values()) else "yes"
        self.columns += [name for name in cells if name not in self.columns]
        row.update(cells)
        self.write()

    def take_back(self, conditions: Iterable[str]) -> str | None:
        """Empty the row of the last visit that is done; its id, or None if none is."""
        names = [*conditions, LOOKED]
        waiting = set(self.waiting(names))
        for row in reversed(self.rows):
            if row["visit"] not in waiting:
                row.update({name: "" for name in names if name in row})
                self.write()
                return row["visit"]
        return None

    def row(self, visit: str) -> dict[str, str]:
        """The cells of a visit."""
        found = next((row for row in self.rows if row["visit"] == visit), None)
        if found is None:
            raise InputError("has no such visit", file=self.path)
        return found


def open_sheet(path: Path, cohort: Cohort, probability: Floats, more: int = 0) -> Sheet:
    """The sheet, made if it is not there; with `more`, so many visits are added at its end.

    probability  (N, m) steers which visits are chosen (`label_next`); the weights in the sheet undo the steering
    """
    if not path.exists():
        write_sheet(path, cohort, label_next(cohort.A, probability, min(COUNT, len(cohort))))
    sheet = Sheet.read(path)
    if more:
        row_of = {str(visit): row for row, visit in enumerate(cohort.ids)}
        done = [row_of[row["visit"]] for row in sheet.rows if row["visit"] in row_of]
        chosen = label_next(cohort.A, probability, min(more, len(cohort) - len(done)), done=done)
        for at, chance, weight in zip(chosen.rows, chosen.chance, chosen.weights, strict=True):
            sheet.rows.append({"visit": str(cohort.ids[at]), "chance": f"{chance:.6g}", "weight": f"{weight:.6g}"})
        sheet.write()
    return sheet


@dataclass(frozen=True)
class Waiting:
    """The queue: ids of visits that wait, in order, and how many visits of the sheet are done. None: no sheet yet."""

    waiting: tuple[str, ...]
    done: int


class Queue:
    """The queue of an open workbench."""

    def __init__(self, bench: Workbench) -> None:
        self._bench = bench
        self._by_id = {visit.id: visit for visit in bench.records.visits}

    def names(self) -> tuple[str, ...]:
        return self._bench.folder.anchors().names

    def waiting(self) -> Waiting | None:
        """Where the queue stands."""
        if not self._bench.folder.labels.exists():
            return None
        sheet = self._sheet()
        waits = sheet.waiting(self.names())
        return Waiting(tuple(v for v in waits if v in self._by_id), len(sheet.rows) - len(waits))

    def choose(self, tagger: Tagger, more: int, progress: Progress) -> None:
        """Choose visits to label: 'whatelse anchors label-next'. The model steers if it has the cohort's findings."""
        cohort = self._bench.cohort
        progress("choosing visits to label", 0, 1)
        same = tagger.vocabulary_.names == cohort.vocabulary.names and tagger.conditions_ == cohort.conditions
        probability = tagger.predict_proba(cohort) if same else guess_probabilities(cohort)
        open_sheet(self._bench.folder.labels, cohort, probability, more)
        progress("choosing visits to label", 1, 1)

    def record(self, visit: str) -> tuple[Visit, dict[str, str]]:
        """A visit of the sheet, and what is said of it: "1", "0" or "" by condition."""
        if visit not in self._by_id:
            raise InputError("there is no record of that visit")
        row = self._sheet().row(visit)
        return self._by_id[visit], {name: row.get(name, "").strip() for name in self.names()}

    def label(self, visit: str, yes: Iterable[str], unknown: Iterable[str] = ()) -> None:
        """Say which conditions a visit has; the others it has not, but for those that nobody can tell."""
        have, open_, names = set(yes), set(unknown), self.names()
        if strange := (have | open_) - set(names):
            raise InputError(f"{sorted(strange)[0]!r} is not a condition of {self._bench.folder.conditions.name}")
        self._sheet().fill(visit, {name: None if name in open_ else name in have for name in names})

    def take_back(self) -> str | None:
        """Take back what was said of the last visit; its id."""
        return self._sheet().take_back(self.names())

    def _sheet(self) -> Sheet:
        path = self._bench.folder.labels
        if not path.exists():
            raise InputError("no visits have been chosen to label yet", file=path.name)
        return Sheet.read(path)
