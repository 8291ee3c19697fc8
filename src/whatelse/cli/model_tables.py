"""Tables about models and their answers, for people. Programs use --json."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import typer
from rich.text import Text

from whatelse.cli.tables import console, print_table
from whatelse.visits import TEXT_FIELDS, Known, Visit

if TYPE_CHECKING:
    from whatelse.lifecycle.compare import Comparison
    from whatelse.lifecycle.paired import Row
    from whatelse.tagger import Tagger

WORTH = 0.1  # log odds that another condition must bring to be named
SAID = 0.05  # log odds below which a reason is not printed: it would read +0.0
WORTH_ABSENT = 0.5  # and all that a part of the record does not have
REASON = ("finding", "text", "log_odds", "present")  # what --json has of a reason
METRICS = {"accuracy": "accuracy", "top5": "top 5", "mrr": "MRR"}


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


def answer(
    tagger: Tagger, visit: Visit, confirmed: list[str], rejected: list[str], top: int, reasons: int
) -> dict[str, Any]:
    """The suggestions for a visit with the reasons of the first `top`, as JSON values."""
    reading, known = tagger.read(visit), Known(tuple(confirmed), tuple(rejected))
    found = reading.suggest(known)
    tags: list[dict[str, Any]] = []
    for tag in found.tags[:top]:
        why = reading.why(known, tag.condition, most=reasons)
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
        absent = [
            f"findings absent from {part} ({v:+.1f})" for part, v in tag["absent"].items() if abs(v) >= WORTH_ABSENT
        ]
        own = [f"{r['text']} ({r['log_odds']:+.1f})" for r in tag["reasons"] if abs(r["log_odds"]) >= SAID]
        reasons = ", ".join([*beside, *own, *absent])
        rows.append((tag["condition"], f"{tag['probability']:.1%}", f"{tag['baseline']:.1%}", reasons))
    print_table(("what else?", "probability", "usually", "because"), rows, "; ".join(decided) or None)
    terminal.print(said["accuracy"], style="dim" if said["certified"] else "yellow")


def _interval(entry: dict[str, Any], metric: str) -> str:
    low, high = entry[f"{metric}_interval"]
    return f"{entry[metric]:.3f} ({low:.3f}-{high:.3f})"
