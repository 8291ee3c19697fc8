"""The server is killed in the middle of load, again and again: `python -m benchmarks.crash --times 20`.

Clients decide as in load.py; a supervisor kills the server with SIGKILL at a random moment and starts it again on the
same files, as systemd would. Whoever got no answer asks again with the same request key. Passes if afterwards every
acknowledged decision is in the store, none twice, and no visit's versions have a gap.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import sys
import tempfile
import time
from pathlib import Path

import uvloop

from benchmarks.load import free_port
from benchmarks.serving import Connection, Server, Tally, check_store, clinician, make_department, make_tokens

CLIENTS = 50


async def crash(server: Server, tokens: list[str], times: int, most: float) -> tuple[Tally, list[float]]:
    """Kill and restart `times` times under load; what the clients saw, and how long each start took."""
    connection = Connection(server.port, tokens[0])
    _, rows = await connection.ask("GET", "/api/visits?limit=200")
    _, model = await connection.ask("GET", "/api/model")
    connection.close()
    keys, conditions = [row["key"] for row in rows["rows"]], [c["name"] for c in model["conditions"]]
    tally, done, starts = Tally(), False, list[float]()
    clients = [
        asyncio.create_task(
            clinician(server.port, t, keys[4 * k :] + keys[: 4 * k], conditions, tally, lambda: not done)
        )
        for k, t in enumerate(tokens)
    ]
    draw = random.Random(1)
    for _ in range(times):
        acknowledged = len(tally.acknowledged)
        while len(tally.acknowledged) == acknowledged:  # only when decisions are being made is it the middle of load
            await asyncio.sleep(0.01)
        await asyncio.sleep(draw.uniform(0.05, most))
        server.kill()
        starts.append(await asyncio.to_thread(server.start))
    await asyncio.sleep(1.0)
    done = True
    await asyncio.gather(*clients)
    return tally, starts


def main() -> None:
    """Run and print one JSON object; exit with 1 if a decision was lost or doubled."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--times", type=int, default=20)
    parser.add_argument("--clients", type=int, default=CLIENTS)
    parser.add_argument("--most", type=float, default=2.0, help="seconds of load before a kill, at most")
    parser.add_argument("--database", help="PostgreSQL URL; SQLite in a temporary folder if not given")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        make_department(folder)
        database = given.database or f"sqlite:///{folder / 'decisions.db'}"
        tokens = make_tokens(database, given.clients)
        server, start = Server(folder, free_port(), database), time.perf_counter()
        server.start()
        try:
            with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
                tally, starts = runner.run(crash(server, tokens, given.times, given.most))
        finally:
            server.stop()
        stored = check_store(database, tally.acknowledged)
    bad = [error for error in tally.errors if error not in ("ConnectionError", "TimeoutError", "503")]
    result = {
        "kills": len(starts),
        "seconds": round(time.perf_counter() - start, 1),
        "slowest_start_s": round(max(starts), 1),
        "broken_off": len(tally.errors) - len(bad),
        "other_errors": len(bad),
        **stored,
    }
    passed = not (stored["lost"] or stored["doubled"] or stored["gaps"] or bad)
    print(json.dumps({**result, "passed": passed}))
    sys.exit(0 if passed else 1)


if __name__ == "__main__":
    main()
