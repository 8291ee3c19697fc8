"""What load.py and crash.py share: a server as its own process, and clients that cost next to nothing.

A client speaks HTTP/1.1 over one kept connection, with just what this service answers: a Content-Length and JSON.
"""

from __future__ import annotations

import asyncio
import json
import os
import secrets
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from whatelse.annotators import AnchorSet
from whatelse.cohort import build_cohort
from whatelse.learning import learners as learning
from whatelse.simulate import simulate
from whatelse.sources import write_visits
from whatelse.store import Store
from whatelse.tagger import Tagger

VISITS = 2_000


def make_department(folder: Path, learn_from: int = 4_000) -> None:
    """A model and VISITS visits in `folder`, unless they are there already."""
    if not (folder / "department.model").exists():
        cohort = build_cohort(simulate(learn_from, 1), AnchorSet.shipped())
        Tagger(learning.DEFAULT).fit(cohort).save(folder / "department.model")
    if not (folder / "visits.jsonl").exists():
        write_visits(simulate(VISITS, 2), folder / "visits.jsonl")


@dataclass
class Server:
    """`whatelse serve` on the files of a folder, always on the same port and database."""

    folder: Path
    port: int
    database: str
    process: subprocess.Popen[str] | None = None

    def start(self) -> float:
        """Start and wait until it is ready; returns the seconds it took."""
        start = time.perf_counter()
        command = [sys.executable, "-c", "from whatelse.cli import app; app()", "serve", "--auth", "token"]
        command += ["--model", str(self.folder / "department.model"), "--visits", str(self.folder / "visits.jsonl")]
        command += ["--port", str(self.port), "--database", self.database, "--log-level", "error"]
        environment = {**os.environ, "WHATELSE_FAILURES_PER_MINUTE": "100000", "OMP_NUM_THREADS": "1"}
        environment["WHATELSE_RATE_LIMIT"] = "0"  # clients ask faster than people do
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment)
        assert self.process.stdout is not None
        if not self.process.stdout.readline():
            raise RuntimeError("the server did not start")
        return time.perf_counter() - start

    def kill(self) -> None:
        """SIGKILL: no goodbye."""
        assert self.process is not None
        self.process.kill()
        self.process.wait()

    def stop(self, patience: float = 30.0) -> float:
        """SIGTERM, and as many seconds to end; returns how many it took."""
        assert self.process is not None
        start = time.perf_counter()
        self.process.terminate()
        self.process.wait(patience)
        return time.perf_counter() - start


class Connection:
    """One kept connection; opened when first needed and again after it broke."""

    def __init__(self, port: int, token: str) -> None:
        self._port, self._token = port, token
        self._streams: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None

    async def ask(self, method: str, path: str, body: Any = None) -> tuple[int, Any]:
        """Status and JSON; ConnectionError or TimeoutError if there was no whole answer."""
        try:
            async with asyncio.timeout(20):
                return await self._ask(method, path, b"" if body is None else json.dumps(body).encode())
        except (ConnectionError, asyncio.IncompleteReadError, OSError) as broken:
            self.close()
            raise ConnectionError from broken

    async def _ask(self, method: str, path: str, data: bytes) -> tuple[int, Any]:
        if self._streams is None:
            self._streams = await asyncio.open_connection("127.0.0.1", self._port)
        reader, writer = self._streams
        head = f"{method} {path} HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {self._token}\r\n"
        head += f"Content-Type: application/json\r\nContent-Length: {len(data)}\r\n\r\n"
        writer.write(head.encode() + data)
        answer = await reader.readuntil(b"\r\n\r\n")
        lines = answer.decode("latin-1").lower().split("\r\n")
        length = next(int(line[15:]) for line in lines if line.startswith("content-length:"))
        content = await reader.readexactly(length)
        if "connection: close" in lines:
            self.close()
        return int(lines[0].split()[1]), json.loads(content) if content else None

    def close(self) -> None:
        """Hang up."""
        if self._streams is not None:
            self._streams[1].close()
            self._streams = None


