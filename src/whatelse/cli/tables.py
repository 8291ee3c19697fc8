"""Tables, JSON, notes and progress bars, for all commands; and the summary of a cohort."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, TypeVar

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

import whatelse

if TYPE_CHECKING:
    from whatelse.sources import VisitReader
    from whatelse.sources.report import Report

T = TypeVar("T")
Progress = Callable[[str, int, int | None], None]
EVERY = 256  # items of `track` between two moves of its bar
PIPE = 100  # columns of a table that is not printed to a terminal
FIRST = 0.45  # share of the width that the first column may take before its cells are wrapped


def console() -> Console:
    """A console of the terminal's width; 100 columns for a pipe or a file, unless COLUMNS says otherwise."""
    found = Console(highlight=False)
    return found if found.is_terminal or "COLUMNS" in os.environ else Console(width=PIPE, highlight=False)


def print_table(
    head: Sequence[str],
    rows: Iterable[Sequence[str | Text]],
    title: str | None = None,
    styles: Iterable[str] | None = None,
) -> None:
    """A table of cells, which are shown as they are. styles: of each row, such as "red"."""
    cells = [[Text(cell) if isinstance(cell, str) else cell for cell in row] for row in rows]
    table = Table(title=None if title is None else Text(title), title_justify="left")
    out = console()
    for at, name in enumerate(head):
        numbers = all(row[at].plain[:1] in "+-?0123456789" for row in cells)
        widest = max((line_width for row in cells for line_width in map(len, row[at].plain.splitlines())), default=0)
        table.add_column(
            Text(name),
            no_wrap=at == 0 and widest <= FIRST * out.width,
            max_width=int(FIRST * out.width) if at == 0 else None,
            min_width=max(map(len, name.split()), default=0),
            justify="right" if at and numbers else "left",
        )
    for row, style in zip(cells, styles or [""] * len(cells), strict=True):
        table.add_row(*row, style=style)
    out.print(table)


def print_json(value: Any) -> None:
    """Print JSON; a number that is none becomes null."""
    typer.echo(json.dumps(_finite(value), indent=1, allow_nan=False))


def _finite(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _finite(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(item) for item in value]
    return None if isinstance(value, float) and value != value else value


def print_note(text: str) -> None:
    typer.echo(f"note: {text}", err=True)


def print_left_out(records: VisitReader | Report) -> None:
    """Say how many rows could not be used, by reason."""
    for kind, count in sorted((+records.left_out).items()):
        print_note(f"left out {count:,} rows: {kind}")


def print_summary(cohort: whatelse.Cohort) -> None:
    N = len(cohort)
    typer.echo(f"{N:,} visits, {len(cohort.vocabulary.names):,} findings ({len(cohort.conditions)} of them anchors)")
    typer.echo(f"{cohort.X.nnz / N:.1f} findings a visit")
    _shares("anchors that fire in a visit", cohort.A.sum(1))
    if cohort.Y is None:
        typer.echo("no labels")
        return
    tags = cohort.Y[cohort.labelled].sum(1)
    if unknown := N - len(tags):
        typer.echo(f"{unknown:,} visits have no labels")
    _shares("conditions true of a visit", tags)
    one, two = (int((tags >= least).sum()) for least in (1, 2))
    typer.echo(f"{one:,} visits with at least one condition, {two:,} with two or more")


def _shares(title: str, counts: Any) -> None:
    groups = [(label, int((counts == k).sum() if k < 4 else (counts >= 4).sum())) for k, label in enumerate("01234")]
    text = ", ".join(f"{label}{'+' if label == '4' else ''}: {count:,}" for label, count in groups if count)
    typer.echo(f"{title}: {text}")


@contextmanager
def progress_bar() -> Iterator[Progress]:
    """A function to report progress to: (what, steps done, steps in all). Prints nothing if stderr is no terminal."""
    from rich.progress import BarColumn, MofNCompleteColumn, TimeElapsedColumn, TimeRemainingColumn
    from rich.progress import Progress as Bar

    console = Console(stderr=True)
    if not console.is_terminal:
        yield lambda what, done, total: None
        return
    columns = (BarColumn(), MofNCompleteColumn(), TimeElapsedColumn(), "left:", TimeRemainingColumn())
    bar = Bar("{task.description}", *columns, console=console, transient=True)
    task = bar.add_task("", total=None)

    def report(what: str, done: int, total: int | None) -> None:
        bar.start()
        bar.update(task, description=what, completed=done, total=total)

    try:
        yield report
    finally:
        bar.stop()


def say_when_compiling() -> None:
    """Say on stderr, once, if code is compiled: at the first use after an install. Nothing if all of it is cached."""
    from whatelse.noisyor.compiling import when_compiling

    said = "compiling for this machine, once after an install: takes about 20 seconds"
    when_compiling(lambda: typer.echo(said, err=True))


def track(items: Iterable[T], description: str, total: int | None = None) -> Iterator[T]:
    """`items` one by one, with a bar that counts them."""
    with progress_bar() as report:
        for count, item in enumerate(items):
            if count % EVERY == 0:
                report(description, count, total)
            yield item
