"""The sources. A source is one row of `registry.yaml`: name, help, options, reader.

A reader is a function `read(place, report, description)`: place is a path, or the address of a server or database; it
yields (row from 1, visit). Its module is imported when the source is used, because some libraries load slowly.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from importlib import import_module
from typing import Any

from whatelse.errors import InputError
from whatelse.io.limits import shipped_yaml
from whatelse.sources.description import Description
from whatelse.sources.report import Report
from whatelse.visits import Visit

Reader = Callable[[Any, Report, Description], Iterator[tuple[int, Visit]]]


@dataclass(frozen=True, slots=True)
class Source:
    """One kind of records; `registry.yaml` explains the fields. name: as `read_visits` and the commands take it."""

    name: str
    reads: str
    reader: str
    settings: Sequence[str] = ()
    options: Mapping[str, str] = field(default_factory=dict)
    addresses: bool = False

    @property
    def read(self) -> Reader:
        module, _, name = self.reader.partition(":")
        found: Reader = getattr(import_module(f"whatelse.sources.{module}"), name)
        return found


_ROWS = shipped_yaml("whatelse.sources", "registry.yaml")
SOURCES: dict[str, Source] = {name: Source(name, **row) for name, row in _ROWS.items()}


def find_source(how: Description) -> Source:
    """The source of a description; InputError if there is none, or if it does not take an option that was given."""
    source = SOURCES.get(how.source)
    if source is None:
        raise InputError(f"unknown source {how.source!r}; known: {', '.join(SOURCES)}")
    extra = [name for name in ("delimiter", "encoding", "labels") if getattr(how, name) is not None]
    extra += ["columns"] if set(how.given) - {"source", "delimiter", "encoding", "labels", "codings"} else []
    extra += how.options
    if wrong := [name for name in extra if name not in (*source.settings, *source.options)]:
        takers = [s.name for s in SOURCES.values() if wrong[0] in (*s.settings, *s.options)]
        owners = " or ".join(takers) or "none"
        raise InputError(f"{wrong[0]} is for the source {owners}; the source {source.name!r} has its own")
    return source
