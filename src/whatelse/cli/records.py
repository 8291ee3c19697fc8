"""From records to cohorts: `simulate`, `build`, `show`, `anchors check`."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import fields, replace
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from whatelse.cli import hunting
from whatelse.cli.labels import label_next
from whatelse.cli.printing import print_checks, print_common, print_note, print_summary, print_visit
from whatelse.errors import CohortError, InputError

if TYPE_CHECKING:
    from whatelse.cohort import Cohort
    from whatelse.simulate import Departures
    from whatelse.sources import VisitReader
    from whatelse.visits import Visit

# Modules that take long to load (numba, pyarrow, duckdb) are imported by the command that needs them.


class Source(StrEnum):
    """Where visits come from."""

    table = "table"
    mimic_ed = "mimic-ed"
    nhamcs = "nhamcs"


class OnError(StrEnum):
    """What to do with a row that cannot be used."""

    stop = "raise"
    skip = "skip"


def register(app: typer.Typer) -> None:
    """Add the commands of this module."""
    app.command()(simulate)
    app.command()(build)
    app.command()(show)
    anchors = typer.Typer(no_args_is_help=True, help="Look at anchors, and find further ones.")
    anchors.command("check")(check)
    anchors.command("label-next")(label_next)
    hunting.register(anchors)
    app.add_typer(anchors, name="anchors")


def simulate(
    visits: int = typer.Option(20_000, "--visits", min=1, help="How many visits."),
    seed: int = typer.Option(1, "--seed", min=0, help="The same seed gives the same bytes."),
    out: Path = typer.Option(..., "--out", help="File to write: .jsonl, .jsonl.gz or .parquet."),
    min_conditions: int = typer.Option(
        0, "--min-conditions", min=0, max=4, help="Keep only visits with at least so many of the 23 conditions."
    ),
    obey_model: bool = typer.Option(
        False, "--obey-model", help="Switch every departure off: visits that obey the noisy-or model exactly."
    ),
    departure: list[str] | None = typer.Option(
        None, "--departure", help="Set one departure from the model, as name=value; may be repeated."
    ),
) -> None:
    """Write visits of an emergency department that never existed, with their true conditions."""
    from whatelse.progress import track
    from whatelse.simulate import simulate as simulated
    from whatelse.sources.write import write_visits

    departures = _departures(departure or [], obey_model)
    stream = simulated(visits, seed, departures, min_conditions=min_conditions)
    count = write_visits(track(stream, "simulating visits", total=visits), out)
    typer.echo(f"wrote {count:,} visits to {out}")


def build(
    source: Source = typer.Argument(
        ..., help="table (CSV, JSON Lines, Parquet), mimic-ed (a folder) or nhamcs (zips)."
    ),
    files: list[Path] = typer.Argument(..., help="The files or the folder to read."),
    out: Path | None = typer.Option(None, "--out", help="Folder to save the cohort in; without it, only report."),
    conditions: Path | None = typer.Option(
        None, "--conditions", help="Conditions and anchors: YAML, NHAMCS JSON, or a folder of source|identifier files."
    ),
    labels: Path | None = typer.Option(None, "--labels", help="nhamcs: the folder of label tables."),
    like: Path | None = typer.Option(None, "--like", help="Use the findings of this cohort (for test data)."),
    on_error: OnError = typer.Option(OnError.stop, "--on-error", help="A row that cannot be used: stop, or skip it."),
    columns: Path | None = typer.Option(None, "--columns", help="table: YAML file, which column is which field."),
    delimiter: str | None = typer.Option(None, "--delimiter", help="table: the column separator, if not found out."),
    encoding: str | None = typer.Option(None, "--encoding", help="table: the encoding, if not found out."),
    max_share: float = typer.Option(0.5, "--max-share", help="Findings in more than this share of visits go."),
    max_terms: int | None = typer.Option(
        None, "--max-terms", help="So many of the most common findings stay; 0 for all. [1000; nhamcs: 0]"
    ),
    min_visits: int | None = typer.Option(
        None, "--min-visits", help="Findings in fewer visits than this go. [1; nhamcs: 10]"
    ),
    rules: str = typer.Option("default", "--rules", help="Negation rules: default, paper or a YAML file."),
    bigrams: bool = typer.Option(True, help="Join words that often come together."),
) -> None:
    """Make a cohort of visit records: findings, anchors and, where there are billing codes, labels."""
    from whatelse.anchors import AnchorSet
    from whatelse.cohort import Cohort, build_cohort
    from whatelse.progress import track
    from whatelse.text.rules import SHIPPED

    if like is not None and conditions is not None:
        raise InputError("--like brings its own conditions: leave --conditions out")
    anchors = AnchorSet.load(conditions) if conditions is not None else AnchorSet.shipped()
    if bare := set(anchors.names) - set(anchors.anchored().names):
        print_note(f"{len(bare)} conditions have no anchors and are left out: {', '.join(sorted(bare))}")
        anchors = anchors.anchored()
    for names, count in Counter(anchors.shared().values()).items():
        print_note(f"{count} anchors stand for {' and '.join(names)}; an anchor should have one parent only")
    survey = source is Source.nhamcs
    reader = _read(files, source, on_error.value, columns, delimiter, encoding, labels)
    about = {
        "source": source.value,
        "files": [str(file.absolute()) for file in files],
        "columns": str(columns.absolute()) if columns else None,
        "delimiter": delimiter,
        "encoding": encoding,
        "labels": str(labels.absolute()) if labels else None,
    }
    cohort = build_cohort(
        track(reader, "reading visits"),
        anchors,
        max_share=max_share,
        max_terms=(None if survey else 1000) if max_terms is None else (max_terms or None),
        min_visits=(10 if survey else 1) if min_visits is None else min_visits,
        rules=rules if rules in SHIPPED else str(Path(rules).absolute()),
        bigrams=bigrams,
        like=Cohort.open(like) if like is not None else None,
        about=about,
    )
    saved = cohort.save(out) if out is not None else None  # before anything is printed: a closed pipe ends the command
    for note in reader.notes:
        print_note(note)
    for kind, count in sorted(reader.left_out.items()):
        print_note(f"left out {count:,} rows: {kind}")
    print_summary(cohort)
    typer.echo(f"saved as {saved}" if saved else "nothing was saved: give --out to keep the cohort")


def show(
    cohort: Path = typer.Argument(..., help="A cohort folder."),
    top: int = typer.Option(25, "--top", help="How many of the most common findings to list."),
    visit: str | None = typer.Option(None, "--visit", help="Show this visit: its findings and where they come from."),
    visits: list[Path] | None = typer.Option(
        None, "--visits", help="Where the visit's record is, if it has moved since the cohort was built."
    ),
) -> None:
    """What is in a cohort; or one visit's findings, with the text they came from."""
    from whatelse.cohort import Cohort

    opened = Cohort.open(cohort)
    if visit is None:
        print_summary(opened)
        print_common(opened, top)
        return
    rows = (opened.ids == visit).nonzero()[0]
    if not len(rows):
        raise CohortError(f"{cohort} has no visit {visit!r}; its first is {str(opened.ids[0])!r}")
    print_visit(opened, int(rows[0]), _record(opened, visit, visits))


