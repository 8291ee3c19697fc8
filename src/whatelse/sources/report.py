"""Report: rows that a reader left out, and notes about the files.

Every source calls `leave_out` for a row it cannot use. With on_error="raise" that is the end; with
"skip" the row is counted by kind and reading goes on. What concerns a whole file (damaged, a needed
column missing) is always raised: nobody could say how many rows were lost.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from typing import Literal, TypeVar, get_args

from whatelse.errors import InputError
from whatelse.visits import Visit

Row = TypeVar("Row")
OnError = Literal["raise", "skip"]
SEEN_BEFORE = "this id was seen before; every visit needs an id of its own"
_log = logging.getLogger("whatelse")


class BadValue(Exception):
    """A row that cannot be used: why, without quoting the value, and in which column if it is one.

    `kind`, what such rows are counted under, is the part of `problem` before a ";" (advice follows it).
    """

    def __init__(self, problem: str, column: str | None = None) -> None:
        super().__init__(problem)
        self.problem, self.column = problem, column
        self.kind = problem.split(";")[0]


def unread_cells(column: str, count: int) -> str:
    """A note about cells of a column of numbers."""
    return f"{count:,} cells of column {column!r} are not numbers and count as unknown"


class Report:
    """`left_out` counts rows by kind of problem, `unread` cells of number columns that are no numbers; `notes` says
    what the files did not have."""

    def __init__(self, on_error: OnError = "raise") -> None:
        if on_error not in get_args(OnError):
            raise InputError("on_error must be 'raise' or 'skip'")
        self.on_error: OnError = on_error
        self.left_out: Counter[str] = Counter()
        self.unread: Counter[str] = Counter()
        self.notes: list[str] = []
        self.quiet = False  # notes of files that are read again were said the first time

    def leave_out(self, kind: str, error: InputError) -> None:
        """Raise `error`, or count the row under `kind`. Kinds never hold record content."""
        if self.on_error == "raise":
            raise error
        self.left_out[kind] += 1

    def leave_out_row(self, bad: BadValue, file: object, row: int) -> None:
        """`leave_out` a row of a file that cannot be used."""
        self.leave_out(bad.kind, InputError(bad.problem, file=file, row=row, column=bad.column))

    def usable(
        self, rows: Iterable[tuple[int, Row]], make: Callable[[Row, int], Visit], file: object
    ) -> Iterator[tuple[int, Visit]]:
        """(row, visit) of the rows (row, its cells) that can be used; the others are left out."""
        for row, cells in rows:
            try:
                visit = make(cells, row)
            except BadValue as bad:
                self.leave_out_row(bad, file, row)
                continue
            yield row, visit

    def note(self, text: str) -> None:
        """Log, once, that something optional is missing."""
        if text not in self.notes:
            self.notes.append(text)
            if not self.quiet:
                _log.warning(text)
