"""The seams of docs/architecture.md, kept by reading the imports of every file under src/.

To add a room, put it in ROOMS where it belongs. To add a library that only some files may know, add a row to ONLY_IN.
"""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from fnmatch import fnmatch
from pathlib import Path

import pytest

SOURCE = Path(__file__).parents[1] / "src" / "whatelse"
FILES = sorted(path.relative_to(SOURCE).as_posix() for path in SOURCE.rglob("*.py"))

# A room may import the rooms on lines above its own, and those on its own line; never one further down.
ROOMS = """
    __init__ _renamed errors types visits io
    knowledge
    sources
    simulate
    text
    cohort annotators
    noisyor
    learning
    model_file
    tagger reading questions explanations
    batch
    spark
    evaluation
    lifecycle
    workbench
    store
    server
    cli __main__
"""

# A library on the left is imported by the files on the right and by no other.
ONLY_IN = {
    "torch": ["learning/paper/nvil.py"],
    "matplotlib": ["evaluation/*"],
    "jinja2": ["io/templates.py"],
    "fastapi": ["server/*", "cli/*serve*.py"],
    "starlette": ["server/*", "cli/*serve*.py"],
    "uvicorn": ["server/*", "cli/*serve*.py"],
    "pydantic": ["server/*", "cli/*serve*.py", "sources/fhir/*"],
    "httpx": ["server/*", "sources/fhir/*", "annotators/language_model/*"],
    "pydantic_settings": ["server/*", "cli/*serve*.py"],
    "jwt": ["server/*"],
    "prometheus_client": ["server/metrics.py"],
    "sqlalchemy": ["store/*", "server/*", "sources/omop/*", "batch/omop/*"],
    "cryptography": ["model_file/signature.py", "server/*"],
    "alembic": ["store/*", "server/*"],
    "typer": ["cli/*"],
    "rich": ["cli/*"],
    "numba": ["noisyor/*", "learning/*", "text/*"],
    "pyspark": ["spark/*"],
    "pandas": ["cohort/cohort.py", "cohort/frames.py"],
    "polars": ["cohort/frames.py"],
    # a file from elsewhere must be safe to open
    "pickle": [],
    "marshal": [],
    "shelve": [],
    "joblib": [],
}

# The numerical core: arrays only.
CORE_MAY_IMPORT = {
    *("numpy", "scipy", "numba", "threadpoolctl", "whatelse.errors", "whatelse.types", "whatelse.noisyor"),
    *sys.stdlib_module_names,
}

# Files that talk to a terminal, or that a tool runs as scripts.
MAY_PRINT = ["cli/*", "__main__.py"]
MAY_ACT_ON_IMPORT = ["__init__.py", "cli/*", "__main__.py", "*migrations/*", "sources/fhir/models.py"]


def imported(source: str, file: str) -> set[str]:
    """Dotted names of the modules that a file imports, at its top or later; not what only type checkers see."""
    package = ["whatelse", *Path(file).parent.parts]
    found = set()
    waiting: list[ast.AST] = [ast.parse(source)]
    while waiting:
        node = waiting.pop()
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
            waiting += node.orelse
            continue
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            base = package[: len(package) - node.level + 1] if node.level else []
            module = ".".join([*base, *([node.module] if node.module else [])])
            # `from whatelse import errors` imports a module; `from whatelse.errors import X` a name in one
            found |= {f"{module}.{alias.name}" for alias in node.names} if module == "whatelse" else {module}
        waiting += ast.iter_child_nodes(node)
    return found


def room_of(module: str) -> str:
    """The room of `whatelse.noisyor.params` or of `noisyor/params.py`."""
    parts = module.removesuffix(".py").replace("/", ".").removeprefix("whatelse.").split(".")
    return "__init__" if parts[0] in ("whatelse", "__version__") else parts[0]


def among(file: str, patterns: list[str]) -> bool:
    return any(fnmatch(file, pattern) for pattern in patterns)


READ = {file: (SOURCE / file).read_text(encoding="utf-8") for file in FILES}
IMPORTS = {file: imported(source, file) for file, source in READ.items()}
RANK = {room: rank for rank, line in enumerate(ROOMS.strip().splitlines()) for room in line.split()}