def check(
    cohort: Path = typer.Argument(..., help="A cohort folder."),
    as_json: bool = typer.Option(False, "--json", help="Print JSON instead of a table."),
    fdr: float = typer.Option(0.01, "--fdr", help="Share of false warnings to allow."),
    min_odds: float = typer.Option(2.0, "--min-odds", help="Warn from this odds ratio on, or its inverse."),
) -> None:
    """Coverage, overlap, precision and recall of anchors, and findings that break their independence."""
    from whatelse.cohort import Cohort
    from whatelse.diagnostics import check_anchors

    opened = Cohort.open(cohort)
    checks = check_anchors(opened, fdr=fdr, min_odds=min_odds)
    if as_json:
        typer.echo(json.dumps([c.to_json() for c in checks], indent=1))
        return
    print_checks(checks, labelled=opened.Y is not None)


# ---- reading


def _departures(settings: list[str], obey_model: bool) -> Departures:
    """The departures of the command line: defaults or none, then name=value one by one."""
    from whatelse.simulate import Departures

    start = Departures.none() if obey_model else Departures()
    known = {f.name: getattr(start, f.name) for f in fields(Departures)}
    for setting in settings:
        name, equals, value = setting.partition("=")
        if not equals or name not in known:
            raise InputError(f"--departure {setting}: needs name=value with a name among {', '.join(known)}")
        try:
            number = {"true": 1.0, "false": 0.0}[value.lower()] if value.lower() in ("true", "false") else float(value)
            changed: Any = {name: bool(number) if isinstance(known[name], bool) else number}
            start = replace(start, **changed)
        except ValueError as problem:
            raise InputError(f"--departure {setting}: {problem}") from None
    return start


def _read(
    files: list[Path],
    source: str,
    on_error: Any,
    columns: Path | None,
    delimiter: str | None,
    encoding: str | None,
    labels: Path | None,
) -> VisitReader:
    from whatelse.sources import read_visits

    return read_visits(
        files,
        str(source),
        on_error=on_error,
        columns=columns,
        delimiter=delimiter,
        encoding=encoding,
        labels=labels,
    )


def _record(cohort: Cohort, wanted: str, files: list[Path] | None) -> Visit:
    """The visit's record, read again from where the cohort came from."""
    about = cohort.about
    if not files and not about.get("files"):
        raise CohortError("the cohort does not say where its visits came from: give their files with --visits")
    paths = files or [Path(file) for file in about["files"]]
    columns, labels = (Path(about[key]) if about.get(key) else None for key in ("columns", "labels"))
    source = about.get("source", "table")
    for record in _read(paths, source, "skip", columns, about.get("delimiter"), about.get("encoding"), labels):
        if record.id == wanted:
            return record
    raise InputError(f"there is no visit {wanted!r} in these files", file=", ".join(map(str, paths)))
