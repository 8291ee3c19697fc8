"""Spark beside the local engine, in one run on the same cores: build, fit and tag, and memory as visits grow.

    python -m benchmarks.spark [--visits 50000] [--base 20000] [--one-core] [--memory 20000 80000]
    python -m benchmarks.spark --curve 2000 5000 15000 50000 150000

Visits are `--base` simulated ones, repeated on disk with other ids. Each measurement is a process of its own; Spark's
start, the workers' imports and compiled loops are warmed up first and not counted. Times depend on the machine and on
what else runs there: only the ratios of one run mean something. CPU is user and system time of the process and its
children, by which runs on a busy machine compare better than by the clock.

    rate     visits a second, Spark's over the local engine's: build and tag at least 0.6 is wanted
    time     of a fit, Spark's over the local engine's: at most 2.5 is wanted
    curve    held-out tag by how many visits were learned from, on those of 40,000 others that have several conditions
    memory   peak of the driver's Python process, and of the Java process (with --memory at several sizes)
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq


def make(folder: Path, base: int, visits: int) -> list[str]:
    """Files of `base` visits each, all with ids of their own."""
    from whatelse.simulate import simulate
    from whatelse.sources import write_visits

    first = folder / "base.parquet"
    if not first.exists():
        write_visits(simulate(base, seed=1), first)
    table, files = pq.read_table(first), []
    for k in range(-(-visits // base)):
        file = folder / f"visits-{k:04}.parquet"
        if not file.exists():
            ids = pa.array([f"{k}-{name}" for name in table.column("id").to_pylist()])
            pq.write_table(table.set_column(table.schema.get_field_index("id"), "id", ids), file, row_group_size=10_000)
        files.append(str(file))
    return files


def spent() -> tuple[float, float]:
    """(clock, CPU of this process and of its children, those that still run included)."""
    tick, total = os.sysconf("SC_CLK_TCK"), 0.0
    waiting, parents = [os.getpid()], {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                fields = (entry / "stat").read_text().rpartition(")")[2].split()
            except OSError:
                continue
            parents.setdefault(int(fields[1]), []).append(int(entry.name))
            if int(entry.name) in waiting:
                total += sum(map(int, fields[11:15])) / tick
    seen = set(waiting)
    while waiting:
        for child in parents.get(waiting.pop(), ()):
            if child not in seen:
                seen.add(child)
                waiting.append(child)
                try:
                    fields = Path(f"/proc/{child}/stat").read_text().rpartition(")")[2].split()
                    total += sum(map(int, fields[11:15])) / tick
                except OSError:
                    continue
    return time.perf_counter(), total


def peak_of_java() -> float:
    """Peak resident memory of this process's Java child, in GB; 0 where there is none."""
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                status = (entry / "status").read_text()
            except OSError:
                continue
            if "Name:\tjava" in status and f"PPid:\t{os.getpid()}" in status:
                return int(status.partition("VmHWM:")[2].split()[0]) / 1e6
    return 0.0


