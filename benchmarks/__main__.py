"""Every benchmark in turn, with settings short enough for a coffee: `python -m benchmarks` (or `make bench`).

    python -m benchmarks --list
    python -m benchmarks load learning          # only these
    python -m benchmarks --skip load soak    # all but these

Each runs in a process of its own, so that one's memory and threads are not another's; one that fails does not stop the
rest and is named at the end, when the exit status is 1. For the figures of docs/results.md, run the benchmark itself
with its own settings: `python -m benchmarks.learning --help`.
"""

from __future__ import annotations

import argparse
import shlex
import subprocess
import sys
import time
from pathlib import Path

HELPERS = {"serving", "inference_peers", "peer_learners"}  # parts of other benchmarks
RUNS: dict[str, list[str]] = {
    "tokenizing": ["--rounds 3"],
    "negation": [""],
    "simulating": [""],
    "building": ["--visits 20000"],
    "omop": ["--visits 20000"],
    "inference": ["--visits 20 --limit 30"],
    "consistency": ["--visits 100000 --seeds 1"],
    "nvil": ["speed --repeats 1"],
    "learning": ["nvil --epochs 10", "visits --sizes 10000 30000", "conditions"],
    "difficulty": [""],
    "load": ["--seconds 10"],
    "page": ["counts --simulated 50"],
    "soak": ["--minutes 1"],
    "year": ["--months 2 --learn 2500 --month 500 --test 1000"],
}
"""What is run of each benchmark: the arguments of each call. One that is not here runs with its defaults."""
BY_HAND = {
    "spark": "needs Java, and takes a while",
    "annotators": "needs two cohort folders",
    "few_labels": "needs two cohort folders",
    "label_curve": "needs two cohort folders",
    "marks": "needs two cohort folders",
    "reasons": "needs a cohort folder",
    "peers": "needs the public data, and an hour",
    "realism": "needs the survey's files",
    "knowledge": "needs a file of records and anchors",
    "text_peers": "needs a file of notes and medspaCy",
    "suggest": "needs records to learn from and to test on",
    "tagging": "needs a model and a file of visits",
}


def found() -> list[str]:
    """The benchmarks there are, those of RUNS first and in its order."""
    files = {path.stem for path in Path(__file__).parent.glob("[!_]*.py")} - HELPERS - set(BY_HAND)
    return [name for name in RUNS if name in files] + sorted(files - set(RUNS))


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", metavar="benchmark", help="only these (all if none is named)")
    parser.add_argument("--skip", nargs="+", default=[], metavar="benchmark", help="all but these")
    parser.add_argument("--list", action="store_true", help="only say what would be run")
    parser.add_argument("--limit", type=float, default=900.0, help="seconds a call may take")
    options = parser.parse_args(arguments)
    if unknown := sorted({*options.names, *options.skip} - set(found())):
        parser.error(f"there is no benchmark {unknown[0]!r}; there are {', '.join(found())}")
    names = [name for name in options.names or found() if name not in options.skip]
    calls = [(name, call) for name in names for call in RUNS.get(name, [""])]
    failed = []
    for name, call in calls:
        title = f"benchmarks.{name} {call}".strip()
        print(title if options.list else f"\n=== {title}", flush=True)
        if not options.list and (problem := run(name, call, options.limit)):
            failed.append(f"{title}: {problem}")
    for name, why in BY_HAND.items():
        print(f"\nNot run: benchmarks.{name} {why}; see python -m benchmarks.{name} --help")
    if failed:
        print("\nFailed:\n" + "\n".join(failed))
    return int(bool(failed))


def run(name: str, call: str, limit: float) -> str:
    """Run one; what went wrong, or nothing."""
    began = time.perf_counter()
    try:
        done = subprocess.run([sys.executable, "-m", f"benchmarks.{name}", *shlex.split(call)], timeout=limit)
    except subprocess.TimeoutExpired:
        return f"stopped after {limit:g} s"
    print(f"({time.perf_counter() - began:.0f} s)", flush=True)
    return f"exit status {done.returncode}" if done.returncode else ""


if __name__ == "__main__":
    sys.exit(main())
