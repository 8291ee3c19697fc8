"""`store backup | restore | verify | decisions | audit`: the database as a whole."""

from __future__ import annotations

import sys
from pathlib import Path
from types import ModuleType

import typer

from whatelse.cli import decisions
from whatelse.cli.database import DATABASE_OPTION, needs, open_store
from whatelse.cli.options import add_group
from whatelse.errors import WhatelseError
from whatelse.io.files import writing


def register(app: typer.Typer) -> None:
    """Add the group `store`."""
    text = "The database: decisions, the audit, backups."
    add_group(
        app, "store", text, backup=backup, restore=restore, verify=verify, decisions=decisions.decisions, audit=audit
    )


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
            for line in work.lines(store.engine):
                sys.stdout.write(line)
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
    found = _work().backup(database, out)
    typer.echo(f"{out}: {found.decisions.lines:,} decisions; head {found.decisions}")


def restore(
    saved: Path = typer.Argument(..., help="A file that 'store backup' made."), database: str = DATABASE_OPTION
) -> None:
    """Verify a backup and put it where no database is; the server must be stopped.

    Example: whatelse store restore backup.db --database sqlite:///whatelse.db
    """
    found = _work().restore(saved, database)
    typer.echo(f"restored {found.decisions.lines:,} decisions; head {found.decisions}")


def verify(
    database: str = DATABASE_OPTION,
    expect: str | None = typer.Option(None, "--expect", help="A head of decisions that was printed earlier."),
    expect_audit: str | None = typer.Option(None, "--expect-audit", help="A head of the audit, printed earlier."),
    signed_head: Path | None = typer.Option(None, "--head", help="A file that --sign wrote: both heads, signed."),
    trusted: list[Path] | None = typer.Option(None, "--trusted-key", help="Public key (PEM) that signed the head."),
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
        from whatelse.store.signed_head import read_head, sign_head

        opinions, lines = (chain.Head.parse(text) if text else None for text in (expect, expect_audit))
        if signed_head is not None:
            opinions, lines = read_head(signed_head, trusted or [])
        found = work.verify(store.engine, opinions, lines)
        if sign is not None and out is not None:
            sign_head(store.engine, sign, out)
            typer.echo(f"wrote {out}")
    typer.echo(f"{found.decisions.lines:,} decisions, unbroken; head {found.decisions}")
    typer.echo(f"{found.audit.lines:,} audit lines, unbroken; head {found.audit}")


def _work() -> ModuleType:
    try:
        import whatelse.store.backup
    except ImportError as missing:
        raise WhatelseError(needs(missing)) from None
    return whatelse.store.backup
