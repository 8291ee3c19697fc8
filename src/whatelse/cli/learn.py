"""From cohorts to models and answers: `fit`, `evaluate`, `tag`, `reproduce`."""

from __future__ import annotations

import json
import shlex
import sys
import time
import warnings
from enum import StrEnum
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from whatelse.cli.answers import answer, print_answer, print_measured, print_results
from whatelse.cli.bar import progress_bar
from whatelse.cli.engine import ENGINE, MASTER, Engine, fit_on_spark, tag_on_spark, tag_to_file, visits_to_test
from whatelse.cli.opening import open_decisions
from whatelse.cli.printing import print_note
from whatelse.cli.source_options import DELIMITER, ENCODING, LABEL_TABLES, MAP, SOURCE, read
from whatelse.errors import InputError
from whatelse.suggestions import UNCALIBRATED

if TYPE_CHECKING:
    from whatelse.anchors import NoiseRates
    from whatelse.cohort import Cohort
    from whatelse.teaching.label_set import LabelSet

FEW = 10  # visits shown by `tag` unless told


class Protocol(StrEnum):
    """Which visits of the training cohort are learned from."""

    all_visits = "all-visits"
    paper = "paper"


def register(app: typer.Typer) -> None:
    """Add the commands of this module."""
    app.command()(fit)
    app.command()(evaluate)
    app.command()(tag)
    app.command()(reproduce)


def fit(
    cohort: Path = typer.Argument(..., help="A cohort folder."),
    out: Path = typer.Option(..., "--out", help="The model file to write."),
    learner: str | None = typer.Option(None, "--learner", help="moments, naive, oracle, nvil … [the default learner]"),
    rates: Path | None = typer.Option(None, "--rates", help="JSON: the anchors' noise rates, condition by condition."),
    labels: list[Path] | None = typer.Option(
        None,
        "--labels",
        help="CSV or Parquet: labelled visits to learn from, instead of the cohort's own labels; repeat.",
    ),
    decisions: str | None = typer.Option(
        None,
        "--decisions",
        help="Tags that people confirmed and rejected: a database URL, or a file of 'decisions export'.",
    ),
    error: float | None = typer.Option(
        None, "--error", min=0.001, max=0.45, help="How often a decision is wrong. [found where people decide twice]"
    ),
    skip_other_labels: bool = typer.Option(
        False, "--skip-other-labels", help="Pass over labels of visits that the cohort does not have."
    ),
    no_excuse: list[str] | None = typer.Option(
        None,
        "--no-excuse",
        help="CONDITION:FINDING that may not excuse the condition's anchor, or a file with one a line; repeat.",
    ),
    seed: int = typer.Option(0, "--seed", min=0, help="Of whatever the learner draws at random."),
    setting: list[str] | None = typer.Option(
        None, "--setting", help="An option of the learner as name=value, e.g. epochs=50; may be repeated."
    ),
    engine: Engine = ENGINE,
    master: str | None = MASTER,
) -> None:
    """Learn a model of all conditions from a cohort's anchors, and from labels and decisions where there are any."""
    from sklearn.exceptions import ConvergenceWarning

    from whatelse.cohort import Cohort
    from whatelse.cohort.folder import vocabulary_of
    from whatelse.learning import learners as learning
    from whatelse.tagger import Tagger
    from whatelse.teaching.doubts import doubts, refuse_hopeless, sketch

    settings = _settings(setting or [])
    if no_excuse:
        settings["no_excuse"] = _no_excuses(no_excuse)
    if engine is Engine.spark:
        if labels or decisions:
            raise InputError("--labels and --decisions are for the local engine; Spark learns from the cohort's labels")
        given = _rates(vocabulary_of(cohort).conditions, rates) if rates is not None else None
        tagger, visits, seconds = fit_on_spark(
            cohort, master, learner or learning.DEFAULT, given, seed, settings or None
        )
    else:
        opened = Cohort.open(cohort)
        lesson = None
        if labels or decisions:
            if rates is not None:
                raise InputError("--rates learns without labels: give either it, or --labels and --decisions")
            lesson = read_lesson(opened, labels or [], decisions, error, skip_other_labels)
        given = _rates(opened.conditions, rates) if rates is not None else None
        learn_from = opened if lesson is None else lesson.on(opened)
        for doubt in (found := doubts(learn_from, given)):
            print_note(str(doubt))
        refuse_hopeless(found)
        tagger, visits = Tagger(learner or learning.DEFAULT, settings=settings, seed=seed), len(opened)
        began = time.perf_counter()
        with progress_bar() as told, warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)  # it is said below
            if lesson is None:
                tagger.fit(opened, rates=given, progress=told)
            else:
                tagger.fit(learn_from, weights=lesson.weight, belief=lesson.said, progress=told)
        seconds = time.perf_counter() - began
        tagger.notes_["learned_from"] = sketch(opened)
    digest = tagger.save(out)
    for condition in tagger.rates_.uninformative:
        print_note(f"the anchor of {condition} says nothing: it fires no more often with the condition than without")
    typer.echo(
        f"learned {len(tagger.conditions_)} conditions x {len(tagger.vocabulary_.names):,} findings from "
        f"{visits:,} visits in {seconds:.1f} s ({tagger.learner}, "
        f"{'converged' if tagger.converged_ else 'NOT converged'})"
    )
    _print_excuses(tagger.notes_.get("excuses", {}))
    typer.echo(f"saved as {out}, {digest[:12]}")
    where, model = shlex.quote(str(cohort)), shlex.quote(str(out))
    if tagger.assumed_:
        print_note(f"{UNCALIBRATED}: half of the anchors that fire taken to be right, half of the cases to have one")
        typer.echo(f"next: whatelse anchors label-next {where} --model {model} --out labels.csv")
        typer.echo(f"      and with those visits labelled: whatelse fit {where} --labels labels.csv --out {model}")
        return
    typer.echo(f"next: whatelse evaluate {model} TEST-COHORT, or")
    typer.echo(f"      whatelse tag {model} VISITS --confirmed {shlex.quote(tagger.conditions_[0])}")


