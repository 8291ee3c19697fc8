"""Faults drawn at random, for as long as asked: `python -m benchmarks.soak --minutes 60` (or 5, or 1).

Clients decide and look, as in load.py; an EHR calls hooks with and without prefetch, sends feedback and launches the
page, whose sessions go on after a kill. Meanwhile the server is killed (SIGKILL), its disk is full, its database is
stopped (PostgreSQL), its model file is damaged and loaded, clients connect and say nothing, ask and hang up, or ask for
an export and do not read. Passes if every acknowledged decision is in the store afterwards, once; no visit's versions
have a gap; history, audit and cards verify; nothing but broken connections, timeouts and 503 was seen; and memory is
flat. Only this machine is loaded. Without PostgreSQL the whole time goes to SQLite, and the result says so.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import random
import resource
import shutil
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Any

import httpx
import uvloop
from tests.sources.fhir.test_visit import visit_resources
from tests.support.hooking import VIEW
from tests.support.smart_ehr import CLIENT, Ehr, memory, running

from benchmarks.hooks import charts
from benchmarks.load import free_port
from benchmarks.serving import Server, Tally, check_store, clinician, content, make_department, make_tokens
from whatelse.store import Store
from whatelse.store.backup import verify

ALLOWED = {"ConnectionError", "TimeoutError", "503"}
LAUNCH_EVERY = 2.5  # seconds: an address may launch 30 times a minute
GROWING = 15.0  # seconds after its start that a process's memory says nothing
STOPPING = 300.0  # seconds that the server has to stop: on a busy machine its 10 for open requests are not all


@dataclass
class Soak:
    """One server under faults."""

    server: Server
    draw: random.Random
    tokens: list[str]
    ehr: Ehr
    cluster: Any = None
    only: tuple[str, ...] = ()  # faults that are drawn from; all if empty
    served: Counter[str] = field(default_factory=Counter)  # what the EHR was answered, by kind
    start: float = field(default_factory=time.monotonic)
    tally: Tally = field(default_factory=Tally)
    faults: Counter[str] = field(default_factory=Counter)
    memory: list[tuple[float, int, int]] = field(default_factory=list)  # seconds, process, kB
    log: list[str] = field(default_factory=list)

    def say(self, what: str) -> None:
        """A line of the log."""
        self.log.append(f"{time.monotonic() - self.start:7.1f} s  {what}")
        print(self.log[-1], flush=True)

    async def run(self, seconds: float, pause: tuple[float, float]) -> None:
        """Load and faults for so long, then a moment of peace."""
        keys, conditions = await content(self.server.port, self.tokens[0])
        done = False
        clients = [
            asyncio.create_task(clinician(self.server.port, t, keys[9 * k :] + keys[: 9 * k], conditions, self.tally,
                                          lambda: not done))
            for k, t in enumerate(self.tokens)
        ]  # fmt: skip
        clients += [asyncio.create_task(work(lambda: not done)) for work in (self.hooks, self.launches)]
        watching = asyncio.create_task(self._watch())
        kinds = [self.kill, self.bad_model, self.silent, self.hang_up, self.unread]
        kinds += [self.full_disk] if self.cluster is None else [self.no_database]
        kinds = [kind for kind in kinds if not self.only or kind.__name__ in self.only]
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            await asyncio.sleep(self.draw.uniform(*pause))
            fault = self.draw.choices(kinds, [1.0 if kind == self.kill else 2.0 for kind in kinds])[0]
            self.faults[fault.__name__] += 1
            seen = len(self.tally.acknowledged)
            await fault()
            self.say(f"{fault.__name__:12} {seen:7,} decisions acknowledged by then")
        await asyncio.sleep(2.0)
        done = True
        await asyncio.gather(*clients)
        watching.cancel()

    async def _watch(self) -> None:
        while True:
            await asyncio.sleep(1.0)
            if (process := self.server.process) is not None:
                with suppress(OSError, StopIteration, IndexError):
                    lines = Path(f"/proc/{process.pid}/status").read_text().splitlines()
                    size = next(int(line.split()[1]) for line in lines if line.startswith("VmRSS"))
                    self.memory.append((time.monotonic() - self.start, process.pid, size))

    # ---- the EHR

    async def hooks(self, go_on: Callable[[], bool]) -> None:
        """Charts are opened: calls with the visit as prefetch, calls that have it read, and what came of the cards."""
        bodies = charts(20)
        bare = {"prefetch": None, "fhirServer": self.ehr.issuer, "fhirAuthorization": {"access_token": "hook"}}
        async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{self.server.port}", timeout=20) as http:
            while go_on():
                read = self.draw.random() < 0.3
                sent = json.loads(self.draw.choice(bodies)) | (bare if read else {})
                answer = await self._ask(http, "hook read" if read else "hook", "POST", VIEW, json=sent)
                cards = answer.json()["cards"] if answer is not None else []
                if cards and self.draw.random() < 0.2:
                    said = {"feedback": [{"card": cards[0]["uuid"], "outcome": "accepted"}]}
                    await self._ask(http, "feedback", "POST", VIEW + "/feedback", json=said)
                await asyncio.sleep(0.1)

    async def launches(self, go_on: Callable[[], bool]) -> None:
        """The page is launched from the EHR; in between, the visit is looked at by the session of the launch."""
        self.ehr.redirect = f"http://127.0.0.1:{self.server.port}/smart/callback"
        async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{self.server.port}", timeout=20) as http:
            key = ""
            while go_on():
                begun = await self._ask(http, "launch", "GET", f"/smart/launch?iss={self.ehr.issuer}&launch=x")
                if begun is not None:
                    there = (await http.get(begun.headers["location"])).headers["location"]
                    back = await self._ask(http, "callback", "GET", there)
                    key = back.headers["location"][7:33] if back is not None else key
                for _ in range(4 if key else 0):
                    await self._ask(http, "launched visit", "GET", f"/api/visits/{key}")
                    await asyncio.sleep(LAUNCH_EVERY / 4)
                if not key:
                    await asyncio.sleep(LAUNCH_EVERY)

    async def _ask(self, http: httpx.AsyncClient, kind: str, method: str, path: str, **more: Any) -> Any:
        """An answer of the server; None if there was none, which is counted like those of the clinicians."""
        try:
            answer = await http.request(method, path, **more)
        except httpx.TimeoutException:
            self.tally.errors.append("TimeoutError")
        except httpx.TransportError:
            self.tally.errors.append("ConnectionError")
            await asyncio.sleep(0.25)
        else:
            if answer.status_code in (200, 303):
                self.served[kind] += 1
                return answer
            self.tally.errors.append("503" if answer.status_code == 503 else f"{kind} {answer.status_code}")
        return None

    # ---- faults

    async def kill(self) -> None:
        """SIGKILL, and a new start on the same files."""
        self.server.kill()
        await asyncio.to_thread(self.server.start)

    async def full_disk(self) -> None:
        """No file of the server may grow any more, which SQLite is told as a full disk is."""
        assert self.server.process is not None
        number = self.server.process.pid
        resource.prlimit(number, resource.RLIMIT_FSIZE, (4096, resource.RLIM_INFINITY))
        await asyncio.sleep(self.draw.uniform(0.5, 2.0))
        resource.prlimit(number, resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))

    async def no_database(self) -> None:
        """PostgreSQL is stopped as by a crash, and started again."""
        await asyncio.to_thread(self.cluster.stop)
        await asyncio.sleep(self.draw.uniform(0.5, 3.0))
        await asyncio.to_thread(self.cluster.start)

    async def bad_model(self) -> None:
        """A damaged model file is loaded, then the right one again."""
        assert self.server.process is not None
        path = self.server.folder / "department.model"
        good = path.read_bytes()
        for data in (good[: self.draw.randrange(len(good))], good):
            (path.parent / "new.model").write_bytes(data)
            (path.parent / "new.model").replace(path)
            self.server.process.send_signal(signal.SIGHUP)
            await asyncio.sleep(1.0)

    async def silent(self) -> None:
        """Connections that send half a head, or half a body."""
        opened = await self._connections(60)
        for k, (_, writer) in enumerate(opened):
            head = b"POST /api/suggest HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
            writer.write(head + (b"Content-Length: 99\r\n\r\n{" if k % 2 else b"X-Slow: "))
        await asyncio.sleep(self.draw.uniform(1.0, 4.0))
        for _, writer in opened:
            writer.close()

    async def hang_up(self) -> None:
        """Expensive questions of people who do not wait for the answer."""
        body = json.dumps({"visit": {"triage_note": "- " * 5_000}}).encode()
        head = f"POST /api/suggest HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {self.tokens[0]}\r\n"
        head += f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
        for _, writer in await self._connections(40):
            writer.write(head.encode() + body)
            with suppress(OSError):
                await writer.drain()
            writer.close()

    async def unread(self) -> None:
        """Exports that nobody reads."""
        head = (
            f"GET /api/decisions/export HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {self.tokens[-1]}\r\n\r\n"
        )
        opened = await self._connections(20)
        for _, writer in opened:
            writer.write(head.encode())
        await asyncio.sleep(self.draw.uniform(1.0, 4.0))
        for _, writer in opened:
            writer.close()

    async def _connections(self, number: int) -> list[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
        opened = []
        for _ in range(number):
            with suppress(OSError):
                opened.append(await asyncio.open_connection("127.0.0.1", self.server.port, limit=1024))
        return opened

    # ---- afterwards

    def result(self, database: str) -> dict[str, Any]:
        """What is left, checked."""
        stored = check_store(database, self.tally.acknowledged)
        store = Store(database)
        found = verify(store.engine)
        store.close()
        born = {process: at for at, process, _ in reversed(self.memory)}
        settled = [(at, size) for at, process, size in self.memory if at > born[process] + GROWING]
        third = (self.memory[-1][0] if self.memory else 0) / 3
        early = [size for at, size in settled if at <= third]
        late = [size for at, size in settled if at > 2 * third]
        other = Counter(self.tally.errors)
        return {
            "faults": dict(self.faults),
            "ehr": dict(self.served),
            "answers": len(self.tally.seconds),
            **stored,
            "verified": [found.decisions.lines, found.audit.lines],
            "broken_off": sum(other[name] for name in ALLOWED),
            "other_errors": {name: count for name, count in other.items() if name not in ALLOWED},
            "memory_mb": [round(median(part) / 1024) if part else 0 for part in (early, late)],
            "highest_mb": round(max((size for _, _, size in self.memory), default=0) / 1024),
        }


def passed(result: dict[str, Any]) -> bool:
    """Nothing lost, doubled, missing or unexpected, and memory flat."""
    early, late = result["memory_mb"]
    kept = not (result["lost"] or result["doubled"] or result["gaps"] or result["other_errors"])
    served = result["acknowledged"] and result["ehr"].get("hook") and result["ehr"].get("launched visit")
    return bool(kept and served and (not early or late <= 1.25 * early + 50))


@contextmanager
def cluster() -> Iterator[Any]:
    """A PostgreSQL server of one's own; None where it is not installed."""
    from tests.support import postgres  # of the tests

    if postgres._programs() is None:
        yield None
        return
    with postgres.cluster() as made:
        yield made


