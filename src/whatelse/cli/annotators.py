"""`annotators`: what the votes of each annotator are worth."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import whatelse
from whatelse.cli.options import COHORT, JSON, LABELS, VOTES
from whatelse.cli.tables import print_json, print_table
from whatelse.errors import InputError

if TYPE_CHECKING:
    from whatelse.annotators.analysis import AnnotatorRow
    from whatelse.annotators.vote_files import Others


def annotators(
    cohort: Path = COHORT, votes: list[Path] = VOTES, labels: list[Path] = LABELS, as_json: bool = JSON
) -> None:
    """What annotators are worth: coverage, overlap, conflict and estimated error rates, in all and by condition.

    Anchors are among them. Labels of the cohort or of --labels tell the error rates where they overlap with votes.
    Without labels the rates rest on the votes alone, and on typical rates of the kind of annotator.

    Example: whatelse annotators cohort --votes votes.parquet --labels labels.csv
    """
    import numpy as np

    from whatelse.annotators.analysis import analyse_annotators
    from whatelse.annotators.dawid_skene import estimate_rates

    opened = whatelse.Cohort.open(cohort)
    all_votes = [
        *(each for path in labels for each in whatelse.read_votes(path, opened, others="skip")),
        *([whatelse.Votes.of_cohort(opened)] if not labels and opened.known.any() else []),
        *read_vote_files(votes, opened, "skip"),
    ]
    rated = estimate_rates(all_votes)[0] if all_votes else ()  # as `fit` rates them: without anchors
    filled, posterior = estimate_rates([*rated, whatelse.Votes.of_anchors(opened)])
    rows = analyse_annotators(filled, posterior=posterior)
    labelled = sum((v.known for v in filled if v.certain), np.zeros(filled[0].known.shape, bool))
    by_condition: list[dict[str, Any]] = [
        {
            "annotator": v.annotator,
            "condition": condition,
            "votes": int(v.known[:, i].sum()),
            "yes": int(v.value[:, i].sum()),
            "labelled": int((v.known & labelled)[:, i].sum()),
            "sensitivity": float(v.sensitivity[i]),
            "false_positive": float(v.false_positive[i]),
            "log_odds_of_yes": float(v.vote_odds()[0][i]),
        }
        for v in filled
        if not v.certain and v.sensitivity is not None and v.false_positive is not None
        for i, condition in enumerate(opened.conditions)
        if v.known[:, i].any()
    ]
    if as_json:
        print_json({"annotators": [asdict(row) for row in rows], "by_condition": by_condition})
        return
    print_annotators(rows)
    each = []
    for row in by_condition:
        counts = (f"{row[name]:,}" for name in ("votes", "yes", "labelled"))
        odds = row["log_odds_of_yes"]
        worth = "nothing" if odds <= 0 else f"odds x {min(math.exp(odds), 9999):,.0f}" if row["yes"] else "never said"
        rates = (f"{row['sensitivity']:.1%}", f"{row['false_positive']:.2%}")
        each.append((row["annotator"], row["condition"], *counts, *rates, worth))
    if each:
        names = ("annotator", "condition", "votes", "yes", "also labelled", "sensitivity", "false +", "a yes is worth")
        print_table(names, each, "by condition")


def print_annotators(rows: Sequence[AnnotatorRow]) -> None:
    """Print a table with a row for each annotator."""
    shares = ("coverage", "overlap", "conflict", "error", "sensitivity", "false_positive")
    head = ("annotator", "kind", "votes", "coverage", "overlap", "conflict", "wrong", "sensitivity", "false +")
    cells = []
    for r in rows:
        values = (getattr(r, name) for name in shares)
        cells.append((r.annotator, r.kind, f"{r.votes:,}", *("-" if math.isnan(v) else f"{v:.1%}" for v in values)))
    print_table(head, cells)


def read_vote_files(paths: Sequence[Path], cohort: whatelse.Cohort, others: Others) -> list[whatelse.Votes]:
    """Votes of files. A file must name its annotators."""
    out: list[whatelse.Votes] = []
    for path in paths:
        found = whatelse.read_votes(path, cohort, others=others)
        if any(each.certain for each in found):
            raise InputError("has no column 'annotator': give labels, which never err, with --labels", file=path)
        out += found
    return out
