"""Tables about records and cohorts, for people. Programs use --json."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table
from rich.text import Text

from whatelse.visits import TEXT_FIELDS, Visit

if TYPE_CHECKING:
    from whatelse.cohort import Cohort
    from whatelse.sources import VisitReader
    from whatelse.sources.inspection import Inspection

PIPE = 100  # columns of a table that is not printed to a terminal


def console() -> Console:
    """A console of the terminal's width; 100 columns for a pipe or a file, unless COLUMNS says otherwise."""
    found = Console()
    return found if found.is_terminal or "COLUMNS" in os.environ else Console(width=PIPE)


def print_table(head: Sequence[str], rows: Iterable[Sequence[str | Text]], title: str | None = None) -> None:
    """A table of text cells; text that is not ours is escaped by the caller."""
    table = Table(*head, title=title, title_justify="left")
    table.columns[0].no_wrap = True
    for row in rows:
        table.add_row(*row)
    console().print(table)


def print_json(value: Any) -> None:
    """Print JSON; a number that is none becomes null."""
    typer.echo(json.dumps(_finite(value), indent=1, allow_nan=False))


def _finite(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _finite(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(item) for item in value]
    return None if isinstance(value, float) and value != value else value


def print_note(text: str) -> None:
    typer.echo(f"note: {text}", err=True)


def print_left_out(records: VisitReader) -> None:
    """Say how many rows could not be used, by reason."""
    for kind, count in sorted(records.left_out.items()):
        print_note(f"left out {count:,} rows: {kind}")


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
    true = ["?"] * len(cohort.conditions) if cohort.Y is None else [f"{count:,}" for count in cohort.Y.sum(0).tolist()]
    tags = [
        (condition.name, condition.kind, f"{counts[cohort.anchor_columns[i]]:,}", true[i])
        for i, condition in enumerate(cohort.vocabulary.anchors.conditions)
    ]
    print_table(("condition", "kind", "anchor fires", "true"), tags, "conditions")
    ordinary = [j for j in (-counts).argsort(kind="stable") if j not in set(cohort.anchor_columns)]
    rows = [(escape(cohort.vocabulary.names[j]), f"{counts[j]:,}", f"{counts[j] / N:.1%}") for j in ordinary[:top]]
    print_table(("finding", "visits", "share"), rows, "most common findings")


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
            console().print(Text(f"{field.replace('_', ' ')}: ", style="italic") + text)
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
    console().print(table)
    if (hidden := len(cohort.vocabulary.unobserved(record))) > 0:
        typer.echo(f"{hidden:,} findings are unknown rather than absent: the record does not have their fields")


def _style(name: str, negated: bool, plain: str = "underline") -> str:
    return "bold" if name.startswith("anchor:") else "dim" if negated else plain


def print_inspection(found: Inspection) -> None:
    """The guess of `inspect` for every column."""
    table = Table("column", "cells", "values", "seems to be", "because", title=f"{found.file}, {found.rows:,} rows")
    for guess in found.columns:
        cells = (escape(guess.name), f"{guess.filled:,}", f"{guess.different:,}", guess.field or "ignored")
        table.add_row(*cells, escape(guess.why), style="" if guess.field else "dim")
    console().print(table)