def measure(engine: str, files: list[str], folder: Path) -> dict[str, float]:
    """Build, fit and tag in this process: seconds and CPU of each. local[1] has one core for everything, Java too."""
    if engine == "local[1]":
        os.sched_setaffinity(0, [min(os.sched_getaffinity(0))])
    from whatelse.annotators import NoiseRates
    from whatelse.batch.stream import tag_file
    from whatelse.cohort import Cohort, build_cohort
    from whatelse.sources import read_visits
    from whatelse.tagger import Tagger

    out: dict[str, float] = {}

    def lap(name: str, before: tuple[float, float]) -> None:
        after = spent()
        out[f"{name}_s"], out[f"{name}_cpu"] = after[0] - before[0], after[1] - before[1]

    if engine == "local":
        warm = build_cohort(read_visits(files[:1]))
        Tagger("naive").fit(warm[:2000])
        began = spent()
        cohort = build_cohort(read_visits(files))
        cohort.save(folder / "local")
        lap("build", began)
        began = spent()
        Tagger().fit(cohort, rates=NoiseRates.from_labels(cohort)).save(folder / "model")
        lap("fit", began)
        began = spent()
        tag_file(folder / "model", read_visits(files, once=False), folder / "tags.parquet")
        lap("tag", began)
    else:
        from whatelse import spark

        running = spark.session(engine)
        few = running.read.parquet(files[0]).limit(2000)
        spark.fit(spark.build_cohort(few, out=folder / "warm"), "naive").save(folder / "warm_model")
        spark.tag(few, folder / "warm_model").write.mode("overwrite").parquet(f"file://{folder}/warm_tags")
        df = running.read.parquet(*files)
        began = spent()
        made = spark.build_cohort(df, out=folder / "spark")
        lap("build", began)
        rates = NoiseRates.from_counts(*made.tally().table, made.conditions)
        began = spent()
        spark.fit(made, rates=rates).save(folder / "spark_model")
        lap("fit", began)
        began = spent()
        spark.tag(df, folder / "spark_model").write.mode("overwrite").parquet(f"file://{folder}/spark_tags")
        lap("tag", began)
        out["java_gb"] = peak_of_java()
        del Cohort
    out["python_gb"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6
    return out


def curve(sizes: list[int]) -> None:
    """How good a model so many visits make, with the findings of the largest cohort."""
    from whatelse.annotators import NoiseRates
    from whatelse.cohort import build_cohort
    from whatelse.noisyor.heldout_metrics import heldout_tag_draws, heldout_tag_scores
    from whatelse.simulate import simulate
    from whatelse.tagger import Tagger

    whole = build_cohort(simulate(max(sizes), seed=21))
    test = build_cohort(simulate(40_000, seed=22), like=whole).multi()
    assert test.Y is not None
    draws = heldout_tag_draws(test.Y, seed=0, draws=3)
    print(f"| visits learned from | accuracy | top 5 | MRR | ({len(test):,} visits tested) |\n|---|---|---|---|---|")
    for size in sizes:
        cohort = whole[:size]
        tagger = Tagger().fit(cohort, rates=NoiseRates.from_labels(cohort))
        scores = heldout_tag_scores(tagger.heldout_tag, test.X, test.Y, draws, resamples=1000)
        low, high = scores.accuracy.low, scores.accuracy.high
        shown = " | ".join(f"{i.value:.3f}" for i in (scores.accuracy, scores.top5, scores.mrr))
        print(f"| {size:,} | {shown} | accuracy {low:.3f} to {high:.3f} |", flush=True)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--visits", type=int, default=50_000)
    parser.add_argument("--base", type=int, default=20_000)
    parser.add_argument("--one-core", action="store_true", help="also Spark on one core")
    parser.add_argument("--memory", type=int, nargs="*", default=[], help="also these numbers of visits, Spark alone")
    parser.add_argument("--folder", type=Path, help="where the files go, and stay")
    parser.add_argument("--measure", nargs=2, metavar=("ENGINE", "VISITS"), help=argparse.SUPPRESS)
    parser.add_argument("--curve", type=int, nargs="+", help="only this")
    options = parser.parse_args()
    if options.curve:
        curve(sorted(options.curve))
        return 0
    if options.measure:
        engine, visits = options.measure[0], int(options.measure[1])
        files = make(options.folder, options.base, visits)
        print(json.dumps(measure(engine, files, options.folder)))
        return 0
    with tempfile.TemporaryDirectory() as name:
        folder = (options.folder or Path(name)).absolute()
        folder.mkdir(parents=True, exist_ok=True)
        make(folder, options.base, max([options.visits, *options.memory]))

        def run(engine: str, visits: int) -> dict[str, float]:
            command = [sys.executable, "-W", "ignore", "-m", "benchmarks.spark", "--folder", str(folder)]
            command += ["--base", str(options.base), "--measure", engine, str(visits)]
            done = subprocess.run(command, check=True, capture_output=True, text=True)
            found: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
            print(f"{engine:9} {visits:>9,}", *(f"{key} {value:,.1f}" for key, value in found.items()), flush=True)
            return found

        here, there = run("local", options.visits), run("local[2]", options.visits)
        for stage, good in (("build", 0.6), ("tag", 0.6)):
            clock, cpu = here[f"{stage}_s"] / there[f"{stage}_s"], here[f"{stage}_cpu"] / there[f"{stage}_cpu"]
            print(f"{stage}: Spark's rate is {clock:.2f} of the local one (wanted {good}); by CPU {cpu:.2f}")
        ratio = there["fit_s"] / here["fit_s"]
        print(
            f"fit: Spark takes {ratio:.2f} times as long (wanted 2.5); by CPU {there['fit_cpu'] / here['fit_cpu']:.2f}"
        )
        if options.one_core:
            one = run("local[1]", options.visits)
            print(
                "from one core to two:",
                *(f"{s} {one[f'{s}_s'] / there[f'{s}_s']:.2f}" for s in ("build", "fit", "tag")),
            )
        for visits in options.memory:
            run("local[2]", visits)
    return 0


if __name__ == "__main__":
    sys.exit(main())
