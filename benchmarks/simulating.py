"""How fast the simulated department is: visits per second of one core, as prose, as words and only several conditions.

    python benchmarks/simulating.py [visits]

CPU time of the process is counted, not the clock, so that other work on the machine matters little. The rate is
given again as a multiple of writing nothing: the blocks of random numbers that every visit costs whatever is written.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable

import numpy as np

from whatelse.simulate import Departures, simulate
from whatelse.simulate.content import load
from whatelse.simulate.engine import BLOCK
from whatelse.simulate.observe import Chances


def seconds(work: Callable[[], object], repeats: int = 3) -> float:
    """The least CPU time of several runs."""
    times = []
    for _ in range(repeats):
        start = time.process_time()
        work()
        times.append(time.process_time() - start)
    return min(times)


def main(visits: int) -> None:
    """Print one line for each way of simulating."""
    next(simulate(1, 0))  # read the department's files before the clock starts

    def bare() -> None:
        rng = np.random.default_rng(0)
        for _ in range(-(-visits // BLOCK)):
            Chances.draw(load(), BLOCK, rng)

    floor = seconds(bare)
    runs: list[tuple[str, Callable[[], int]]] = [
        ("prose, all departures", lambda: sum(1 for _ in simulate(visits, 1))),
        ("lists of words, no departures", lambda: sum(1 for _ in simulate(visits, 1, Departures.none()))),
        ("prose, two conditions or more", lambda: sum(1 for _ in simulate(visits // 16, 1, min_conditions=2))),
    ]
    print(f"{'random numbers alone':32s} {visits / floor:10,.0f} visits/s")
    for name, work in runs:
        took = seconds(work)
        drawn = visits if "two" not in name else visits // 16
        print(f"{name:32s} {drawn / took:10,.0f} visits/s   {took / floor:5.1f} times the random numbers alone")


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 8192)
