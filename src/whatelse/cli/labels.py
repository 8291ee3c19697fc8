"""Labels for noise rates: `anchors label-next`."""

from __future__ import annotations

import csv
from pathlib import Path

import numpy as np
import typer


def label_next(
    cohort: Path = typer.Argument(..., help="A cohort folder."),
    out: Path = typer.Option(..., "--out", help="CSV file to write, ready to fill in: 1 or 0 for each condition."),
    count: int = typer.Option(200, "--count", min=1, help="How many visits to label."),
    model: Path | None = typer.Option(
        None, "--model", help="A model file, whose probabilities steer the choice. [anchors taken for the truth]"
    ),
    labels: Path | None = typer.Option(
        None, "--labels", help="Labels made from an earlier list with the same seed and model: go on after them."
    ),
    seed: int = typer.Option(0, "--seed", min=0, help="The same seed gives the same list."),
) -> None:
    """List visits whose labels would say most about how noisy the anchors are, and how much each counts."""
    from whatelse.cohort import Cohort
    from whatelse.tagger import Tagger
    from whatelse.teaching.label_next import guess_probabilities
    from whatelse.teaching.label_next import label_next as choose
    from whatelse.teaching.labels import read_labels

    opened = Cohort.open(cohort)
    if model is None:
        probability = guess_probabilities(opened)
    else:
        tagger = Tagger.load(model)
        probability = tagger.predict_proba(opened)
    done = np.flatnonzero((read_labels(labels, opened) >= 0).any(1)) if labels is not None else ()
    chosen = choose(opened.A, probability, count, seed=seed, done=done)
    with out.open("w", newline="", encoding="utf-8") as stream:
        table = csv.writer(stream)
        table.writerow(["visit", "chance", "weight", *opened.conditions])
        for row, chance, weight in zip(chosen.rows, chosen.chance, chosen.weights, strict=True):
            table.writerow([opened.ids[row], f"{chance:.6g}", f"{weight:.6g}", *[""] * len(opened.conditions)])
    typer.echo(f"{count:,} visits to label are listed in {out}, from the top; stop anywhere")
    typer.echo(f"next: write 1 or 0 under each condition, keep 'weight', and whatelse fit {cohort} --labels {out}")
