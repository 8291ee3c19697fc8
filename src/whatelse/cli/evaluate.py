"""How good a model is: `evaluate`, against labels or against another model, and `reproduce`, the paper's experiment."""

from __future__ import annotations

import shlex
import sys
from dataclasses import fields
from pathlib import Path
from typing import Literal

import typer

from whatelse.cli.model_tables import print_comparison, print_measured, print_results
from whatelse.cli.options import DRAWS, ENGINE, JSON, LABELS, MASTER, MODEL, SEED, Engine, settings
from whatelse.cli.progress import progress_bar
from whatelse.cli.spark import visits_to_test
from whatelse.cli.tables import print_json, print_note
from whatelse.errors import InputError

Require = Literal["better", "not-worse"]


def evaluate(
    model: Path = MODEL,
    cohort: Path = typer.Argument(..., help="A cohort folder with the model's findings ('build --vocabulary-from')."),
    labels: list[Path] = LABELS,
    against: Path | None = typer.Option(None, "--against", help="An older model: compare both on the same visits."),
    require: Require | None = typer.Option(
        None, "--require", help="For --against: exit with 1 unless the model is better, or not worse."
    ),
    threshold: float = typer.Option(
        0.5, "--threshold", min=0, max=1, help="Probability from which a condition counts as suggested."
    ),
    max_visits: int = typer.Option(5000, "--max-visits", min=10, help="For --against: labelled visits, at most."),
    draws: int = DRAWS,
    seed: int = SEED,
    as_json: bool = JSON,
    engine: Engine = ENGINE,
    master: str | None = MASTER,
) -> None:
    """Accuracy and calibration of a model, with intervals and by condition; or the difference to another model.

    Example: whatelse evaluate model test --labels labels.csv --threshold 0.3

    Example: whatelse evaluate new-model test --against model --require not-worse
    """
    from whatelse.annotators.data_checks import seen_before
    from whatelse.annotators.label_set import with_labels
    from whatelse.cohort import Cohort
    from whatelse.evaluation.measures import measure
    from whatelse.tagger import Tagger

    tagger = Tagger.load(model)
    opened = Cohort.open(cohort) if engine == "local" else visits_to_test(cohort, master, seed)
    if tagger.profiles_ and tagger.conditions_ != opened.conditions:
        tagger = Tagger.from_knowledge(opened.vocabulary.anchors)
    if against is not None:
        from whatelse.annotators.label_set import LabelSet
        from whatelse.lifecycle.compare import compare_models
        from whatelse.lifecycle.refit import ACCEPTED

        judged = LabelSet.read(labels, opened) if labels else None
        found = compare_models(Tagger.load(against), tagger, opened, judged, visits=max_visits, seed=seed)
        if as_json:
            print_json(found.to_json())
        else:
            print_comparison(found)
        if require is not None and found.verdict not in ACCEPTED[require]:
            raise typer.Exit(1)
        return
    if require is not None:
        raise InputError("--require compares two models: give the other one with --against")
    if note := seen_before(tagger.notes_.get("learned_from"), opened):
        print_note(note)
    for file in labels:
        opened = with_labels(opened, file)
    measured = measure(tagger, opened, draws=draws, seed=seed, threshold=threshold)
    if as_json:
        print_json({"model": str(model), "cohort": str(cohort)} | measured)
        return
    print_measured(measured)


def reproduce(
    train: Path = typer.Option(..., "--train", help="Cohort folder to learn from."),
    test: Path = typer.Option(
        ..., "--test", help="Cohort folder to test on, built with '--vocabulary-from' the other."
    ),
    out: Path = typer.Option(..., "--out", help="Folder for index.html and results.json."),
    protocol: Literal["all-visits", "paper"] = typer.Option(
        "all-visits", "--protocol", help="Learn from all visits, or (paper) from multi-condition visits only."
    ),
    few_labels: int | None = typer.Option(
        None, "--few-labels", min=1, help="Estimate noise rates from this many labelled visits instead of all."
    ),
    seed: int = SEED,
    draws: int = DRAWS,
    without: list[str] = typer.Option([], "--without", help="A row to leave out, or nvil; repeat."),
    nvil: list[str] = typer.Option(
        [], "--nvil", metavar="NAME=VALUE", help="A setting of NVIL: epochs, burn_in, l2, every …; repeat."
    ),
) -> None:
    """The paper's results table, figure and word list from two cohorts: one page, and results.json.

    NVIL runs are kept in OUT/courses: a command that was stopped continues them.

    Example: whatelse reproduce --train train --test test --without nvil --out report
    """
    from whatelse.cohort import Cohort
    from whatelse.evaluation.report import write_report
    from whatelse.evaluation.reproduce import Plan
    from whatelse.evaluation.reproduce import reproduce as run
    from whatelse.learning.paper.nvil.settings import NvilSettings

    given = settings(nvil, "--nvil")
    own = {name: given.pop(name) for name in ("l2", "every") if name in given}
    if "l2" in own and not isinstance(own["l2"], list):
        own["l2"] = [own["l2"]]
    if unknown := set(given) - {field.name for field in fields(NvilSettings)}:
        raise InputError(f"--nvil {min(unknown)}: there is no such setting; see 'NvilSettings' in the documentation")
    plan = Plan(
        protocol=protocol,
        few_labels=few_labels,
        seed=seed,
        draws=draws,
        without=tuple(without),
        nvil=NvilSettings(**given),
        keep=out,
        **own,
    )
    try:
        with progress_bar() as progress:
            results = run(Cohort.open(train), Cohort.open(test), plan, progress)
    except KeyboardInterrupt:
        raise KeyboardInterrupt("stopped; run the same command again to continue the NVIL runs") from None
    page = write_report(results, out, "whatelse " + shlex.join(sys.argv[1:]))
    print_results(results)
    typer.echo(f"{results['seconds']:.0f} s; the page is {page}, the numbers are {out / 'results.json'}")
