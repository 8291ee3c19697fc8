"""Several processes on one PostgreSQL database: consistent decisions, one model, and none left behind."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import httpx
import pytest

import postgres
from serving import department, save_model, wanted
from whatelse.model.file import load, save
from whatelse.sources import write_visits
from whatelse.store import Store, chain, schema

SERVE = [sys.executable, "-c", "from whatelse.cli import app; app()", "serve"]


@contextmanager
def serving(folder: Path, *options: str) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """The command with these options; its process and its URL."""
    process = subprocess.Popen(
        [*SERVE, "--port", "0", *options], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        env={**os.environ, "WHATELSE_RATE_LIMIT": "0"},
    )  # fmt: skip
    assert process.stdout is not None and process.stderr is not None
    try:
        line = process.stdout.readline()
        assert "http" in line, process.stderr.read()
        yield process, line.split()[3].rstrip("/")
    finally:
        process.terminate()
        process.wait(30)
        process.stdout.close(), process.stderr.close()


def digests(url: str, times: int = 24) -> set[str]:
    """What new connections are answered by: the kernel spreads them over the workers."""
    with httpx.Client(base_url=url, headers={"Connection": "close"}, timeout=60) as web:
        return {web.get("/healthz").headers["x-whatelse-model"] for _ in range(times)}


def children(number: int) -> list[int]:
    return [int(text) for text in Path(f"/proc/{number}/task/{number}/children").read_text().split()]


@pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="needs /proc")
def test_two_workers_share_decisions_and_models_and_are_looked_after(tmp_path: Path) -> None:
    first = save_model(tmp_path)
    model = tmp_path / "served.model"
    shutil.copy(first, model)
    loaded = load(first)
    other = save(tmp_path / "other.model", replace(loaded, learned={**loaded.learned, "again": 1}))
    write_visits(department()[1][:40], tmp_path / "visits.jsonl")
    with postgres.server() as database:
        options = ["--model", str(model), "--visits", str(tmp_path / "visits.jsonl"), "--workers", "2"]
        with serving(tmp_path, *options, "--database", database) as (process, url):
            workers = children(process.pid)
            assert len(workers) == 2
            keys = [row["key"] for row in httpx.get(f"{url}/api/visits", timeout=60).json()["rows"]]
            conditions = [c["name"] for c in httpx.get(f"{url}/api/model").json()["conditions"]][:8]

            def insist(k: int) -> int:  # all on few visits, each on a connection of its own
                version, body = 0, wanted(conditions[k % 8])
                for _ in range(100):
                    got = web.post(f"/api/visits/{keys[k % 3]}/decisions", json={**body, "version": version})
                    if got.status_code != 409:
                        return got.status_code
                    version = got.json()["state"]["version"]
                return 0

            with (
                httpx.Client(base_url=url, headers={"Connection": "close"}, timeout=60) as web,
                ThreadPoolExecutor(8) as pool,
            ):
                assert set(pool.map(insist, range(24))) == {200}
            store = Store(database)
            lines = [line.version for key in range(3) for line in store.history(department()[1][key].id)]
            assert len(lines) == 24 and chain.verify(store.engine, schema.decision).lines == 24

            assert digests(url) == {loaded.digest}
            (tmp_path / "other.model").replace(model)
            assert httpx.post(f"{url}/admin/model", json={}, timeout=60).json()["model"] == other
            until = time.monotonic() + 60
            while digests(url) != {other}:
                assert time.monotonic() < until
                time.sleep(0.5)
            shutil.copy(first, tmp_path / "again.model")
            (tmp_path / "again.model").replace(model)
            process.send_signal(signal.SIGHUP)
            while digests(url) != {loaded.digest}:
                assert time.monotonic() < until + 30
                time.sleep(0.5)

            os.kill(workers[0], signal.SIGKILL)
            until = time.monotonic() + 60
            while len(now := children(process.pid)) < 2 or workers[0] in now:
                assert time.monotonic() < until
                time.sleep(0.2)
            store.close()
            process.kill()  # even so nobody stays behind
            until = time.monotonic() + 60
            while any(_runs(number) for number in now):
                assert time.monotonic() < until
                time.sleep(0.2)


def _runs(number: int) -> bool:
    try:
        return Path(f"/proc/{number}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except OSError:
        return False


def test_a_worker_that_cannot_start_says_why(tmp_path: Path) -> None:
    with postgres.server() as database:
        command = [*SERVE, "--model", str(tmp_path / "none"), "--workers", "2", "--database", database]
        run = subprocess.run(command, capture_output=True, text=True, timeout=120)
        assert run.returncode == 2 and "no such file" in run.stderr and "Traceback" not in run.stderr
