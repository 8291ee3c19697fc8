"""schemathesis against the OpenAPI description: what it allows and what it does not, by the hundred, with every check.

A 500, an answer that the description does not have, a refusal of what it allows, an acceptance of what it forbids, a
method that is not there without 405 and Allow: each is a failure. Bounded: so many examples for each operation.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.serving import live, service

EXAMPLES = 15  # of each operation
EHR = {"cds_hooks": True, "smart_client_id": "app", "fhir_servers": ["http://127.0.0.1:9/fhir"]}


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_every_operation_as_described(tmp_path: Path) -> None:
    with service(tmp_path, **EHR) as opened, live(opened) as url:
        (tmp_path / "fuzz.toml").write_text(f'[parameters]\n"path.key" = "{opened.worklist.keys[7]}"\n')
        command = [str(Path(sys.executable).with_name("schemathesis")), "--config-file", "fuzz.toml", "run"]
        command += [f"{url}/openapi.json", "--phases", "examples,coverage,fuzzing", "--checks", "all", "--seed", "1"]
        command += ["--max-examples", str(EXAMPLES), "--continue-on-failure", "--no-shrink"]
        command += ["--request-timeout", "60"]  # loading a model takes as long as the machine is busy
        command += ["--suppress-health-check", "all", "--exclude-path", "/readyz"]  # 503 on a machine that is busy
        done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0 and "Tested: " in done.stdout, done.stdout[-6000:] + done.stderr[-2000:]
