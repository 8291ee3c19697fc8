"""From one model to the next: `refit` and `drift`."""

from __future__ import annotations

from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING

import typer

import whatelse
from whatelse.cli import options
from whatelse.cli.evaluate import Require, difference, print_comparison
from whatelse.cli.fit import read_lesson
from whatelse.cli.store import open_decisions
from whatelse.cli.tables import print_json, print_note, print_table, progress_bar
from whatelse.errors import InputError

if TYPE_CHECKING:
    from whatelse.workbench.training import Outcome


def refit(
    model: Path = typer.Argument(..., help="The model file that serves, and that the new one replaces."),
    cohort: Path | None = typer.Argument(None, help="Cohort folder, built with '--vocabulary-from' the first cohort."),
    labels: list[Path] = options.LABELS,
    decisions: str | None = options.DECISIONS,
    error: float | None = options.ANNOTATOR_ERROR,
    skip_other_labels: bool = options.SKIP_OTHER_LABELS,
    hold_out: float = typer.Option(
        0.25, "--hold-out", min=0.05, max=0.9, help="Share of visits to compare on; never learned from."
    ),
    require: Require = typer.Option("not-worse", "--require", help="What the new model must be to serve."),
    workbench: Path | None = typer.Option(
        None, "--workbench", help="Learn from the conditions and labels in this folder; the new model is a candidate."
    ),
    visits: list[Path] = options.RECORDS,
    promote: bool = typer.Option(False, "--promote", help="Put the candidate in the model's place, and end."),
    drop: bool = typer.Option(False, "--drop", help="Delete the candidate, and end."),
    rollback: bool = typer.Option(False, "--rollback", help="Put the previous model back, and end."),
    as_json: bool = options.JSON,
) -> None:
    """Learn anew from all labels and decisions; the new model replaces the old one if it is not worse.

    Exits with 1 if the old model stays. 'whatelse serve --watch-model 5' loads the new one by itself.
    With --workbench the new model is MODEL.candidate until --promote or --drop.

    Example: whatelse refit model cohort --labels labels.csv

    Example: whatelse refit model --workbench bench
    """
    from whatelse.lifecycle import refit as work

    if rollback:
        was, now = work.roll_back(model)
        typer.echo(f"{model} is {now[:12]} again; {was[:12]} is kept as {work.beside(model, 'rolled-back')}")
        return
    if promote or drop:
        _decide(model, workbench, promote)
        return
    if workbench is not None:
        _refit_workbench(model, workbench, visits, as_json)
        return
    if cohort is None or not (labels or decisions):
        raise InputError("refit needs a cohort, and --labels, --decisions or both: what is new to learn from?")
    opened = whatelse.Cohort.open(cohort)
    lesson, judges = read_lesson(opened, labels, decisions, error, skip_other_labels, quiet=as_json)
    with progress_bar() as progress:
        done = work.refit(model, opened, lesson, judges=judges, share=hold_out, require=require, progress=progress)
    found = done.comparison
    if as_json:
        said = {"put": done.put, "fair": done.fair, "learned_from": done.learned_from, "comparison": asdict(found)}
        print_json(said)
    else:
        print_comparison(found, conditions=False)
        if not done.fair:
            print_note("the old model may have learned from these visits, which favours it; the next refit is fair")
        if done.put:
            typer.echo(f"{model} is now {found.new[:12]}; {found.old[:12]} is kept as {work.beside(model, 'previous')}")
            typer.echo(f"to go back: whatelse refit {model} --rollback")
        else:
            typer.echo(f"{model} is unchanged; the new model is {done.candidate}")
    if not done.put:
        raise typer.Exit(1)


def _refit_workbench(model: Path, root: Path, visits: list[Path] | None, as_json: bool) -> None:
    """Learn a candidate from the files of a workbench, and print the comparison."""
    from whatelse.lifecycle.rebuild import records_of
    from whatelse.workbench.folder import BenchFolder
    from whatelse.workbench.training import learn_in

    folder = BenchFolder(root)
    with progress_bar() as progress:
        progress("reading the records", 0, 4)
        outcome = learn_in(folder, model, list(records_of(folder.open(), visits)), progress=progress)
    if as_json:
        print_json(asdict(outcome))
        return
    print_outcome(outcome)
    typer.echo(f"next: whatelse refit {model} --workbench {root} --promote, or --drop")


