"""`audit export | prune`, `store backup | restore | verify | head`."""

from __future__ import annotations

import sys
from pathlib import Path
from types import ModuleType

import typer

from whatelse.cli.database import DATABASE_OPTION, needs, open_store
from whatelse.cli.options import add_group
from whatelse.errors import WhatelseError
from whatelse.io.files import writing


def register(app: typer.Typer) -> None:
    """Add the commands of this module."""
    text = "Who signed in, read, decided, exported or was refused."
    add_group(app, "audit", text, export=export_audit, prune=prune_audit)
    add_group(app, "store", "The database as a whole.", backup=backup, restore=restore, verify=verify, head=head)


def export_audit(
    out: Path | None = typer.Option(None, "--out", help="File to write; standard output if not given."),
    database: str = DATABASE_OPTION,
) -> None:
    """Write the audit as JSON lines, oldest first.

    Example: whatelse audit export --out audit.jsonl
    """
    with open_store(database, new=False) as store:
        from whatelse.store import audit

        if out is None:
            for line in audit.lines(store.engine):
                sys.stdout.write(line)
            return
        if out.exists():
            raise WhatelseError(f"{out}: is there already; an export does not overwrite another one")
        with writing(out) as file:
            count = sum(file.write(line.encode()) > 0 for line in audit.lines(store.engine))
    typer.echo(f"wrote {count:,} lines to {out}")


def prune_audit(
    days: float = typer.Option(..., "--days", min=1, help="Lines older than this are removed."),
    database: str = DATABASE_OPTION,
) -> None:
    """Remove old audit lines; what is left still verifies, and a line says that some were removed.

    Example: whatelse audit prune --days 400
    """
    with open_store(database, new=False) as store:
        from whatelse.store import audit

        count = audit.prune(store.engine, days)
    typer.echo(f"removed {count:,} lines")


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


def head(
    sign: Path = typer.Option(..., "--sign", help="Private Ed25519 key (PEM), as 'whatelse sign --new-key' makes one."),
    out: Path = typer.Option(..., "--out", help="File to write; keep it where the database's owner cannot write."),
    database: str = DATABASE_OPTION,
) -> None:
    """Verify decisions and audit, and write their heads with a signature.

    Example: whatelse store head --sign private.pem --out heads.json
    """
    with open_store(database, new=False) as store:
        from whatelse.store.signed_head import sign_head

        said = sign_head(store.engine, sign, out)
    typer.echo(f"wrote {out}: decisions {said['decision']}, audit {said['audit']}")


def verify(
    database: str = DATABASE_OPTION,
    expect: str | None = typer.Option(None, "--expect", help="A head of decisions that was printed earlier."),
    expect_audit: str | None = typer.Option(None, "--expect-audit", help="A head of the audit, printed earlier."),
    signed_head: Path | None = typer.Option(None, "--head", help="A file of 'store head': both heads, signed."),
    trusted: list[Path] | None = typer.Option(None, "--trusted-key", help="Public key (PEM) that signed the head."),
) -> None:
    """Check that no line of decisions and audit was changed, moved, added or removed, and each against the other.

    Example: whatelse store verify --database sqlite:///whatelse.db
    """
    with open_store(database, new=False) as store:
        from whatelse.store import backup as work
        from whatelse.store import chain
        from whatelse.store.signed_head import read_head

        decisions, audit = (chain.Head.parse(text) if text else None for text in (expect, expect_audit))
        if signed_head is not None:
            decisions, audit = read_head(signed_head, trusted or [])
        found = work.verify(store.engine, decisions, audit)
    typer.echo(f"{found.decisions.lines:,} decisions, unbroken; head {found.decisions}")
    typer.echo(f"{found.audit.lines:,} audit lines, unbroken; head {found.audit}")


def _work() -> ModuleType:
    try:
        import whatelse.store.backup
    except ImportError as missing:
        raise WhatelseError(needs(missing)) from None
    return whatelse.store.backup