async def content(port: int, token: str) -> tuple[list[str], list[str]]:
    """Keys of the first 200 visits of a server, and the names of its conditions."""
    connection = Connection(port, token)
    _, rows = await connection.ask("GET", "/api/visits?limit=200")
    _, model = await connection.ask("GET", "/api/model")
    connection.close()
    return [row["key"] for row in rows["rows"]], [c["name"] for c in model["conditions"]]


@dataclass
class Tally:
    """What the clients saw."""

    seconds: list[float] = field(default_factory=list)
    errors: list[str] = field(default_factory=list)
    acknowledged: dict[str, tuple[str, str]] = field(default_factory=dict)  # request -> (subject, verdict)


async def clinician(
    port: int, token: str, keys: list[str], conditions: list[str], tally: Tally, go_on: Callable[[], bool]
) -> None:
    """Look at a visit, decide on one of its tags, look at the next; what breaks off is asked again with the same key.

    Clients share visits, so they also come in each other's way: a 409 is an answer, and the decision is made again on
    the version it names.
    """
    connection, turn = Connection(port, token), 0
    while go_on():
        key = keys[turn % len(keys)]
        turn += 1
        view = await _timed(connection, tally, go_on, "GET", f"/api/visits/{key}/suggestions")
        if view is None:
            continue
        state = view["state"]
        decided = {*state["confirmed"], *state["rejected"]}
        open_tags = [c for c in conditions if c not in decided]
        subject = secrets.choice(open_tags if len(decided) < 6 else sorted(decided))
        verdict = secrets.choice(["confirmed", "rejected"]) if subject in open_tags else "open"
        body = {"subject": subject, "verdict": verdict, "version": state["version"], "request": secrets.token_hex(16)}
        await _timed(connection, tally, go_on, "POST", f"/api/visits/{key}/decisions", body)
    connection.close()


async def _timed(
    connection: Connection,
    tally: Tally,
    go_on: Callable[[], bool],
    method: str,
    path: str,
    body: dict[str, Any] | None = None,
) -> Any:
    while go_on():
        start = time.perf_counter()
        try:
            status, answer = await connection.ask(method, path, body)
        except (ConnectionError, TimeoutError) as broken:
            tally.errors.append(type(broken).__name__)
            await asyncio.sleep(0.25)
            continue
        if status == 503:  # a no is not an answer
            tally.errors.append("503")
            await asyncio.sleep(0.05)
            continue
        tally.seconds.append(time.perf_counter() - start)
        if status == 409 and body is not None:
            body["version"] = answer["state"]["version"]
            continue
        if status != 200:
            tally.errors.append(str(status))
            return None
        if body is not None:
            tally.acknowledged[body["request"]] = (body["subject"], body["verdict"])
        return answer
    return None


def check_store(database: str, acknowledged: dict[str, tuple[str, str]]) -> dict[str, int]:
    """Acknowledged decisions that are not in the store as they were sent (lost), that are there twice, version gaps."""
    store = Store(database)
    lines = list(store.tag_lines())
    store.close()
    by_request: dict[str, list[Any]] = {}
    versions: dict[str, list[int]] = {}
    for line in lines:
        by_request.setdefault(line.request, []).append(line)
        versions.setdefault(line.visit, []).append(line.version)
    kept = {request: [(line.subject, line.verdict) for line in found] for request, found in by_request.items()}
    return {
        "stored": len(lines),
        "acknowledged": len(acknowledged),
        "lost": sum(kept.get(request) != [said] for request, said in acknowledged.items()),
        "doubled": sum(len(found) > 1 for found in by_request.values()),
        "gaps": sum(found != list(range(1, len(found) + 1)) for found in versions.values()),
    }


def make_tokens(database: str, number: int) -> list[str]:
    """One token for each client: each is somebody else, with their own limits."""
    store = Store(database)
    tokens = [store.access.create(f"client {k}", "clinician", 1) for k in range(number)]
    store.close()
    return tokens
