"""Progress bars on stderr. Nothing is printed if stderr is not a terminal."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import TypeVar

T = TypeVar("T")
Report = Callable[[str, int, int | None], None]
EVERY = 256  # items of `track` between two moves of its bar


@contextmanager
def progress_bar() -> Iterator[Report]:
    """A function to report progress to: (what, steps done, steps in all)."""
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TimeElapsedColumn, TimeRemainingColumn

    console = Console(stderr=True)
    if not console.is_terminal:
        yield lambda what, done, total: None
        return
    columns = (BarColumn(), MofNCompleteColumn(), TimeElapsedColumn(), "left:", TimeRemainingColumn())
    with Progress("{task.description}", *columns, console=console, transient=True) as bar:
        task = bar.add_task("learning", total=None)
        yield lambda what, done, total: bar.update(task, description=what, completed=done, total=total)


def track(items: Iterable[T], description: str, total: int | None = None) -> Iterator[T]:
    """`items` one by one, with a bar that counts them."""
    with progress_bar() as report:
        for count, item in enumerate(items):
            if count % EVERY == 0:
                report(description, count, total)
            yield item
