"""The command line. PANELS is the table of commands; each module here has one command or a few.

An expected error prints one line on stderr and exits with 2. A command stopped by Ctrl-C says what was kept and exits
with 130. Modules that take long to load (numba, pyarrow, duckdb) are imported by the command that needs them.
"""

from __future__ import annotations

import errno
import io
import sys
from collections.abc import Callable
from typing import Any

import typer

from whatelse import __version__
from whatelse.cli import (
    anchors,
    annotate,
    annotators,
    cards,
    demo,
    doctor,
    evaluate,
    fit,
    knowledge,
    label_next,
    records,
    refit,
    serve,
    show,
    store,
    tag,
)
from whatelse.cli.aliases import AliasGroup
from whatelse.errors import WhatelseError

GROUPS = {
    "conditions": "The knowledge base: list, show, check, begin an entry.",
    "anchors": "Check anchors, and find further ones.",
    "token": "Tokens that let people and programs in.",
    "store": "The database: decisions, the audit, backups.",
    "cards": "Cards of CDS Hooks: what was shown, and the mode.",
}
PANELS: dict[str, dict[str, Callable[..., None]]] = {
    "Ask": {
        "ask": knowledge.ask,
        "read": knowledge.read,
        "demo": demo.demo,
        "doctor": doctor.doctor,
        "conditions list": knowledge.list_conditions,
        "conditions show": knowledge.show,
        "conditions check": knowledge.check,
        "conditions new": knowledge.new,
    },
    "From records to a model": {
        "inspect": records.inspect_table,
        "build": records.build,
        "show": show.show,
        "anchors check": anchors.check,
        "anchors label-next": label_next.label_next,
        "anchors suggest": anchors.suggest,
        "anchors edit": anchors.edit,
        "annotate": annotate.annotate,
        "annotators": annotators.annotators,
        "fit": fit.fit,
    },
    "Judge and use a model": {
        "evaluate": evaluate.evaluate,
        "tag": tag.tag,
        "refit": refit.refit,
        "drift": refit.drift,
        "sign": serve.sign,
        "reproduce": evaluate.reproduce,
        "simulate": records.simulate,
    },
    "Serve": {
        "serve": serve.serve,
        "token create": serve.create,
        "token list": serve.list_tokens,
        "token revoke": serve.revoke,
        "store backup": store.backup,
        "store restore": store.restore,
        "store verify": store.verify,
        "store decisions": store.decisions,
        "store audit": store.audit,
        "cards report": cards.report,
        "cards mode": cards.set_mode,
    },
}


class _Commands(AliasGroup):
    """The commands; expected errors are printed in one line, without a traceback."""

    def invoke(self, ctx: Any) -> Any:
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt as stopped:
            typer.echo(f"whatelse: {str(stopped) or 'stopped before the end; run the same command again'}", err=True)
            raise typer.Exit(130) from None
        except (WhatelseError, OSError, ModuleNotFoundError) as error:
            if getattr(error, "errno", None) == errno.EPIPE:  # the reader closed the pipe, as `| head` does
                raise
            typer.echo(f"whatelse: {doctor.what_to_install(error) or error}", err=True)
            raise typer.Exit(2) from None


app = typer.Typer(
    cls=_Commands,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    help="Given this emergency visit and the conditions already confirmed, what else might the patient have?",
)


def _version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"whatelse {__version__}")
        raise typer.Exit


@app.callback()
def main(
    version: bool = typer.Option(False, "--version", help="Print the version.", callback=_version, is_eager=True),
) -> None:
    """Given this emergency visit and the conditions already confirmed, what else might the patient have?"""
    if isinstance(sys.stdout, io.TextIOWrapper):  # a terminal of another code page than the records
        sys.stdout.reconfigure(errors="backslashreplace")


def _register() -> None:
    groups = {name: typer.Typer(no_args_is_help=True, help=text) for name, text in GROUPS.items()}
    for panel, commands in PANELS.items():
        for name, function in commands.items():
            first, _, second = name.partition(" ")
            if second and not groups[first].registered_commands:
                app.add_typer(groups[first], name=first, rich_help_panel=panel)
            (groups[first] if second else app).command(second or first, rich_help_panel=None if second else panel)(
                function
            )
    app.command(hidden=True)(records.split)


_register()
