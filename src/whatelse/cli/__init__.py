"""The command line. Each module here adds its commands in `register(app)`.

What fails on purpose, or because of a file, prints one line on stderr and exits with 2; what is stopped (Ctrl-C) says
what was kept and exits with 130.
"""

from __future__ import annotations

import errno
from typing import Any

import typer
from typer.core import TyperGroup

from whatelse import __version__
from whatelse.cli import demo, ehr, export, learn, records, serve, sign, teach
from whatelse.errors import WhatelseError


class _Commands(TyperGroup):
    """Says what went wrong in one line, without a traceback, when it went wrong on purpose."""

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
            if error.errno == errno.EPIPE:  # somebody stopped reading, as `| head` does: not an error
                raise
            typer.echo(f"whatelse: {error}", err=True)
            raise typer.Exit(2) from None


app = typer.Typer(
    cls=_Commands,
    no_args_is_help=True,
    add_completion=False,
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


records.register(app)
learn.register(app)
export.register(app)
demo.register(app)
teach.register(app, serve.register(app))
sign.register(app)
ehr.register(app)
