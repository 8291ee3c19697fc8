"""Models for other programs: `export`."""

from __future__ import annotations

from pathlib import Path

import typer

from whatelse.errors import WhatelseError


def register(app: typer.Typer) -> None:
    """Add `export`."""
    app.command()(export)


def export(
    model: Path = typer.Argument(..., help="A model file."),
    out: Path = typer.Argument(..., help="File to write: .xdsl for GeNIe and SMILE, .jgum for pyAgrum."),
) -> None:
    """Write a model's noisy-or network for other programs."""
    from whatelse.model.export import to_jgum, to_xdsl
    from whatelse.model.file import load

    formats = {".xdsl": to_xdsl, ".jgum": to_jgum}
    if out.suffix not in formats:
        raise WhatelseError(f"{out}: models are written as .xdsl (GeNIe, SMILE) or .jgum (pyAgrum)")
    loaded = load(model)
    formats[out.suffix](loaded, out)
    typer.echo(f"wrote {len(loaded.conditions)} conditions x {len(loaded.findings):,} findings to {out}")