def evaluate(
    model: Path = typer.Argument(..., help="A model file."),
    cohort: Path = typer.Argument(..., help="A cohort folder with the model's findings ('build --like')."),
    labels: Path | None = typer.Option(
        None, "--labels", help="CSV or Parquet: labels that people made, beside those that the cohort has."
    ),
    draws: int = typer.Option(3, "--draws", min=1, help="Draws of the hidden tag."),
    seed: int = typer.Option(0, "--seed", min=0, help="Of the draws and the intervals."),
    as_json: bool = typer.Option(False, "--json", help="Print JSON instead of tables."),
    engine: Engine = ENGINE,
    master: str | None = MASTER,
) -> None:
    """Held-out tag, and how far a model's answers come true, with intervals, and by condition."""
    from whatelse.cohort import Cohort
    from whatelse.evaluation.measures import measure
    from whatelse.tagger import Tagger
    from whatelse.teaching.doubts import seen_before
    from whatelse.teaching.labels import with_labels

    tagger = Tagger.load(model)
    opened = Cohort.open(cohort) if engine is Engine.local else visits_to_test(cohort, master, seed)
    if said := seen_before(tagger.notes_.get("learned_from"), opened):
        print_note(said)
    opened = with_labels(opened, labels) if labels is not None else opened
    measured = measure(tagger, opened, draws=draws, seed=seed)
    if as_json:
        typer.echo(json.dumps({"model": str(model), "cohort": str(cohort)} | measured, indent=1, allow_nan=False))
        return
    print_measured(measured)


