"""The FHIR server of ../shared/ehr for tests: installed once outside the repository, started on a free port."""

from __future__ import annotations

import hashlib
import os
import shutil
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest


def folder() -> Path:
    """../shared/ehr, or the sibling of WHATELSE_DATA; skips where it is not there."""
    data = Path(os.environ.get("WHATELSE_DATA", Path(__file__).parents[3] / "shared" / "data"))
    found = data.parent / "ehr"
    if not (found / "fhir" / "server.mjs").is_file():
        pytest.skip("the FHIR server to test against is not here: ../shared/ehr, beside WHATELSE_DATA")
    return found


def installed() -> Path:
    """A copy with its packages; made once, whole or not at all."""
    source = folder()
    if shutil.which("node") is None or shutil.which("npm") is None:
        pytest.skip("no Node here: the FHIR server to test against needs node and npm")
    lock = hashlib.sha256((source / "package-lock.json").read_bytes()).hexdigest()[:16]
    cache = Path(os.environ.get("WHATELSE_TEST_CACHE", tempfile.gettempdir())) / f"whatelse-ehr-{lock}"
    if not (cache / "node_modules").is_dir():
        made = Path(tempfile.mkdtemp(prefix="whatelse-ehr-", dir=cache.parent))
        for name in ("package.json", "package-lock.json"):
            shutil.copyfile(source / name, made / name)
        (made / "fhir").mkdir()
        shutil.copyfile(source / "fhir" / "server.mjs", made / "fhir" / "server.mjs")
        shutil.copytree(source / "fhir" / "data", made / "fhir" / "data", copy_function=shutil.copyfile)
        done = subprocess.run(["npm", "ci", "--no-audit", "--no-fund"], cwd=made, capture_output=True, timeout=280)
        if done.returncode:
            pytest.skip("npm could not install the FHIR server (no package registry?)")
        try:
            made.rename(cache)
        except OSError:  # another process was faster
            shutil.rmtree(made)
    return cache


def bundle() -> Path:
    """The invented emergency visit, as a file."""
    return folder() / "fhir" / "data" / "ed-visit.json"


@contextmanager
def fhir_server(data: Path | None = None, **environment: str) -> Iterator[str]:
    """The server's address. `data`: more bundles to load."""
    where = installed()
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    base = f"http://127.0.0.1:{port}/fhir"
    settings = {**os.environ, "FHIR_PORT": str(port), "FHIR_BASE": base, **environment}
    if data is not None:
        settings["FHIR_DATA"] = str(data)
    log = where / f"server-{port}.log"
    with log.open("wb") as out:
        process = subprocess.Popen(["node", "fhir/server.mjs"], cwd=where, env=settings, stdout=out, stderr=out)
    try:
        until = time.monotonic() + 60
        while True:
            assert process.poll() is None, log.read_text()
            try:
                if httpx.get(f"http://127.0.0.1:{port}/health", timeout=5).status_code == 200:
                    break
            except httpx.HTTPError:
                pass
            assert time.monotonic() < until, "the FHIR server did not start"
            time.sleep(0.1)
        yield base
    finally:
        process.terminate()
        process.wait(10)
        log.unlink(missing_ok=True)
