"""The database of decisions: its option, and how it is opened."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from whatelse.errors import WhatelseError

if TYPE_CHECKING:
    from whatelse.annotators.decisions import Decisions
    from whatelse.store import Store

DATABASE = "sqlite:///whatelse.db"
DATABASE_OPTION: Any = typer.Option(
    DATABASE,
    "--database",
    envvar="WHATELSE_DATABASE",
    help="Where decisions are kept: sqlite:///FILE or postgresql://…",
)


@contextmanager
def open_store(database: str, new: bool = True) -> Iterator[Store]:
    """The store at a URL, closed in the end. new: make it if there is none; a mistyped name would verify as empty."""
    from whatelse.store import Store
    from whatelse.store.backup import file_of

    if not new and database.startswith("sqlite:") and not (file := file_of(database)).exists():
        raise WhatelseError(f"{file}: there is no such database; say where it is with --database sqlite:///FILE")
    with closing(Store(database)) as store:
        yield store


def open_decisions(place: str, error: float | None = None) -> Decisions:
    """Decisions of a database, or of a file that `store decisions` wrote, weighed and judged together."""
    from whatelse.annotators.decisions import combine, opinions_of, read_opinions

    if place.endswith((".csv", ".parquet")) and "://" not in place:
        return combine(read_opinions(Path(place)), error=error)
    with open_store(place, new=False) as store:
        return combine(opinions_of(store.tag_lines()), error=error)