def tag(
    model: Path = typer.Argument(..., help="A model file."),
    visits: Path = typer.Argument(..., help="Visit records: a file like those learned from."),
    confirmed: list[str] | None = typer.Option(None, "--confirmed", help="A condition known to be true; repeat."),
    rejected: list[str] | None = typer.Option(None, "--rejected", help="A condition known to be false; repeat."),
    visit: list[str] | None = typer.Option(None, "--visit", help="Only the visit with this id; may be repeated."),
    limit: int | None = typer.Option(None, "--limit", min=1, help=f"At most so many visits. [{FEW}; JSON: all]"),
    top: int = typer.Option(5, "--top", min=1, help="Tags to show for each visit."),
    reasons: int = typer.Option(4, "--reasons", min=0, help="Reasons to give for each tag."),
    source: str | None = SOURCE,
    columns: Path | None = MAP,
    delimiter: str | None = DELIMITER,
    encoding: str | None = ENCODING,
    labels: Path | None = LABEL_TABLES,
    as_json: bool = typer.Option(False, "--json", help="Print one JSON object a visit, one a line."),
    out: Path | None = typer.Option(
        None,
        "--out",
        help="Write the tags of all visits: .parquet, .csv or .jsonl, on all cores; run again, it goes on where it was "
        "stopped. spark: a folder of Parquet files.",
    ),
    engine: Engine = ENGINE,
    master: str | None = MASTER,
) -> None:
    """What else might these patients have, given what is confirmed and rejected?"""
    from whatelse.tagger import Tagger

    if engine is Engine.spark or out is not None:
        if visit or limit or as_json:
            raise InputError("--out writes the tags of all visits: leave --visit, --limit and --json out")
        if engine is Engine.spark:
            tag_on_spark(model, visits, out, master, columns, confirmed or [], rejected or [])
        elif out is not None:
            how = {"source": source, "columns": columns, "delimiter": delimiter, "encoding": encoding, "labels": labels}
            tag_to_file(model, visits, out, confirmed or [], rejected or [], **how)
        return
    tagger = Tagger.load(model)
    if tagger.assumed_ and not as_json:
        print_note(UNCALIBRATED)
    wanted = set(visit or ())
    records = read(
        [visits], source=source, columns=columns, delimiter=delimiter, encoding=encoding, labels=labels,
        like=tagger.vocabulary_.source,
    )  # fmt: skip
    found = (record for record in records if not wanted or record.id in wanted)
    most = limit or (None if as_json or wanted else FEW)
    shown = 0
    for record in islice(found, most):
        said = answer(tagger, record, confirmed or [], rejected or [], top, reasons)
        shown += 1
        if as_json:
            typer.echo(json.dumps(said, allow_nan=False))
        else:
            print_answer(record, said, note=False)
    if wanted and shown < len(wanted) and limit is None:
        raise InputError(f"{len(wanted) - shown} of the visits asked for are not in this file", file=visits)
    if most and limit is None and shown == most and next(found, None) is not None:
        print_note(f"there are more visits than the {most} shown: see more with --limit, or all with --json")


def reproduce(
    train: Path = typer.Option(..., "--train", help="Cohort folder to learn from."),
    test: Path = typer.Option(..., "--test", help="Cohort folder to test on, built with '--like' the other."),
    out: Path = typer.Option(..., "--out", help="Folder for index.html and results.json."),
    protocol: Protocol = typer.Option(
        Protocol.all_visits, "--protocol", help="Learn from all visits, or (paper) from multi-condition visits only."
    ),
    few_labels: int | None = typer.Option(
        None, "--few-labels", min=1, help="Estimate noise rates from so many labelled visits instead of all."
    ),
    seed: int = typer.Option(0, "--seed", min=0, help="Of everything random."),
    draws: int = typer.Option(3, "--draws", min=1, help="Draws of the hidden tag."),
    without: list[str] | None = typer.Option(None, "--without", help="A row to leave out, or nvil; may be repeated."),
    epochs: int = typer.Option(200, "--epochs", min=0, help="NVIL: epochs, burn-in included."),
    burn_in: int = typer.Option(50, "--burn-in", min=0, help="NVIL: epochs with theta held fixed."),
    l2: list[float] = typer.Option([0.0, 0.1, 0.01, 0.001], "--l2", help="NVIL: a weight decay to try; repeat."),
    supervised: float = typer.Option(10.0, "--lambda", min=0, help="NVIL: weight of the supervised term."),
    learning_rate: float = typer.Option(1e-4, "--learning-rate", min=0, help="NVIL: learning rate of phi."),
    minibatch: int = typer.Option(20, "--minibatch", min=1, help="NVIL: visits in a step."),
    every: int = typer.Option(5, "--every", min=1, help="NVIL: epochs between two looks at held-out anchors."),
) -> None:
    """The paper's results table, figure and word list from two cohorts: one page, and results.json.

    Each row is kept in OUT/rows and each NVIL course in OUT/courses: stopped and started again, it goes on from there.
    """
    from whatelse.cohort import Cohort
    from whatelse.evaluation.report import write_report
    from whatelse.evaluation.reproduce import Plan
    from whatelse.evaluation.reproduce import reproduce as run
    from whatelse.noisyor.nvil.settings import NvilSettings

    nvil = NvilSettings(
        epochs=epochs, burn_in=burn_in, supervised=supervised, learning_rate=learning_rate, minibatch=minibatch
    )
    plan = Plan(
        protocol=protocol.value,
        few_labels=few_labels,
        seed=seed,
        draws=draws,
        without=tuple(without or ()),
        nvil=nvil,
        l2=l2,
        every=every,
        keep=out,
    )
    try:
        with progress_bar() as told:
            results = run(Cohort.open(train), Cohort.open(test), plan, told)
    except KeyboardInterrupt:
        if not any(out.glob("rows/*.json")) and not any(out.glob("courses/*")):
            raise KeyboardInterrupt("stopped before the first row was done; run the same command again") from None
        raise KeyboardInterrupt(
            f"stopped; the rows that were done are kept in {out / 'rows'}, NVIL's epochs in {out / 'courses'}: run the "
            "same command again to go on from there"
        ) from None
    page = write_report(results, out, "whatelse " + shlex.join(sys.argv[1:]))
    print_results(results)
    typer.echo(f"{results['seconds']:.0f} s; the page is {page}, the numbers are {out / 'results.json'}")


