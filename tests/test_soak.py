"""A soak with faults drawn at random, at low priority; `make soak` runs five minutes, `make soak MINUTES=60` an hour.

WHATELSE_SOAK_MINUTES says how long this one is: `.ci/run` says five.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
MINUTES = float(os.environ.get("WHATELSE_SOAK_MINUTES", "0.6"))


@pytest.mark.slow
@pytest.mark.timeout(60 * MINUTES + 900)
@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="needs /proc")
def test_nothing_acknowledged_is_lost_whatever_fails() -> None:
    command = ["nice", "-n", "15", sys.executable, "-m", "benchmarks.soak", "--minutes", str(MINUTES)]
    command += ["--clients", "3", "--seed", "7", "--pause", "0.3", "2"]
    run = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, env={**os.environ})
    results = [json.loads(line) for line in run.stdout.splitlines() if line.startswith("{")]
    assert run.returncode == 0 and results, run.stdout[-3000:] + run.stderr[-3000:]
    for result in results:
        assert result["lost"] == result["doubled"] == result["gaps"] == 0 and result["acknowledged"] > 20
        assert sum(result["faults"].values()) >= 3
