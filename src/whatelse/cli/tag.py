"""`tag`: what else might these patients have? On the terminal, to a file, in Spark, or to an OMOP results schema."""

from __future__ import annotations

import json
import time
from datetime import datetime
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer
from rich.text import Text

import whatelse
from whatelse.cli.options import ENGINE, MAP, MASTER, MODEL, OPTION, SOURCE, Engine, pairs, read
from whatelse.cli.spark import tag_on_spark
from whatelse.cli.tables import console, print_left_out, print_note, print_table, progress_bar, say_when_compiling
from whatelse.errors import InputError
from whatelse.explanations import UNCALIBRATED
from whatelse.io.files import scratch_folder
from whatelse.sources.address import place
from whatelse.visits import TEXT_FIELDS, Known, Visit

if TYPE_CHECKING:
    from whatelse.sources import VisitReader

REASONS = 4  # of each tag
FEW = 10  # visits that are shown unless --limit is given
WORTH = 0.1  # log odds that another condition must bring to be named
SAID = 0.05  # log odds below which a reason is not printed: it would read +0.0
WORTH_ABSENT = 0.5  # and all that a part of the record does not have
REASON = ("finding", "text", "log_odds", "present")  # what --json has of a reason


def tag(
    model: Path = MODEL,
    visits: Path = typer.Argument(..., help="Visit records: a file like those learned from."),
    confirmed: list[str] = typer.Option([], "--confirmed", help="A condition known to be true; repeat."),
    rejected: list[str] = typer.Option([], "--rejected", help="A condition known to be false; repeat."),
    visit: list[str] = typer.Option([], "--visit", help="Only the visit with this id; may be repeated."),
    limit: int | None = typer.Option(None, "--limit", min=1, help=f"Visits to show, at most. [{FEW}; JSON: all]"),
    top: int = typer.Option(5, "--top", min=1, help="Tags to show for each visit."),
    source: str | None = SOURCE,
    columns: Path | None = MAP,
    option: list[str] = OPTION,
    as_json: bool = typer.Option(False, "--json", help="Print JSON, one object a visit and line."),
    out: Path | None = typer.Option(
        None,
        "--out",
        help="Write the tags of all visits, on all cores: .parquet, .csv or .jsonl. A command that was stopped "
        "continues. spark: a folder of Parquet files.",
    ),
    omop: str | None = typer.Option(
        None,
        "--omop",
        help="For an OMOP CDM: write a cohort for each condition, as OHDSI tools read them. A folder for CSV files, or "
        "the address of a database. More with --option: table, results_schema.",
    ),
    threshold: float = typer.Option(0.5, "--threshold", help="For --omop: probability from which a visit belongs."),
    note_nlp: bool = typer.Option(False, "--note-nlp", help="For --omop: also write findings of notes (NOTE_NLP)."),
    engine: Engine = ENGINE,
    master: str | None = MASTER,
) -> None:
    """What else might these patients have, given what is confirmed and rejected?

    Example: whatelse tag model visits.csv --confirmed pneumonia --limit 3

    Example: whatelse tag model visits.csv --out tags.parquet
    """
    say_when_compiling()
    given = confirmed, rejected
    if omop is not None or out is not None or engine == "spark":
        if visit or limit or as_json:
            raise InputError("--out and --omop write the tags of all visits: leave --visit, --limit and --json out")
        if omop is not None:
            if confirmed or rejected or source not in (None, "omop"):
                raise InputError("--omop reads an OMOP CDM and confirms nothing: leave --confirmed and --rejected out")
            _tag_to_omop(model, str(place(visits)), omop, threshold, note_nlp, pairs(option, "--option"))
        elif engine == "spark":
            tag_on_spark(model, visits, out, master, columns, *given)
        elif out is not None:
            like = whatelse.Tagger.load(model).vocabulary_.source
            records = read([visits], option, source=source, columns=columns, on_error="skip", like=like, once=False)
            _tag_to_file(model, records, visits, out, *given)
        return
    tagger = whatelse.Tagger.load(model)
    if tagger.assumed_ and not as_json:
        print_note(UNCALIBRATED)
    like = tagger.vocabulary_.source
    records = read([visits], option, source=source, columns=columns, on_error="skip", like=like)
    missing = dict.fromkeys(visit)
    found = (record for record in records if not visit or record.id in missing)
    most = limit or (len(missing) if visit else None if as_json else FEW)
    shown = 0
    for record in islice(found, most):
        said = answer(tagger, record, *given, top)
        shown += 1
        missing.pop(record.id, None)
        if as_json:
            typer.echo(json.dumps(said, allow_nan=False))
        else:
            print_answer(record, said, note=False)
    if missing and limit is None:
        raise InputError(f"there is no visit {', '.join(map(repr, missing))} in this file", file=visits)
    _check_read(records, shown, visits)
    if not visit and most and limit is None and shown == most and next(found, None) is not None:
        print_note(f"there are more visits than the {most} shown: see more with --limit, or all with --json")


def answer(
    tagger: whatelse.Tagger, visit: Visit, confirmed: list[str], rejected: list[str], top: int
) -> dict[str, Any]:
    """The suggestions for a visit with the reasons of the first `top`, as JSON values."""
    reading, known = tagger.read(visit), Known(tuple(confirmed), tuple(rejected))
    found = reading.suggest(known)
    tags: list[dict[str, Any]] = []
    for tag in found.tags[:top]:
        why = reading.why(known, tag.condition, most=REASONS)
        said = {name: getattr(tag, name) for name in ("condition", "probability", "error_bound", "baseline")}
        said["reasons"] = [{name: getattr(r, name) for name in REASON} for r in why.reasons]
        tags.append(said | {"absent": why.absent, "others": why.others, "sureness": why.sureness})
    return {
        "visit": visit.id,
        "confirmed": confirmed,
        "rejected": rejected,
        "certified": found.certified,
        "error_bound": found.error_bound,
        "accuracy": found.accuracy,
        "model": found.digest,
        "caveat": found.caveat,
        "tags": tags,
    }


