"""Twice the load that the server can hold: `python -m benchmarks.overload --seconds 15`.

First how much it holds: as much as clients that ask one thing after another get answered, 8 of them, 16, 32 or 64,
whichever is most. Then 50, 200 and 1,000 clients offer twice that between them, whatever becomes of it, while
another process asks for health and readiness. In the same run, how fast the trivial endpoint is, and what processor
time server and clients take. Passes if what was accepted was answered within 250 ms at the 99th percentile, health and
readiness came within 50 ms at the 99th percentile, decisions were refused no more often than suggestions, nothing but
503 was seen, and every acknowledged decision is in the store.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import random
import resource
import secrets
import subprocess
import sys
import tempfile
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import uvloop

from benchmarks.hooks import processor
from benchmarks.load import free_port, load, scored, trivial
from benchmarks.serving import Connection, Server, check_store, content, make_department, make_tokens

SIZES = (50, 200, 1_000)
FEW = 8  # clients of the trivial endpoint
AT_ONCE = 1e9  # requests a second: the next as soon as the last is answered


@dataclass
class Seen:
    """Seconds by what was asked and answered."""

    accepted: dict[str, list[float]] = field(default_factory=lambda: {"GET": [], "POST": []})
    refused: dict[str, list[float]] = field(default_factory=lambda: {"GET": [], "POST": []})
    other: Counter[str] = field(default_factory=Counter)
    acknowledged: dict[str, tuple[str, str]] = field(default_factory=dict)
    versions: dict[str, int] = field(default_factory=dict)  # of visits, as the last answer about each said


class Asking(Connection):
    """A connection that also tells whether a refusal said when to come again, from a loopback address of its own."""

    def __init__(self, port: int, token: str, number: int) -> None:
        super().__init__(port, token)
        self._number = number

    async def open(self) -> None:
        """Connect, so that what is timed later is an answer."""
        if self._streams is None:
            local = (f"127.0.{1 + self._number // 200}.{1 + self._number % 200}", 0)
            self._streams = await asyncio.open_connection("127.0.0.1", self._port, local_addr=local)

    async def _ask(self, method: str, path: str, data: bytes) -> tuple[int, Any]:
        await self.open()
        return await super()._ask(method, path, data)


async def client(
    port: int, token: str, number: int, rate: float, until: float, keys: list[str], conditions: list[str], seen: Seen
) -> None:
    """Ask `rate` times a second, at random moments; a moment that passes while an answer is awaited is not made up."""
    draw, connection, versions = random.Random(number), Asking(port, token, number), seen.versions
    await connection.open()
    while (moment := time.perf_counter() + draw.expovariate(rate)) < until:
        await asyncio.sleep(moment - time.perf_counter())
        key = keys[draw.randrange(len(keys))]
        body = None
        if draw.random() < 0.5 and key in versions:
            body = {"subject": draw.choice(conditions), "verdict": draw.choice(["confirmed", "rejected", "open"]),
                    "version": versions[key], "request": secrets.token_hex(16)}  # fmt: skip
        method = "GET" if body is None else "POST"
        path = f"/api/visits/{key}/" + ("suggestions" if body is None else "decisions")
        start = time.perf_counter()
        try:
            status, answer = await connection.ask(method, path, body)
        except (ConnectionError, TimeoutError) as broken:
            seen.other[type(broken).__name__] += 1
            continue
        took = time.perf_counter() - start
        if status == 503:
            seen.refused[method].append(took)
        elif status in (200, 409):
            seen.accepted[method].append(took)
            versions[key] = max(versions.get(key, 0), answer["state"]["version"])
            if status == 200 and body is not None:
                seen.acknowledged[body["request"]] = (body["subject"], body["verdict"])
        else:
            seen.other[str(status)] += 1
    connection.close()


PROBE = """
import json, socket, sys, time
port, seconds = int(sys.argv[1]), float(sys.argv[2])
took, refused = {"/healthz": [], "/readyz": []}, 0
until = time.perf_counter() + seconds
connections = {path: socket.create_connection(("127.0.0.1", port)) for path in took}
while time.perf_counter() < until:
    for path, raw in connections.items():
        start = time.perf_counter()
        raw.sendall(f"GET {path} HTTP/1.1\\r\\nHost: localhost\\r\\n\\r\\n".encode())
        head = b""
        while b"}" not in head:
            head += raw.recv(65536)
        took[path].append(1000 * (time.perf_counter() - start))
        refused += not head.startswith(b"HTTP/1.1 200")
    time.sleep(0.1)
