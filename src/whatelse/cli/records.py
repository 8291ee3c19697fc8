"""From records to cohorts: `simulate`, `inspect`, `build`, `split`."""

from __future__ import annotations

import shlex
import textwrap
from collections import Counter
from dataclasses import asdict, replace
from itertools import chain, islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

import whatelse
from whatelse.cli import options
from whatelse.cli.spark import build_on_spark
from whatelse.cli.tables import console, print_left_out, print_note, print_summary, print_table, track
from whatelse.errors import CohortError, InputError
from whatelse.sources.registry import SOURCES
from whatelse.visits import TEXT_FIELDS, Visit

if TYPE_CHECKING:
    from whatelse.cohort import Vocabulary
    from whatelse.cohort.proposal import Proposal
    from whatelse.simulate import Departures
    from whatelse.sources import VisitReader

TEST_SHARE = 0.25  # of the visits
SHIPPED = "emergency-23"  # conditions that come with the package
CHOICE = {"max_share": 0.5, "max_terms": 1000, "min_visits": 1, "bigrams": True, "bands": 5, "function_words": False}
SURVEY = {"max_terms": 0, "min_visits": 10}  # what NHAMCS, whose findings are few and coded, has otherwise


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
    departure: list[str] = typer.Option(
        [], "--departure", help="Set one departure from the model, as name=value; may be repeated."
    ),
    causes: Path | None = typer.Option(
        None, "--causes", help="Also write, as JSON lines, which condition put every word and code there."
    ),
) -> None:
    """Write visits of a simulated emergency department, with their true conditions.

    Example: whatelse simulate --visits 20000 --seed 1 --out visits.jsonl.gz
    """
    from whatelse.simulate import simulate as simulated
    from whatelse.simulate import simulate_causes, write_causes
    from whatelse.sources.write import write_visits

    departures = _departures(departure, obey_model)
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
    option: list[str] = options.OPTION,
) -> None:
    """Look at a table and write a first column map: what each column seems to be, and what will be ignored.

    Example: whatelse inspect visits.csv --out map.yaml
    """
    from whatelse.io.files import write_whole
    from whatelse.sources.inspection import inspect_file

    if out is not None and out.exists():
        raise InputError("exists, and may have been edited: choose another --out, or remove it first", file=out)
    named = options.pairs(option, "--option")
    if unknown := set(named) - {"delimiter", "encoding"}:
        raise InputError(f"--option {min(unknown)}: 'inspect' takes delimiter and encoding")
    found = inspect_file(file, delimiter=named.get("delimiter"), encoding=named.get("encoding"))
    rows = [(c.name, f"{c.filled:,}", f"{c.different:,}", c.field or "ignored", c.why) for c in found.columns]
    styles = ["" if column.field else "dim" for column in found.columns]
    head = ("column", "cells", "values", "seems to be", "because")
    print_table(head, rows, f"{found.file}, {found.rows:,} rows", styles)
    if out is None:
        typer.echo(found.to_yaml())
        typer.echo("keep this as a column map with --out FILE, and correct it there")
        return
    write_whole(out, found.to_yaml().encode())
    for note in found.notes:
        print_note(note)
    skip = " --on-error skip" if found.notes else ""
    typer.echo(f"wrote {out}: check it, and correct it where it is wrong")
    typer.echo(f"next: whatelse build {shlex.quote(str(file))} --map {shlex.quote(str(out))} --out cohort{skip}")
    typer.echo("      add --conditions FILE for conditions of your own")


def split(
    cohort: Path = options.COHORT,
    train: Path = typer.Option(..., "--train", help="Folder for the visits to learn from."),
    test: Path = typer.Option(..., "--test", help="Folder for the visits to test on."),
    share: float = typer.Option(TEST_SHARE, "--share", help="Share of the visits to test on."),
    labels: Path | None = typer.Option(None, "--labels", help="Labels of people, for cells that the cohort lacks."),
    seed: int = options.SEED,
) -> None:
    """Split a cohort at random into one to learn from and one to test on; 'build --test' does so at once.

    Example: whatelse split cohort --train train --test test
    """
    from whatelse.annotators.label_set import with_labels

    opened = whatelse.Cohort.open(cohort)
    _save_split(opened if labels is None else with_labels(opened, labels), train, test, share, seed)
    typer.echo(f"next: whatelse fit {shlex.quote(str(train))} --out model")


