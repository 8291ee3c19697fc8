"""`make bench` runs every benchmark with what it needs, or says that it is to be run by hand."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest
from benchmarks import __main__ as bench

FOLDER = Path(bench.__file__).parent


def _wanted(name: str) -> list[str]:
    """The arguments without which a benchmark does not start."""
    calls = (n for n in ast.walk(ast.parse((FOLDER / f"{name}.py").read_text("utf-8"))) if isinstance(n, ast.Call))
    given = [n for n in calls if isinstance(n.func, ast.Attribute) and n.func.attr == "add_argument"]
    names = [(ast.literal_eval(n.args[0]), {k.arg for k in n.keywords}) for n in given]
    return [name for name, how in names if "required" in how or (not name.startswith("-") and "nargs" not in how)]


@pytest.mark.parametrize("name", bench.found())
def test_what_is_run_is_given_what_it_needs(name: str) -> None:
    for call in bench.RUNS.get(name, [""]):
        assert call or not _wanted(name), f"benchmarks.{name} needs {_wanted(name)}: put it into RUNS or BY_HAND"


def test_every_name_is_of_a_benchmark() -> None:
    there = {path.stem for path in FOLDER.glob("[!_]*.py")}
    assert {*bench.RUNS, *bench.BY_HAND, *bench.HELPERS} <= there
    assert all(_wanted(name) for name in bench.BY_HAND if name != "spark")
