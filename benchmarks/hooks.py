"""CDS Hooks with prefetch under load: `python -m benchmarks.hooks [--clients 50] [--seconds 20] [--pause 0.2]`.

Clients open charts one after another, each with a pause of a random length in between (`--pause` on average), and send
the whole visit as prefetch. Prints answers a second, the median and the 95th and 99th percentile of the time to an
answer, and what was answered. The goal is 500 ms at the 95th percentile with 50 clients on two cores.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from pathlib import Path

import httpx
import numpy as np

from benchmarks.load import free_port

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))
from hooking import VIEW, call
from serving import save_model


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--clients", type=int, default=50)
    parser.add_argument("--seconds", type=float, default=20)
    parser.add_argument("--pause", type=float, default=0.2)
    options = parser.parse_args()
    bodies = [
        json.dumps(call()).replace('"e1"', f'"e{k}"').replace("Encounter/e1", f"Encounter/e{k}") for k in range(200)
    ]
    with tempfile.TemporaryDirectory() as name:
        port, folder = free_port(), Path(name)
        command = ["serve", "--cds-hooks", "--model", str(save_model(folder)), "--port", str(port)]
        command += ["--database", f"sqlite:///{folder / 'd.db'}"]
        limits = {"WHATELSE_RATE_LIMIT": "0", "WHATELSE_CONNECTIONS_PER_ADDRESS": str(2 * options.clients)}
        server = subprocess.Popen(
            [Path(sys.executable).with_name("whatelse"), *command], env=os.environ | limits, stdout=subprocess.DEVNULL
        )
        try:
            url = f"http://127.0.0.1:{port}"
            _wait(f"{url}/readyz")
            seconds, answers = offered(url, bodies, options.clients, options.seconds, options.pause)
        finally:
            server.terminate()
            server.wait()
    median, p95, p99 = np.percentile(seconds, [50, 95, 99]) * 1000
    print(
        f"{options.clients} clients, {len(bodies[0]):,} bytes a call: {len(seconds) / options.seconds:.0f}/s, median "
        f"{median:.0f} ms, p95 {p95:.0f} ms, p99 {p99:.0f} ms; answers {dict(answers)}; load {os.getloadavg()[0]:.1f}"
    )


def _wait(url: str) -> None:
    for _ in range(600):
        try:
            if httpx.get(url).status_code == 200:
                return
        except httpx.HTTPError:
            pass
        time.sleep(0.1)
    sys.exit("the server did not become ready")


def offered(
    url: str, bodies: list[str], clients: int, duration: float, pause: float
) -> tuple[list[float], Counter[int]]:
    """Seconds to each answer, and how often each status was seen."""
    seconds: list[float] = []
    answers: Counter[int] = Counter()
    end = time.time() + duration

    def client(k: int) -> None:
        chance = random.Random(k)
        with httpx.Client(base_url=url, timeout=30, headers={"content-type": "application/json"}) as connection:
            while time.time() < end:
                began = time.perf_counter()
                answer = connection.post(VIEW, content=chance.choice(bodies))
                seconds.append(time.perf_counter() - began)
                answers[answer.status_code] += 1
                time.sleep(pause * 2 * chance.random())

    threads = [threading.Thread(target=client, args=(k,)) for k in range(clients)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return seconds, answers


if __name__ == "__main__":
    main()
