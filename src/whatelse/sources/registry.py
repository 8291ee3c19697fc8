"""The sources there are: what each reads and which options it takes. To add one, add a row to SOURCES.

`read` is given a file or folder, the report of what is left out, and the description; it yields (row from 1, visit).
The modules behind are imported when a source is used: some need libraries that take long to load.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from whatelse.errors import InputError
from whatelse.sources.description import Description
from whatelse.sources.report import Report
from whatelse.visits import Visit

Reader = Callable[[Any, Report, Description], Iterator[tuple[int, Visit]]]
TABLE_OPTIONS = ("columns", "delimiter", "encoding")
FHIR_OPTIONS = ("codings", "patients", "since", "until")
OMOP_OPTIONS = ("codings", "cdm_schema")


@dataclass(frozen=True, slots=True)
class Source:
    """name: as `read_visits` and the commands take it; reads: in words; options: those beside the files.

    addresses: whether it also reads a server or database by its address.
    """

    name: str
    reads: str
    options: tuple[str, ...]
    read: Reader
    addresses: bool = False


def _table(path: Path, report: Report, how: Description) -> Iterator[tuple[int, Visit]]:
    from whatelse.sources.tables import read_table

    return read_table(path, report, how.columns, delimiter=how.delimiter, encoding=how.encoding)


def _mimic_ed(path: Path, report: Report, how: Description) -> Iterator[tuple[int, Visit]]:
    from whatelse.sources.mimic_ed import read_mimic_ed

    return read_mimic_ed(path, report)


def _nhamcs(path: Path, report: Report, how: Description) -> Iterator[tuple[int, Visit]]:
    from whatelse.sources.nhamcs import read_nhamcs

    return read_nhamcs(path, report, how.labels)


def _fhir(path: Path | str, report: Report, how: Description) -> Iterator[tuple[int, Visit]]:
    from whatelse.sources.fhir import read_fhir

    return read_fhir(path, report, **how.options)


def _omop(path: Path | str, report: Report, how: Description) -> Iterator[tuple[int, Visit]]:
    from whatelse.sources.omop import read_omop

    return read_omop(path, report, **how.options)


SOURCES: dict[str, Source] = {
    source.name: source
    for source in (
        Source("table", "CSV, TSV, JSON Lines or Parquet, compressed or not", TABLE_OPTIONS, _table),
        Source("mimic-ed", "the folder of MIMIC-IV-ED as downloaded", (), _mimic_ed),
        Source("nhamcs", "the zips of the NHAMCS emergency department files as distributed", ("labels",), _nhamcs),
        Source("fhir", "FHIR R4 Bundles, NDJSON, folders of them, or a server's address", FHIR_OPTIONS, _fhir, True),
        Source("omop", "OMOP CDM tables in a folder, or a database's address", OMOP_OPTIONS, _omop, True),
    )
}


def find_source(how: Description) -> Source:
    """The source of a description; InputError if there is none, or if it does not take an option that was given."""
    source = SOURCES.get(how.source)
    if source is None:
        raise InputError(f"unknown source {how.source!r}; known: {', '.join(SOURCES)}")
    extra = [name for name in ("delimiter", "encoding", "labels") if getattr(how, name) is not None]
    extra += ["columns"] if set(how.given) - {"source", "delimiter", "encoding", "labels", "codings"} else []
    extra += how.options
    if wrong := [name for name in extra if name not in source.options]:
        takers = [s.name for s in SOURCES.values() if wrong[0] in s.options]
        raise InputError(
            f"{wrong[0]} is for the source {' or '.join(takers) or 'none'}; the source {source.name!r} has its own"
        )
    return source
