"""`anchors label-next`: a sheet of visits to label."""

from __future__ import annotations

import shlex
from pathlib import Path

import typer

import whatelse
from whatelse.cli.options import COHORT, RECORDS, SEED
from whatelse.cli.tables import print_note
from whatelse.errors import CohortError, InputError
from whatelse.visits import Visit


def label_next(
    cohort: Path = COHORT,
    out: Path = typer.Option(..., "--out", help="CSV file to write, ready to fill in: 1 or 0 for each condition."),
    count: int = typer.Option(200, "--count", min=1, help="How many visits to label."),
    model: Path | None = typer.Option(
        None, "--model", help="A model file; its probabilities guide the choice. [anchors are taken as true]"
    ),
    labels: Path | None = typer.Option(
        None, "--labels", help="Labels from an earlier list of the same seed and model: continue after them."
    ),
    at_random: bool = typer.Option(
        False, "--at-random", help="Choose visits uniformly: for labels to test on, not to learn from."
    ),
    seed: int = SEED,
    text: bool = typer.Option(True, help="Put the text of the record beside each visit."),
    visits: list[Path] = RECORDS,
) -> None:
    """List the visits whose labels say most about the noise rates of the anchors, with their weights.

    Example: whatelse anchors label-next cohort --count 200 --model model --out labels.csv
    """
    import numpy as np

    from whatelse.lifecycle.label_next import guess_probabilities, write_sheet
    from whatelse.lifecycle.label_next import label_next as choose

    opened = whatelse.Cohort.open(cohort)
    if at_random:
        probability = np.zeros(opened.A.shape)
    elif model is None:
        probability = guess_probabilities(opened)
    else:
        probability = whatelse.Tagger.load(model).predict_proba(opened)
    earlier = () if labels is None else whatelse.read_votes(labels, opened, others="skip")
    done = np.flatnonzero(np.any([votes.known.any(1) for votes in earlier], 0)) if earlier else ()
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


def _records(cohort: whatelse.Cohort, wanted: set[str], files: list[Path]) -> dict[str, Visit] | None:
    """The records of these visits, read again; a note and None where they cannot be."""
    from whatelse.lifecycle.rebuild import records_of

    try:
        found = {record.id: record for record in records_of(cohort, files) if record.id in wanted}
    except (InputError, CohortError) as problem:
        if files:
            raise
        print_note(f"the list has ids only: the records cannot be read again ({problem}); give --visits")
        return None
    if missing := len(wanted) - len(found):
        where = "those files" if files else "the files the cohort was built from; give --visits"
        print_note(f"{missing:,} of the visits are not in {where}: they are listed without their records")
    return found
