"""From records to cohorts: `simulate`, `inspect`, `build`, `split`, `anchors check`."""

from __future__ import annotations

import json
import shlex
from collections import Counter
from dataclasses import fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from whatelse.cli import bench, hunting
from whatelse.cli.bar import track
from whatelse.cli.engine import ENGINE, MASTER, Engine, build_on_spark
from whatelse.cli.labels import label_next
from whatelse.cli.printing import (
    print_checks,
    print_look,
    print_note,
    print_summary,
    print_uses,
)
from whatelse.cli.show import show
from whatelse.cli.source_options import (
    DELIMITER,
    ENCODING,
    KINDS,
    LABEL_TABLES,
    MAP,
    ON_ERROR,
    OPTION,
    SOURCE,
    OnError,
    read,
)
from whatelse.errors import CohortError, InputError
from whatelse.sources.registry import SOURCES

if TYPE_CHECKING:
    from whatelse.cohort import Cohort
    from whatelse.simulate import Departures
    from whatelse.teaching.anchor_uses import AnchorUse

# Modules that take long to load (numba, pyarrow, duckdb) are imported by the command that needs them.


def register(app: typer.Typer) -> None:
    """Add the commands of this module."""
    app.command()(simulate)
    app.command("inspect")(inspect_table)
    app.command()(build)
    app.command()(split)
    app.command()(show)
    anchors = typer.Typer(no_args_is_help=True, help="Look at anchors, and find further ones.")
    anchors.command("check")(check)
    anchors.command("label-next")(label_next)
    hunting.register(anchors)
    bench.register(anchors)
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
    causes: Path | None = typer.Option(
        None, "--causes", help="Also write, as JSON lines, which condition put every word and code there."
    ),
) -> None:
    """Write visits of an emergency department that never existed, with their true conditions."""
    from whatelse.simulate import simulate as simulated
    from whatelse.simulate import simulate_causes, write_causes
    from whatelse.sources.write import write_visits

    departures = _departures(departure or [], obey_model)
    if causes is None:
        stream = simulated(visits, seed, departures, min_conditions=min_conditions)
        count = write_visits(track(stream, "simulating visits", total=visits), out)
    else:
        both = simulate_causes(visits, seed, departures, min_conditions=min_conditions)
        with write_causes(causes) as note:
            explained = (note(visit, why) for visit, why in both)
            count = write_visits(track(explained, "simulating visits", total=visits), out)
    typer.echo(f"wrote {count:,} visits to {out}")


def inspect_table(
    file: Path = typer.Argument(..., help="A table: CSV, TSV, JSON Lines or Parquet."),
    out: Path | None = typer.Option(None, "--out", help="YAML file to write the column map to; never overwritten."),
    delimiter: str | None = DELIMITER,
    encoding: str | None = ENCODING,
) -> None:
    """Look at a table and write a first column map: what each column seems to be, and what will be ignored."""
    from whatelse.files import write_whole
    from whatelse.sources.inspection import look_at

    if out is not None and out.exists():
        raise InputError("exists, and may have been edited: choose another --out, or remove it first", file=out)
    look = look_at(file, delimiter=delimiter, encoding=encoding)
    print_look(look)
    if out is None:
        typer.echo(look.to_yaml())
        typer.echo("keep this as a column map with --out FILE, and correct it there")
        return
    write_whole(out, look.to_yaml().encode())
    typer.echo(f"wrote {out}: look through it and correct it, then")
    typer.echo(f"next: whatelse build {shlex.quote(str(file))} --map {shlex.quote(str(out))} --out cohort")
    typer.echo("      and --conditions FILE, for conditions other than the shipped ones of emergency medicine")


