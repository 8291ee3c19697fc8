"""docs/tutorial.md: every command, as it stands there, from an empty folder; the page answers at the end."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import urllib.request
from pathlib import Path

import pytest

from whatelse.cohort import Cohort
from whatelse.tagger import Tagger

DOCS = Path(__file__).parents[1] / "docs"
BLOCKS = re.findall(r"^```sh\n(.*?)^```$", (DOCS / "tutorial.md").read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_the_tutorial_as_it_stands(tmp_path: Path) -> None:
    *commands, serve = BLOCKS
    assert len(commands) >= 10 and serve.startswith("whatelse serve ")
    bin_folder = tmp_path / "bin"
    bin_folder.mkdir()
    (bin_folder / "python").symlink_to(sys.executable)
    whatelse = bin_folder / "whatelse"
    start = "from whatelse.cli import app; app()"
    whatelse.write_text(f'#!/bin/sh\nexec "{sys.executable}" -c "{start}" "$@"\n', encoding="utf-8")
    whatelse.chmod(0o755)
    here = tmp_path / "empty"
    here.mkdir()
    shutil.copy(DOCS / "tutorial" / "make_table.py", here)
    paths = os.pathsep.join(os.path.abspath(path) for path in sys.path)  # this checkout's package
    env = os.environ | {"PATH": f"{bin_folder}{os.pathsep}{os.environ['PATH']}", "PYTHONPATH": paths}
    said = ""
    for block in commands:
        ran = subprocess.run(["bash", "-euc", block], cwd=here, env=env, capture_output=True, text=True, check=False)
        assert ran.returncode == 0, f"{block}\n{ran.stdout}\n{ran.stderr}"
        assert not ran.stderr, f"{block}: nothing unplanned\n{ran.stderr}"
        said += ran.stdout
    table = (here / "visits.csv").read_bytes()
    assert b";" in table and b"caf\xe9" in table  # semicolons and Latin-1
    cohort = Cohort.open(here / "train")
    assert len(cohort) == 3000 and {"fever", "hypoxia", "sex:F"} <= set(cohort.vocabulary.names)
    assert cohort.Y is None and Tagger.load(here / "model").conditions_ == cohort.conditions
    assert "held-out tag" in said and "never fires" in said
    accuracy = re.search(r"held-out tag\s+│ (\d\.\d+)", said)
    assert accuracy is not None and float(accuracy[1]) > 0.5  # the most common condition alone: 0.24
    words = serve.split()
    server = subprocess.Popen(words, cwd=here, env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        assert server.stdout is not None
        url = re.search(r"http://\S+", server.stdout.readline())
        assert url is not None
        with urllib.request.urlopen(f"{url[0].rstrip('/')}/api/visits", timeout=60) as answer:
            assert json.load(answer)["total"] == 4000
    finally:
        server.terminate()
        server.communicate(timeout=60)


def test_the_transcript_is_of_these_commands() -> None:
    text = (DOCS / "transcript.md").read_text(encoding="utf-8")
    parts = re.findall(r"^```text\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
    typed = ["".join(line[2:] + "\n" for line in part.splitlines() if line[:2] in ("$ ", "> ")) for part in parts]
    assert typed == BLOCKS, "the tutorial has changed: python scripts/transcript.py"
    assert not re.search(r"Traceback|Warning|^whatelse: |^note: ", text, re.MULTILINE)
