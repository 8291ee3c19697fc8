"""The workbench by command: `anchors remove`, `change`, `allow`, `learn`, `promote` and `drop`."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import typer
from rich.table import Table

from whatelse.cli.bar import progress_bar
from whatelse.cli.printing import _console, print_note
from whatelse.cli.teach import print_comparison

if TYPE_CHECKING:
    from whatelse.teaching.bench.course import Outcome

BENCH = typer.Argument(..., help="The folder of a workbench: conditions.yaml, labels.csv, cohort/ …")
MODEL = typer.Option(..., "--model", help="The model file that serves.")


def register(anchors: typer.Typer) -> None:
    """Add the commands of this module to `whatelse anchors`."""
    anchors.command("remove")(remove)
    anchors.command("change")(change)
    anchors.command("allow")(allow)
    anchors.command("learn")(learn)
    anchors.command("promote")(promote)
    anchors.command("drop")(drop)


def remove(
    conditions: Path = typer.Argument(..., help="The conditions file (YAML)."),
    condition: str = typer.Argument(..., help="The condition."),
    phrase: str = typer.Argument(..., help="The phrase, drug or code."),
    key: str = typer.Option("notes", "--key", help="Where it is looked for: notes, dispensed, coded …"),
    system: str | None = typer.Option(None, "--system", help="For --key coded: the code system."),
) -> None:
    """Take an anchor out of a conditions file; the rest of the file stays as it is."""
    from whatelse.teaching.hunting.edit import take_out

    take_out(conditions, condition, phrase, key, system)
    typer.echo(f"took {phrase!r} out of {condition} in {conditions}; build the cohort again to use it")


def change(
    conditions: Path = typer.Argument(..., help="The conditions file (YAML)."),
    condition: str = typer.Argument(..., help="The condition."),
    phrase: str = typer.Argument(..., help="The phrase or drug as it is."),
    new: str = typer.Argument(..., help="What it is to be."),
    key: str = typer.Option("notes", "--key", help="Where it is looked for: notes, dispensed …"),
) -> None:
    """Write an anchor of a conditions file in another way, where it stands."""
    from whatelse.teaching.hunting.edit import change_phrase

    change_phrase(conditions, condition, phrase, new, key)
    typer.echo(f"{phrase!r} is {new!r} now, of {condition} in {conditions}; build the cohort again to use it")


def allow(
    refused: Path = typer.Argument(..., help="The file of refused phrases (YAML)."),
    condition: str = typer.Argument(..., help="The condition."),
    phrase: str = typer.Argument(..., help="The phrase, drug or code."),
) -> None:
    """Take back that a phrase was refused."""
    from whatelse.teaching.hunting.edit import allow_phrase

    allow_phrase(refused, condition, phrase)
    typer.echo(f"{phrase!r} may be suggested for {condition} again")


def learn(
    bench: Path = BENCH,
    model: Path = MODEL,
    visits: list[Path] | None = typer.Option(None, "--visits", help="The cohort's records. [where they were]"),
    as_json: bool = typer.Option(False, "--json", help="Print JSON instead of tables."),
) -> None:
    """Learn from the conditions and labels as they are now, and show what changed on visits that were held out.

    The new model is MODEL.candidate until it is promoted or dropped.
    """
    from whatelse.cohort.again import records_of
    from whatelse.teaching.bench.course import learn_in
    from whatelse.teaching.bench.folder import BenchFolder

    folder = BenchFolder(bench)
    with progress_bar() as told:
        told("reading the records", 0, 4)
        outcome = learn_in(folder, model, list(records_of(folder.open(), visits)), progress=told)
    if as_json:
        typer.echo(json.dumps(outcome.to_json(), indent=1))
        return
    print_outcome(outcome)
    typer.echo(f"next: whatelse anchors promote {bench} --model {model}, or drop")


def print_outcome(outcome: Outcome) -> None:
    """What changed in the anchors, by hidden anchors, by labels, and the verdict."""
    for c in outcome.changed:
        words = [*(f"+{p}" for p in c.came), *(f"-{p}" for p in c.went)]
        typer.echo(f"{c.condition}: {', '.join(words)}; fires in {c.fires_before:,} -> {c.fires_after:,} visits")
    source, count = outcome.learned
    labels = f"{source}, {count:,} visits" if count else source
    typer.echo(
        f"learned from {outcome.visits - outcome.held_out:,} visits ({labels}), judged on {outcome.held_out:,} others"
    )
    if outcome.relearned:
        print_note("the old model may have seen those, so what it knows was learned again without them")
    table = Table("held-out anchors", "visits", "old", "new", "difference", "interval", title_justify="left")
    for row in outcome.anchors:
        cells = [f"{row.visits:,}", f"{row.old:.4f}", f"{row.new:.4f}", f"{row.difference:+.4f}"]
        table.add_row(row.measure, *cells, f"{row.low:+.4f} to {row.high:+.4f}")
    _console().print(table)
    if outcome.labels is not None:
        names = {c.condition for c in outcome.changed}
        own = tuple(row for row in outcome.labels.by_condition if row.measure in names)
        print_comparison(replace(outcome.labels, by_condition=own))
    else:
        typer.echo(f"verdict: {outcome.verdict}: {outcome.because}")


def promote(bench: Path = BENCH, model: Path = MODEL) -> None:
    """Put the candidate in the model's place. 'whatelse refit MODEL --rollback' puts the old one back."""
    from whatelse.teaching.bench.course import promote as put
    from whatelse.teaching.bench.folder import BenchFolder

    digest = put(BenchFolder(bench), model)
    typer.echo(f"{model} is now {digest[:12]}; the one before is kept as {model}.previous")


def drop(bench: Path = BENCH, model: Path = MODEL) -> None:
    """Forget the candidate; the conditions file stays as it is."""
    from whatelse.teaching.bench.course import drop as forget
    from whatelse.teaching.bench.folder import BenchFolder

    forget(BenchFolder(bench), model)
    typer.echo("the candidate is gone; the conditions file is as it was")
