"""From one model to the next: `compare`, `refit`, `watch`, `decisions show`."""

from __future__ import annotations

import json
from collections import Counter
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer
from rich.table import Table

from whatelse.cli.bar import progress_bar
from whatelse.cli.learn import read_lesson
from whatelse.cli.opening import DATABASE_OPTION, open_decisions
from whatelse.cli.printing import _console, print_note
from whatelse.cli.source_options import DELIMITER, ENCODING, LABEL_TABLES, MAP, SOURCE, read
from whatelse.errors import InputError

if TYPE_CHECKING:
    from whatelse.teaching.compare import Comparison
    from whatelse.teaching.decisions import Decisions, Opinion

LOW_RANK, HIGH_RANK = 8, 3
LISTED = 10


class Require(StrEnum):
    """What a comparison must say for the command to succeed."""

    better = "better"
    not_worse = "not-worse"


def register(app: typer.Typer, decisions: typer.Typer) -> None:
    """Add the commands of this module."""
    app.command()(compare)
    app.command()(refit)
    app.command()(watch)
    decisions.command("show")(show)


def compare(
    old: Path = typer.Argument(..., help="The model file that serves."),
    new: Path = typer.Argument(..., help="The model file that might."),
    cohort: Path = typer.Argument(..., help="A cohort folder, with labels or with --labels, built with '--like'."),
    labels: list[Path] | None = typer.Option(None, "--labels", help="Labels instead of the cohort's own; repeat."),
    require: Require | None = typer.Option(
        None, "--require", help="Exit with 1 unless the new model is at least this."
    ),
    visits: int = typer.Option(5000, "--visits", min=10, help="Labelled visits to compare on, at most."),
    seed: int = typer.Option(0, "--seed", min=0, help="Of the draws and the intervals."),
    as_json: bool = typer.Option(False, "--json", help="Print JSON instead of tables."),
) -> None:
    """Two models on the same visits: every difference with its interval, and one verdict."""
    from whatelse.cohort import Cohort
    from whatelse.tagger import Tagger
    from whatelse.teaching.compare import compare_models
    from whatelse.teaching.label_set import LabelSet
    from whatelse.teaching.refit import ACCEPTED

    opened = Cohort.open(cohort)
    said = LabelSet.read(labels, opened) if labels else None
    found = compare_models(Tagger.load(old), Tagger.load(new), opened, said, visits=visits, seed=seed)
    if as_json:
        typer.echo(json.dumps(found.to_json(), indent=1, allow_nan=False))
    else:
        print_comparison(found)
    if require is not None and found.verdict not in ACCEPTED[require.value]:
        raise typer.Exit(1)


def print_comparison(found: Comparison, conditions: bool = True) -> None:
    """One table of all measures, one of the conditions, and the verdict."""
    table = Table(title=f"{found.visits:,} visits, {found.labels:,} labels", title_justify="left")
    table.add_column("measure")
    for title in ("old", "new", "difference", "interval", ""):
        table.add_column(title, justify="right")
    for row in [*found.rows, *(found.by_condition if conditions else ())]:
        name = row.measure if row in found.rows else f"  log loss, {row.measure}"
        style = {"better": "green", "worse": "red", "same": ""}[row.says]
        interval = f"{row.low:+.4f} to {row.high:+.4f}"
        said = "" if row.says == "same" else row.says
        table.add_row(name, f"{row.old:.4f}", f"{row.new:.4f}", f"{row.difference:+.4f}", interval, said, style=style)
    _console().print(table)
    typer.echo(f"verdict: {found.verdict}: {found.because}")


