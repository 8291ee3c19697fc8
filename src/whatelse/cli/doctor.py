"""`doctor`: what is installed here, and whether it works."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import platform
import shutil
import socket
from collections.abc import Callable, Iterator
from itertools import islice
from pathlib import Path

import typer

import whatelse
from whatelse import __version__
from whatelse.cli.store import DATABASE_OPTION
from whatelse.errors import WhatelseError
from whatelse.visits import Visit

CORE = ("numpy", "scipy", "numba", "scikit-learn", "pyarrow", "duckdb")
EXTRAS = {
    "serve": (
        "fastapi", "uvicorn", "sqlalchemy", "alembic", "cachetools", "cryptography", "jwt", "prometheus_client",
        "pydantic", "pydantic_settings",
    ),
    "spark": ("pyspark",),
    "nvil": ("torch",),
    "llm": ("httpx",),
}  # fmt: skip
NOTE = "72M on coumadin fell, hit head, vomiting"
LOOKED_AT = 1_000  # visits that are read
Line = tuple[str, str, str]  # ok, missing or WRONG; what; what was found


def doctor(
    model: str = typer.Option("emergency", "--model", help="Model to try: a file, or a shipped model."),
    visits: Path | None = typer.Option(None, "--visits", help="Visits to try to read, as the model reads them."),
    port: int = typer.Option(8000, "--port", min=1, max=65535, help="Port that 'serve' would listen on."),
    database: str = DATABASE_OPTION,
) -> None:
    """Check versions, extras, the model, the database, the port and the data. Exits with 1 if one does not work.

    Example: whatelse doctor --model model --visits visits.csv
    """
    wrong = False
    for state, what, says in _lines(model, visits, port, database):
        typer.echo(f"{state:8}{what}: {says}")
        wrong = wrong or state == "WRONG"
    if wrong:
        raise typer.Exit(1)


def _lines(model: str, visits: Path | None, port: int, database: str) -> Iterator[Line]:
    yield "ok", "whatelse", f"{__version__}, Python {platform.python_version()}, {platform.system()}"
    yield "ok", "packages", ", ".join(f"{name} {importlib.metadata.version(name)}" for name in CORE)
    for extra, modules in EXTRAS.items():
        lacking = [name for name in modules if importlib.util.find_spec(name) is None]
        says = f"needs {', '.join(lacking)}: pip install 'whatelse[{extra}]'" if lacking else ", ".join(modules)
        if extra == "spark" and not lacking and shutil.which("java") is None:
            lacking, says = ["java"], "needs Java 17 or newer on the path"
        yield "missing" if lacking else "ok", f"extra {extra}", says
    yield _tried("model", lambda: _model(model))
    if visits is not None:
        yield _tried("visits", lambda: _visits(model, visits))
    if importlib.util.find_spec("sqlalchemy") is not None:
        yield _tried("database", lambda: _database(database))
    yield _tried("port", lambda: _port(port))


def what_to_install(error: Exception) -> str:
    """What to do about a package that is missing; "" for another error."""
    if not isinstance(error, ModuleNotFoundError):
        return ""
    extra = next((extra for extra, modules in EXTRAS.items() if str(error.name).partition(".")[0] in modules), None)
    if extra is None:
        raise error  # no package of an extra
    return f"this needs {error.name}, which is not installed: pip install 'whatelse[{extra}]'"


def _tried(what: str, work: Callable[[], str]) -> Line:
    try:
        return "ok", what, work()
    except (WhatelseError, OSError) as error:
        return "WRONG", what, str(error)


def _model(name: str) -> str:
    tagger = whatelse.Tagger.load(name)
    found = tagger.read(Visit("doctor", age=72, sex="M", triage_note=NOTE)).suggest()
    return f"{name} answers about {len(tagger.conditions_):,} conditions, to within {found.error_bound:.2g}"


def _visits(model: str, file: Path) -> str:
    from whatelse.cli.options import read

    reader = read([file], [], on_error="skip", like=whatelse.Tagger.load(model).vocabulary_.source)
    count = sum(1 for _ in islice(reader, LOOKED_AT))
    left = sum(reader.left_out.values())
    return f"{count:,} visits of {file} can be read" + (f", {left:,} rows cannot" if left else "")


def _database(url: str) -> str:
    from whatelse.cli.store import open_store
    from whatelse.store.backup import file_of, verify

    if url.startswith("sqlite:") and not (file := file_of(url)).exists():
        return f"{file} is not there yet; 'serve' makes it"
    with open_store(url, new=False) as store:
        found = verify(store.engine)
    return f"{found.decisions.lines:,} decisions and {found.audit.lines:,} audit lines, unbroken"


def _port(port: int) -> str:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError as error:
            raise OSError(f"{port} is taken ({error.strerror}): give another to 'serve --port'") from None
    return f"{port} is free"
