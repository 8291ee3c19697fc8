"""A small workbench for tests: a folder with simulated visits, a cohort, conditions and a model; made once, copied."""

from __future__ import annotations

import shutil
import tempfile
from functools import cache
from pathlib import Path

from typer.testing import CliRunner

from whatelse.cli import app
from whatelse.simulate import simulate
from whatelse.sources.write import write_visits
from whatelse.tagger import Tagger
from whatelse.workbench.training import KEPT_OUT

CONDITIONS = """\
# my department
conditions:
  - name: uti
    title: Urinary tract infection
    codes: {icd10: [N39.0]}
    anchors:
      notes: [uti]   # dysuria?
  - name: fall
    title: Fall
    anchors: {notes: [fall, fell]}
  - name: headache
    title: Headache
    anchors:
      notes:
        - headache
  - name: abdominal pain
    title: Abdominal pain
    anchors: {notes: [abdominal pain, abd pain]}
"""


def run(*args: object, typed: str | None = None) -> str:
    """Run a command, with what is typed meanwhile; its output."""
    done = CliRunner().invoke(app, list(map(str, args)), input=typed)
    assert done.exit_code == 0, done.output
    return done.output


@cache
def _made() -> Path:
    """Folder with visits.jsonl.gz and bench/: conditions.yaml, cohort/, model."""
    root = Path(tempfile.mkdtemp(prefix="whatelse-bench-"))
    bench = root / "bench"
    bench.mkdir()
    write_visits(simulate(1500, 21), root / "visits.jsonl.gz")
    (bench / "conditions.yaml").write_text(CONDITIONS, encoding="utf-8")
    run(
        "build", root / "visits.jsonl.gz", "--conditions", bench / "conditions.yaml", "--max-terms", 200,
        "--out", bench / "cohort", "--lexicon", "none",
    )  # fmt: skip
    run("fit", bench / "cohort", "--learner", "oracle", "--out", bench / "model")
    return root


def new_bench(folder: Path) -> Path:
    """A copy of the workbench to work on."""
    return Path(shutil.copytree(_made() / "bench", folder / "bench"))


def visits_file() -> Path:
    """The records of the workbench."""
    return _made() / "visits.jsonl.gz"


def has_seen_all(bench: Path) -> bool:
    """Whether the model learned from all visits, those that are judged on included."""
    return KEPT_OUT not in Tagger.load(bench / "model").notes_
