"""The label queue of a workbench: which visits wait, what is said of one, and the model's opinion beside it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from whatelse.errors import InputError
from whatelse.learning.learners import Progress
from whatelse.lifecycle.label_next import guess_probabilities
from whatelse.tagger import Tagger
from whatelse.visits import Visit
from whatelse.workbench.sheet import Sheet, open_sheet
from whatelse.workbench.workbench import Workbench


@dataclass(frozen=True)
class Waiting:
    """The queue: ids of visits that wait, in order, and how many visits of the sheet are done. None: no sheet yet."""

    visits: tuple[str, ...]
    done: int


class Queue:
    """The queue of an open workbench."""

    def __init__(self, bench: Workbench) -> None:
        self._bench = bench
        self._by_id = {visit.id: visit for visit in bench.records.visits}

    def names(self) -> tuple[str, ...]:
        """The conditions to label: all of the conditions file."""
        return self._bench.folder.anchors().names

    def waiting(self) -> Waiting | None:
        """Where the queue stands."""
        path = self._bench.folder.labels
        if not path.exists():
            return None
        sheet, names = Sheet.read(path), self.names()
        waits = sheet.waiting(names)
        return Waiting(tuple(v for v in waits if v in self._by_id), len(sheet.rows) - len(waits))

    def choose(self, tagger: Tagger, progress: Progress, more: int = 0) -> None:
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
        return self._by_id[visit], self._sheet().said(visit, self.names())

    def label(self, visit: str, yes: Iterable[str], unknown: Iterable[str] = ()) -> None:
        """Say which conditions a visit has; the others it has not, but for those that nobody can tell."""
        have, open_ = set(yes), set(unknown)
        names = self.names()
        if strange := (have | open_) - set(names):
            raise InputError(f"{sorted(strange)[0]!r} is not a condition of {self._bench.folder.conditions.name}")
        labels = {name: None if name in open_ else name in have for name in names}
        self._sheet().fill(visit, labels)

    def take_back(self) -> str | None:
        """Take back what was said of the last visit; its id."""
        return self._sheet().take_back(self.names())

    def _sheet(self) -> Sheet:
        path = self._bench.folder.labels
        if not path.exists():
            raise InputError("no visits have been chosen to label yet", file=path.name)
        return Sheet.read(path)