print(json.dumps({**took, "refused": refused}))
"""


def offer(server: Server, tokens: list[str], clients: int, total: float, seconds: float, served: Any) -> dict[str, Any]:
    """`clients` that ask `total` times a second together; what they saw, and the share of a core that it took."""
    keys, conditions = served
    seen, port, before = Seen(), server.port, _processor(server)

    async def all_of_them() -> None:
        until = time.perf_counter() + seconds
        await asyncio.gather(
            *(client(port, tokens[k % len(tokens)], k, total / clients, until, keys, conditions, seen)
              for k in range(clients))
        )  # fmt: skip

    command = [sys.executable, "-c", PROBE, str(port), str(seconds)]  # asks ten times a second, in its own process
    beside = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(all_of_them())
    took = [round((b - a) / seconds, 2) for a, b in zip(before, _processor(server), strict=True)]
    probed = json.loads(beside.communicate(timeout=60)[0])
    accepted = seen.accepted["GET"] + seen.accepted["POST"]
    refused = seen.refused["GET"] + seen.refused["POST"]
    share = {
        method: len(seen.refused[method]) / max(1, len(seen.refused[method]) + len(seen.accepted[method]))
        for method in ("GET", "POST")
    }
    return {
        "clients": clients,
        "offered_per_second": round(total),
        "asked_per_second": round((len(accepted) + len(refused)) / seconds),
        "accepted_per_second": round(len(accepted) / seconds),
        "accepted_ms": _quantiles([1000 * s for s in accepted]),
        "suggestions_ms": _quantiles([1000 * s for s in seen.accepted["GET"]]),
        "refused_share": {"suggestions": round(share["GET"], 3), "decisions": round(share["POST"], 3)},
        "refused_ms": _quantiles([1000 * s for s in refused]),
        "health_ms": _quantiles(probed["/healthz"]),
        "ready_ms": _quantiles(probed["/readyz"]),
        "not_ready": probed["refused"],
        "other": dict(seen.other),
        "cores": dict(zip(("server", "clients"), took, strict=True)),
        "acknowledged": seen.acknowledged,
    }


def _processor(server: Server) -> tuple[float, float]:
    """Seconds of processor time that the server and its clients, who are this process, have taken."""
    assert server.process is not None
    own = resource.getrusage(resource.RUSAGE_SELF)
    return processor(server.process.pid), own.ru_utime + own.ru_stime


def _quantiles(values: list[float]) -> list[float]:
    """Median, 99th percentile, highest."""
    return [round(float(v), 1) for v in np.percentile(values, [50, 99, 100])] if values else []


def good(result: dict[str, Any]) -> bool:
    """Whether one size met its goals."""
    share = result["refused_share"]
    prompt = all(result[name][1] <= 50 for name in ("health_ms", "ready_ms"))
    return bool(
        result["accepted_ms"][1] <= 250
        and prompt
        and not result["other"]
        and share["decisions"] <= share["suggestions"]
    )


def main() -> None:
    """Run and print one JSON object a size; exit with 1 if a goal was missed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=15.0)
    parser.add_argument("--folder", type=Path, help="keeps the department for the next run")
    parser.add_argument("--sizes", type=int, nargs="+", default=list(SIZES))
    given = parser.parse_args()
    os.environ["WHATELSE_MAX_CONNECTIONS"] = "1500"
    missed = False
    with tempfile.TemporaryDirectory() as name:
        folder = given.folder or Path(name)
        folder.mkdir(exist_ok=True)
        make_department(folder, learn_from=1_500)
        database = f"sqlite:///{Path(name) / 'decisions.db'}"
        tokens = make_tokens(database, 100)
        server = Server(folder, free_port(), database)
        server.start()
        acknowledged: dict[str, tuple[str, str]] = {}
        try:
            with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
                runner.run(scored(server.port, tokens[0]))
                runner.run(load(server.port, tokens[:FEW], 3.0))  # warm
                plain = runner.run(trivial(server.port, tokens[:FEW], given.seconds / 3))
                served = runner.run(content(server.port, tokens[0]))
            held = [offer(server, tokens, few, AT_ONCE, given.seconds / 4, served) for few in (8, 16, 32, 64)]
            most = max(held, key=lambda result: result["accepted_per_second"])
            said = {name: most[name] for name in ("clients", "accepted_ms", "cores")}
            holds = most["accepted_per_second"]
            print(json.dumps({"holds_per_second": holds, **said, "trivial_per_second": round(plain)}), flush=True)
            offered = [offer(server, tokens, size, 2 * holds, given.seconds, served) for size in given.sizes]
            for result in [*held, *offered]:
                acknowledged |= result.pop("acknowledged")
            for result in offered:
                missed |= not good(result)
                print(json.dumps({**result, "passed": good(result)}), flush=True)
        finally:
            server.stop()
        stored = check_store(database, acknowledged)
        print(json.dumps(stored))
    sys.exit(1 if missed or stored["lost"] or stored["doubled"] else 0)


if __name__ == "__main__":
    main()
