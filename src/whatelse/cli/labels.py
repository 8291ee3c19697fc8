"""Labels for noise rates: `anchors label-next`."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import typer

from whatelse.cli.printing import print_note
from whatelse.errors import CohortError, InputError

if TYPE_CHECKING:
    from whatelse.cohort import Cohort
    from whatelse.visits import Visit


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
    at_random: bool = typer.Option(
        False, "--at-random", help="Any visit is as likely as any other: for labels to test by rather than learn from."
    ),
    seed: int = typer.Option(0, "--seed", min=0, help="The same seed gives the same list."),
    text: bool = typer.Option(True, help="Put what the records say beside each visit, for whoever decides."),
    visits: list[Path] | None = typer.Option(
        None, "--visits", help="Where the records are, if they have moved since the cohort was built."
    ),
) -> None:
    """List visits whose labels would say most about how noisy the anchors are, and how much each counts."""
    from whatelse.cohort import Cohort
    from whatelse.tagger import Tagger
    from whatelse.teaching.label_next import guess_probabilities
    from whatelse.teaching.label_next import label_next as choose
    from whatelse.teaching.labels import read_labels
    from whatelse.teaching.sheets import write_sheet

    opened = Cohort.open(cohort)
    if at_random:
        probability = np.zeros(opened.A.shape)
    elif model is None:
        probability = guess_probabilities(opened)
    else:
        tagger = Tagger.load(model)
        probability = tagger.predict_proba(opened)
    done = np.flatnonzero((read_labels(labels, opened, others="skip") >= 0).any(1)) if labels is not None else ()
    steer = np.zeros_like(opened.A) if at_random else opened.A
    chosen = choose(steer, probability, count, seed=seed, done=done)
    records = _records(opened, {str(opened.ids[row]) for row in chosen.rows}, visits) if text else None
    write_sheet(out, opened, chosen, records)
    typer.echo(f"{count:,} visits to label are listed in {out}, from the top; stop anywhere")
    if records:
        typer.echo(f"{out} holds text of the records: keep it where records may be kept ('--no-text' leaves it out)")
    folder, sheet = shlex.quote(str(cohort)), shlex.quote(str(out))
    typer.echo("next: write 1 or 0 under each condition (empty where you cannot tell), keep 'visit' and 'weight', and")
    if at_random:
        typer.echo(f"      whatelse evaluate MODEL {folder} --labels {sheet}")
    else:
        typer.echo(f"      whatelse fit {folder} --labels {sheet} --out model")


def _records(cohort: Cohort, wanted: set[str], files: list[Path] | None) -> dict[str, Visit] | None:
    """The records of these visits, read again; a note and None where they cannot be."""
    from whatelse.cohort.again import records_of

    try:
        found = {record.id: record for record in records_of(cohort, files) if record.id in wanted}
    except (InputError, CohortError) as problem:
        if files:
            raise
        print_note(f"the list has ids only, for the records cannot be read again ({problem}); give --visits")
        return None
    if missing := len(wanted) - len(found):
        where = "those files" if files else "the files the cohort was built from; give --visits"
        print_note(f"{missing:,} of the visits are not in {where}: they are listed without their records")
    return found
