"""`serve`, `token create | list | revoke`, `sign`."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any, Literal

import typer

from whatelse.cli.options import MAP, OPTION, SOURCE, pairs
from whatelse.cli.store import DATABASE, DATABASE_OPTION, open_store


def serve(
    model: Path | None = typer.Option(None, "--model", help="The model file that 'whatelse fit' saved."),
    visits: list[Path] = typer.Option([], "--visits", help="Files of visits; without, visits are typed in."),
    source: str | None = SOURCE,
    columns: Path | None = MAP,
    option: list[str] = OPTION,
    host: str | None = typer.Option(None, "--host", help="Address to listen on. [127.0.0.1]"),
    port: int | None = typer.Option(None, "--port", help="Port to listen on; 0 takes a free one. [8000]"),
    database: str | None = typer.Option(None, "--database", help=f"Where decisions are kept. [{DATABASE}]"),
    auth: str | None = typer.Option(None, "--auth", help="Who is let in: none (loopback only), token or oidc. [none]"),
    trusted_key: list[Path] = typer.Option(
        [], "--trusted-key", help="Public key (PEM); only models signed by it are loaded. May be given again."
    ),
    workbench: Path | None = typer.Option(
        None, "--workbench", help="Folder of a workbench: curators find anchors, label visits and learn on its pages."
    ),
    workers: int | None = typer.Option(None, "--workers", help="Processes that serve; needs PostgreSQL. [1]"),
    watch_model: float | None = typer.Option(
        None, "--watch-model", help="Look every so many seconds whether the model file is a new one, and load it."
    ),
    config: Path | None = typer.Option(None, "--config", help="YAML file with these and all other settings."),
    settings: bool = typer.Option(False, "--settings", help="List every setting and exit."),
    check: bool = typer.Option(False, "--check", help="Try every connection that is configured, say what is wrong."),
    log_level: Literal["debug", "info", "warning", "error"] = typer.Option(
        "warning", "--log-level", help="info: one line a request."
    ),
) -> None:
    """Serve the tagging page: suggested tags beside the note; confirm or reject, and the rest updates at once.

    Example: whatelse serve --model model --visits visits.csv
    """
    from whatelse import server
    from whatelse.server.logs import configure_logging
    from whatelse.server.settings import load_settings

    if settings:
        for name, field in server.Settings.model_fields.items():
            default = "needed" if field.is_required() else field.get_default()
            typer.echo(f"{name:20} {default!s:24} {field.description}")
        return
    given: dict[str, Any] = dict(
        model=model, visits=visits or None, host=host, port=port, workers=workers,
        trusted_keys=trusted_key or None, database=database, auth=auth, watch_model=watch_model,
        workbench=workbench,
    )  # fmt: skip
    how = {"source": source, "columns": columns, **pairs(option, "--option")}
    given["visits_options"] = {name: value for name, value in how.items() if value is not None}
    level = logging.getLevelNamesMapping()[log_level.upper()]
    configure_logging(level, "text")  # for what is said about the settings themselves
    found = load_settings(config, **given)
    configure_logging(level, found.log_format)
    if check:
        _check(found)
        return
    server.serve(found, lambda url: typer.echo(f"whatelse is at {url} (Ctrl-C ends it)"))


def _check(settings: Any) -> None:
    from whatelse.server.check import check

    lines = list(check(settings))
    for line in lines:
        typer.echo(f"{'ok   ' if line.good else 'WRONG'} {line.what}{': ' if line.says else ''}{line.says}")
    if not all(line.good for line in lines):
        raise typer.Exit(1)


def create(
    name: str = typer.Argument(..., help="Who will use it; the history of decisions shows this name."),
    role: Literal["viewer", "clinician", "curator", "admin"] = typer.Option(
        "viewer", "--role", help="viewer reads, clinician decides, curator teaches, admin runs it."
    ),
    days: float = typer.Option(90, "--days", help="How long it is good for."),
    database: str = DATABASE_OPTION,
) -> None:
    """Make a token and print it, once.

    Example: whatelse token create ann --role clinician --days 30
    """
    with open_store(database) as store:
        typer.echo(store.access.create(name, role, days))


def list_tokens(database: str = DATABASE_OPTION) -> None:
    """List tokens: who, role, until when.

    Example: whatelse token list
    """
    with open_store(database, new=False) as store:
        for token in store.access.list():
            typer.echo(f"{token.id:4}  {token.status:8} {token.role:10} until {token.expires:%Y-%m-%d}  {token.name}")


def revoke(
    number: int = typer.Argument(..., help="The number that 'whatelse token list' shows."),
    database: str = DATABASE_OPTION,
) -> None:
    """End a token, and the sessions opened with it, at once.

    Example: whatelse token revoke 3
    """
    with open_store(database, new=False) as store:
        store.access.revoke(number)
    typer.echo(f"token {number} is revoked")


def sign(
    model: Path | None = typer.Argument(None, help="The model file that 'whatelse fit' saved."),
    key: Path | None = typer.Option(None, "--key", help="Private Ed25519 key (PEM) to sign with."),
    new_key: Path | None = typer.Option(None, "--new-key", help="Make a key pair: this file, and .pub beside it."),
    trusted: list[Path] = typer.Option([], "--verify", help="Only check, by this public key (PEM)."),
) -> None:
    """Sign a model: writes MODEL.sig beside it, which 'serve --trusted-key' requires.

    Example: whatelse sign model --key private.pem
    """
    from whatelse.model_file import signature

    if new_key is not None:
        typer.echo(f"{new_key} is the private key: keep it; {signature.new_key(new_key)} is the public one")
    key = key or new_key
    if model is None:
        if new_key is None:
            raise typer.BadParameter("give a model to sign, or --new-key", param_hint="MODEL")
    elif trusted:
        typer.echo(f"{model}: signed, digest {signature.verify_model(model, trusted)}")
    elif key is None:
        raise typer.BadParameter("give the private key to sign with", param_hint="--key")
    else:
        typer.echo(f"wrote {signature.sign_model(model, key)}")