def _decide(model: Path, root: Path | None, promote: bool) -> None:
    """Promote or drop the candidate of a model, with the cohort of the workbench if there is one."""
    from whatelse.lifecycle.refit import drop_candidate, promote_candidate
    from whatelse.workbench import training
    from whatelse.workbench.folder import BenchFolder

    folder = None if root is None else BenchFolder(root)
    if promote:
        digest = promote_candidate(model) if folder is None else training.promote(folder, model)
        typer.echo(f"{model} is now {digest[:12]}; the one before is kept as {model}.previous")
        return
    if folder is None:
        drop_candidate(model)
    else:
        training.drop(folder, model)
    typer.echo("the candidate is deleted; the conditions file is unchanged")


def print_outcome(outcome: Outcome) -> None:
    """Print what changed: anchors, held-out anchors, labels, and the verdict."""
    for c in outcome.changed:
        words = [*(f"+{p}" for p in c.came), *(f"-{p}" for p in c.went)]
        typer.echo(f"{c.condition}: {', '.join(words)}; fires in {c.fires_before:,} -> {c.fires_after:,} visits")
    source, count = outcome.learned
    labels = f"{source}, {count:,} visits" if count else source
    used = outcome.visits - outcome.held_out
    typer.echo(f"learned from {used:,} visits ({labels}), compared on {outcome.held_out:,} others")
    if outcome.relearned:
        print_note("the old model may have seen those visits: it was learned again without them, for the comparison")
    rows = [(row.measure, f"{row.visits:,}", *difference(row)) for row in outcome.anchors]
    print_table(("held-out anchors", "visits", "old", "new", "difference", "interval"), rows)
    if outcome.labels is not None:
        names = {c.condition for c in outcome.changed}
        own = tuple(row for row in outcome.labels.by_condition if row.measure in names)
        print_comparison(replace(outcome.labels, by_condition=own))
    else:
        typer.echo(f"verdict: {outcome.verdict}: {outcome.because}")


def drift(
    model: Path = options.MODEL,
    visits: list[Path] = typer.Argument(
        ..., help="Visit records of the weeks to check: files like those learned from."
    ),
    decisions: str | None = options.DECISIONS,
    source: str | None = options.SOURCE,
    columns: Path | None = options.MAP,
    option: list[str] = options.OPTION,
    as_json: bool = options.JSON,
) -> None:
    """Drift: weekly rates of findings against the rates that the model learned from.

    Exits with 1 if a rate left its band.

    Example: whatelse drift model this-month.csv
    """
    from whatelse.lifecycle import drift as work

    vocabulary = whatelse.Tagger.load(model).vocabulary_
    records = options.read(visits, option, source=source, columns=columns, like=vocabulary.source)
    weeks = work.by_week(records, vocabulary)
    found = work.alarms(vocabulary, weeks, open_decisions(decisions).opinions if decisions else ())
    if as_json:
        print_json(work.summary(vocabulary, weeks, found))
    else:
        for alarm in found:
            typer.echo(alarm.sentence)
        judged = sum(week.visits >= work.FEW for week in weeks)
        left = "nothing left its band" if not found else f"{len(found):,} left their bands"
        if not judged and not found:
            typer.echo(f"nothing was judged: of {len(weeks):,} weeks none has {work.FEW} visits; give more records")
            return
        which = f"{judged:,} of {len(weeks):,} weeks judged ({work.FEW} visits or more)"
        chance = f"probability of a false alarm in a week without change: at most {work.FALSE_ALARMS:.0%}"
        typer.echo(f"{which}, {len(vocabulary.names):,} findings each: {left}; {chance}")
    if found:
        raise typer.Exit(1)