def print_answer(visit: Visit, said: dict[str, Any], note: bool = True) -> None:
    """One visit: who came with what, then what else."""
    terminal = console()
    who = ", ".join(part for part in (f"{visit.age:.0f}" if visit.age is not None else "", visit.sex or "") if part)
    complaint = visit.chief_complaint or ""
    terminal.print(Text.assemble(("visit ", "dim"), (visit.id, "bold"), f"  {who}  {complaint}"))
    if note:
        for field in TEXT_FIELDS[1:]:
            if text := getattr(visit, field):
                terminal.print(Text(text if len(text) < 400 else text[:400] + " …", style="dim"))
    decided = [f"confirmed: {c}" for c in said["confirmed"]] + [f"rejected: {c}" for c in said["rejected"]]
    rows = []
    for tag in said["tags"]:
        beside = [f"with {c} ({v:+.1f})" for c, v in tag["others"].items() if abs(v) >= WORTH]
        telling = [(part, v) for part, v in tag["absent"].items() if abs(v) >= WORTH_ABSENT]
        absent = [f"findings absent from {part} ({v:+.1f})" for part, v in telling]
        own = [f"{r['text']} ({r['log_odds']:+.1f})" for r in tag["reasons"] if abs(r["log_odds"]) >= SAID]
        reasons = ", ".join([*beside, *own, *absent])
        rows.append((tag["condition"], f"{tag['probability']:.1%}", f"{tag['baseline']:.1%}", reasons))
    print_table(("what else?", "probability", "usually", "because"), rows, "; ".join(decided) or None)
    terminal.print(said["accuracy"], style="dim" if said["certified"] else "yellow")


def _check_read(records: VisitReader, answered: int, file: Path) -> None:
    """Say which rows were left out; InputError if none is left."""
    print_left_out(records)
    if records.left_out and not answered:
        raise InputError("no row can be read as a visit: 'whatelse inspect' says how it reads the columns", file=file)


def _tag_to_file(
    model: Path, records: VisitReader, file: Path, out: Path, confirmed: list[str], rejected: list[str]
) -> None:
    """`tag --out` on this machine: on all cores; continues where it was stopped."""
    from whatelse.batch.stream import tag_file

    status = file.stat() if file.is_file() else None
    about = [str(file.absolute()), status.st_size if status else 0, status.st_mtime_ns if status else 0]
    about += [dict(records.description)]
    began = time.perf_counter()
    try:
        with progress_bar() as progress:
            done = tag_file(model, records, out, confirmed=confirmed, rejected=rejected, about=about, told=progress)
    except KeyboardInterrupt:
        raise KeyboardInterrupt("stopped; answered visits are kept: run the same command again to continue") from None
    seconds = time.perf_counter() - began
    if not done.visits and records.left_out:
        out.unlink()
    _check_read(records, done.visits, file)
    if done.before:
        typer.echo(f"{done.before:,} visits had been answered before")
    if done.uncertified:
        print_note(f"{done.uncertified:,} visits are not certified: see the column error_bound")
    rate = (done.visits - done.before) / seconds
    typer.echo(f"wrote {done.visits:,} visits to {out} ({rate:,.0f} visits/s)")


def _tag_to_omop(model: Path, cdm: str, out: str, threshold: float, note_nlp: bool, options: dict[str, str]) -> None:
    """Tag the emergency visits of an OMOP CDM and write a cohort for each condition, as OHDSI tools read them.

    options: codings (YAML file of the hospital's own codes), cdm_schema, results_schema, table (name, "cohort")
    """
    from whatelse.batch.omop.nlp import Mentions
    from whatelse.batch.omop.results import make_results, stays, write_results
    from whatelse.sources.address import hide_password
    from whatelse.sources.codings import load_codings
    from whatelse.sources.omop.tables import open_cdm
    from whatelse.sources.omop.visits import cdm_visits
    from whatelse.sources.report import Report

    codings = Path(options.pop("codings")) if "codings" in options else None
    tagger, report_, known = whatelse.Tagger.load(model), Report("skip"), load_codings(codings)
    cdm_schema, results_schema = options.pop("cdm_schema", None), options.pop("results_schema", None)
    table = options.pop("table", "cohort")
    if options:
        raise InputError(f"--option {min(options)}: --omop takes codings, cdm_schema, results_schema and table")
    with scratch_folder() as scratch, open_cdm(cdm, cdm_schema, scratch, report_) as connection:
        found, periods = stays(connection)
        about, today = f"whatelse model {tagger.digest_[:12]}", datetime.now()
        spoken = Mentions(connection, known, tagger, today) if note_nlp else None

        def likely() -> Any:
            visits = (visit for _, visit in cdm_visits(connection, known, report_, hide_password(cdm)))
            while batch := list(islice(visits, 500)):
                if spoken is not None:
                    spoken.add(batch)
                yield from zip((v.id for v in batch), tagger.predict_proba(batch).tolist(), strict=True)

        made = make_results(tagger.conditions_, likely(), found, periods, threshold, about, today.date())
        written = write_results(made, out, results_schema, table, spoken.batches() if spoken is not None else None)
    print_left_out(report_)
    counts = ", ".join(f"{name} {count:,}" for name, count in written.items())
    typer.echo(f"{counts} rows written to {hide_password(out)}")
