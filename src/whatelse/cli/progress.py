"""Progress bars on stderr. Nothing is printed if stderr is not a terminal."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, TypeVar

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

if TYPE_CHECKING:
    from whatelse.learning.learners import Progress as Report

T = TypeVar("T")
EVERY = 256  # items of `track` between two moves of its bar


@contextmanager
def progress_bar() -> Iterator[Report]:
    """A function to report progress to: (what, steps done, steps in all)."""
    with _bar() as bar:
        if bar is None:
            yield lambda what, done, total: None
            return
        task = bar.add_task("learning", total=None)
        yield lambda what, done, total: bar.update(task, description=what, completed=done, total=total)


def track(items: Iterable[T], description: str, total: int | None = None) -> Iterator[T]:
    """`items` one by one, with a bar that counts them."""
    with _bar() as bar:
        if bar is None:
            yield from items
            return
        task = bar.add_task(description, total=total)
        for count, item in enumerate(items, start=1):
            yield item
            if count % EVERY == 0:
                bar.update(task, completed=count)


@contextmanager
def _bar() -> Iterator[Progress | None]:
    console = Console(stderr=True)
    if not console.is_terminal:
        yield None
        return
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TextColumn("left:"),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=console, transient=True) as bar:
        yield bar
