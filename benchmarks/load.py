"""Fifty clinicians at once: `python -m benchmarks.load --seconds 60`.

Each looks at a visit's suggestions and decides on a tag, over and over, on visits they share; the server is one process
on the same two cores. Beside it, in the same run, the same clients ask the trivial endpoint /healthz. Passes if
there are at least 300 answers a second, or half of the trivial endpoint's where that is lower, the 99th percentile is
below 250 ms, nothing failed, and every acknowledged decision is in the store afterwards, once.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import uvloop

from benchmarks.serving import Connection, Server, Tally, check_store, clinician, content, make_department, make_tokens
from whatelse.server.settings import Settings
from whatelse.server.workers import listen

CLIENTS = 50
TRIVIAL_SECONDS = 5.0


async def trivial(port: int, tokens: list[str], seconds: float) -> float:
    """Answers a second of /healthz."""
    until, counts = time.perf_counter() + seconds, [0] * len(tokens)

    async def ask(k: int) -> None:
        connection = Connection(port, tokens[k])
        while time.perf_counter() < until:
            await connection.ask("GET", "/healthz")
            counts[k] += 1
        connection.close()

    await asyncio.gather(*(ask(k) for k in range(len(tokens))))
    return sum(counts) / seconds


async def scored(port: int, token: str) -> None:
    """Wait until the worklist's suggestions are ready: that work comes with a start, not with the load."""
    connection = Connection(port, token)
    while (answer := (await connection.ask("GET", "/api/visits?limit=1"))[1])["scored"] < answer["visits"]:
        await asyncio.sleep(0.2)
    connection.close()


async def load(port: int, tokens: list[str], seconds: float) -> tuple[Tally, float]:
    """What the clients saw, and answers a second."""
    keys, conditions = await content(port, tokens[0])
    tally, start = Tally(), time.perf_counter()

    def go_on() -> bool:
        return time.perf_counter() - start < seconds

    await asyncio.gather(
        *(clinician(port, t, keys[4 * k :] + keys[: 4 * k], conditions, tally, go_on) for k, t in enumerate(tokens))
    )
    return tally, len(tally.seconds) / (time.perf_counter() - start)


def free_port() -> int:
    """A port that nobody listens on."""
    with listen(Settings(model=Path(), port=0)) as found:
        port: int = found.getsockname()[1]
        return port


def main() -> None:
    """Run and print one JSON object; exit with 1 if a goal was missed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--clients", type=int, default=CLIENTS)
    parser.add_argument("--database", help="PostgreSQL URL; SQLite in a temporary folder if not given")
    parser.add_argument("--workers", type=int, default=1, help="processes that serve; more than one needs PostgreSQL")
    parser.add_argument("--folder", type=Path, help="keeps the department for the next run")
    given = parser.parse_args()
    os.environ["WHATELSE_WORKERS"] = str(given.workers)
    with tempfile.TemporaryDirectory() as name:
        folder = given.folder or Path(name)
        folder.mkdir(exist_ok=True)
        make_department(folder)
        database = given.database or f"sqlite:///{Path(name) / 'decisions.db'}"
        tokens = make_tokens(database, given.clients)
        server = Server(folder, free_port(), database)
        server.start()
        try:
            with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
                runner.run(scored(server.port, tokens[0]))
                runner.run(load(server.port, tokens, 3.0))  # warm
                before = runner.run(trivial(server.port, tokens, TRIVIAL_SECONDS))
                tally, rate = runner.run(load(server.port, tokens, given.seconds))
                after = runner.run(trivial(server.port, tokens, TRIVIAL_SECONDS))
        finally:
            server.stop()
        p50, p99 = np.percentile(np.array(tally.seconds) * 1000, [50, 99])
        stored = check_store(database, tally.acknowledged)
    goal = min(300.0, 0.5 * (before + after) / 2)
    result: dict[str, Any] = {
        "workers": given.workers,
        "answers_per_second": round(rate, 1),
        "goal_per_second": round(goal, 1),
        "trivial_per_second": [round(before, 1), round(after, 1)],
        "p50_ms": round(float(p50), 1),
        "p99_ms": round(float(p99), 1),
        "errors": len(tally.errors),
        **stored,
    }
    passed = rate >= goal and p99 < 250 and not tally.errors and not (stored["lost"] or stored["doubled"])
    print(json.dumps({**result, "passed": bool(passed)}))
    sys.exit(0 if passed else 1)


if __name__ == "__main__":
    main()
