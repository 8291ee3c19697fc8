"""Memory and time of building a cohort of the paper's size from a file.

    python benchmarks/building.py [--visits 273174]

Simulates the visits to a temporary file, then builds and saves a cohort from it in a process of its own and reads that
process's peak resident memory, all libraries included. The bound is 2 GB. Times depend on the machine; reading the
file without building is measured in the same run to compare with.
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

LIMIT_GB = 2.0


def build(visits: str, out: str) -> dict[str, float]:
    """Read, then read and build, in this process."""
    from whatelse.cohort import Cohort, build_cohort
    from whatelse.sources import read_visits

    started = time.perf_counter()
    count = sum(1 for _ in read_visits(visits))
    read = time.perf_counter()
    cohort = build_cohort(read_visits(visits))
    built = time.perf_counter()
    cohort.save(out)
    saved = time.perf_counter()
    Cohort.open(out)
    opened = time.perf_counter()
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1024 if sys.platform != "darwin" else 1)
    return {
        "visits": count,
        "findings": cohort.X.shape[1],
        "read_s": read - started,
        "read_and_build_s": built - read,
        "save_s": saved - built,
        "open_s": opened - saved,
        "peak_gb": peak / 1e9,
        "folder_mb": sum(p.stat().st_size for p in Path(out).iterdir()) / 1e6,
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--visits", type=int, default=273_174)
    parser.add_argument("--measure", nargs=2, metavar=("VISITS", "OUT"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.measure:
        print(json.dumps(build(*options.measure)))
        return 0

    from whatelse.simulate import simulate
    from whatelse.sources.write import write_visits

    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "visits.jsonl.gz"
        write_visits(simulate(options.visits, seed=1), file)
        command = [sys.executable, __file__, "--measure", str(file), str(Path(folder) / "cohort")]
        result = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
    for name, value in result.items():
        print(f"{name:18} {value:,.2f}")
    print(f"building costs {result['read_and_build_s'] / result['read_s']:.1f} times reading alone")
    good = result["peak_gb"] <= LIMIT_GB
    print(f"peak memory {result['peak_gb']:.2f} GB, bound {LIMIT_GB:.0f} GB: {'kept' if good else 'BROKEN'}")
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
