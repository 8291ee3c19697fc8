"""A progress bar on stderr where a person is watching, and nothing at all where nobody is."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TypeVar

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

T = TypeVar("T")


def track(items: Iterable[T], description: str, total: int | None = None, every: int = 256) -> Iterator[T]:
    """`items` one by one; the bar, if stderr is a terminal, moves once in `every` items."""
    console = Console(stderr=True)
    if not console.is_terminal:
        yield from items
        return
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=console, transient=True) as bar:
        task = bar.add_task(description, total=total)
        for count, item in enumerate(items, start=1):
            yield item
            if count % every == 0:
                bar.update(task, completed=count)
