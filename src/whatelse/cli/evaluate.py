"""How good a model is: `evaluate`, against labels or against another model, and `reproduce`, the paper's experiment."""

from __future__ import annotations

import shlex
import sys
from dataclasses import asdict, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import typer

import whatelse
from whatelse.cli.options import DRAWS, ENGINE, JSON, LABELS, MASTER, MODEL, SEED, Engine, settings
from whatelse.cli.spark import visits_to_test
from whatelse.cli.tables import print_json, print_note, print_table, progress_bar
from whatelse.errors import InputError

if TYPE_CHECKING:
    from whatelse.lifecycle.compare import Comparison, Row

Require = Literal["better", "not-worse"]
METRICS = {"accuracy": "accuracy", "top5": "top 5", "mrr": "MRR"}


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
    from whatelse.evaluation.measures import measure

    tagger = whatelse.Tagger.load(model)
    opened = whatelse.Cohort.open(cohort) if engine == "local" else visits_to_test(cohort, master, seed)
    if tagger.profiles_ and tagger.conditions_ != opened.conditions:
        tagger = whatelse.Tagger.from_knowledge(opened.vocabulary.anchors)
    if against is not None:
        from whatelse.annotators.label_set import LabelSet
        from whatelse.lifecycle.compare import compare_models
        from whatelse.lifecycle.refit import ACCEPTED

        judged = LabelSet.read(labels, opened) if labels else None
        found = compare_models(whatelse.Tagger.load(against), tagger, opened, judged, visits=max_visits, seed=seed)
        if as_json:
            print_json(asdict(found))
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
    from whatelse.evaluation.report import write_report
    from whatelse.evaluation.reproduce import Plan
    from whatelse.evaluation.reproduce import reproduce as run
    from whatelse.learning.paper.nvil_course import NvilSettings

    given = settings(nvil, "--nvil")
    own = {name: given.pop(name) for name in ("l2", "every") if name in given}
    if "l2" in own and not isinstance(own["l2"], list):
        own["l2"] = [own["l2"]]
    if unknown := set(given) - {field.name for field in fields(NvilSettings)}:
        raise InputError(f"--nvil {min(unknown)}: there is no such setting; see 'NvilSettings' in the documentation")
    plan = Plan(
        protocol=protocol, seed=seed, draws=draws, without=tuple(without), nvil=NvilSettings(**given), keep=out, **own
    )
    try:
        with progress_bar() as progress:
            results = run(whatelse.Cohort.open(train), whatelse.Cohort.open(test), plan, progress)
    except KeyboardInterrupt:
        raise KeyboardInterrupt("stopped; run the same command again to continue the NVIL runs") from None
    page = write_report(results, out, "whatelse " + shlex.join(sys.argv[1:]))
    print_results(results)
    typer.echo(f"{results['seconds']:.0f} s; the page is {page}, the numbers are {out / 'results.json'}")


def print_results(results: dict[str, Any]) -> None:
    """The rows of `reproduce`, as the report's table has them."""
    from whatelse.evaluation.rows import OURS, ordered, row_of

    ranked = list(ordered(results["rows"]))
    rows = []
    for row in ranked:
        paper = row_of(row["model"]).paper
        reference = " / ".join(f"{value:.2f}" for value in paper) if paper else ""
        scores = [_interval(row, metric) for metric in METRICS]
        rows.append((row["model"], *scores, f"{row['seconds']:.1f} s", reference))
    title = f"held-out tag, {results['data']['test']['used']:,} visits with two or more conditions"
    styles = ["bold" if row["model"] == OURS else "" for row in ranked]
    print_table(("model", *METRICS.values(), "learning", "paper's own"), rows, title, styles)
    for entry in results["left_out"]:
        typer.echo(f"not in the table: {entry['model']}: {entry['why']}")