def soak(
    folder: Path,
    seconds: float,
    clients: int,
    seed: int,
    made: Any,
    pause: tuple[float, float],
    only: tuple[str, ...] = (),
) -> dict[str, Any]:
    """One phase: on the PostgreSQL server given, else on SQLite."""
    database = made.url if made is not None else f"sqlite:///{folder / 'decisions.db'}"
    tokens = make_tokens(database, clients)
    store = Store(database)
    tokens.append(store.access.create("exports", "admin", 1))
    store.close()
    server = Server(folder, free_port(), database)
    ehr = Ehr(memory(visit_resources()), tokens={"hook"})
    run = Soak(server, random.Random(seed), tokens, ehr, made, only)
    with running(ehr):
        return _soak(run, database, seconds, pause, seed)


def _soak(run: Soak, database: str, seconds: float, pause: tuple[float, float], seed: int) -> dict[str, Any]:
    settings = {"cds_hooks": "true", "cds_threshold": "0.05", "smart_client_id": CLIENT}
    settings["fhir_servers"] = json.dumps([run.ehr.issuer])
    os.environ.update({f"WHATELSE_{name.upper()}": value for name, value in settings.items()})
    server, made = run.server, run.cluster
    run.say(f"started on {'PostgreSQL' if made is not None else 'SQLite'} in {server.start():.1f} s, seed {seed}")
    try:
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            runner.run(run.run(seconds, pause))
    finally:
        run.say(f"stopped in {server.stop(STOPPING):.1f} s")
    return {"store": "postgresql" if made is not None else "sqlite", **run.result(database)}


