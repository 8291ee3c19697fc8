"""`sign`: signatures of model files."""

from __future__ import annotations

from pathlib import Path

import typer

from whatelse.cli.database import needs
from whatelse.errors import WhatelseError


def sign(
    model: Path | None = typer.Argument(None, help="The model file that 'whatelse fit' saved."),
    key: Path | None = typer.Option(None, "--key", help="Private Ed25519 key (PEM) to sign with."),
    new_key: Path | None = typer.Option(None, "--new-key", help="Make a key pair: this file, and .pub beside it."),
    trusted: list[Path] | None = typer.Option(None, "--verify", help="Only check, by this public key (PEM)."),
) -> None:
    """Sign a model: writes MODEL.sig beside it, which 'serve --trusted-key' requires.

    Example: whatelse sign model --key private.pem
    """
    try:
        from whatelse.model_file import signature as signing
    except ImportError as missing:
        raise WhatelseError(needs(missing)) from None
    try:
        if new_key is not None:
            typer.echo(f"{new_key} is the private key: keep it; {signing.new_key(new_key)} is the public one")
            key = key or new_key
        if model is None:
            if new_key is None:
                raise typer.BadParameter("give a model to sign, or --new-key", param_hint="MODEL")
        elif trusted:
            typer.echo(f"{model}: signed, digest {signing.verify_model(model, trusted)}")
        elif key is None:
            raise typer.BadParameter("give the private key to sign with", param_hint="--key")
        else:
            typer.echo(f"wrote {signing.sign_model(model, key)}")
    except ImportError as missing:
        raise WhatelseError(needs(missing)) from None
