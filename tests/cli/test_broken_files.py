"""Broken files: every command answers with one line that names the file and what to do, and no traceback."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import safetensors.numpy
from typer.testing import CliRunner

from whatelse.cli import app
from whatelse.cohort import build_cohort
from whatelse.simulate import simulate
from whatelse.sources.write import write_visits
from whatelse.tagger import Tagger


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Good files, and broken ones of every kind."""
    here = tmp_path_factory.mktemp("broken")
    visits = list(simulate(60, 1))
    cohort = build_cohort(visits, max_terms=50, lexicon="none")
    cohort.save(here / "cohort")
    Tagger("naive").fit(cohort).save(here / "model")
    write_visits(iter(visits), here / "visits.jsonl")
    write_visits(iter(visits), here / "whole.parquet")
    noise = np.random.default_rng(1).bytes(3000)
    made = {
        "binary.csv": noise, "binary.yaml": noise, "empty.csv": b"",
        "wrong.jsonl": b'{"a": [1, 2\n', "wrong.yaml": b"a: [1",
        "cut.parquet": (here / "whole.parquet").read_bytes()[:4000], "cut.model": (here / "model").read_bytes()[:4000],
        "long.csv": b"x" * 2_000_000,
    }  # fmt: skip
    for name, content in made.items():
        (here / name).write_bytes(content)
    safetensors.numpy.save_file({"w": np.zeros(3)}, here / "other.model")
    (here / "folder").mkdir()
    return here


TABLES = ("binary.csv", "empty.csv", "wrong.jsonl", "folder", "missing.csv", "cut.parquet", "long.csv")
MODELS = ("binary.csv", "empty.csv", "wrong.jsonl", "folder", "missing.model", "cut.model", "other.model")
COHORTS = ("binary.csv", "folder", "missing")
DOCUMENTS = ("binary.yaml", "wrong.yaml", "folder", "missing.yaml", "cut.parquet")
COMMANDS = {
    "inspect FILE": TABLES,
    "build FILE --out made": TABLES,
    "tag model FILE": TABLES,
    "tag model FILE --out made.parquet": ("wrong.jsonl",),
    "drift model FILE": TABLES,
    "fit cohort --labels FILE --out made.model": TABLES,
    "show FILE": MODELS,
    "tag FILE visits.jsonl": MODELS,
    "evaluate FILE cohort": MODELS,
    "ask cough --model FILE": MODELS,
    "fit FILE --out made.model": COHORTS,
    "anchors check FILE": COHORTS,
    "build visits.jsonl --conditions FILE --out made": DOCUMENTS,
    "build visits.jsonl --map FILE --out made": DOCUMENTS,
    "conditions check FILE": DOCUMENTS,
}


@pytest.mark.parametrize(
    ("command", "file"), [(command, file) for command, files in COMMANDS.items() for file in files]
)
def test_a_broken_file_is_answered_with_one_message(
    folder: Path, monkeypatch: pytest.MonkeyPatch, command: str, file: str
) -> None:
    monkeypatch.chdir(folder)
    ran = CliRunner().invoke(app, command.replace("FILE", file).split())
    assert ran.exit_code == 2 and isinstance(ran.exception, SystemExit), ran.output
    *_, said = ran.output.strip().splitlines()
    assert said.startswith("whatelse: ") and file in said and "Error" not in said, ran.output
    assert len(said) > len(f"whatelse: {file}: ") + 20 and not list(folder.glob("made*")), ran.output