# ---- reading


def _rates(conditions: tuple[str, ...], rates: Path) -> NoiseRates:
    """Noise rates of a file, in the order of the conditions."""
    from whatelse.anchors import NoiseRates

    try:
        given = NoiseRates.from_json(json.loads(rates.read_text("utf-8")))
    except (UnicodeDecodeError, json.JSONDecodeError):
        raise InputError("is not JSON", file=rates) from None
    if missing := sorted(set(conditions) - set(given.conditions)):
        raise InputError(f"has no rates of {', '.join(missing)}", file=rates)
    if given.conditions != conditions:
        own = given.to_json()
        given = NoiseRates.from_json({c: own[c] for c in conditions})
    return given


def read_lesson(
    cohort: Cohort,
    labels: list[Path],
    decisions: str | None,
    error: float | None,
    skip_others: bool,
    quiet: bool = False,
) -> LabelSet:
    """What people said of the cohort's visits, and a line about each source. Label files count before decisions."""
    from whatelse.teaching.label_set import LabelSet
    from whatelse.teaching.labels import passed_over

    lesson = LabelSet.nothing(cohort)
    if labels:
        lesson = LabelSet.read(labels, cohort, others="skip" if skip_others else "refuse")
        typer.echo(f"{lesson.visits:,} labelled visits of {len(cohort):,}", err=quiet)
        for path in labels:
            for column in passed_over(path, cohort.conditions):
                print_note(f"{path}: column {column!r} looks like labels, but the cohort has no such condition")
    if decisions:
        found = open_decisions(decisions, error)
        decided = found.labels(cohort)
        a, b = found.false_confirm, found.false_reject
        typer.echo(
            f"{int(decided.known.sum()):,} tags of {decided.visits:,} visits were decided on; decisions err in "
            f"{a:.1%} (confirmed) and {b:.1%} (rejected){' as given' if error is not None else ''}",
            err=quiet,
        )
        only, visits = found.confirmed_only
        if only > visits / 2:
            print_note(
                f"in {only:,} of {visits:,} decided visits nothing was rejected: if people pass over what is not true, "
                "decisions make conditions look commoner than they are; label some in full ('anchors label-next')"
            )
        if not decided.visits:
            raise InputError("no visit of the cohort was decided on: build a cohort of the visits that were served")
        lesson = lesson.then(decided)
    return lesson


def _no_excuses(given: list[str]) -> list[tuple[str, str]]:
    """CONDITION:FINDING pairs; what is the path of a file stands for its lines."""
    lines: list[str] = []
    for entry in given:
        if ":" not in entry and Path(entry).is_file():
            lines += [line.strip() for line in Path(entry).read_text("utf-8").splitlines() if line.strip()]
        else:
            lines.append(entry)
    out = []
    for line in lines:
        condition, colon, finding = (part.strip() for part in line.partition(":"))
        if not (colon and condition and finding):
            raise InputError(f"--no-excuse {line}: needs CONDITION:FINDING, or a file with one a line")
        out.append((condition, finding))
    return out


def _print_excuses(excuses: dict[str, list[str]]) -> None:
    """Beside which findings the learner does not believe an anchor, so that a person can object."""
    if not excuses:
        return
    typer.echo("anchors taken for mere mentions, and not believed, beside:")
    for condition, findings in excuses.items():
        typer.echo(f"  {condition}: {', '.join(findings)}")
    condition, findings = next(iter(excuses.items()))
    typer.echo(f"if one is wrong: fit again with --no-excuse {shlex.quote(f'{condition}:{findings[0]}')}")


def _settings(settings: list[str]) -> dict[str, Any]:
    """name=value pairs; a value is read as JSON where it is JSON, else it is text."""
    out: dict[str, Any] = {}
    for pair in settings:
        name, equals, value = pair.partition("=")
        if not equals:
            raise InputError(f"--setting {pair}: needs name=value")
        try:
            out[name] = json.loads(value)
        except json.JSONDecodeError:
            out[name] = value
    return out
