"""The command line. Each module here has one command or registers a few.

An expected error prints one line on stderr and exits with 2. A command stopped by Ctrl-C says what was kept and exits
with 130. Modules that take long to load (numba, pyarrow, duckdb) are imported by the command that needs them.
"""

from __future__ import annotations

import errno
import io
import sys
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
    lifecycle,
    read,
    records,
    serve,
    show,
    sign,
    store,
    tag,
)
from whatelse.cli.aliases import AliasGroup
from whatelse.cli.options import arrange
from whatelse.errors import WhatelseError

PANELS = {
    "Ask": ("ask", "read", "conditions", "demo", "doctor"),
    "From records to a model": ("inspect", "build", "split", "show", "anchors", "annotate", "annotators", "fit"),
    "Judge and use a model": ("evaluate", "tag", "refit", "drift", "sign", "reproduce", "simulate"),
    "Serve": ("serve", "token", "store", "cards"),
}


class _Commands(AliasGroup):
    """The commands; expected errors are printed in one line, without a traceback."""

    def invoke(self, ctx: Any) -> Any:
        try:
            return super().invoke(ctx)
        except WhatelseError as error:
            typer.echo(f"whatelse: {error}", err=True)
            raise typer.Exit(2) from None
        except KeyboardInterrupt as stopped:
            typer.echo(f"whatelse: {str(stopped) or 'stopped before the end; run the same command again'}", err=True)
            raise typer.Exit(130) from None
        except OSError as error:
            if error.errno == errno.EPIPE:  # the reader closed the pipe, as `| head` does
                raise
            typer.echo(f"whatelse: {error}", err=True)
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


records.register(app)
app.command()(show.show)
app.command()(fit.fit)
evaluate.register(app)
app.command()(tag.tag)
app.command()(demo.demo)
serve.register(app)
store.register(app)
lifecycle.register(app)
app.command()(sign.sign)
anchors.register(app)
app.command()(annotate.annotate)
app.command()(annotators.annotators)
cards.register(app)
knowledge.register(app)
app.command()(read.read)
app.command()(doctor.doctor)
arrange(app, PANELS)
