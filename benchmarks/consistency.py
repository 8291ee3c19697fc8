"""The moments are consistent: on visits that obey the model, their error falls like 1/sqrt(N).

    python benchmarks/consistency.py [--visits 1000000] [--seeds 3]

Draws visits from random networks with the paper's number of conditions, counts them part by part, and prints the
root mean square error of fail and leak (anchors left out) at each size, for the moments and for maximum
likelihood with the true conditions. `slope` is that of log error on log N between the last two sizes: -0.5 is
1/sqrt(N), 0 is an error that more visits do not cure.
"""

from __future__ import annotations

import argparse

import numpy as np
import scipy.sparse as sp

from whatelse.annotators import NoiseRates
from whatelse.learning.paper.moments import Counts, moments_model
from whatelse.noisyor.mle import StateCounts, edit_anchors, fit_states
from whatelse.noisyor.params import NoisyOr

M, N = 23, 123
COLUMNS = np.arange(M)
PART = 20_000


def network(rng: np.random.Generator) -> NoisyOr:
    """Priors of 2-10%, three in ten edges present, anchors with sensitivity 0.4-0.9 and false positives up to 2%."""
    fail = np.where(rng.random((M, N)) < 0.3, rng.uniform(0.3, 0.95, (M, N)), 1.0)
    model = NoisyOr(rng.uniform(0.02, 0.1, M), fail, rng.uniform(0.01, 0.1, N))
    return edit_anchors(model, COLUMNS, rng.uniform(0.4, 0.9, M), rng.uniform(0.001, 0.02, M))


def draw(model: NoisyOr, visits: int, rng: np.random.Generator) -> tuple[sp.csr_matrix, np.ndarray]:
    Y = rng.random((visits, M)) < model.prior
    off = (1 - model.leak) * np.exp(Y @ np.log(model.fail))
    return sp.csr_matrix((rng.random((visits, N), np.float32) > off).astype(np.uint8)), Y


def errors(model: NoisyOr, counts: Counts, states: StateCounts) -> dict[str, float]:
    own = np.arange(M)
    sensitivity = 1 - (1 - model.leak[COLUMNS]) * model.fail[own, COLUMNS]
    args = (counts, NoiseRates(model.prior, sensitivity, model.leak[COLUMNS]), COLUMNS)
    theta = fit_states(states)
    found = {
        "moments": moments_model(*args),
        "oracle MLE": NoisyOr(model.prior, np.exp(-theta[:-1]), -np.expm1(-theta[-1])),
    }
    rest = np.arange(M, N)
    result = {}
    for name, estimate in found.items():
        wrong = [(estimate.fail - model.fail)[:, rest].ravel(), (estimate.leak - model.leak)[rest]]
        result[name] = float(np.sqrt(np.mean(np.concatenate(wrong) ** 2)))
    return result


def added(a: Counts, b: Counts) -> Counts:
    """The counts of both sets of visits together."""
    return Counts(a.visits + b.visits, a.anchors + b.anchors, a.findings + b.findings, a.both + b.both)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--visits", type=int, default=1_000_000, help="largest size")
    parser.add_argument("--seeds", type=int, default=3)
    options = parser.parse_args()
    sizes = [size for size in (3_000, 10_000, 30_000, 100_000, 300_000) if size < options.visits] + [options.visits]
    table: dict[int, list[dict[str, float]]] = {size: [] for size in sizes}
    for seed in range(options.seeds):
        rng = np.random.default_rng(seed)
        model = network(rng)
        counts: Counts | None = None
        states: StateCounts | None = None
        done = 0
        for size in sizes:
            while done < size:
                X, Y = draw(model, min(PART, size - done), rng)
                done += X.shape[0]
                part, part_states = Counts.of(X, COLUMNS), StateCounts.of(X, Y)
                counts = part if counts is None else added(counts, part)
                states = part_states if states is None else states.merge(part_states)
            assert counts is not None and states is not None
            table[size].append(errors(model, counts, states))
    names = list(table[sizes[0]][0])
    print(f"| visits | {' | '.join(names)} |\n|{'---|' * (len(names) + 1)}")
    mean = {size: {name: np.mean([run[name] for run in runs]) for name in names} for size, runs in table.items()}
    for size in sizes:
        print(f"| {size:,} | {' | '.join(f'{mean[size][name]:.4f}' for name in names)} |")
    if len(sizes) > 1:
        a, b = sizes[-2:]
        slopes = [np.log(mean[b][name] / mean[a][name]) / np.log(b / a) for name in names]
        print(f"| slope | {' | '.join(f'{slope:.2f}' for slope in slopes)} |")


if __name__ == "__main__":
    main()
