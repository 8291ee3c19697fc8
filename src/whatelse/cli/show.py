"""`show`: what is in a cohort, in one visit of it, or in a model."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import typer
from rich.text import Text

import whatelse
from whatelse.cli.options import JSON, RECORDS
from whatelse.cli.tables import console, print_json, print_summary, print_table
from whatelse.errors import CohortError, InputError
from whatelse.visits import TEXT_FIELDS, Visit

RATES_FROM = {
    "labels": "counted in labelled visits",
    "given": "given with the cohort (--rates)",
    "assumed": "assumed, for want of labels: probabilities are not calibrated",
}
PAIRS = 12  # couplings to print; JSON has all


def show(
    what: Path = typer.Argument(..., metavar="COHORT|MODEL", help="A cohort folder, or a model file."),
    top: int | None = typer.Option(
        None, "--top", min=0, help="Findings to list: a cohort's most common [25], a model's for each condition [5]."
    ),
    visit: str | None = typer.Option(None, "--visit", help="Show this visit: its findings and where they come from."),
    visits: list[Path] = RECORDS,
    as_json: bool = JSON,
) -> None:
    """Summary of a cohort or a model, or the findings of one visit with the text they came from.

    Example: whatelse show cohort --visit V-17
    """
    if what.is_file():
        if visit is not None or visits:
            raise InputError("is a model: --visit is for cohorts; ask a model with 'whatelse tag'", file=what)
        from whatelse.model_file.file import load
        from whatelse.model_file.summary import model_summary

        said = model_summary(load(what), 5 if top is None else top)
        return print_json({"model": str(what)} | said) if as_json else _print_model(what, said)
    if not what.exists():
        raise InputError("there is no such cohort or model", file=what)

    opened = whatelse.Cohort.open(what)
    if visit is not None:
        if as_json:
            raise InputError("--json quotes no record: leave out --visit")
        rows = (opened.ids == visit).nonzero()[0]
        if not len(rows):
            raise CohortError(f"{what} has no visit {visit!r}; its first is {str(opened.ids[0])!r}")
        return _print_visit(opened, int(rows[0]), _record(opened, visit, visits))
    said = _cohort(opened, 25 if top is None else top)
    if as_json:
        return print_json(said)
    print_summary(opened)
    rows = [
        (c["condition"], c["kind"], f"{c['anchor_fires']:,}", "?" if c["true"] is None else f"{c['true']:,}")
        for c in said["conditions"]
    ]
    print_table(("condition", "kind", "anchor fires", "true"), rows, "conditions")
    rows = [(f["finding"], f"{f['visits']:,}", f"{f['visits'] / len(opened):.1%}") for f in said["common"]]
    print_table(("finding", "visits", "share"), rows, "most common findings")


def _record(cohort: whatelse.Cohort, wanted: str, files: list[Path]) -> Visit:
    """The visit's record, read again from where the cohort came from."""
    from whatelse.lifecycle.rebuild import places_of, records_of

    for record in records_of(cohort, files):
        if record.id == wanted:
            return record
    raise InputError(f"there is no visit {wanted!r} in these files", file=", ".join(map(str, places_of(cohort, files))))


def _cohort(cohort: whatelse.Cohort, top: int) -> dict[str, Any]:
    """A cohort as JSON values."""
    counts = cohort.X.getnnz(axis=0)
    columns = set(cohort.anchor_columns.tolist())
    common = [j for j in (-counts).argsort(kind="stable").tolist() if j not in columns][:top]
    true = None if cohort.Y is None else (cohort.Y & cohort.known).sum(0)
    return {
        "visits": len(cohort),
        "findings": len(cohort.vocabulary.names),
        "conditions": [
            {
                "condition": condition.name,
                "kind": condition.kind,
                "anchor_fires": int(counts[cohort.anchor_columns[i]]),
                "labelled": int(cohort.known[:, i].sum()),
                "true": None if true is None else int(true[i]),
            }
            for i, condition in enumerate(cohort.vocabulary.anchors.conditions)
        ],
        "common": [{"finding": cohort.vocabulary.names[j], "visits": int(counts[j])} for j in common],
    }