def refit(
    model: Path = typer.Argument(..., help="The model file that serves, and that the new one replaces."),
    cohort: Path | None = typer.Argument(None, help="A cohort folder to learn from, built with '--like' the first."),
    labels: list[Path] | None = typer.Option(None, "--labels", help="CSV or Parquet: labelled visits; repeat."),
    decisions: str | None = typer.Option(
        None, "--decisions", help="Tags that people decided on: a database URL, or a file of 'decisions export'."
    ),
    error: float | None = typer.Option(
        None, "--error", min=0.001, max=0.45, help="How often a decision is wrong. [found where people decide twice]"
    ),
    skip_other_labels: bool = typer.Option(
        False, "--skip-other-labels", help="Pass over labels of visits that the cohort does not have."
    ),
    hold_out: float = typer.Option(
        0.25, "--hold-out", min=0.05, max=0.9, help="Share of visits that is judged on and never learned from."
    ),
    require: Require = typer.Option(Require.not_worse, "--require", help="What the new model must be to serve."),
    rollback: bool = typer.Option(False, "--rollback", help="Put the model before the last round back, and end."),
    as_json: bool = typer.Option(False, "--json", help="Print JSON instead of tables."),
) -> None:
    """Learn anew from all that people have said, and put the new model in the old one's place if it is not worse.

    Exits with 1 if the old model goes on serving. 'whatelse serve --watch-model 5' takes the new one up by itself.
    """
    from whatelse.cohort import Cohort
    from whatelse.teaching import refit as work

    if rollback:
        was, now = work.roll_back(model)
        typer.echo(f"{model} is {now[:12]} again; {was[:12]} is kept as {work.beside(model, 'rolled-back')}")
        return
    if cohort is None or not (labels or decisions):
        raise InputError("refit needs a cohort, and --labels, --decisions or both: what is new to learn from?")
    opened = Cohort.open(cohort)
    judges = None
    if labels:
        from whatelse.teaching.label_set import LabelSet

        judges = LabelSet.read(labels, opened, others="skip" if skip_other_labels else "refuse")
    lesson = read_lesson(opened, labels or [], decisions, error, skip_other_labels, quiet=as_json)
    with progress_bar() as told:
        done = work.refit(
            model, opened, lesson, judges=judges, share=hold_out, require=require.value, progress=told
        )  # fmt: skip
    found = done.comparison
    if as_json:
        said = {"put": done.put, "fair": done.fair, "learned_from": done.learned_from, "comparison": found.to_json()}
        typer.echo(json.dumps(said, indent=1, allow_nan=False))
    else:
        print_comparison(found, conditions=False)
        if not done.fair:
            print_note(
                "the old model may have learned from the visits that both are judged on, which speaks for the old one; "
                "from the first round that is put on this is no longer so"
            )
        if done.put:
            typer.echo(f"{model} is now {found.new[:12]}; {found.old[:12]} is kept as {work.beside(model, 'previous')}")
            typer.echo(f"to go back: whatelse refit {model} --rollback")
        else:
            typer.echo(f"{model} is unchanged; the new model is {done.candidate}")
    if not done.put:
        raise typer.Exit(1)


def watch(
    model: Path = typer.Argument(..., help="A model file."),
    visits: list[Path] = typer.Argument(
        ..., help="Visit records of the weeks to look at: files like those learned from."
    ),
    decisions: str | None = typer.Option(
        None, "--decisions", help="Tags that people decided on: a database URL, or a file of 'decisions export'."
    ),
    source: str | None = SOURCE,
    columns: Path | None = MAP,
    delimiter: str | None = DELIMITER,
    encoding: str | None = ENCODING,
    labels: Path | None = LABEL_TABLES,
    as_json: bool = typer.Option(False, "--json", help="Print JSON instead of sentences."),
) -> None:
    """Has the department left the model behind? Rates of findings by week against those learned from.

    Exits with 1 if something left its band.
    """
    from whatelse.tagger import Tagger
    from whatelse.teaching import drift

    vocabulary = Tagger.load(model).vocabulary_
    records = read(
        visits, source=source, columns=columns, delimiter=delimiter, encoding=encoding, labels=labels,
        like=vocabulary.source,
    )  # fmt: skip
    weeks = drift.by_week(records, vocabulary)
    found = drift.alarms(vocabulary, weeks, open_decisions(decisions).opinions if decisions else ())
    if as_json:
        typer.echo(json.dumps(drift.summary(vocabulary, weeks, found), indent=1))
    else:
        for alarm in found:
            typer.echo(alarm.sentence)
        judged = sum(week.visits >= drift.FEW for week in weeks)
        left = "nothing left its band" if not found else f"{len(found):,} left their bands"
        if not judged and not found:
            typer.echo(f"nothing was judged: of {len(weeks):,} weeks none has {drift.FEW} visits; give more records")
            return
        typer.echo(
            f"{judged:,} of {len(weeks):,} weeks judged ({drift.FEW} visits or more), {len(vocabulary.names):,} "
            f"findings each: {left}; a week in which nothing "
            f"has changed brings a false sentence with a chance of at most {drift.FALSE_ALARMS:.0%}"
        )
    if found:
        raise typer.Exit(1)


