"""`store decisions`: what people decided, how far they agree, and their decisions as labels."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from whatelse.cli.database import DATABASE_OPTION, open_decisions, open_store
from whatelse.cli.options import JSON
from whatelse.cli.tables import print_json, print_table
from whatelse.errors import WhatelseError
from whatelse.io.files import writing

if TYPE_CHECKING:
    from whatelse.annotators.decisions import Decisions, Opinion

LOW_RANK, HIGH_RANK = 8, 3
LISTED = 10  # conditions


def decisions(
    out: Path | None = typer.Option(
        None, "--out", help="Write decisions as labels instead, one row per visit and tag: .csv or .parquet."
    ),
    database: str = DATABASE_OPTION,
    low: int = typer.Option(LOW_RANK, "--low", min=2, help="Confirmed tags from this rank on were ranked too low."),
    high: int = typer.Option(HIGH_RANK, "--high", min=1, help="Rejected tags up to this rank were ranked too high."),
    as_json: bool = JSON,
) -> None:
    """How often people agree with each other and with the model: tags ranked too low, tags ranked too high.

    Example: whatelse store decisions --database sqlite:///whatelse.db

    Example: whatelse store decisions --out decisions.csv
    """
    if out is not None:
        return _export(out, database)
    found = open_decisions(database)
    said = _shown(found, low, high)
    if as_json:
        print_json(said)
        return
    typer.echo(f"{said['decisions']:,} decisions of {said['people']:,} people on {said['visits']:,} visits")
    if said["twice"]:
        typer.echo(f"{said['agree']:,} of {said['twice']:,} tags that several people decided on they agree on")
    typer.echo(
        f"decisions err in {found.false_confirm:.1%} (confirmed) and {found.false_reject:.1%} (rejected)"
        + ("" if said["twice"] else ", near the assumed 5%: nobody decided on a tag that another had decided on")
    )
    titles = {"missed": f"confirmed at rank {low} or below", "pressed": f"rejected at rank {high} or above"}
    for key, title in titles.items():
        rows = []
        for row in said[key]:
            visits = ", ".join(row["visits"]) + " …" * (row["times"] > len(row["visits"]))
            rows.append((row["condition"], f"{row['times']:,}", f"{row['probability']:.1%}", visits))
        print_table(("condition", "times", "probability shown", "visits"), rows, title)


def _export(out: Path, database: str) -> None:
    """Write one row per visit and tag that stands confirmed or rejected."""
    if out.suffix not in (".csv", ".parquet"):
        raise WhatelseError(f"{out}: labels are written as .csv or .parquet")
    with open_store(database, new=False) as store, writing(out) as stream:
        from whatelse.store.labels import labels, to_csv, to_parquet

        if out.suffix == ".csv":
            count = sum(stream.write(line.encode()) > 0 for line in to_csv(labels(store))) - 1
        else:
            count = to_parquet(labels(store), stream)
    typer.echo(f"wrote {count:,} labels to {out}")


def _shown(found: Decisions, low: int, high: int) -> dict[str, Any]:
    by_tag: dict[tuple[str, str], set[bool]] = {}
    people = Counter((o.visit, o.condition) for o in found.opinions)
    for o in found.opinions:
        by_tag.setdefault((o.visit, o.condition), set()).add(o.confirmed)
    twice = [key for key, count in people.items() if count > 1]
    placed = [(o, o.position) for o in found.opinions if o.position is not None]
    return {
        "decisions": len(found.opinions),
        "people": len({o.person for o in found.opinions}),
        "visits": len({o.visit for o in found.opinions}),
        "twice": len(twice),
        "agree": sum(len(by_tag[key]) == 1 for key in twice),
        "false_confirm": found.false_confirm,
        "false_reject": found.false_reject,
        "looked_at": found.looked.tolist(),
        "missed": _listed([o for o, at in placed if o.confirmed and at >= low]),
        "pressed": _listed([o for o, at in placed if not o.confirmed and at <= high]),
    }


def _listed(opinions: list[Opinion]) -> list[dict[str, Any]]:
    """By condition, the most common first, with some of the visits."""
    groups: dict[str, list[Opinion]] = {}
    for o in opinions:
        groups.setdefault(o.condition, []).append(o)
    return [
        {
            "condition": condition,
            "times": len(group),
            "probability": sum(o.probability or 0.0 for o in group) / len(group),
            "visits": [o.visit for o in group[:3]],
        }
        for condition, group in sorted(groups.items(), key=lambda item: -len(item[1]))[:LISTED]
    ]