def _print_visit(cohort: whatelse.Cohort, row: int, record: Visit) -> None:
    """A visit's findings, each with the words or the code it came from."""
    typer.echo(f"visit {record.id}")
    if cohort.Y is not None and cohort.labelled[row]:
        true = [c for c, on in zip(cohort.conditions, cohort.Y[row], strict=True) if on]
        typer.echo(f"conditions: {', '.join(true) or 'none'}")
    notes = {field: Text(note) for field in TEXT_FIELDS if (note := getattr(record, field))}
    rows, styles = [], []
    for found in cohort.vocabulary.find(record):
        name = cohort.vocabulary.names[found.finding]
        style = "bold" if name.startswith("anchor:") else "dim" if found.negated else ""
        if found.start is not None:
            notes[found.field].stylize(style or "underline", found.start, found.end)
            origin = notes[found.field].plain[found.start : found.end]
        elif found.code is not None:
            origin = f"{found.code.system} {found.code.code} {found.code.name or ''}".strip()
        else:
            origin = f"{getattr(record, found.field)}"
        rows.append((name, found.field.replace("_", " "), origin))
        styles.append(style)
    for field, text in notes.items():
        console().print(Text(f"{field.replace('_', ' ')}: ", style="italic") + text)
    print_table(("finding", "field", "from"), rows, styles=styles)
    if (hidden := len(cohort.vocabulary.unobserved(record))) > 0:
        typer.echo(f"{hidden:,} findings are unknown rather than absent: the record does not have their fields")


def _print_model(path: Path, said: dict[str, Any]) -> None:
    """A model, for a person. When it was learned only its file knows: models of the same visits are the same."""
    learned = said["learned"]
    typer.echo(f"{path}: {len(said['conditions'])} conditions x {said['findings']:,} findings, {said['digest'][:12]}")
    labelled = "" if learned["labelled"] is None else f", {learned['labelled']:,} of them with labels"
    kind = f" ({learned['source']})" if learned["source"] else ""
    count = "an unknown number of" if learned["visits"] is None else f"{learned['visits']:,}"
    typer.echo(f"learned from {count} visits{kind}{labelled}")
    written = datetime.fromtimestamp(path.stat().st_mtime, UTC)
    how = f"learner {said['learner'] or 'unknown'}, {'converged' if said['converged'] else 'NOT converged'}"
    typer.echo(f"written {written:%Y-%m-%d %H:%M} UTC by whatelse {said['version']}, {how}")
    typer.echo(f"noise rates: {RATES_FROM.get(said['rates_from'], 'of unknown origin')}")
    rows, telling = [], []
    for entry in said["conditions"]:
        rates = (entry["prior"], entry["sensitivity"], entry["false_positive"], entry["right_when_it_fires"])
        cells = ["" if rate is None else f"{rate:.2%}" if rate < 0.1 else f"{rate:.0%}" for rate in rates]
        rows.append((entry["condition"], *cells))
        words = ", ".join(f"{f['finding']} ({f['log_odds']:+.1f})" for f in entry["findings"])
        telling.append((entry["condition"], words))
    print_table(("condition", "how common", "anchor fires with it", "without it", "right when it fires"), rows)
    print_table(("condition", "findings that say most, in log odds over their absence"), telling)
    if not said["couplings"]:
        typer.echo("couplings: none; conditions go together only through their findings")
        return
    pairs = [(" and ".join(p["conditions"]), f"{p['log_odds']:+.2f}") for p in said["couplings"][:PAIRS]]
    print_table(("go together", "log odds"), pairs, "couplings")
    if (more := len(said["couplings"]) - PAIRS) > 0:
        typer.echo(f"{more:,} smaller couplings are not shown: --json has them")