def main() -> None:
    """Run and print one JSON object a phase; exit with 1 if anything was lost or memory grew."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=5.0)
    parser.add_argument("--clients", type=int, default=12)
    parser.add_argument("--seed", type=int, default=int(time.time()))
    parser.add_argument("--pause", type=float, nargs=2, default=[1.0, 8.0], help="seconds between faults")
    parser.add_argument("--faults", nargs="+", default=[], help="draw from these only, as: kill full_disk")
    parser.add_argument("--on", choices=["both", "sqlite", "postgresql"], default="both")
    given = parser.parse_args()
    os.environ["WHATELSE_CLIENT_SECONDS"] = "3"
    results = []
    with tempfile.TemporaryDirectory() as name, cluster() as made:
        folder = Path(name)
        make_department(folder, learn_from=1_500)
        phases = {"both": [None, made], "sqlite": [None], "postgresql": [made]}[given.on]
        if made is None:
            phases = [None]
            print("PostgreSQL is not installed: the whole time goes to SQLite", flush=True)
        for k, phase in enumerate(phases):
            beside = folder / str(k)
            beside.mkdir()
            for file in ("department.model", "visits.jsonl"):
                shutil.copy(folder / file, beside / file)
            seconds = given.minutes * 60 / len(phases)
            made_of = (given.clients, given.seed + k, phase, tuple(given.pause), tuple(given.faults))
            results.append(soak(beside, seconds, *made_of))
            print(json.dumps({**results[-1], "passed": passed(results[-1])}), flush=True)
    sys.exit(0 if all(map(passed, results)) else 1)


if __name__ == "__main__":
    main()
