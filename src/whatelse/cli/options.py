"""Options and arguments that several commands share: one table, one meaning each."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import typer

from whatelse.errors import InputError
from whatelse.sources.registry import SOURCES, Source

if TYPE_CHECKING:
    from whatelse.sources import VisitReader

OnError = Literal["raise", "skip"]
Engine = Literal["local", "spark"]


def _takers(option: str) -> str:
    return ", ".join(source.name for source in SOURCES.values() if option in source.settings)


def _taken(source: Source) -> str:
    names = [name for name in (*source.settings, *source.options) if name != "columns"]
    return f"{source.name}: {', '.join(names)}" if names else ""


COHORT: Any = typer.Argument(..., help="A cohort folder, made by 'whatelse build'.")
MODEL: Any = typer.Argument(..., help="A model file, made by 'whatelse fit'.")

# ---- how files of visits are read

KINDS = "; ".join(f"{source.name}: {source.reads}" for source in SOURCES.values())
SOURCE = typer.Option(None, "--source", help=f"What the files are. [as learned from, else table] {KINDS}.")
MAP = typer.Option(
    None,
    "--map",
    "--columns",
    help=f"{_takers('columns')}: YAML file that says which column is which field; 'whatelse inspect' writes a first "
    "one. [as learned from]",
)
OPTION = typer.Option(
    None,
    "--option",
    metavar="NAME=VALUE",
    help="An option of the source; repeat. " + "; ".join(filter(None, map(_taken, SOURCES.values()))) + ".",
)
ON_ERROR = typer.Option("raise", "--on-error", help="A row that cannot be used: stop, or skip it.")
RECORDS = typer.Option(None, "--visits", help="Files of the cohort's records. [where they were when it was built]")
# `serve` has these one by one, as settings.
DELIMITER = typer.Option(None, "--delimiter", help=f"{_takers('delimiter')}: the column separator. [found out]")
ENCODING = typer.Option(None, "--encoding", help=f"{_takers('encoding')}: the encoding. [found out]")
LABEL_TABLES = typer.Option(None, "--label-tables", "--labels", help=f"{_takers('labels')}: folder of label tables.")

# ---- what people said

LABELS = typer.Option(
    None, "--labels", help="CSV or Parquet file of labelled visits; repeat. 'fit' then ignores the cohort's own labels."
)
VOTES = typer.Option(
    None, "--votes", help="CSV or Parquet file of votes, which may err (visit, condition, value, annotator); repeat."
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
    options: list[str] | None = None,
    *,
    source: str | None = None,
    columns: Path | None = None,
    on_error: OnError = "raise",
    like: Any = None,
    once: bool = True,
) -> VisitReader:
    """`read_visits` with the options above. like: the description of the source that a cohort or model keeps."""
    from whatelse.sources import read_visits

    named = {name.replace("-", "_"): value for name, value in pairs(options or [], "--option").items()}
    own = {name: named.pop(name) for name in ("delimiter", "encoding", "labels") if name in named}
    return read_visits(files, source, columns=columns, on_error=on_error, like=like, options=named, once=once, **own)


def add_group(app: typer.Typer, name: str, text: str, **commands: Callable[..., None]) -> typer.Typer:
    """Add a group of commands with its help text; `label_next=` is the command `label-next`."""
    group = typer.Typer(no_args_is_help=True, help=text)
    for command, function in commands.items():
        group.command(command.replace("_", "-"))(function)
    app.add_typer(group, name=name)
    return group


def arrange(app: typer.Typer, panels: dict[str, tuple[str, ...]]) -> None:
    """Put commands into panels of `--help`, in the order of the panels."""
    order = [(panel, name) for panel, names in panels.items() for name in names]
    place = {name: (at, panel) for at, (panel, name) in enumerate(order)}

    def name_of(entry: Any) -> str:
        return str(entry.name or entry.callback.__name__)

    app.registered_commands.sort(key=lambda entry: place[name_of(entry)][0])
    entries: list[Any] = [*app.registered_commands, *app.registered_groups]
    for entry in entries:
        entry.rich_help_panel = place[name_of(entry)][1]


def pairs(given: list[str], option: str) -> dict[str, str]:
    """NAME=VALUE, one by one, as a mapping."""
    found = [text.partition("=") for text in given]
    if wrong := [name for name, equals, value in found if not equals or not value]:
        raise InputError(f"{option} {wrong[0]}: needs NAME=VALUE")
    return {name: value for name, _, value in found}


def settings(given: list[str], option: str) -> dict[str, Any]:
    """NAME=VALUE as `pairs`; a value is read as JSON if it is JSON, else it is text. A name given twice is a list."""
    out: dict[str, Any] = {}
    for text in given:
        ((name, value),) = pairs([text], option).items()
        try:
            read_as = json.loads(value)
        except json.JSONDecodeError:
            read_as = value
        before = out.get(name)
        out[name] = read_as if name not in out else [*(before if isinstance(before, list) else [before]), read_as]
    return out