def split(
    cohort: Path = typer.Argument(..., help="A cohort folder."),
    train: Path = typer.Option(..., "--train", help="Folder for the visits to learn from."),
    test: Path = typer.Option(..., "--test", help="Folder for the visits to test on."),
    share: float = typer.Option(0.25, "--share", help="Share of the visits to test on."),
    labels: Path | None = typer.Option(
        None, "--labels", help="Labels that people made, put into both parts where the cohort does not know better."
    ),
    seed: int = typer.Option(0, "--seed", min=0, help="The same seed gives the same parts."),
) -> None:
    """Part a cohort at random into one to learn from and one to test on, with the same findings."""
    import numpy as np

    from whatelse.cohort import Cohort
    from whatelse.teaching.labels import with_labels

    if not 0 < share < 1:
        raise InputError(f"--share is {share}: needs a number between 0 and 1")
    opened = Cohort.open(cohort)
    if labels is not None:
        opened = with_labels(opened, labels)
    chosen = np.random.default_rng(seed).permutation(len(opened)) < round(share * len(opened))
    if not chosen.any() or chosen.all():
        raise CohortError(f"{len(opened):,} visits are too few to part by {share:g}: build a larger cohort")
    for part, folder, what in ((opened[~chosen], train, "to learn from"), (opened[chosen], test, "to test on")):
        part.save(folder)
        some = int(part.known.any(axis=1).sum())
        typer.echo(f"{len(part):,} visits {what}, {some:,} of them with labels: {folder}")
    typer.echo(f"next: whatelse fit {shlex.quote(str(train))} --out model")


def build(
    files: list[Path] = typer.Argument(
        ..., metavar="[SOURCE] FILES…", help=f"The files or the folder to read, after what they are: {KINDS}. [table]"
    ),
    out: Path | None = typer.Option(None, "--out", help="Folder to save the cohort in; without it, only report."),
    conditions: Path | None = typer.Option(
        None, "--conditions", help="Conditions and anchors: YAML, NHAMCS JSON, or a folder of source|identifier files."
    ),
    unanchored: bool = typer.Option(
        False, "--unanchored", help="Keep conditions that have no anchor: 'fit --labels' learns them from labels alone."
    ),
    like: Path | None = typer.Option(
        None, "--like", help="Use the findings of this cohort (for test data), and read files as it was read."
    ),
    source: str | None = SOURCE,
    columns: Path | None = MAP,
    delimiter: str | None = DELIMITER,
    encoding: str | None = ENCODING,
    labels: Path | None = LABEL_TABLES,
    on_error: OnError = ON_ERROR,
    option: list[str] | None = OPTION,
    max_share: float = typer.Option(0.5, "--max-share", help="Findings in more than this share of visits go."),
    max_terms: int | None = typer.Option(
        None, "--max-terms", help="So many of the most common findings stay; 0 for all. [1000; nhamcs: 0]"
    ),
    min_visits: int | None = typer.Option(
        None, "--min-visits", help="Findings in fewer visits than this go. [1; nhamcs: 10]"
    ),
    rules: str = typer.Option("default", "--rules", help="Negation rules: default, paper or a YAML file."),
    bigrams: bool = typer.Option(True, help="Join words that often come together."),
    function_words: bool = typer.Option(
        False,
        "--function-words",
        help="Words of grammar and form ('of', 'pmh') and bare numbers may be findings.",
    ),
    bands: int = typer.Option(5, "--bands", min=2, help="Part each number into so many bands of equal size."),
    engine: Engine = ENGINE,
    master: str | None = MASTER,
) -> None:
    """Make a cohort of visit records: findings, anchors and, where there are billing codes, labels."""
    from whatelse.anchors import AnchorSet
    from whatelse.cohort import build_cohort
    from whatelse.cohort.folder import vocabulary_of

    if str(files[0]) in SOURCES:
        source, files = str(files[0]), files[1:]
        if not files:
            raise InputError(f"no files: give what to read after {source!r}; {SOURCES[source].reads}")
    if like is not None and conditions is not None:
        raise InputError("--like brings its own conditions: leave --conditions out")
    known = vocabulary_of(like) if like is not None else None
    anchors = AnchorSet.load(conditions) if conditions is not None else AnchorSet.shipped()
    bare = set() if unanchored else set(anchors.names) - set(anchors.anchored().names)
    if bare:
        print_note(
            f"{len(bare)} conditions have no anchors and are left out (--unanchored keeps them, for labels to teach): "
            f"{', '.join(sorted(bare))}"
        )
        anchors = anchors.anchored()
    for names, count in Counter(anchors.shared().values()).items():
        print_note(f"{count} anchors stand for {' and '.join(names)}; an anchor should have one parent only")

    def choice(survey: bool) -> dict[str, Any]:
        return {
            "max_share": max_share,
            "max_terms": (None if survey else 1000) if max_terms is None else (max_terms or None),
            "min_visits": (10 if survey else 1) if min_visits is None else min_visits,
            "bigrams": bigrams,
            "bands": bands,
            "function_words": function_words,
        }

    if engine is Engine.spark:
        if source not in (None, "table") or labels is not None or option:
            raise InputError("--engine spark reads Parquet tables: write other sources as Parquet first")
        chosen = choice(survey=False) | {"rules": rules}
        skip = on_error is OnError.skip
        build_on_spark(files, master, out=out, anchors=anchors, like=known, columns=columns, skip=skip, choice=chosen)
        return
    if known is not None and source == known.source.get("source"):
        source = None  # said again what is known: the map that came with it stays
    reader = read(
        files,
        source=source,
        columns=columns,
        delimiter=delimiter,
        encoding=encoding,
        labels=labels,
        on_error=on_error,
        like=known.source if known is not None else None,
        options=option,
    )
    chosen = choice(survey=reader.description["source"] == "nhamcs")
    cohort = build_cohort(
        track(reader, "reading visits"),
        anchors,
        **chosen,
        rules=rules,
        like=known,
        about=reader.about | {"choice": chosen},  # to build it again with other anchors
        source=reader.description,
    )
    saved = cohort.save(out) if out is not None else None  # before anything is printed: a closed pipe ends the command
    for kind, count in sorted(reader.left_out.items()):
        print_note(f"left out {count:,} rows: {kind}")
    print_summary(cohort)
    if conditions is None and known is None:
        typer.echo(f"about the {len(cohort.conditions)} shipped conditions; --conditions FILE is for others")
    typer.echo(f"saved as {saved}" if saved else "nothing was saved: give --out to keep the cohort")
    if saved:
        typer.echo(f"next: whatelse anchors check {shlex.quote(str(saved))}")


