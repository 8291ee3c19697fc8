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
    """A function to report progress to: (what, steps done, steps in all). The first report starts the bar's thread."""
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TimeElapsedColumn, TimeRemainingColumn

    console = Console(stderr=True)
    if not console.is_terminal:
        yield lambda what, done, total: None
        return
    columns = (BarColumn(), MofNCompleteColumn(), TimeElapsedColumn(), "left:", TimeRemainingColumn())
    bar = Progress("{task.description}", *columns, console=console, transient=True)
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
    import typer

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
