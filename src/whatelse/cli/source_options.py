"""The options of `build`, `tag`, `serve` and others that say how files of visits are read: the same ones everywhere."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from whatelse.errors import InputError
from whatelse.sources.registry import SOURCES

if TYPE_CHECKING:
    from whatelse.sources import VisitReader


class OnError(StrEnum):
    """What to do with a row that cannot be used."""

    stop = "raise"
    skip = "skip"


def _takers(option: str) -> str:
    return ", ".join(source.name for source in SOURCES.values() if option in source.options)


KINDS = "; ".join(f"{source.name}: {source.reads}" for source in SOURCES.values())
SOURCE = typer.Option(None, "--source", help=f"What the files are. [as learned from, else table] {KINDS}.")
MAP = typer.Option(
    None,
    "--map",
    "--columns",
    help=f"{_takers('columns')}: YAML file, which column is which field and how cells are written; 'whatelse inspect' "
    "writes a first one. [as learned from]",
)
DELIMITER = typer.Option(None, "--delimiter", help=f"{_takers('delimiter')}: the column separator, if not found out.")
ENCODING = typer.Option(None, "--encoding", help=f"{_takers('encoding')}: the encoding, if not found out.")
LABEL_TABLES = typer.Option(None, "--labels", help=f"{_takers('labels')}: the folder of label tables.")
OPTION = typer.Option(
    None,
    "--option",
    metavar="NAME=VALUE",
    help="What else a source takes; may be repeated. fhir: codings, patients (a file of ids), since, until; "
    "omop: codings, cdm_schema.",
)
ON_ERROR = typer.Option(OnError.stop, "--on-error", help="A row that cannot be used: stop, or skip it.")


def read(
    files: list[Path],
    *,
    source: str | None = None,
    columns: Path | None = None,
    delimiter: str | None = None,
    encoding: str | None = None,
    labels: Path | None = None,
    on_error: OnError = OnError.stop,
    like: Any = None,
    options: list[str] | None = None,
) -> VisitReader:
    """`read_visits` with these options; `like` is the description that a cohort or model kept."""
    from whatelse.sources import read_visits

    return read_visits(
        files,
        source,
        columns=columns,
        delimiter=delimiter,
        encoding=encoding,
        labels=labels,
        on_error="skip" if on_error is OnError.skip else "raise",
        like=like,
        options=named(options or []),
    )


def named(options: list[str]) -> dict[str, str]:
    """NAME=VALUE, one by one, as a mapping."""
    pairs = [option.partition("=") for option in options]
    if wrong := [name for name, equals, value in pairs if not equals or not value]:
        raise InputError(f"--option {wrong[0]}: needs NAME=VALUE")
    return {name.replace("-", "_"): value for name, _, value in pairs}
