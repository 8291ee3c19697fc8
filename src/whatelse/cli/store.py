"""The database of decisions: its option, how it is opened; `store backup | restore | verify | decisions | audit`."""

from __future__ import annotations

import sys
from collections import Counter, defaultdict
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from whatelse.cli.options import JSON
from whatelse.cli.tables import print_json, print_table
from whatelse.errors import WhatelseError
from whatelse.io.files import writing

if TYPE_CHECKING:
    from whatelse.annotators.decisions import Decisions, Opinion
    from whatelse.store import Store

LISTED = 10  # conditions
LOW, HIGH = 8, 3  # ranks from which on a confirmed tag was ranked too low, and up to which a rejected one too high
DATABASE = "sqlite:///whatelse.db"
DATABASE_OPTION: Any = typer.Option(
    DATABASE,
    "--database",
    envvar="WHATELSE_DATABASE",
    help="Where decisions are kept: sqlite:///FILE or postgresql://…",
)


@contextmanager
def open_store(database: str, new: bool = True) -> Iterator[Store]:
    """The store at a URL, closed in the end. new: make it if there is none; a mistyped name would verify as empty."""
    from whatelse.store import Store
    from whatelse.store.backup import file_of

    if not new and database.startswith("sqlite:") and not (file := file_of(database)).exists():
        raise WhatelseError(f"{file}: there is no such database; say where it is with --database sqlite:///FILE")
    with closing(Store(database)) as store:
        yield store


def open_decisions(place: str, error: float | None = None) -> Decisions:
    """Decisions of a database, or of a file that `store decisions` wrote, weighed and judged together."""
    from whatelse.annotators.decisions import combine, opinions_of, read_opinions

    if place.endswith((".csv", ".parquet")) and "://" not in place:
        return combine(read_opinions(Path(place)), error=error)
    with open_store(place, new=False) as store:
        return combine(opinions_of(store.tag_lines()), error=error)


def audit(
    out: Path | None = typer.Option(None, "--out", help="File to write; standard output if not given."),
    prune: float | None = typer.Option(None, "--prune", min=1, help="Remove lines older than this many days instead."),
    database: str = DATABASE_OPTION,
) -> None:
    """Write the audit as JSON lines, oldest first; or remove old lines. What is left still verifies, and says so.

    Example: whatelse store audit --out audit.jsonl
    """
    with open_store(database, new=False) as store:
        from whatelse.store import audit as work

        if prune is not None:
            typer.echo(f"removed {work.prune(store.engine, prune):,} lines")
            return
        if out is None:
            sys.stdout.writelines(work.lines(store.engine))
            return
        if out.exists():
            raise WhatelseError(f"{out}: is there already; an export does not overwrite another one")
        with writing(out) as file:
            count = sum(file.write(line.encode()) > 0 for line in work.lines(store.engine))
    typer.echo(f"wrote {count:,} lines to {out}")


def backup(
    out: Path = typer.Option(..., "--out", help="The new file; nothing is overwritten."),
    database: str = DATABASE_OPTION,
) -> None:
    """Copy a SQLite database while it is in use, and verify the copy.

    Example: whatelse store backup --out backup.db
    """
    from whatelse.store.backup import backup as copy

    found = copy(database, out)
    typer.echo(f"{out}: {found.decisions.lines:,} decisions; head {found.decisions}")


def restore(
    saved: Path = typer.Argument(..., help="A file that 'store backup' made."), database: str = DATABASE_OPTION
) -> None:
    """Verify a backup and put it where no database is; the server must be stopped.

    Example: whatelse store restore backup.db --database sqlite:///whatelse.db
    """
    from whatelse.store.backup import restore as put

    found = put(saved, database)
    typer.echo(f"restored {found.decisions.lines:,} decisions; head {found.decisions}")


