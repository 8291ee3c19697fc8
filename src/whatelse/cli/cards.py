"""`cards report | mode`: cards of CDS Hooks."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import closing, contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Literal

import typer

import whatelse
from whatelse.cli.options import JSON, SOURCE
from whatelse.cli.store import DATABASE_OPTION, open_store
from whatelse.cli.tables import print_json
from whatelse.errors import InputError


@contextmanager
def _log(database: str) -> Iterator[Any]:
    with open_store(database) as store:
        from whatelse.server.ehr.cds.log import CardLog

        with closing(CardLog(store.engine)) as log:
            yield log


def set_mode(
    mode: Literal["show", "silent", "off", "reset"] = typer.Argument(
        ...,
        help="show: show cards; silent: compute and log cards, show none; off: answer every call with none; "
        "reset: as the settings say.",
    ),
    database: str = DATABASE_OPTION,
) -> None:
    """Show, silence or switch off cards at once, whatever the settings say.

    Example: whatelse cards mode silent
    """
    with _log(database) as log:
        log.switch(None if mode == "reset" else mode)
    typer.echo(f"cards: {'as the settings say' if mode == 'reset' else mode}; servers follow within a second")


def report(
    model: Path | None = typer.Argument(None, help="The model file that served; with VISITS: compare."),
    visits: list[Path] = typer.Argument([], help="Records of the same visits with their coded diagnoses."),
    days: float | None = typer.Option(None, "--days", help="How far back. [30; to compare: 365]"),
    as_json: bool = JSON,
    source: str | None = SOURCE,
    threshold: float = typer.Option(0.5, "--threshold", help="To compare: least probability of a card."),
    out: Path | None = typer.Option(None, "--out", help="To compare: HTML page to write, with tables and plot."),
    database: str = DATABASE_OPTION,
) -> None:
    """Cards shown, or in silent mode computed; or these cards against later diagnoses.

    Without arguments: cards per 100 visits, by condition, and their outcomes. With a model and visits: precision,
    recall, cards per 100 visits, calibration.

    Example: whatelse cards report --days 7

    Example: whatelse cards report department.model discharged.json --source fhir --out report.html
    """
    if model is not None:
        if not visits:
            raise InputError("to compare cards with diagnoses, give the model and the records of the visits")
        return _compare(model, visits, source, threshold, 365 if days is None else days, out, database)
    if out is not None:
        raise InputError("--out compares cards with diagnoses: give the model and the records of the visits too")
    days = 30 if days is None else days
    since = datetime.now(UTC) - timedelta(days=days)
    with _log(database) as log:
        found = summary(log.looks(since), log.all_cards(since))
    if as_json:
        print_json(found)
        return
    calls = f"{found['visits']:,} visits, {found['looks']:,} calls"
    typer.echo(f"{calls}; all of the record was seen in {found['whole']:,}")
    for kind, said in (("shown", "shown"), ("silent", "computed and not shown")):
        one = found[kind]
        typer.echo(f"cards {said}: {one['cards']:,} on {one['visits']:,} visits, {one['per_100']:.1f} per 100 visits")
        for condition, count in one["conditions"].items():
            typer.echo(f"  {count:6,}  {condition}")
    typer.echo("outcomes: " + (", ".join(f"{k} {v:,}" for k, v in found["outcomes"].items()) or "none yet"))
    for at, per in found["thresholds"].items():
        typer.echo(f"  a threshold of {at} would show {per:.1f} cards per 100 visits")


def _compare(
    model: Path, visits: list[Path], source: str | None, threshold: float, days: float, out: Path | None, database: str
) -> None:
    """Compare the cards of silent mode with later diagnoses: precision, recall, cards per 100 visits, calibration."""
    from whatelse.evaluation.silent_mode import silent_report
    from whatelse.io.files import write_whole

    with _log(database) as log:
        likely = likeliest(log.looks(datetime.now(UTC) - timedelta(days=days)))
    vocabulary = whatelse.Tagger.load(model).vocabulary_
    anchors = vocabulary.anchors
    truth = {
        (visit.id, name): label
        for visit in whatelse.read_visits(visits, source, on_error="skip", like=vocabulary.source)
        for name, label in zip(anchors.names, anchors.labels(visit), strict=True)
        if label is not None
    }
    found = silent_report(likely, truth, threshold)
    typer.echo(found.text())
    if out is not None:
        write_whole(out, found.page().encode())
        typer.echo(f"wrote {out}")


def summary(looks: list[Any], cards: list[Any]) -> dict[str, Any]:
    """Looks and cards in numbers. Every rate is per 100 visits, and counts a tag of a visit once, at any look."""
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
    likely = likeliest(looks)
    levels = (0.1, 0.2, 0.3, 0.5, 0.7, 0.9)
    out["thresholds"] = {
        str(t): 100 * sum(p >= t for p in likely.values()) / max(1, len(visits)) for t in levels if looks
    }
    return out


def likeliest(looks: list[Any]) -> dict[tuple[str, str], float]:
    """(visit, condition) -> its highest probability at any look: a tag counts once a visit, as a card that is shown."""
    found: dict[tuple[str, str], float] = {}
    for look in looks:
        for condition, probability in look.top:
            found[look.visit, condition] = max(probability, found.get((look.visit, condition), 0.0))
    return found
