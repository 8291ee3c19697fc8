"""Several servers on one database: consistent decisions, one model, and none left behind."""

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

from tests.support import postgres
from tests.support.serving import client, department, save_model, service, wanted
from whatelse.model_file.file import load, save
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
        process.wait(60)
        process.stdout.close(), process.stderr.close()


def digests(url: str, times: int = 24) -> set[str]:
    """What new connections are answered by: the kernel spreads them over the workers."""
    with httpx.Client(base_url=url, headers={"Connection": "close"}, timeout=60) as web:
        return {web.get("/healthz").headers["x-whatelse-model"] for _ in range(times)}


def insist(web: httpx.Client, key: str, condition: str) -> set[int]:
    """Decide, and again on what it has moved to, until it is taken: the version that came of it."""
    version, body = 0, wanted(condition)
    until = time.monotonic() + 120
    while time.monotonic() < until:
        got = web.post(f"/api/visits/{key}/decisions", json={**body, "version": version})
        if got.status_code == 200:
            return {got.json()["state"]["version"]}
        if got.status_code == 409:
            version = got.json()["state"]["version"]
        elif got.status_code == 503:  # too much at once: come again, as it says
            time.sleep(0.05)
        else:
            break
    return set()


@pytest.mark.slow
def test_two_servers_on_one_sqlite_file_keep_one_history(tmp_path: Path) -> None:
    """While both write: every decision once, versions without a gap, both say the same, and both chains are whole."""
    with service(tmp_path) as one, service(tmp_path) as two, client(one) as first, client(two) as second:
        keys, conditions = one.worklist.keys[:3], one.tagger.conditions_[:8]
        assert keys == two.worklist.keys[:3]
        with ThreadPoolExecutor(8) as pool:
            webs = (first, second)
            said = list(pool.map(lambda k: insist(webs[k % 2], keys[k % 3], conditions[k % 8]), range(120)))
        assert [sorted(set.union(*said[k::3])) for k in range(3)] == [list(range(1, 41))] * 3
        for key in keys:
            lines = first.get(f"/api/visits/{key}/history").json()["lines"]
            assert [line["version"] for line in lines] == list(range(1, 41))
            for path in ("history", "suggestions"):
                there = (web.get(f"/api/visits/{key}/{path}").json() for web in webs)
                assert next(there) == next(there)
        for opened in (one, two):
            opened.store.ping()  # what waited for its commit, the audit's lines too
        assert chain.verify(one.store.engine, schema.decision).lines == 120
        assert chain.verify(two.store.engine, schema.audit).lines >= 120


def children(number: int) -> list[int]:
    return [int(text) for text in Path(f"/proc/{number}/task/{number}/children").read_text().split()]


@pytest.mark.slow
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

            with (
                httpx.Client(base_url=url, headers={"Connection": "close"}, timeout=60) as web,
                ThreadPoolExecutor(8) as pool,
            ):  # all on few visits, each on a connection of its own
                said = pool.map(lambda k: insist(web, keys[k % 3], conditions[k % 8]), range(24))
                assert sum(len(versions) for versions in said) == 24
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
            until = time.monotonic() + 60
            while digests(url) != {loaded.digest}:
                assert time.monotonic() < until
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


@pytest.mark.slow
def test_a_worker_that_cannot_start_says_why(tmp_path: Path) -> None:
    with postgres.server() as database:
        command = [*SERVE, "--model", str(tmp_path / "none"), "--workers", "2", "--database", database]
        run = subprocess.run(command, capture_output=True, text=True, timeout=120)
        assert run.returncode == 2 and "no such file" in run.stderr and "Traceback" not in run.stderr
