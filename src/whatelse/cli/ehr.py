"""`cards report | show | silent | off` and `omop`: running beside an EHR, and results for OHDSI tools."""

from __future__ import annotations

import json
import tempfile
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from itertools import islice
from pathlib import Path
from typing import Any

import typer

from whatelse.cli.opening import DATABASE_OPTION, open_store

# Modules that take long to load are imported by the command that needs them.


def register(app: typer.Typer) -> None:
    """Add the commands of this module."""
    cards = typer.Typer(no_args_is_help=True, help="Cards of CDS Hooks: what was shown, and the switch.")
    cards.command("report")(report)
    for mode, says in (
        ("show", "Show cards again, whatever the settings say."),
        ("silent", "Compute and log cards, and show none, from now on."),
        ("off", "Switch cards off at once: every call is answered with none."),
        ("reset", "Go by the settings again."),
    ):
        cards.command(mode, help=says)(_switch(mode))
    app.add_typer(cards, name="cards")
    app.command("omop")(omop)


@contextmanager
def _log(database: str) -> Iterator[Any]:
    store = open_store(database)
    try:
        from whatelse.server.cds.log import CardLog

        log = CardLog(store.engine)
        try:
            yield log
        finally:
            log.close()
    finally:
        store.close()


def _switch(mode: str) -> Any:
    def switch(database: str = DATABASE_OPTION) -> None:
        with _log(database) as log:
            log.switch(None if mode == "reset" else mode)
        typer.echo(f"cards: {'as the settings say' if mode == 'reset' else mode}; servers follow within a second")

    return switch


def report(
    days: float = typer.Option(30, "--days", help="How far back."),
    as_json: bool = typer.Option(False, "--json", help="Print JSON."),
    database: str = DATABASE_OPTION,
) -> None:
    """What was shown, or in silent mode would have been: cards per 100 visits, by condition, and what came of them."""
    since = datetime.now(UTC) - timedelta(days=days)
    with _log(database) as log:
        found = summary(log.looks(since), log.all_cards(since))
    if as_json:
        typer.echo(json.dumps(found, indent=1))
        return
    typer.echo(
        f"{found['visits']:,} visits, {found['looks']:,} calls; all of the record was seen in {found['whole']:,}"
    )
    for kind, said in (("shown", "shown"), ("silent", "computed and not shown")):
        one = found[kind]
        typer.echo(f"cards {said}: {one['cards']:,} on {one['visits']:,} visits, {one['per_100']:.1f} per 100 visits")
        for condition, count in one["conditions"].items():
            typer.echo(f"  {count:6,}  {condition}")
    typer.echo("outcomes: " + (", ".join(f"{k} {v:,}" for k, v in found["outcomes"].items()) or "none yet"))
    for at, per in found["thresholds"].items():
        typer.echo(f"  a threshold of {at} would show {per:.1f} cards per 100 visits")


def summary(looks: list[Any], cards: list[Any]) -> dict[str, Any]:
    """Looks and cards in numbers; a visit counts once, by its last look."""
    visits = {look.visit: look for look in looks}
    out: dict[str, Any] = {"visits": len(visits), "looks": len(looks), "whole": sum(not look.unseen for look in looks)}
    for kind, shown in (("shown", True), ("silent", False)):
        mine = {(c.visit, c.condition) for c in cards if c.shown is shown}
        about = {visit for visit, _ in mine}
        seen = len({look.visit for look in looks if look.shown is shown})
        by = Counter(condition for _, condition in mine)
        out[kind] = {
            "cards": len(mine), "visits": len(about), "per_100": 100 * len(mine) / max(1, seen),
            "conditions": dict(by.most_common()),
        }  # fmt: skip
    out["outcomes"] = dict(Counter(c.outcome for c in cards if c.outcome).most_common())
    tops = [[p for _, p in look.top] for look in visits.values()]
    levels = (0.1, 0.2, 0.3, 0.5, 0.7, 0.9)
    out["thresholds"] = {
        str(t): 100 * sum(p >= t for top in tops for p in top) / max(1, len(tops)) for t in levels if tops
    }
    return out


def omop(
    model: Path = typer.Argument(..., help="The model file that 'whatelse fit' saved."),
    cdm: str = typer.Argument(..., help="A folder of OMOP CDM tables, or a database's address."),
    out: str = typer.Option(..., "--out", help="Folder for CSV files, or the address of the database to write to."),
    threshold: float = typer.Option(0.5, "--threshold", help="A visit this likely belongs to a condition's cohort."),
    cdm_schema: str | None = typer.Option(None, "--cdm-schema", help="Schema that the CDM is read from."),
    results_schema: str | None = typer.Option(None, "--results-schema", help="Schema that is written to."),
    table: str = typer.Option("cohort", "--table", help="Name of the table of cohorts."),
    note_nlp: bool = typer.Option(False, "--note-nlp", help="Also write what the notes say, as rows of NOTE_NLP."),
    codings: Path | None = typer.Option(None, "--codings", help="YAML file of the hospital's own codes."),
) -> None:
    """Tag the emergency visits of an OMOP CDM and write a cohort for each condition, as OHDSI tools want them."""
    from whatelse.sources.address import hide_password
    from whatelse.sources.codings import load_codings
    from whatelse.sources.omop.nlp import Mentions
    from whatelse.sources.omop.results import make_results, stays, write_results
    from whatelse.sources.omop.tables import open_cdm
    from whatelse.sources.omop.visits import cdm_visits
    from whatelse.sources.report import Report
    from whatelse.tagger import Tagger

    tagger, report_, known = Tagger.load(model), Report("skip"), load_codings(codings)
    with (
        tempfile.TemporaryDirectory(prefix="whatelse-") as scratch,
        open_cdm(cdm, cdm_schema, Path(scratch), report_) as connection,
    ):
        found, periods = stays(connection)
        about, today = f"whatelse model {tagger.digest_[:12]}", datetime.now()
        spoken = Mentions(connection, known, tagger.digest_[:12], today) if note_nlp else None

        def likely() -> Any:
            for batch in _batches(visit for _, visit in cdm_visits(connection, known, report_, hide_password(cdm))):
                if spoken is not None:
                    spoken.add({visit.id: _mentions(tagger, visit) for visit in batch})
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


def _mentions(tagger: Any, visit: Any) -> list[Any]:
    """The findings of a visit's notes, where they stand."""
    from whatelse.sources.omop.nlp import FIELDS, Mention

    names, anchors = tagger.vocabulary_.names, "anchor:"
    return [
        Mention(
            f.field, f.start, f.end, names[f.finding], f.negated,
            names[f.finding].removeprefix(anchors) if names[f.finding].startswith(anchors) else None,
        )
        for f in tagger.vocabulary_.find(visit)
        if f.field in FIELDS.values() and f.start is not None and f.end is not None
    ]  # fmt: skip
