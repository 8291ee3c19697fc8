"""A bar on stderr for work that tells how far it is, where a person is watching."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

if TYPE_CHECKING:
    from whatelse.learning.learners import Progress as Told


@contextmanager
def progress_bar() -> Iterator[Told]:
    """Something to tell (what, steps done, steps in all); silent unless stderr is a terminal."""
    console = Console(stderr=True)
    if not console.is_terminal:
        yield lambda what, done, total: None
        return
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=console, transient=True) as bar:
        task = bar.add_task("learning", total=None)
        yield lambda what, done, total: bar.update(task, description=what, completed=done, total=total)