def _save_split(cohort: whatelse.Cohort, train: Path, test: Path, share: float, seed: int) -> None:
    """Save a random share of the visits in `test` and the others in `train`."""
    import numpy as np

    if not 0 < share < 1:
        raise InputError(f"the share to test on is {share}: needs a number between 0 and 1")
    chosen = np.random.default_rng(seed).permutation(len(cohort)) < round(share * len(cohort))
    if not chosen.any() or chosen.all():
        raise CohortError(f"{len(cohort):,} visits are too few to split by {share:g}: build a larger cohort")
    for part, folder, what in ((cohort[~chosen], train, "to learn from"), (cohort[chosen], test, "to test on")):
        part.save(folder)
        some = int(part.known.any(axis=1).sum())
        typer.echo(f"{len(part):,} visits {what}, {some:,} of them with labels: {folder}")


def build(
    files: list[Path] = typer.Argument(..., metavar="FILES…", help="The files or the folder to read."),
    out: Path | None = typer.Option(None, "--out", help="Folder to save the cohort in; without it, only report."),
    conditions: Path | None = typer.Option(
        None,
        "--conditions",
        help="Conditions and anchors: YAML, NHAMCS JSON, or a folder of source|identifier files; emergency-23: the "
        "shipped ones. [conditions of the knowledge base that the notes name often enough, else emergency-23]",
    ),
    unanchored: bool = typer.Option(
        False, "--unanchored", help="Keep conditions without anchors; 'fit --labels' learns them from labels alone."
    ),
    vocabulary_from: Path | None = typer.Option(
        None,
        "--vocabulary-from",
        help="Use the findings of this cohort (for test data), and read files as it was read; or of a shipped model: "
        "emergency, about its conditions or about those of --conditions that it knows.",
    ),
    test: Path | None = typer.Option(None, "--test", help="Folder for a random quarter of the visits, to test on."),
    seed: int = options.SEED,
    source: str | None = options.SOURCE,
    columns: Path | None = options.MAP,
    on_error: options.OnError = options.ON_ERROR,
    option: list[str] = options.OPTION,
    setting: list[str] = typer.Option(
        [],
        "--setting",
        metavar="NAME=VALUE",
        help="How findings are made and chosen; repeat. rules (assertion rules: default, paper or a YAML file), "
        "lexicon (concepts: default, none for words alone, or a knowledge file), max_share (of visits with a finding), "
        "max_terms (most common findings kept, 0: all), min_visits, bigrams, bands (of each number), function_words.",
    ),
    engine: options.Engine = options.ENGINE,
    master: str | None = options.MASTER,
) -> None:
    """Make a cohort of visit records: findings, anchors and, where there are billing codes, labels.

    Example: whatelse build visits.csv --map map.yaml --conditions conditions.yaml --out cohort
    """
    from whatelse.cohort.folder import vocabulary_of
    from whatelse.learning.shipped import NAMES as SHIPPED_MODELS

    if str(files[0]) in SOURCES and not files[0].exists():  # as version 0.2 had it
        source, files = str(files[0]), files[1:]
        typer.echo(f"whatelse: 'build {source} FILES' is now called 'build FILES --source {source}'", err=True)
        if not files:
            raise InputError(f"no files: {source!r} reads {SOURCES[source].reads}")
    if test is not None and out is None:
        raise InputError("--test needs --out: the folder for the visits to learn from")
    shipped = str(vocabulary_from) in SHIPPED_MODELS and not Path(str(vocabulary_from)).exists()
    if vocabulary_from is not None and conditions is not None and not shipped:
        raise InputError("--vocabulary-from brings its own conditions: leave --conditions out")
    known = None
    if vocabulary_from is not None:
        known = _shipped_vocabulary(str(vocabulary_from), conditions) if shipped else vocabulary_of(vocabulary_from)
    named = conditions is not None and str(conditions) != SHIPPED
    anchors = whatelse.AnchorSet.load(conditions) if conditions is not None and named else whatelse.AnchorSet.shipped()
    bare = set() if unanchored else set(anchors.names) - set(anchors.anchored().names)
    if bare:
        kept = "left out (--unanchored keeps them, to learn from labels)"
        print_note(f"{len(bare)} conditions have no anchors and are {kept}: {', '.join(sorted(bare))}")
        anchors = anchors.anchored()
    for names, count in Counter(anchors.shared().values()).items():
        print_note(f"{count} anchors stand for {' and '.join(names)}; an anchor should have one parent only")
    if engine == "spark":
        if source not in (None, "table") or option or test:
            raise InputError("--engine spark reads Parquet tables, without --option and --test")
        return build_on_spark(files, master, out, anchors, known, columns, on_error, _choice(setting, survey=False))
    if known is not None and source == known.source.get("source"):
        source = None  # the saved description of the source has more than its name
    like = known.source if known is not None else None
    reader = options.read(files, option, source=source, columns=columns, on_error=on_error, like=like)
    chosen = _choice(setting, survey=reader.description["source"] == "nhamcs")
    first: list[Visit] = []
    proposed, written = None, None
    if conditions is None and known is None:
        first, proposed = _propose(reader, anchors)
        anchors = proposed.anchors if proposed is not None else anchors
        written = _write_conditions(anchors, out) if proposed is not None and out is not None else None
    cohort = whatelse.build_cohort(
        track(chain(first, reader), "reading visits"),
        anchors,
        **chosen,
        like=known,
        about=reader.about | {"choice": {name: chosen[name] for name in CHOICE}},  # to build it again
        source=reader.description,
    )
    saved = cohort.save(out) if out is not None and test is None else None  # before printing: a closed pipe ends it
    print_left_out(reader)
    print_summary(cohort)
    if proposed is not None:
        _print_proposal(proposed, written)
    elif conditions is None and known is None:
        typer.echo(f"about the {len(cohort.conditions)} shipped conditions; --conditions FILE is for others")
    if out is None:
        typer.echo("nothing was saved: give --out to keep the cohort")
        return
    if test is not None:
        _save_split(cohort, out, test, TEST_SHARE, seed)
    else:
        typer.echo(f"saved as {saved}")
    typer.echo(f"next: whatelse anchors check {shlex.quote(str(out))}")