def show(
    database: str = DATABASE_OPTION,
    low: int = typer.Option(LOW_RANK, "--low", min=2, help="A rank from which on a confirmed tag was ranked low."),
    high: int = typer.Option(HIGH_RANK, "--high", min=1, help="A rank up to which a rejected tag was ranked high."),
    as_json: bool = typer.Option(False, "--json", help="Print JSON instead of tables."),
) -> None:
    """Do people agree, with each other and with the model? What the model missed, and what it pressed in vain."""
    found = open_decisions(database)
    said = _shown(found, low, high)
    if as_json:
        typer.echo(json.dumps(said, indent=1))
        return
    typer.echo(f"{said['decisions']:,} decisions of {said['people']:,} people on {said['visits']:,} visits")
    if said["twice"]:
        typer.echo(f"{said['agree']:,} of {said['twice']:,} tags that several people decided on they agree on")
    typer.echo(
        f"decisions err in {found.false_confirm:.1%} (confirmed) and {found.false_reject:.1%} (rejected)"
        + ("" if said["twice"] else ", near the assumed 5%: nobody decided on a tag that another had decided on")
    )
    for key, title in (
        ("missed", f"confirmed at rank {low} or below"),
        ("pressed", f"rejected at rank {high} or above"),
    ):
        table = Table("condition", "times", "probability shown", "visits", title=title, title_justify="left")
        for row in said[key]:
            more = " …" if row["times"] > len(row["visits"]) else ""
            table.add_row(
                row["condition"], f"{row['times']:,}", f"{row['probability']:.1%}", ", ".join(row["visits"]) + more
            )
        _console().print(table)


def _shown(found: Decisions, low: int, high: int) -> dict[str, Any]:
    by_tag: dict[tuple[str, str], set[bool]] = {}
    people = Counter((o.visit, o.condition) for o in found.opinions)
    for o in found.opinions:
        by_tag.setdefault((o.visit, o.condition), set()).add(o.confirmed)
    twice = [key for key, count in people.items() if count > 1]
    placed = [(o, o.position) for o in found.opinions if o.position is not None]
    return {
        "decisions": len(found.opinions),
        "people": len({o.person for o in found.opinions}),
        "visits": len({o.visit for o in found.opinions}),
        "twice": len(twice),
        "agree": sum(len(by_tag[key]) == 1 for key in twice),
        "false_confirm": found.false_confirm,
        "false_reject": found.false_reject,
        "looked_at": found.looked.tolist(),
        "missed": _listed([o for o, at in placed if o.confirmed and at >= low]),
        "pressed": _listed([o for o, at in placed if not o.confirmed and at <= high]),
    }


def _listed(opinions: list[Opinion]) -> list[dict[str, Any]]:
    """By condition, the most common first, with some of the visits."""
    groups: dict[str, list[Opinion]] = {}
    for o in opinions:
        groups.setdefault(o.condition, []).append(o)
    return [
        {
            "condition": condition,
            "times": len(group),
            "probability": sum(o.probability or 0.0 for o in group) / len(group),
            "visits": [o.visit for o in group[:3]],
        }
        for condition, group in sorted(groups.items(), key=lambda item: -len(item[1]))[:LISTED]
    ]
