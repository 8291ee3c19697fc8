"""A refit round with a server running under light load: does any request fail?

    python scripts/refit_round.py --clients 4            # prints what happened, second by second, and a summary

A department is simulated and served with `--watch-model`; clients read suggestions and decide on tags, over and over.
Meanwhile `whatelse refit` learns from labels and from those very decisions, the server takes the new model up by
itself, and `whatelse refit --rollback` brings the old one back. Exits with 1 if any request failed (409, where somebody
was faster, is an answer), if a model was not taken up, or if a decision that was acknowledged is not in the store.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import threading
import time
import uuid
from collections import Counter
from pathlib import Path

import httpx

from whatelse.cohort import Cohort, build_cohort
from whatelse.simulate import simulate
from whatelse.sources.write import write_visits
from whatelse.store import Store
from whatelse.tagger import Tagger

COMMAND = [sys.executable, "-c", "from whatelse.cli import app; app()"]


class Load:
    """Clients that read and decide until told to stop."""

    def __init__(self, url: str, clients: int) -> None:
        self.url, self.answers, self.slowest = url, Counter[str](), 0.0
        self.models, self.acknowledged = Counter[str](), set[str]()
        self._stop, self._lock = threading.Event(), threading.Lock()
        with httpx.Client(base_url=url, timeout=30) as web:
            self.keys = [row["key"] for row in web.get("/api/visits?limit=200").json()["rows"]]
            self.verdicts = ("confirmed", "rejected", "rejected")
        self._threads = [threading.Thread(target=self._work, args=(k,), daemon=True) for k in range(clients)]
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        self._stop.set()
        for thread in self._threads:
            thread.join()

    def _work(self, number: int) -> None:
        with httpx.Client(base_url=self.url, timeout=30) as web:
            turn = number * 37
            while not self._stop.is_set():
                key, turn = self.keys[turn % len(self.keys)], turn + 1
                view = self._ask(web, "GET", f"/api/visits/{key}/suggestions")
                if view and view["tags"]:
                    request, tag = uuid.uuid4().hex, view["tags"][turn % 3]
                    wanted = {
                        "subject": tag["condition"],
                        "verdict": self.verdicts[turn % 3],
                        "version": view["state"]["version"],
                        "request": request,
                        "model": view["model"],
                    }
                    if self._ask(web, "POST", f"/api/visits/{key}/decisions", wanted):
                        self.acknowledged.add(request)
                time.sleep(0.05)

    def _ask(self, web: httpx.Client, method: str, path: str, body: object = None) -> dict[str, object] | None:
        began = time.perf_counter()
        try:
            reply = web.request(method, path, json=body)
            said = str(reply.status_code)
        except httpx.HTTPError as error:
            reply, said = None, type(error).__name__
        with self._lock:
            self.answers[said] += 1
            self.slowest = max(self.slowest, time.perf_counter() - began)
            if reply is not None and reply.status_code == 200:
                found = reply.json()
                self.models[found["model"][:12]] += 1
                return found
        return None


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--clients", type=int, default=4)
    parser.add_argument("--visits", type=int, default=1500)
    parser.add_argument("--learner", default="joint")
    given = parser.parse_args()
    start = time.perf_counter()

    def say(text: str) -> None:
        print(f"{time.perf_counter() - start:6.1f} s  {text}", flush=True)

    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        visits = list(simulate(given.visits, 21))
        write_visits(iter(visits[:200]), folder / "visits.jsonl")
        whole = build_cohort(visits, max_terms=300)
        assert whole.Y is not None
        bare = Cohort(whole.X, whole.vocabulary, whole.ids)
        bare.save(folder / "cohort")
        lines = ["visit," + ",".join(whole.conditions)]
        lines += [f"{whole.ids[k]}," + ",".join(str(int(v)) for v in whole.Y[k]) for k in range(200, len(whole))]
        (folder / "labels.csv").write_text("\n".join(lines), encoding="utf-8")
        model, database = folder / "model", f"sqlite:///{folder / 'd.db'}"
        first = Tagger(given.learner).fit(bare).save(model)
        say(f"model {first[:12]}, learned without a label")
        serve = [*COMMAND, "serve", "--model", str(model), "--visits", str(folder / "visits.jsonl"), "--port", "0"]
        serve += ["--database", database, "--watch-model", "1"]
        quick = {**os.environ, "WHATELSE_RATE_LIMIT": "0"}  # clients ask faster than people do
        log = (folder / "log").open("w")
        server = subprocess.Popen(serve, stdout=subprocess.PIPE, stderr=log, text=True, env=quick)
        try:
            assert server.stdout is not None
            url = server.stdout.readline().split()[3]
            load = Load(url, given.clients)
            say(f"{given.clients} clients at work")
            time.sleep(5)

            def taken_up(digest: str) -> bool:
                until = time.monotonic() + 60
                while httpx.get(f"{url}api/model").json()["model"] != digest:
                    if time.monotonic() > until:
                        return False
                    time.sleep(0.2)
                return True

            round_ = [*COMMAND, "refit", str(model), str(folder / "cohort"), "--labels", str(folder / "labels.csv")]
            done = subprocess.run([*round_, "--decisions", database], capture_output=True, text=True, check=False)
            for line in done.stdout.splitlines():
                if not set(line) & set("│┃┏┡└"):
                    say(line)
            new = Tagger.load(model).digest_
            fine = [done.returncode == 0, new != first, taken_up(new)]
            say(f"the server answers with {new[:12]}: {fine[-1]}")
            time.sleep(5)
            back = subprocess.run([*COMMAND, "refit", str(model), "--rollback"], capture_output=True, text=True)
            say(back.stdout.strip())
            fine += [back.returncode == 0, taken_up(first)]
            say(f"the server answers with {first[:12]} again: {fine[-1]}")
            time.sleep(3)
            load.stop()
        finally:
            server.terminate()
            server.wait(30)
        store = Store(database)
        kept = {line.request for line in store.tag_lines()}
        store.close()
    failed = {said: count for said, count in load.answers.items() if said not in ("200", "409")}
    say(f"answers {dict(load.answers)}, by model {dict(load.models)}; slowest {load.slowest:.2f} s")
    lost = len(load.acknowledged - kept)
    say(f"failed: {failed or 'none'}; decisions acknowledged {len(load.acknowledged):,}, lost {lost}")
    sys.exit(0 if all(fine) and not failed and not lost else 1)


if __name__ == "__main__":
    main()