def _choice(given: list[str], survey: bool) -> dict[str, Any]:
    """How findings are made and chosen: the defaults, with the settings of the command line."""
    chosen = {"rules": "default", "lexicon": "default", **CHOICE, **(SURVEY if survey else {})}
    chosen |= options.settings(given, "--setting", chosen)
    return chosen | {"max_terms": chosen["max_terms"] or None}


def _shipped_vocabulary(model: str, conditions: Path | None) -> Vocabulary:
    """The findings of a shipped model, about its own conditions or about others that the knowledge base knows."""
    from whatelse.learning.shipped import load_shipped, model_for

    if conditions is None:
        return load_shipped(model).vocabulary
    found, unknown = model_for(whatelse.AnchorSet.load(conditions))
    if unknown:
        print_note(f"{len(unknown)} conditions are unknown to the knowledge base: {', '.join(unknown)}")
    return found.vocabulary


# ---- conditions that are proposed


def _propose(reader: VisitReader, shipped: whatelse.AnchorSet) -> tuple[list[Visit], Proposal | None]:
    """The first visits, and the conditions that they name often enough. None: truth names the shipped conditions."""
    from whatelse.cohort.proposal import SAMPLE, propose_conditions

    first = list(track(islice(reader, SAMPLE), "looking for conditions"))
    truth = {name for visit in first for name in visit.truth or ()}
    if truth & set(shipped.names) or not any(getattr(visit, field) for visit in first for field in TEXT_FIELDS):
        return first, None
    return first, propose_conditions(first, whatelse.load_knowledge())


def _write_conditions(anchors: whatelse.AnchorSet, out: Path) -> Path:
    """Write proposed conditions beside the cohort, for people to edit. A file that was edited is not replaced."""
    import yaml

    from whatelse.io.files import write_whole

    path = out.with_name(f"{out.name}-conditions.yaml")
    text = yaml.safe_dump(anchors.to_json(), allow_unicode=True, sort_keys=False, default_flow_style=None, width=120)
    if not path.exists():
        write_whole(path, text.encode())
    elif path.read_bytes() != text.encode():
        raise InputError("differs from what is proposed: give it with --conditions, or remove it first", file=path)
    return path


def _print_proposal(proposed: Proposal, written: Path | None) -> None:
    counts = zip(proposed.anchors.conditions, proposed.visits, strict=True)
    names = ", ".join(f"{condition.title}\xa0({visits:,})" for condition, visits in counts)
    typer.echo(f"{len(proposed.visits)} conditions occur often enough in {proposed.looked_at:,} visits:")
    typer.echo(textwrap.fill(names, console().width, initial_indent="  ", subsequent_indent="  ").replace("\xa0", " "))
    if written is not None:
        typer.echo(f"they are in {written}: edit it and build again with --conditions {shlex.quote(str(written))}")


def _departures(settings: list[str], obey_model: bool) -> Departures:
    """The departures of the simulation: all or none, but for those that are set one by one."""
    from whatelse.simulate import Departures

    start = Departures.none() if obey_model else Departures()
    try:
        return replace(start, **options.settings(settings, "--departure", asdict(start)))
    except ValueError as problem:
        raise InputError(f"--departure: {problem}") from None
