"""Build, fit and tag on a standalone Spark master with two workers, each a process of its own, on this machine.

    python scripts/spark_standalone.py [--visits 4000] [--kill]

Starts org.apache.spark.deploy.master.Master and two org.apache.spark.deploy.worker.Worker, which come with pyspark,
builds, learns and tags on them, compares vocabulary, findings, model and tags with those of the local engine, and
ends what it started. With --kill one executor is killed in the middle of the fit.
"""

from __future__ import annotations

import argparse
import os
import re
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pyspark

from whatelse import spark
from whatelse.annotators import NoiseRates
from whatelse.cohort import Cohort, build_cohort
from whatelse.simulate import simulate
from whatelse.sources import read_visits, write_visits
from whatelse.tagger import Tagger

HOME = Path(pyspark.__file__).parent


def start(folder: Path, name: str, *arguments: str) -> subprocess.Popen[bytes]:
    """One of Spark's daemons, in the foreground of a process of its own; its output goes to a file."""
    environment = os.environ | {"SPARK_HOME": str(HOME), "PYSPARK_PYTHON": sys.executable, "SPARK_NO_DAEMONIZE": "1"}
    command = [str(HOME / "bin" / "spark-class"), f"org.apache.spark.deploy.{name}", *arguments]
    log = (folder / f"{len(list(folder.glob('*.log')))}-{name}.log").open("wb")
    return subprocess.Popen(command, env=environment, stdout=log, stderr=log, cwd=folder)


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def wait_for(folder: Path, pattern: str, times: int, seconds: float = 90) -> None:
    """Until the daemons' logs say something so many times."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        said = "".join(path.read_text(errors="replace") for path in folder.glob("*.log"))
        if len(re.findall(pattern, said)) >= times:
            return
        time.sleep(0.5)
    raise SystemExit(f"the daemons did not say {pattern!r} in {seconds:.0f} s; see {folder}")


def executors() -> list[int]:
    """Process ids of executors that this run's workers started."""
    found = subprocess.run(["ps", "-eo", "pid,args"], capture_output=True, text=True, check=True).stdout
    lines = [line.split(None, 1) for line in found.splitlines() if "CoarseGrainedExecutorBackend" in line]
    return [int(pid) for pid, args in lines if str(HOME) in args]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--visits", type=int, default=4_000)
    parser.add_argument("--kill", action="store_true", help="kill one executor in the middle of the fit")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        port = free_port()
        master = f"spark://127.0.0.1:{port}"
        where = ["--host", "127.0.0.1"]
        daemons = [start(folder, "master.Master", *where, "--port", str(port), "--webui-port", str(free_port()))]
        try:
            wait_for(folder, "I have been elected leader", 1)
            for k in range(2):
                limits = ["--cores", "1", "--memory", "2g", "--webui-port", str(free_port())]
                daemons.append(
                    start(folder, "worker.Worker", *where, *limits, "-d", str(folder / f"worker{k}"), master)
                )
            wait_for(folder, "Successfully registered with master", 2)
            print(f"a master and two workers of one core each, at {master.rsplit(':', 1)[0]}")
            compare(folder, master, options.visits, options.kill)
        finally:
            for daemon in reversed(daemons):
                daemon.terminate()
            for daemon in daemons:
                daemon.wait(30)
    return 0


def compare(folder: Path, master: str, visits: int, kill: bool) -> None:
    files = []
    stream = list(simulate(visits, seed=4))
    for k in range(3):
        files.append(str(folder / f"visits{k}.parquet"))
        write_visits(stream[k::3], files[-1])
    local = build_cohort(read_visits(files))
    running = spark.session(
        master, {"spark.executor.memory": "1g", "spark.cores.max": "2", "spark.driver.host": "127.0.0.1"}
    )
    cohort = spark.build_cohort(running.read.parquet(*files), out=folder / "cohort")
    opened = Cohort.open(folder / "cohort")
    print(f"executors: {len(executors())} processes of their own")
    names = local.vocabulary.names
    print(f"vocabulary of {len(names):,} findings: {same(opened.vocabulary.names == names)}")
    print(f"findings of {len(opened):,} visits: {same((opened.X != local.X).nnz == 0)}")
    rates = NoiseRates.from_labels(local)
    victim, told = executors()[0], list[str]()

    def progress(what: str, done: int, total: int) -> None:
        if kill and what == "learning from hidden anchors" and what not in told:
            threading.Timer(2, lambda: os.kill(victim, signal.SIGKILL)).start()
        told.append(what)

    found, wanted = spark.fit(cohort, rates=rates, progress=progress), Tagger().fit(local, rates=rates)
    if kill and victim in executors():
        raise SystemExit("the executor still runs")
    parts = ("prior", "fail", "leak", "weight", "coupling")
    equal = all(np.array_equal(getattr(found.model_.noisyor, p), getattr(wanted.model_.noisyor, p)) for p in parts)
    lost = ", one executor killed while it learned from hidden anchors" if kill else ""
    print(f"model{lost}: {same(equal)}")
    found.save(folder / "model")
    spark.tag(running.read.parquet(*files), folder / "model").write.parquet(f"file://{folder / 'tags'}")
    tags = pq.read_table(folder / "tags").sort_by("id")
    order = np.argsort(opened.ids.astype(str), kind="stable")
    probabilities = wanted.predict_proba(local)[order]
    off = max(np.abs(tags.column(c).to_numpy() - probabilities[:, i]).max() for i, c in enumerate(local.conditions))
    print(f"tags of {tags.num_rows:,} visits: at most {off:.1g} apart")
    running.stop()


def same(equal: bool) -> str:
    if not equal:
        raise SystemExit("DIFFERENT from the local engine's")
    return "the local engine's"


if __name__ == "__main__":
    sys.exit(main())
