"""What a new user meets first: how fast the command line answers, completion, and 'whatelse doctor'."""

from __future__ import annotations

import json
import resource
import socket
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from whatelse.cli import app

SLOW = ("numba", "pyarrow", "duckdb", "scipy", "sklearn", "pandas", "matplotlib", "fastapi", "sqlalchemy", "torch")
HELP = "from whatelse.cli import app; app(['--help'], standalone_mode=False)"


def processor_seconds(*command: str) -> float:
    """Processor time of a command: wall time depends on what else the machine does."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run([sys.executable, *command], check=True, capture_output=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


@pytest.mark.parametrize("code", ["import whatelse", HELP], ids=["import", "help"])
def test_start_takes_less_than_a_second_of_processor_time(code: str) -> None:
    processor_seconds("-c", code)  # the first run compiles
    assert min(processor_seconds("-c", code) for _ in range(3)) < 1.0


@pytest.mark.parametrize("code", ["import whatelse", HELP], ids=["import", "help"])
def test_start_imports_nothing_that_takes_long(code: str) -> None:
    code += "; import sys, json; print(json.dumps(sorted(sys.modules)), file=sys.stderr)"
    ran = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    loaded = {name.partition(".")[0] for name in json.loads(ran.stderr.splitlines()[-1])}
    assert "whatelse" in loaded and not loaded & set(SLOW)


def test_completion_can_be_installed() -> None:
    shown = CliRunner().invoke(app, ["--help"])
    assert "--install-completion" in shown.output and "--show-completion" in shown.output


def test_doctor_says_what_works(tmp_path: Path) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])
    (tmp_path / "v.csv").write_text("id,triage_note\n1,fever\n1,again\n2,cough\n", encoding="utf-8")
    database = f"sqlite:///{tmp_path}/none.db"
    given = ["doctor", "--port", port, "--database", database, "--visits", str(tmp_path / "v.csv")]
    ran = CliRunner().invoke(app, given)
    assert ran.exit_code == 0, ran.output
    assert "answers about 1," in ran.output and "is not there yet" in ran.output and f"{port} is free" in ran.output
    assert "2 visits of" in ran.output and "1 rows cannot" in ran.output
    assert not (tmp_path / "none.db").exists()


def test_doctor_exits_with_1_where_something_does_not_work(tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = str(taken.getsockname()[1])
        ran = CliRunner().invoke(app, ["doctor", "--model", str(tmp_path / "none"), "--port", port])
    assert ran.exit_code == 1 and ran.output.count("WRONG") == 2 and "is taken" in ran.output


def test_piped_tables_are_100_columns_wide_or_as_wide_as_columns_says(monkeypatch: pytest.MonkeyPatch) -> None:
    for columns, width in ((None, 100), ("140", 140)):
        if columns is None:
            monkeypatch.delenv("COLUMNS", raising=False)
        else:
            monkeypatch.setenv("COLUMNS", columns)
        shown = CliRunner().invoke(app, ["conditions", "list"])
        assert max(map(len, shown.output.splitlines())) == width
