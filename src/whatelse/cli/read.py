"""`read`: a note as it is understood."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import typer

from whatelse.errors import InputError


def read(
    note: str = typer.Argument(..., help="The note, in quotes; a text file; or - for standard input."),
    age: float | None = typer.Option(None, "--age", help="Age in years, for what values mean."),
    lexicon: str = typer.Option("default", "--lexicon", help="Concepts: default, or a knowledge file of your own."),
    rules: str = typer.Option("default", "--rules", help="Assertion rules: default, paper or a YAML file."),
    as_json: bool = typer.Option(False, "--json", help="Print JSON."),
) -> None:
    """Print a note as it is understood: concepts, assertion, values, and words that were not understood.

    Example: whatelse read "72M on coumadin fell, hit head, no LOC, BP 85/50, h/o afib"
    """
    from whatelse.text import NoteReader, load_lexicon

    found = NoteReader(load_lexicon(lexicon), rules).note(_text(note), age=age)
    typer.echo(json.dumps(found.to_json(), indent=1, ensure_ascii=False) if as_json else str(found))


def _text(note: str) -> str:
    if note == "-":
        return sys.stdin.read()
    try:
        path = Path(note)
        return path.read_text("utf-8") if len(note) < 1000 and "\n" not in note and path.is_file() else note
    except (OSError, UnicodeDecodeError):
        raise InputError("cannot be read as text in UTF-8", file=Path(note)) from None