def check(
    cohort: Path = typer.Argument(..., help="A cohort folder."),
    as_json: bool = typer.Option(False, "--json", help="Print JSON instead of tables; it quotes no record."),
    fdr: float = typer.Option(0.01, "--fdr", help="Share of false warnings to allow."),
    min_odds: float = typer.Option(2.0, "--min-odds", help="Warn from this odds ratio on, or its inverse."),
    phrases: bool = typer.Option(
        True, help="Read the records again and show anchor by anchor where it fired, with examples that quote them."
    ),
    examples: int = typer.Option(2, "--examples", min=0, help="Examples to show of each anchor."),
    visits: list[Path] | None = typer.Option(
        None, "--visits", help="Where the records are, if they have moved since the cohort was built."
    ),
) -> None:
    """Coverage, overlap, precision and recall of anchors, findings that break their independence, and what fired."""
    from whatelse.cohort import Cohort
    from whatelse.teaching.anchor_checks import check_anchors
    from whatelse.teaching.doubts import doubts

    opened = Cohort.open(cohort)
    checks = check_anchors(opened, fdr=fdr, min_odds=min_odds)
    uses = _uses(opened, visits, examples) if phrases else []
    if as_json:
        entries = [c.to_json() for c in checks]
        for entry in entries:
            entry["anchors"] = [use.to_json() for use in uses if use.condition == entry["condition"]]
        typer.echo(json.dumps(entries, indent=1))
        return
    print_checks(checks, labelled=opened.Y is not None)
    print_uses(uses)
    found = doubts(opened)
    for doubt in found:
        print_note(str(doubt))
    hopeless = sum(doubt.hopeless for doubt in found)
    if hopeless:
        typer.echo(f"verdict: nothing can be learned about {hopeless} of {len(checks)} conditions as it stands")
    else:
        typer.echo(
            f"verdict: {'usable, with the doubts above' if found else 'nothing speaks against learning from these'}"
        )


def _uses(cohort: Cohort, files: list[Path] | None, examples: int) -> list[AnchorUse]:
    """What each anchor did in the records of the cohort; a note and nothing where they cannot be read again."""
    from whatelse.cohort.again import records_of
    from whatelse.teaching.anchor_uses import anchor_uses

    own = set(cohort.ids.tolist())
    try:
        records = (record for record in records_of(cohort, files) if record.id in own)
        return anchor_uses(cohort.vocabulary, track(records, "looking for anchors", total=len(own)), examples)
    except (InputError, CohortError) as problem:
        if files:
            raise
        print_note(f"anchors are not shown one by one, for the records cannot be read again ({problem}); give --visits")
        return []


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
