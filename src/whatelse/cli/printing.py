"""What the commands about records print: tables for people, nothing a program should parse."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table
from rich.text import Text

from whatelse.visits import TEXT_FIELDS, Visit

if TYPE_CHECKING:
    from whatelse.cohort import Cohort
    from whatelse.sources.inspection import Look
    from whatelse.teaching.anchor_checks import AnchorCheck
    from whatelse.teaching.anchor_uses import AnchorUse, Example


def _console() -> Console:
    """The terminal at its own width; anything else (a pipe, a file) wide enough not to cut words short."""
    console = Console()
    return console if console.is_terminal else Console(width=180)


def print_note(text: str) -> None:
    typer.echo(f"note: {text}", err=True)


def print_summary(cohort: Cohort) -> None:
    names, N = cohort.vocabulary.names, len(cohort)
    typer.echo(f"{N:,} visits, {len(names):,} findings ({len(cohort.conditions)} of them anchors)")
    typer.echo(f"{cohort.X.nnz / N:.1f} findings a visit")
    _shares("anchors that fire in a visit", cohort.A.sum(1))
    if cohort.Y is None:
        typer.echo("no labels")
        return
    tags = cohort.Y[cohort.labelled].sum(1)
    if unknown := N - len(tags):
        typer.echo(f"{unknown:,} visits have no labels")
    _shares("conditions true of a visit", tags)
    typer.echo(
        f"{int((tags >= 1).sum()):,} visits with at least one condition, {int((tags >= 2).sum()):,} with two or more"
    )


def _shares(title: str, counts: Any) -> None:
    groups = [(label, int((counts == k).sum() if k < 4 else (counts >= 4).sum())) for k, label in enumerate("01234")]
    text = ", ".join(f"{label}{'+' if label == '4' else ''}: {count:,}" for label, count in groups if count)
    typer.echo(f"{title}: {text}")


def print_common(cohort: Cohort, top: int) -> None:
    N = len(cohort)
    counts = cohort.X.getnnz(axis=0)
    table = Table("finding", "visits", "share", title="most common findings")
    ordinary = [j for j in (-counts).argsort(kind="stable") if j not in set(cohort.anchor_columns)]
    for j in ordinary[:top]:
        table.add_row(escape(cohort.vocabulary.names[j]), f"{counts[j]:,}", f"{counts[j] / N:.1%}")
    tags = Table("condition", "kind", "anchor fires", "true", title="conditions")
    for i, condition in enumerate(cohort.vocabulary.anchors.conditions):
        true = f"{int(cohort.Y[:, i].sum()):,}" if cohort.Y is not None else "?"
        tags.add_row(condition.name, condition.kind, f"{counts[cohort.anchor_columns[i]]:,}", true)
    console = _console()
    console.print(tags)
    console.print(table)


def print_visit(cohort: Cohort, row: int, record: Visit) -> None:
    """A visit's findings, each with the words or the code it came from."""
    typer.echo(f"visit {record.id}")
    if cohort.Y is not None and cohort.labelled[row]:
        true = [c for c, on in zip(cohort.conditions, cohort.Y[row], strict=True) if on]
        typer.echo(f"conditions: {', '.join(true) or 'none'}")
    everything = cohort.vocabulary.find(record)
    for field in TEXT_FIELDS:
        if note := getattr(record, field):
            text = Text(note)
            for found in everything:
                if found.field == field and found.start is not None:
                    text.stylize(_style(cohort.vocabulary.names[found.finding], found.negated), found.start, found.end)
            _console().print(Text(f"{field.replace('_', ' ')}: ", style="italic") + text)
    table = Table("finding", "field", "from")
    for found in everything:
        name = cohort.vocabulary.names[found.finding]
        if found.start is not None:
            origin = getattr(record, found.field)[found.start : found.end]
        elif found.code is not None:
            origin = f"{found.code.system} {found.code.code} {found.code.name or ''}".strip()
        else:
            origin = f"{getattr(record, found.field)}"
        table.add_row(
            escape(name), found.field.replace("_", " "), escape(origin), style=_style(name, found.negated, plain="")
        )
    _console().print(table)
    if (hidden := len(cohort.vocabulary.unobserved(record))) > 0:
        typer.echo(f"{hidden:,} findings are unknown rather than absent: the record does not have their fields")


def _style(name: str, negated: bool, plain: str = "underline") -> str:
    return "bold" if name.startswith("anchor:") else "dim" if negated else plain


def print_checks(checks: list[AnchorCheck], labelled: bool) -> None:
    table = Table(
        "condition", "fires", "share", "precision", "recall", "fires with", "breaks independence", title="anchors"
    )
    for c in checks:
        overlap = ", ".join(f"{o.condition} ({o.both:,}, x{o.lift:.1f})" for o in c.overlaps[:2])
        broken = ", ".join(f"{d.finding} (x{d.odds_ratio:.2g})" for d in c.dependent[:3])
        if len(c.dependent) > 3:
            broken += f" and {len(c.dependent) - 3} more"
        cells = (_rate(c.precision), _rate(c.recall), escape(overlap), escape(broken))
        table.add_row(c.condition, f"{c.fires:,}", f"{c.share:.2%}", *cells, style="" if c.fires else "red")
    console = _console()
    console.print(table)
    for c in checks:
        for problem in c.problems:
            if not problem.endswith("given the label"):
                console.print(f"{c.condition}: {problem}", style="yellow", highlight=False)
    if not labelled:
        console.print("no labels: precision, recall and independence cannot be checked", style="yellow")


def print_look(look: Look) -> None:
    """What `inspect` saw, column by column."""
    table = Table("column", "cells", "values", "seems to be", "because", title=f"{look.file}, {look.rows:,} rows")
    for seen in look.columns:
        cells = (escape(seen.name), f"{seen.filled:,}", f"{seen.different:,}", seen.field or "ignored")
        table.add_row(*cells, escape(seen.why), style="" if seen.field else "dim")
    _console().print(table)


def print_uses(uses: list[AnchorUse]) -> None:
    """Anchor by anchor: in how many visits it fired, alone among those of its condition, and where."""
    if not uses:
        return
    table = Table("condition", "anchor", "looked for in", "visits", "alone", "for example", title="what fired")
    for use in uses:
        shown = Text("\n").join(_example(example) for example in use.examples)
        kind = "" if use.how == "phrase" else f" ({use.how})"
        where = "notes" if set(use.fields) == set(TEXT_FIELDS) else ", ".join(f.replace("_", " ") for f in use.fields)
        cells = (escape(use.condition), escape(use.value) + kind, where, f"{use.visits:,}", f"{use.alone:,}")
        table.add_row(*cells, shown if use.visits else Text(use.problem or ""), style="" if use.visits else "red")
    _console().print(table)


def _example(example: Example) -> Text:
    text = Text(example.text.replace("\n", " "))
    text.stylize("bold", example.start, example.end)
    return text


def _rate(rate: tuple[float, float, float] | None) -> str:
    return "?" if rate is None else f"{rate[0]:.2f} ({rate[1]:.2f}-{rate[2]:.2f})"
