"""Where the time of `tag --out` goes: `python -m benchmarks.tagging MODEL... --visits FILE [--count 8000]`.

A row a model, microseconds of processor time a visit on one core: reading records, finding findings in them, laying the
questions out (evidence), the posterior, the answer as columns. `start` is seconds until the first batch can be
answered, imports apart. The first batch is not counted: it loads compiled code. Processor time does not wait for other
programs; repeat the visits of a small file to have enough of them.
"""

from __future__ import annotations

import argparse
from itertools import islice
from time import process_time as now

import numpy as np

from whatelse.batch import answers
from whatelse.cohort.batches import BatchReader
from whatelse.noisyor.inference.posterior import BUDGET, lay_out
from whatelse.noisyor.inference.solver import solve
from whatelse.sources import read_visits
from whatelse.tagger import Tagger

STAGES = ("records", "findings", "evidence", "posterior", "columns")


def measure(model: str, file: str, count: int) -> None:
    """Print the row of one model."""
    began = now()
    tagger = Tagger.load(model)
    reader, asked = BatchReader(tagger.vocabulary_), answers.Asked.of(tagger)
    start = now() - began
    began = now()
    visits = list(islice(read_visits(file, like=tagger.vocabulary_.source, once=False), count))
    seconds = np.zeros(len(STAGES))
    seconds[0] = now() - began
    answers.answers(tagger, reader, visits[: answers.AT_ONCE], asked)
    certified, states = 0, 0
    for k in range(0, len(visits), answers.AT_ONCE):
        batch, times = visits[k : k + answers.AT_ONCE], [now()]
        present, unobserved = reader.present(batch), reader.unobserved(batch)
        times.append(now())
        noisyor, query = lay_out(tagger.model_, present, unobserved)
        times.append(now())
        found = solve(noisyor, query, tagger.tolerance, BUDGET, 0, threads=1)
        times.append(now())
        answers.as_columns(tagger, batch, found)
        times.append(now())
        seconds[1:] += np.diff(times)
        certified, states = certified + found.certified.sum(), states + found.states.sum()
    each = 1e6 * seconds / len(visits)
    cells = [f"{x:.0f}" for x in (*each, each.sum())]
    print("|", " | ".join([model, str(tagger.model_.m), *cells, f"{start:.1f}"]), end=" | ")
    print(f"{states / len(visits):.0f} | {certified / len(visits):.4f} |", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", nargs="+")
    parser.add_argument("--visits", required=True)
    parser.add_argument("--count", type=int, default=8_000)
    options = parser.parse_args()
    head = ["model", "conditions", *(f"{stage}, µs" for stage in STAGES), "all, µs", "start, s", "states", "certified"]
    print("| " + " | ".join(head) + " |\n" + "|---" * len(head) + "|")
    for model in options.models:
        measure(model, options.visits, options.count)


if __name__ == "__main__":
    main()
