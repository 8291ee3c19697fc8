"""CDS Hooks with prefetch under load: `python -m benchmarks.hooks [--clients 50] [--seconds 20] [--pause 1.0]`.

Clients open charts one after another, each with a pause of a random length in between (`--pause` on average), and send
the whole visit as prefetch, with a token (ES384) that was not used before. There are as many visits as `--visits`, each
with a record of its own. Prints answers a second, the median and the 95th and 99th percentile of the time to an
answer, and what was answered. The goal is 500 ms at the 95th percentile with 50 clients on two cores.

`--burst`: every client calls at the same instant, ten times over; the goal is the same, with at most 5 of 50 refused.
`--model emergency`: the shipped model instead of a small department's.
`--read 100`: calls have no prefetch, and the FHIR server takes 100 ms for each request; the goal is the same.
"""

from __future__ import annotations

import argparse
import base64
import http.client
import json
import os
import random
import subprocess
import sys
import tempfile
import threading
import time
import uuid
from collections import Counter
from pathlib import Path

import httpx
import numpy as np
from tests.server.ehr.cds.test_tokens import ISSUER, Ehr
from tests.sources.fhir.test_visit import visit_resources
from tests.support.hooking import VIEW, call
from tests.support.serving import save_model
from tests.support.smart_ehr import Backend, memory, running
from tests.support.smart_ehr import Ehr as SmartEhr

from benchmarks.load import free_port
from whatelse.simulate import simulate


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--clients", type=int, default=50)
    parser.add_argument("--seconds", type=float, default=20)
    parser.add_argument("--pause", type=float, default=1.0)
    parser.add_argument("--visits", type=int, default=500)
    parser.add_argument("--burst", action="store_true")
    parser.add_argument("--model", help="model to serve; a small department's if not given")
    parser.add_argument("--read", type=float, default=0, help="milliseconds of a FHIR request; 0 for prefetch")
    options = parser.parse_args()
    with running(SmartEhr(slow(options.read / 1000), tokens={"t"})) as fhir:
        measure(options, fhir)


def slow(seconds: float) -> Backend:
    """A FHIR server of one visit that takes so long for each request."""
    quick = memory(visit_resources())

    def answer(path: str, query: str) -> tuple[int, bytes, str]:
        time.sleep(seconds)
        return quick(path, query)

    return answer


def measure(options: argparse.Namespace, fhir: SmartEhr) -> None:
    """Start a server, call it, print what was measured."""
    bodies = charts(options.visits)
    if options.read:
        bare = {"prefetch": None, "fhirServer": fhir.issuer, "fhirAuthorization": {"access_token": "t"}}
        bodies = [json.dumps({**call(), **bare}).encode()]
    with tempfile.TemporaryDirectory() as name:
        port, folder = free_port(), Path(name)
        ehr, url = Ehr(folder), f"http://127.0.0.1:{port}"
        settings = {
            "model": options.model or str(save_model(folder)),
            "database": f"sqlite:///{folder / 'd.db'}",
            "port": port,
        }
        settings |= {"cds_hooks": True, "cds_issuers": {ISSUER: str(ehr.file)}, "cds_threshold": 0.3}
        settings |= {"fhir_servers": [fhir.issuer], "rate_limit": 0, "connections_per_address": 2 * options.clients}
        (folder / "serve.yaml").write_text(json.dumps(settings))
        command = [Path(sys.executable).with_name("whatelse"), "serve", "--config", str(folder / "serve.yaml")]
        offered = options.clients * options.seconds / max(options.pause, 0.1)
        tokens = [ehr.token(url + VIEW) for _ in range(int(1.3 * offered) + 500)]
        server = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        try:
            _wait(f"{url}/readyz")
            load(port, bodies, tokens, 4, 2, 0.2)  # what is compiled or opened at the first call is not measured
            before = processor(server.pid)
            if options.burst:
                seconds, answers = bursts(port, bodies, tokens, options.clients)
            else:
                seconds, answers = load(port, bodies, tokens, options.clients, options.seconds, options.pause)
            used = (processor(server.pid) - before) / len(seconds)
        finally:
            server.terminate()
            server.wait()
    median, p95, p99 = np.percentile(seconds, [50, 95, 99]) * 1000
    print(
        f"{options.clients} clients, {np.mean([len(b) for b in bodies]):,.0f} bytes a call: "
        f"{len(seconds) / options.seconds:.0f}/s, median {median:.0f} ms, p95 {p95:.0f} ms, p99 {p99:.0f} ms; "
        f"answers {dict(answers)}; server: {1000 * used:.0f} ms of processor time a call; load {os.getloadavg()[0]:.1f}"
    )