@pytest.mark.parametrize("file", FILES)
def test_a_room_knows_only_the_rooms_before_it(file: str) -> None:
    here = room_of(file)
    for module in IMPORTS[file]:
        there = room_of(module)
        if module.split(".")[0] == "whatelse" and here in RANK and there in RANK:
            assert RANK[there] <= RANK[here], f"{file} imports {module}, which comes after it in ROOMS"


def test_rooms_do_not_know_each_other_both_ways() -> None:
    """Also for rooms that are not in the table yet; those on one line of it may."""
    known: dict[str, set[str]] = {}
    for file, modules in IMPORTS.items():
        here = room_of(file)
        ours = {room_of(module) for module in modules if module.split(".")[0] == "whatelse"}
        beside = {room for room in RANK if RANK[room] == RANK.get(here)}
        known.setdefault(here, set()).update(ours - beside - {here})
    while free := [room for room, needs in known.items() if not needs & known.keys()]:
        for room in free:
            del known[room]
    assert not known, f"these import each other in a circle: {sorted(known)}"


@pytest.mark.parametrize("library", ONLY_IN)
def test_a_library_stays_where_it_belongs(library: str) -> None:
    users = {file for file, modules in IMPORTS.items() if any(name.split(".")[0] == library for name in modules)}
    strangers = sorted(file for file in users if not among(file, ONLY_IN[library]))
    assert not strangers, f"{library} may be imported in {ONLY_IN[library] or 'no file'}, not in {strangers}"


@pytest.mark.parametrize("file", [file for file in FILES if room_of(file) == "noisyor"])
def test_the_core_sees_arrays_only(file: str) -> None:
    for module in IMPORTS[file]:
        top = ".".join(module.split(".")[: 2 if module.startswith("whatelse") else 1])
        assert top in CORE_MAY_IMPORT, f"{file} imports {module}; noisyor takes arrays and gives arrays"


@pytest.mark.parametrize("file", [file for file in FILES if not among(file, MAY_PRINT)])
def test_only_the_command_line_prints(file: str) -> None:
    for node in ast.walk(ast.parse(READ[file])):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
            assert node.func.id != "print", f"{file}:{node.lineno} prints; return it, or raise it, and let cli/ show it"


@pytest.mark.parametrize("file", [file for file in FILES if not among(file, MAY_ACT_ON_IMPORT)])
def test_importing_does_nothing_else(file: str) -> None:
    for node in ast.parse(READ[file]).body:
        acts = isinstance(node, ast.With | ast.For | ast.While) or (
            isinstance(node, ast.Expr) and not isinstance(node.value, ast.Constant)
        )
        assert not acts, f"{file}:{node.lineno} acts when it is imported; put it in a function"


def test_the_core_starts_without_the_extras() -> None:
    """What the table says, seen from a fresh interpreter."""
    code = "import sys, whatelse.noisyor, whatelse.model_file.file; print(*sys.modules)"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    heavy = {"torch", "matplotlib", "fastapi", "sqlalchemy", "typer", "rich", "pandas", "duckdb", "sklearn"}
    assert not heavy & set(run.stdout.split())


def test_the_reader_of_imports_reads_them() -> None:
    source = """
from __future__ import annotations
import os.path
from typing import TYPE_CHECKING
from whatelse import errors
from whatelse.noisyor.params import NoisyOr
from . import near
from .. import cohort
from ..text.rules import RULES
if TYPE_CHECKING:
    import torch
def late():
    import matplotlib.pyplot as plt
"""
    assert imported(source, "noisyor/x.py") == {
        "__future__",
        "os.path",
        "typing",
        "whatelse.errors",
        "whatelse.noisyor.params",
        "whatelse.noisyor",
        "whatelse.cohort",
        "whatelse.text.rules",
        "matplotlib.pyplot",
    }
    assert room_of("noisyor/x.py") == room_of("whatelse.noisyor.params") == "noisyor"
    assert room_of("tagger.py") == "tagger" and room_of("whatelse.__version__") == "__init__"


def test_every_file_that_the_architecture_names_exists() -> None:
    root = SOURCE.parents[1]
    text = (root / "docs" / "architecture.md").read_text("utf-8")
    named = set(re.findall(r"`([a-z_]+/[a-z_/]+\.py)`", text))
    assert len(named) > 20
    assert not [name for name in sorted(named) if not any((place / name).exists() for place in (root, SOURCE))]