def print_measured(measured: dict[str, Any]) -> None:
    """What `evaluate` found. The first five of six conditions are nearly always right: not shown."""
    if measured["by_condition"] is not None:
        names = ("sensitivity", "precision", "auroc", "average_precision")
        scores = [
            (c, f"{e['labelled']:,}", f"{e['true']:,}", *("" if e[n] is None else f"{e[n]:.2f}" for n in names))
            for c, e in zip(measured["conditions"], measured["by_condition"], strict=True)
        ]
        head = ("condition", "labelled", "true", "sensitivity", "precision", "AUROC", "average precision")
        print_table(head, scores, f"nothing confirmed; suggested from a probability of {measured['threshold']:g}")
    shown = {key: title for key, title in METRICS.items() if key != "top5" or len(measured["conditions"]) > 6}
    rows = [
        (title, *(_interval(measured[key], metric) for metric in shown), f"{measured[key]['visits']:,}")
        for key, title in (("heldout_tag", "held-out tag"), ("heldout_anchor", "held-out anchor"))
        if measured[key] is not None
    ]
    print_table(("", *shown.values(), "visits"), rows)
    if measured["trust"] is not None:
        _print_trust(measured["trust"])
    if measured["heldout_tag"] is None:
        typer.echo("no visit is labelled with two or more conditions: held-out tag needs such labels")
        if measured["trust"] is None:
            typer.echo("sensitivity, precision and calibration need labels: give them with --labels FILE")
        return
    own = [
        (name, f"{entry['times_hidden']:,}", *("" if entry[m] is None else f"{entry[m]:.2f}" for m in shown))
        for name, entry in zip(measured["conditions"], measured["heldout_tag"]["by_condition"], strict=True)
    ]
    print_table(("condition hidden", "times", *shown.values()), own)


def _print_trust(found: dict[str, Any]) -> None:
    """How far answers come true."""
    moves = [
        (name, f"{move['times']:,}", _ratio(move["loss"], 3), _ratio(move["expected"], 2))
        for name, move in found["updates"].items()
    ]
    print_table(("the other tags, after", "times", "log loss, after / before", "expected / observed"), moves)
    own = {"all visits": found["expected"]} | {f"{name} of records": r for name, r in found["by_length"].items()}
    print_table(("nothing known", "expected / observed"), [(name, _ratio(ratio, 2)) for name, ratio in own.items()])
    bins = [
        (f"{b['low']:g} to {b['high']:g}", f"{b['count']:,}", f"{b['predicted']:.3f}", f"{b['observed']:.3f}")
        for b in found["reliability"]
    ]
    print_table(("predicted", "how many", "on average", "observed"), bins)
    load = []
    for line in found["burden"]:
        shares = ["" if line[key] is None else f"{line[key]:.0%}" for key in ("true", "reached", "reached_unnamed")]
        load.append((f"{line['threshold']:g}", f"{line['per_100_visits']:.1f}", *shares))
    head = ("threshold", "suggestions per 100 visits", "true", "true tags reached", "… not named in the record")
    print_table(head, load)


def _ratio(ratio: dict[str, Any], digits: int) -> str:
    if ratio["value"] is None:
        return ""
    # a resample in which nothing was observed leaves an end of the interval open
    low, high = ("?" if end is None else f"{end:.{digits}f}" for end in (ratio["low"], ratio["high"]))
    return f"{ratio['value']:.{digits}f} ({low}-{high})"


def print_comparison(found: Comparison, conditions: bool = True) -> None:
    """One table of all measures, one of the conditions, and the verdict."""
    rows = [(row.measure, row) for row in found.rows]
    rows += [(f"  log loss, {row.measure}", row) for row in found.by_condition] if conditions else []
    cells = [(name, *difference(row), "" if row.says == "same" else row.says) for name, row in rows]
    styles = [{"better": "green", "worse": "red", "same": ""}[row.says] for _, row in rows]
    title = f"{found.visits:,} visits, {found.labels:,} labels"
    print_table(("measure", "old", "new", "difference", "interval", ""), cells, title, styles)
    typer.echo(f"verdict: {found.verdict}: {found.because}")


def difference(row: Row) -> tuple[str, str, str, str]:
    """Cells: old, new, difference, interval."""
    return f"{row.old:.4f}", f"{row.new:.4f}", f"{row.difference:+.4f}", f"{row.low:+.4f} to {row.high:+.4f}"


def _interval(entry: dict[str, Any], metric: str) -> str:
    low, high = entry[f"{metric}_interval"]
    return f"{entry[metric]:.3f} ({low:.3f}-{high:.3f})"
