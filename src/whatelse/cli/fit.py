"""`fit`: a model from a cohort, labels and decisions."""

from __future__ import annotations

import json
import shlex
import time
import warnings
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import typer

import whatelse
from whatelse.cli import options
from whatelse.cli.annotators import print_annotators, read_vote_files
from whatelse.cli.spark import fit_on_spark
from whatelse.cli.store import open_decisions
from whatelse.cli.tables import print_note, print_table, progress_bar
from whatelse.errors import InputError
from whatelse.explanations import UNCALIBRATED

if TYPE_CHECKING:
    from whatelse.annotators.data_checks import Doubt
    from whatelse.annotators.label_set import LabelSet

MOST_NAMED = 12
FEW_DOUBTS = 4  # doubts about single conditions that are printed one by one
MOST_MOVED = 8  # findings that are printed


def fit(
    cohort: Path = options.COHORT,
    out: Path = typer.Option(..., "--out", help="The model file to write."),
    learner: str | None = typer.Option(None, "--learner", help="moments, naive, oracle, nvil … [the default learner]"),
    rates: Path | None = typer.Option(None, "--rates", help="JSON: the anchors' noise rates, condition by condition."),
    labels: list[Path] = options.LABELS,
    votes: list[Path] = options.VOTES,
    decisions: str | None = options.DECISIONS,
    error: float | None = options.ANNOTATOR_ERROR,
    skip_other_labels: bool = options.SKIP_OTHER_LABELS,
    without_knowledge: bool = typer.Option(
        False, "--without-knowledge", help="Learn from the records alone, without the knowledge base as prior."
    ),
    no_excuse: list[str] = typer.Option([], "--no-excuse", hidden=True),
    seed: int = options.SEED,
    setting: list[str] = typer.Option(
        [], "--setting", metavar="NAME=VALUE", help="A setting of the learner, e.g. epochs=50; repeat."
    ),
    engine: options.Engine = options.ENGINE,
    master: str | None = options.MASTER,
) -> None:
    """Learn a model of all conditions from a cohort's anchors, labels and decisions.

    Example: whatelse fit cohort --labels labels.csv --out model
    """
    from sklearn.exceptions import ConvergenceWarning

    from whatelse.annotators.analysis import analyse_annotators
    from whatelse.annotators.data_checks import doubts, refuse_hopeless, sketch
    from whatelse.cohort.folder import vocabulary_of
    from whatelse.learning import learners as learning

    settings = options.settings(setting, "--setting")
    if without_knowledge:
        settings["knowledge"] = False
    if no_excuse:
        print_note("--no-excuse does nothing any more: anchors have no excuses")
    if engine == "spark":
        if labels or votes or decisions:
            raise InputError("Spark learns from the cohort's labels: leave --labels, --votes and --decisions out")
        given = _rates(vocabulary_of(cohort).conditions, rates) if rates is not None else None
        tagger, visits, seconds = fit_on_spark(cohort, master, learner or learning.DEFAULT, given, seed, settings)
    else:
        opened = whatelse.Cohort.open(cohort)
        lesson = None
        if labels or votes or decisions:
            if rates is not None:
                raise InputError("--rates learns without labels: give either it, or --labels, --votes and --decisions")
            lesson, _ = read_lesson(opened, labels, decisions, error, skip_other_labels, votes=votes)
        given = _rates(opened.conditions, rates) if rates is not None else None
        learn_from = opened if lesson is None else lesson.on(opened)
        found = doubts(learn_from, given)
        _print_doubts(found, cohort)
        refuse_hopeless(found)
        tagger, visits = whatelse.Tagger(learner or learning.DEFAULT, settings=settings, seed=seed), len(opened)
        began = time.perf_counter()
        with progress_bar() as progress, warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)  # printed below
            tagger.fit(opened, votes=lesson, rates=given, progress=progress)
        seconds = time.perf_counter() - began
        tagger.notes_["learned_from"] = sketch(opened)
        own = whatelse.Votes.of_cohort(opened)
        sources = () if given is not None else (own,) if lesson is None else lesson.votes
        rated = tagger.rates_.sensitivity, tagger.rates_.false_positive
        anchors = whatelse.Votes.of_anchors(opened).with_rates(*rated)
        print_annotators(analyse_annotators([*(v for v in sources if v.visits), anchors]))
    digest = tagger.save(out)
    for condition in tagger.rates_.uninformative:
        print_note(f"the anchor of {condition} is uninformative: it fires as often without the condition as with it")
    size = f"{len(tagger.conditions_)} conditions x {len(tagger.vocabulary_.names):,} findings"
    how = f"{tagger.learner}, {'converged' if tagger.converged_ else 'NOT converged'}"
    typer.echo(f"learned {size} from {visits:,} visits in {seconds:.1f} s ({how})")
    _print_knowledge(tagger.notes_.get("knowledge"))
    typer.echo(f"saved as {out}, {digest[:12]}")
    where, model = shlex.quote(str(cohort)), shlex.quote(str(out))
    if tagger.assumed_:
        print_note(f"{UNCALIBRATED}: precision and sensitivity of anchors are assumed to be typical of their kind")
        typer.echo(f"next: whatelse anchors label-next {where} --model {model} --out labels.csv")
        typer.echo(f"      and with those visits labelled: whatelse fit {where} --labels labels.csv --out {model}")
        return
    typer.echo(f"next: whatelse evaluate {model} TEST-COHORT, or")
    typer.echo(f"      whatelse tag {model} VISITS --confirmed {shlex.quote(tagger.conditions_[0])}")


