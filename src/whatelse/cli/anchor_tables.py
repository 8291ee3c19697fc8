"""Tables about anchors, for people. Programs use --json."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import typer
from rich.text import Text

from whatelse.cli.tables import console, print_table
from whatelse.visits import TEXT_FIELDS

if TYPE_CHECKING:
    from whatelse.annotators.anchor_checks import AnchorCheck
    from whatelse.annotators.anchor_uses import AnchorUse, Excerpt
    from whatelse.annotators.discovery.suggest import Suggestion
    from whatelse.annotators.discovery.trial import Worth

PHRASES = 4  # of one concept that a table names


def print_checks(checks: list[AnchorCheck], labelled: bool) -> None:
    rows = []
    for c in checks:
        broken = ", ".join(f"{d.finding} (x{d.odds_ratio:.2g})" for d in c.dependent[:3])
        if len(c.dependent) > 3:
            broken += f" and {len(c.dependent) - 3} more"
        rates = (_rate(c.precision), _rate(c.recall))
        rows.append((c.condition, f"{c.fires:,}", f"{c.share:.2%}", *rates, _overlaps(c.overlaps), broken))
    head = ("condition", "fires", "share", "precision", "recall", "fires with", "breaks independence")
    print_table(head, rows, "anchors", ["" if c.fires else "red" for c in checks])
    terminal = console()
    problems = ((c.condition, problem) for c in checks for problem in c.problems)
    for condition, problem in problems:
        if not problem.endswith("given the label"):
            terminal.print(Text(f"{condition}: {problem}", style="yellow"))
    if not labelled:
        terminal.print("no labels: precision, recall and independence cannot be checked", style="yellow")


def print_uses(uses: list[AnchorUse]) -> None:
    """In how many visits each anchor fired, alone among those of its condition, and where.

    Phrases that are read as the same concept fire in the same places: they share a row.
    """
    if not uses:
        return
    groups: dict[tuple[object, ...], list[AnchorUse]] = {}
    for use in uses:
        same = tuple(use.examples) if use.examples else use.value
        groups.setdefault((use.condition, use.how, use.fields, use.visits, same), []).append(use)
    rows = []
    for group in groups.values():
        use = group[0]
        kind = [] if use.how == "phrase" else [use.how]
        if set(use.fields) != set(TEXT_FIELDS):
            kind += [f"in {' and '.join(field.replace('_', ' ') for field in use.fields)}"]
        anchor = ", ".join(one.value for one in group[:PHRASES])
        anchor += f" and {len(group) - PHRASES} more" if len(group) > PHRASES else ""
        anchor += f" ({', '.join(kind)})" if kind else ""
        shown = Text("\n").join(marked(example) for example in use.examples) if use.visits else use.problem or ""
        alone = f"{use.alone:,}" if len(group) == 1 else ""
        rows.append((use.condition, anchor, f"{use.visits:,}", alone, shown))
    styles = ["" if group[0].visits else "red" for group in groups.values()]
    print_table(("condition", "anchor", "visits", "alone", "for example"), rows, "what fired", styles)


def _rate(rate: tuple[float, float, float] | None) -> str:
    return "?" if rate is None else f"{rate[0]:.2f} ({rate[1]:.2f}-{rate[2]:.2f})"


def _overlaps(found: Iterable[Any]) -> str:
    return ", ".join(f"{o.condition} ({o.both:,}, x{o.lift:.1f})" for o in list(found)[:2])


def marked(excerpt: Excerpt) -> Text:
    text = Text(" ".join(excerpt.text[: excerpt.start].split()) + " " if excerpt.start else "")
    text.append(excerpt.text[excerpt.start : excerpt.end], style="bold reverse")
    rest = excerpt.text[excerpt.end :]
    return text + Text((" " if rest[:1].isspace() else "") + " ".join(rest.split()))


def print_suggestions(found: list[Suggestion], examples: dict[int, list[Excerpt]]) -> None:
    """A table for each condition, the examples under it."""
    from whatelse.annotators.discovery.suggest import by_condition

    if not found:
        typer.echo("nothing to suggest")
    number = {id(s): at for at, s in enumerate(found)}
    for condition, group in by_condition(found).items():
        rows = []
        for s in group:
            under = s.key if s.system is None else f"{s.key}: {s.system}"
            why = "; ".join(f"{r.source} {r.log_odds:+.1f}: {r.says}" for r in s.why[:4])
            name = f"{s.phrase} ({s.label})" if s.label else s.phrase
            counts = (f"{s.precision:.2f}", f"{s.fires:,}", f"{s.gained:,}")
            rows.append((name, under, *counts, _overlaps(s.overlaps), why))
        print_table(("phrase", "under", "precision", "fires", "gained", "overlaps", "why"), rows, condition)
        for s in group:
            for excerpt in examples.get(number[id(s)], ()):
                console().print(Text(f"  {s.phrase}: ", style="italic") + marked(excerpt))


def print_worth(worth: Worth) -> None:
    """The numbers of a trial."""
    silent = f"in {worth.gained:,} of them the anchor of {worth.condition} is silent"
    typer.echo(f"{worth.phrase!r} fires in {worth.fires:,} visits; {silent} (it fires in {worth.anchored:,})")
    for o in worth.overlaps:
        typer.echo(f"overlaps with the anchor of {o.condition} in {o.both:,} visits, {o.lift:.1f} times chance")
    if worth.labelled:
        typer.echo(f"{worth.true:,} of {worth.labelled:,} labelled visits with it have the condition")
