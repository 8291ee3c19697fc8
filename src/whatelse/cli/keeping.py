"""`decisions verify`, `audit export | verify | prune`, `store backup | restore | verify`."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING

import typer

from whatelse.cli.opening import DATABASE_OPTION, needs, open_store
from whatelse.errors import WhatelseError
from whatelse.files import writing

if TYPE_CHECKING:
    from whatelse.store import Store

_Expect = typer.Option(None, "--expect", help="A head that was printed earlier; it must be part of the history.")


def register(app: typer.Typer, decisions: typer.Typer) -> None:
    """Add the commands of this module."""
    decisions.command("verify")(verify_decisions)
    audit = typer.Typer(no_args_is_help=True, help="Who signed in, read, decided, exported or was refused.")
    audit.command("export")(export_audit)
    audit.command("verify")(verify_audit)
    audit.command("prune")(prune_audit)
    app.add_typer(audit, name="audit")
    store = typer.Typer(no_args_is_help=True, help="The database as a whole.")
    store.command("backup")(backup)
    store.command("restore")(restore)
    store.command("verify")(verify)
    app.add_typer(store, name="store")


def verify_decisions(database: str = DATABASE_OPTION, expect: str | None = _Expect) -> None:
    """Check that no line of the history was changed, moved, added or taken out; prints the head to note elsewhere."""
    with _opened(database) as store:
        from whatelse.store import chain, schema

        head = chain.verify(store.engine, schema.decision, chain.Head.parse(expect) if expect else None)
    typer.echo(f"{head.lines:,} decisions, unbroken; head {head}")


def export_audit(
    out: Path | None = typer.Option(None, "--out", help="File to write; standard output if not given."),
    database: str = DATABASE_OPTION,
) -> None:
    """Write the audit as JSON lines, oldest first."""
    with _opened(database) as store:
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


def verify_audit(database: str = DATABASE_OPTION, expect: str | None = _Expect) -> None:
    """Check that no line of the audit was changed, moved, added or taken out; prints the head to note elsewhere."""
    with _opened(database) as store:
        from whatelse.store import chain, schema

        head = chain.verify(store.engine, schema.audit, chain.Head.parse(expect) if expect else None)
    typer.echo(f"{head.lines:,} audit lines, unbroken; head {head}")


def prune_audit(
    days: float = typer.Option(..., "--days", min=1, help="Lines older than this are removed."),
    database: str = DATABASE_OPTION,
) -> None:
    """Remove old audit lines; what is left still verifies, and a line says that some were removed."""
    with _opened(database) as store:
        from whatelse.store import audit

        count = audit.prune(store.engine, days)
    typer.echo(f"removed {count:,} lines")


def backup(
    out: Path = typer.Option(..., "--out", help="The new file; nothing is overwritten."),
    database: str = DATABASE_OPTION,
) -> None:
    """Copy a SQLite database while it is in use, and verify the copy."""
    found = _work().backup(database, out)
    typer.echo(f"{out}: {found.decisions.lines:,} decisions; head {found.decisions}")


def restore(
    saved: Path = typer.Argument(..., help="A file that 'store backup' made."), database: str = DATABASE_OPTION
) -> None:
    """Verify a backup and put it where no database is; the server must be stopped."""
    found = _work().restore(saved, database)
    typer.echo(f"restored {found.decisions.lines:,} decisions; head {found.decisions}")


def verify(database: str = DATABASE_OPTION, expect: str | None = _Expect) -> None:
    """Check the file, the history and the audit."""
    with _opened(database) as store:
        from whatelse.store import backup as work
        from whatelse.store import chain

        found = work.verify(store.engine, chain.Head.parse(expect) if expect else None)
    typer.echo(f"{found.decisions.lines:,} decisions, unbroken; head {found.decisions}")
    typer.echo(f"{found.audit.lines:,} audit lines, unbroken; head {found.audit}")


@contextmanager
def _opened(database: str) -> Iterator[Store]:
    store = open_store(database, new=False)
    try:
        yield store
    finally:
        store.close()


def _work() -> ModuleType:
    try:
        import whatelse.store.backup
    except ImportError as missing:
        raise WhatelseError(needs(missing)) from None
    return whatelse.store.backup