def _print_doubts(found: list[Doubt], cohort: Path) -> None:
    """What concerns all conditions in full; what concerns single ones in a line, where there is much of it."""
    single = [doubt for doubt in found if doubt.condition]
    for doubt in found:
        if len(single) <= FEW_DOUBTS or not doubt.condition:
            print_note(str(doubt))
    if len(single) > FEW_DOUBTS:
        doubtful = list(dict.fromkeys(str(doubt.condition) for doubt in single))
        names = ", ".join(doubtful[:MOST_NAMED])
        if len(doubtful) > MOST_NAMED:
            names += f" and {len(doubtful) - MOST_NAMED} more"
        print_note(f"expect little of {names}: 'whatelse anchors check {shlex.quote(str(cohort))}' says why")


def _rates(conditions: tuple[str, ...], rates: Path) -> whatelse.NoiseRates:
    """Noise rates of a file, in the order of the conditions."""
    try:
        given = whatelse.NoiseRates.from_json(json.loads(rates.read_text("utf-8")))
    except (UnicodeDecodeError, json.JSONDecodeError):
        raise InputError("is not JSON", file=rates) from None
    if missing := sorted(set(conditions) - set(given.conditions)):
        raise InputError(f"has no rates of {', '.join(missing)}", file=rates)
    own = given.to_json()
    return whatelse.NoiseRates.from_json({c: own[c] for c in conditions})


def read_lesson(
    cohort: whatelse.Cohort,
    labels: list[Path],
    decisions: str | None,
    error: float | None,
    skip_others: bool,
    quiet: bool = False,
    votes: Sequence[Path] = (),
) -> tuple[LabelSet, LabelSet | None]:
    """Labels, votes and decisions about the cohort's visits, and those of label files alone; prints a line about each.

    Label files override decisions. Votes come beside the labels of files, or else beside the cohort's own.
    """
    from whatelse.annotators.label_set import LabelSet

    from_files = None
    if labels:
        from_files = LabelSet.read(labels, cohort, others="skip" if skip_others else "refuse")
        typer.echo(f"{from_files.visits:,} labelled visits of {len(cohort):,}", err=quiet)
        for path, column in from_files.unused:
            print_note(f"{path}: column {column!r} looks like labels, but the cohort has no such condition")
    lesson = from_files or LabelSet.of_votes([], cohort)
    if votes:
        labelled = from_files or LabelSet.of_cohort(cohort)
        raw = [v if v.certain else replace(v, sensitivity=None, false_positive=None) for v in labelled.votes]
        cast = read_vote_files(votes, cohort, "skip" if skip_others else "refuse")
        lesson = LabelSet.of_votes([*raw, *cast], cohort)
        for each in cast:
            typer.echo(f"{int(each.known.sum()):,} votes of {each.annotator!r} on {each.visits:,} visits", err=quiet)
    if decisions:
        found = open_decisions(decisions, error)
        decided = found.labels(cohort)
        errors = f"{found.false_confirm:.1%} (confirmed) and {found.false_reject:.1%} (rejected)"
        given = " as given" if error is not None else ""
        what = f"{int(decided.known.sum()):,} tags of {decided.visits:,} visits were decided on"
        typer.echo(f"{what}; decisions err in {errors}{given}", err=quiet)
        only, visits = found.confirmed_only
        if only > visits / 2:
            advice = "conditions look too common if people skip tags: label some visits in full ('anchors label-next')"
            print_note(f"in {only:,} of {visits:,} decided visits nothing was rejected; {advice}")
        if not decided.visits:
            raise InputError("no visit of the cohort was decided on: build a cohort of the visits that were served")
        lesson = lesson.then(decided)
    return lesson, from_files


def _print_knowledge(kept: object) -> None:
    """Print what became of the knowledge: how much of it applies, and which findings the records judge otherwise."""
    if not isinstance(kept, dict) or not kept.get("findings"):
        return
    what = f"{kept['findings']:,} findings and {kept['pairs']:,} pairs of {kept['conditions']} conditions"
    typer.echo(f"knowledge: {what}; the records moved {kept['moved']:,} of the findings")
    rows = [(c, f, f"{w:+.1f}", f"{now:+.1f}") for c, f, w, now in kept["most_moved"][:MOST_MOVED]]
    if rows:
        print_table(("condition", "finding", "written", "records say"), rows, "log odds that moved most")