def processor(number: int) -> float:
    """Seconds of processor time that a process has taken; unlike an answer, it does not wait for other programs."""
    fields = Path(f"/proc/{number}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def charts(count: int) -> list[bytes]:
    """Calls with the whole of a simulated visit as prefetch, each of an encounter of its own."""
    bodies = []
    for k, visit in enumerate(simulate(count, 5)):
        resources = visit_resources()
        resources[1]["reasonCode"] = [{"text": visit.chief_complaint}]
        for document, text in ((resources[2], visit.triage_note), (resources[3], visit.md_comments)):
            document["content"][0]["attachment"]["data"] = base64.b64encode((text or "").encode()).decode()
        text = json.dumps({**call(resources), "hookInstance": str(uuid.uuid4())})
        bodies.append(text.replace('"e1"', f'"e{k}"').replace("Encounter/e1", f"Encounter/e{k}").encode())
    return bodies


def _wait(url: str) -> None:
    for _ in range(3_000):
        try:
            if httpx.get(url).status_code == 200:
                return
        except httpx.HTTPError:
            pass
        time.sleep(0.1)
    sys.exit("the server did not become ready")


def load(
    port: int, bodies: list[bytes], tokens: list[str], clients: int, duration: float, pause: float
) -> tuple[list[float], Counter[int]]:
    """Seconds to each answer, and how often each status was seen."""
    seconds: list[float] = []
    answers: Counter[int] = Counter()
    end = time.time() + duration

    def client(k: int) -> None:
        chance = random.Random(k)
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
        time.sleep(pause * chance.random())
        while time.time() < end and tokens:
            headers = {"content-type": "application/json", "authorization": f"Bearer {tokens.pop()}"}
            began = time.perf_counter()
            connection.request("POST", VIEW, chance.choice(bodies), headers)
            answer = connection.getresponse()
            answer.read()
            seconds.append(time.perf_counter() - began)
            answers[answer.status] += 1
            time.sleep(pause * 2 * chance.random())
        connection.close()

    threads = [threading.Thread(target=client, args=(k,)) for k in range(clients)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return seconds, answers


def bursts(port: int, bodies: list[bytes], tokens: list[str], clients: int) -> tuple[list[float], Counter[int]]:
    """Ten bursts of one call of every client at the same instant: seconds of calls answered, statuses."""
    seconds: list[float] = []
    answers: Counter[int] = Counter()
    barrier = threading.Barrier(clients)

    def client(k: int) -> None:
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
        connection.connect()
        for turn in range(10):
            headers = {"content-type": "application/json", "authorization": f"Bearer {tokens.pop()}"}
            barrier.wait(60)
            began = time.perf_counter()
            connection.request("POST", VIEW, bodies[(clients * turn + k) % len(bodies)], headers)
            answer = connection.getresponse()
            answer.read()
            answers[answer.status] += 1
            if answer.status == 200:
                seconds.append(time.perf_counter() - began)
            time.sleep(1.0)

    threads = [threading.Thread(target=client, args=(k,)) for k in range(clients)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return seconds, answers


if __name__ == "__main__":
    main()
