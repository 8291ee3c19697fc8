"""Options and arguments that several commands share: one table, one meaning each."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import typer

import whatelse
from whatelse.errors import InputError
from whatelse.sources.registry import SOURCES

if TYPE_CHECKING:
    from whatelse.sources import VisitReader

OnError = Literal["raise", "skip"]
Engine = Literal["local", "spark"]


COHORT: Any = typer.Argument(..., help="A cohort folder, made by 'whatelse build'.")
MODEL: Any = typer.Argument(..., help="A model file, made by 'whatelse fit'.")

# ---- how files of visits are read

_NAMES = {s.name: [name for name in (*s.settings, *s.options) if name != "columns"] for s in SOURCES.values()}
TAKEN = "; ".join(f"{source}: {', '.join(names)}" for source, names in _NAMES.items() if names)
KINDS = "; ".join(f"{source.name}: {source.reads}" for source in SOURCES.values())
SOURCE = typer.Option(None, "--source", help=f"What the files are. [as learned from, else table] {KINDS}.")
MAP = typer.Option(
    None,
    "--map",
    "--columns",
    help="YAML file that says which column is which field; 'whatelse inspect' writes a first one. [as learned from]",
)
OPTION: Any = typer.Option([], "--option", metavar="NAME=VALUE", help=f"An option of the source; repeat. {TAKEN}.")
ON_ERROR = typer.Option("raise", "--on-error", help="A row that cannot be used: stop, or skip it.")
RECORDS: Any = typer.Option([], "--visits", help="Files of the cohort's records. [where they were when it was built]")

# ---- what people said

LABELS: Any = typer.Option(
    [], "--labels", help="CSV or Parquet file of labelled visits; repeat. 'fit' then ignores the cohort's own labels."
)
VOTES: Any = typer.Option(
    [], "--votes", help="CSV or Parquet file of votes, which may err (visit, condition, value, annotator); repeat."
)
DECISIONS = typer.Option(
    None, "--decisions", help="Tags that people confirmed and rejected: database URL, or file of 'store decisions'."
)
ANNOTATOR_ERROR = typer.Option(
    None, "--annotator-error", min=0.001, max=0.45, help="Error rate of decisions. [estimated where two people decided]"
)
SKIP_OTHER_LABELS = typer.Option(False, "--skip-other-labels", help="Ignore labels of visits outside the cohort.")

# ---- the rest

ENGINE = typer.Option("local", "--engine", help="Where the work is done: this process, or Apache Spark.")
MASTER = typer.Option(None, "--master", help="spark: local[2], spark://HOST:7077 … [all cores of this machine]")
SEED = typer.Option(0, "--seed", min=0, help="Seed of everything random: the same seed gives the same result.")
DRAWS = typer.Option(3, "--draws", min=1, help="How often a tag of each visit is hidden at random.")
JSON = typer.Option(False, "--json", help="Print JSON instead of tables.")
KEY = typer.Option("notes", "--key", help="Where the phrase is looked for: notes, dispensed, coded …")
SYSTEM = typer.Option(None, "--system", help="For --key coded: the code system.")


def read(
    files: list[Path],
    options: list[str],
    *,
    source: str | None = None,
    columns: Path | None = None,
    on_error: OnError = "raise",
    like: Any = None,
    once: bool = True,
) -> VisitReader:
    """`read_visits` with the options above. like: the description of the source that a cohort or model keeps."""
    named = {name.replace("-", "_"): value for name, value in pairs(options, "--option").items()}
    own = {name: named.pop(name) for name in ("delimiter", "encoding", "labels") if name in named}
    return whatelse.read_visits(
        files, source, columns=columns, on_error=on_error, like=like, options=named, once=once, **own
    )


def pairs(given: list[str], option: str) -> dict[str, str]:
    """NAME=VALUE, one by one, as a mapping."""
    found = [text.partition("=") for text in given]
    if wrong := [name for name, equals, value in found if not equals or not value]:
        raise InputError(f"{option} {wrong[0]}: needs NAME=VALUE")
    return {name: value for name, _, value in found}


def settings(given: list[str], option: str, known: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """NAME=VALUE as `pairs`; a value is read as JSON if it is JSON, else it is text. A name given twice is a list.

    known: the names there are, each with a value of its kind, a number or text; other names and kinds are refused.
    """
    out: dict[str, Any] = {}
    for text in given:
        ((name, value),) = pairs([text], option).items()
        read_as: Any = value
        with contextlib.suppress(json.JSONDecodeError):
            read_as = json.loads(value)
        if known is not None:
            if name not in known:
                raise InputError(f"{option} {name}: there is no such name; needs one of {', '.join(known)}")
            if isinstance(read_as, int | float) != isinstance(known[name], int | float):
                raise InputError(f"{option} {text}: needs a value such as {name}={known[name]}")
            read_as = type(known[name])(read_as)
        before = out.get(name)
        out[name] = read_as if name not in out else [*(before if isinstance(before, list) else [before]), read_as]
    return out