def verify(
    database: str = DATABASE_OPTION,
    expect: str | None = typer.Option(None, "--expect", help="A head of decisions that was printed earlier."),
    expect_audit: str | None = typer.Option(None, "--expect-audit", help="A head of the audit, printed earlier."),
    signed_head: Path | None = typer.Option(None, "--head", help="A file that --sign wrote: both heads, signed."),
    trusted: list[Path] = typer.Option([], "--trusted-key", help="Public key (PEM) that signed the head."),
    sign: Path | None = typer.Option(
        None, "--sign", help="Private Ed25519 key (PEM) of 'whatelse sign --new-key': write both heads, signed."
    ),
    out: Path | None = typer.Option(
        None, "--out", help="For --sign: file to write; keep it where the database's owner cannot write."
    ),
) -> None:
    """Check that no line of decisions and audit was changed, moved, added or removed, and each against the other.

    Example: whatelse store verify --database sqlite:///whatelse.db

    Example: whatelse store verify --sign private.pem --out heads.json
    """
    if (sign is None) != (out is None):
        raise WhatelseError("--sign and --out go together: a private key, and the file to write")
    with open_store(database, new=False) as store:
        from whatelse.store import backup as work
        from whatelse.store import chain
        from whatelse.store.backup import read_head, sign_head

        opinions, lines = (chain.Head.parse(text) if text else None for text in (expect, expect_audit))
        if signed_head is not None:
            opinions, lines = read_head(signed_head, trusted)
        found = work.verify(store.engine, opinions, lines)
        if sign is not None and out is not None:
            sign_head(store.engine, sign, out)
            typer.echo(f"wrote {out}")
    typer.echo(f"{found.decisions.lines:,} decisions, unbroken; head {found.decisions}")
    typer.echo(f"{found.audit.lines:,} audit lines, unbroken; head {found.audit}")


def decisions(
    out: Path | None = typer.Option(
        None, "--out", help="Write decisions as labels instead, one row per visit and tag: .csv or .parquet."
    ),
    database: str = DATABASE_OPTION,
    as_json: bool = JSON,
) -> None:
    """How often people agree with each other and with the model: tags ranked too low, tags ranked too high.

    Example: whatelse store decisions --database sqlite:///whatelse.db

    Example: whatelse store decisions --out decisions.csv
    """
    if out is not None:
        return _export(out, database)
    said = _summary(open_decisions(database))
    if as_json:
        return print_json(said)
    typer.echo(f"{said['decisions']:,} decisions of {said['people']:,} people on {said['visits']:,} visits")
    if said["twice"]:
        typer.echo(f"{said['agree']:,} of {said['twice']:,} tags that several people decided on they agree on")
    typer.echo(
        f"decisions err in {said['false_confirm']:.1%} (confirmed) and {said['false_reject']:.1%} (rejected)"
        + ("" if said["twice"] else ", near the assumed 5%: nobody decided on a tag that another had decided on")
    )
    titles = {"missed": f"confirmed at rank {LOW} or below", "pressed": f"rejected at rank {HIGH} or above"}
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


def _summary(found: Decisions) -> dict[str, Any]:
    """Decisions in numbers: agreement of people, and tags that the model ranked too low or too high."""
    by_tag: dict[tuple[str, str], list[bool]] = defaultdict(list)
    for o in found.opinions:
        by_tag[o.visit, o.condition].append(o.confirmed)
    twice = [verdicts for verdicts in by_tag.values() if len(verdicts) > 1]
    placed = [(o, o.position) for o in found.opinions if o.position is not None]
    return {
        "decisions": len(found.opinions),
        "people": len({o.person for o in found.opinions}),
        "visits": len({o.visit for o in found.opinions}),
        "twice": len(twice),
        "agree": sum(len(set(verdicts)) == 1 for verdicts in twice),
        "false_confirm": found.false_confirm,
        "false_reject": found.false_reject,
        "looked_at": found.looked.tolist(),
        "missed": _listed([o for o, at in placed if o.confirmed and at >= LOW]),
        "pressed": _listed([o for o, at in placed if not o.confirmed and at <= HIGH]),
    }


def _listed(opinions: list[Opinion]) -> list[dict[str, Any]]:
    """Opinions counted by condition, the most common first, with some of the visits."""
    out = []
    for condition, times in Counter(o.condition for o in opinions).most_common(LISTED):
        group = [o for o in opinions if o.condition == condition]
        probability = sum(o.probability or 0.0 for o in group) / times
        visits = [o.visit for o in group[:3]]
        out.append({"condition": condition, "times": times, "probability": probability, "visits": visits})
    return out
