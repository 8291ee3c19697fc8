"""The sources. A source is one row of SOURCES: name, help, options, reader. To add a source, add a row.

A reader is a function `read(place, report, description)`: place is a path, or the address of a server or database; it
yields (row from 1, visit). Its module is imported when the source is used, because some libraries load slowly.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from importlib import import_module
from typing import Any

from whatelse.errors import InputError
from whatelse.sources.description import Description
from whatelse.sources.report import Report
from whatelse.visits import Visit

Reader = Callable[[Any, Report, Description], Iterator[tuple[int, Visit]]]
CODINGS = {"codings": "a YAML file of the hospital's own codes"}


@dataclass(frozen=True, slots=True)
class Source:
    """One kind of records.

    name        as `read_visits` and the commands take it
    reads       help text
    reader      module and function, "module:function"
    settings    what it takes of `read_visits`: columns, delimiter, encoding, labels
    options     what else it takes (`--option NAME=VALUE`), with help texts
    addresses   whether it also reads a server or database by its address
    """

    name: str
    reads: str
    reader: str
    settings: tuple[str, ...] = ()
    options: Mapping[str, str] = field(default_factory=dict)
    addresses: bool = False

    @property
    def read(self) -> Reader:
        module, _, name = self.reader.partition(":")
        found: Reader = getattr(import_module(f"whatelse.sources.{module}"), name)
        return found


_ALL = (
    Source(
        "table",
        "CSV, TSV, JSON Lines or Parquet, compressed or not",
        "tables:read_table",
        settings=("columns", "delimiter", "encoding"),
    ),
    Source("mimic-ed", "the folder of MIMIC-IV-ED as downloaded", "mimic_ed:read_mimic_ed"),
    Source(
        "nhamcs",
        "the zips of the NHAMCS emergency department files as distributed",
        "nhamcs:read_nhamcs",
        settings=("labels",),
    ),
    Source(
        "fhir",
        "FHIR R4 Bundles, NDJSON, folders of them, or a server's address",
        "fhir:read_fhir",
        options={
            **CODINGS,
            "patients": "server: a file with one patient id a line; without it, encounters are searched by date",
            "since": "server: the first day of arrival, as 2026-01-31",
            "until": "server: the last day of arrival",
        },
        addresses=True,
    ),
    Source(
        "omop",
        "OMOP CDM tables in a folder, or a database's address",
        "omop.visits:read_omop",
        options={**CODINGS, "cdm_schema": "the schema of the CDM tables"},
        addresses=True,
    ),
)
SOURCES: dict[str, Source] = {source.name: source for source in _ALL}


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
        raise InputError(
            f"{wrong[0]} is for the source {' or '.join(takers) or 'none'}; the source {source.name!r} has its own"
        )
    return source
