"""`tag --omop`: results for OHDSI tools."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from datetime import datetime
from itertools import islice
from pathlib import Path
from typing import Any

import typer

from whatelse.errors import InputError


def tag_to_omop(model: Path, cdm: str, out: str, threshold: float, note_nlp: bool, options: dict[str, str]) -> None:
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
    from whatelse.tagger import Tagger

    codings = Path(options.pop("codings")) if "codings" in options else None
    tagger, report_, known = Tagger.load(model), Report("skip"), load_codings(codings)
    cdm_schema, results_schema = options.pop("cdm_schema", None), options.pop("results_schema", None)
    table = options.pop("table", "cohort")
    if options:
        raise InputError(f"--option {min(options)}: --omop takes codings, cdm_schema, results_schema and table")
    with (
        tempfile.TemporaryDirectory(prefix="whatelse-") as scratch,
        open_cdm(cdm, cdm_schema, Path(scratch), report_) as connection,
    ):
        found, periods = stays(connection)
        about, today = f"whatelse model {tagger.digest_[:12]}", datetime.now()
        spoken = Mentions(connection, known, tagger, today) if note_nlp else None

        def likely() -> Any:
            for batch in _batches(visit for _, visit in cdm_visits(connection, known, report_, hide_password(cdm))):
                if spoken is not None:
                    spoken.add(batch)
                yield from zip((v.id for v in batch), tagger.predict_proba(batch).tolist(), strict=True)

        made = make_results(tagger.conditions_, likely(), found, periods, threshold, about, today.date())
        written = write_results(made, out, results_schema, table, spoken.batches() if spoken is not None else None)
    for kind, count in report_.left_out.items():
        typer.echo(f"left out {count:,} rows: {kind}", err=True)
    typer.echo(
        ", ".join(f"{name} {count:,}" for name, count in written.items()) + f" rows written to {hide_password(out)}"
    )


def _batches(visits: Iterator[Any], size: int = 500) -> Iterator[list[Any]]:
    while batch := list(islice(visits, size)):
        yield batch
