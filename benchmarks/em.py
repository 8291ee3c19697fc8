"""An EM step at the paper's size, beside a bare pass over the table.

    python -m benchmarks.em

Visits are drawn from a noisy-or network that looks like a fitted one: priors 1-12%, 20-70 findings per condition, leaks
0.3-25%, anchors with sensitivity 0.3-0.8. The start is naive labels, the noise rates are given. Times are processor
seconds of all threads, the least of a few repeats: other work on the machine lengthens them less than wall time.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable

import numpy as np
from numba import njit
from numpy.typing import NDArray
from scipy.sparse import csr_matrix

from whatelse.learning.baselines import naive_labels
from whatelse.learning.em import fit_em
from whatelse.noisyor import NoisyOr, sample
from whatelse.noisyor.mle import edit_anchors
from whatelse.noisyor.rates import Rates

SPARSITY = 1.0


def network(rng: np.random.Generator, m: int = 23, n: int = 1003) -> NoisyOr:
    """A random network whose first m findings are the anchors, frozen."""
    fail = np.ones((m, n))
    for i in range(m):
        columns = rng.choice(np.arange(m, n), rng.integers(20, 71), replace=False)
        fail[i, columns] = 1 - rng.beta(0.5, 8.0, columns.size)
    prior = 23 / m * np.exp(rng.uniform(np.log(0.01), np.log(0.12), m))  # as many on in a visit, whatever m
    leak = np.exp(rng.uniform(np.log(0.003), np.log(0.25), n))
    return edit_anchors(NoisyOr(prior, fail, leak), np.arange(m), rng.uniform(0.3, 0.8, m), rng.uniform(0.002, 0.02, m))


def rates(model: NoisyOr) -> tuple[NDArray[np.int64], NDArray[np.float64], NDArray[np.float64]]:
    """Anchor columns, sensitivities and false positive rates."""
    own = np.arange(model.m)
    return own, 1 - (1 - model.leak[own]) * model.fail[own, own], model.leak[own]


def naive(X: csr_matrix, truth: NoisyOr) -> NoisyOr:
    columns, sensitivity, false_positive = rates(truth)
    return naive_labels(X, columns, Rates(truth.prior, sensitivity, false_positive))


@njit(nogil=True, fastmath=True)
def bare_pass(start, index, table, out):  # type: ignore[no-untyped-def]
    """For each visit, the sum of its findings' rows of a table (n, S): the least that weighing S states reads."""
    total = np.empty(table.shape[1], np.float32)
    for v in range(start.size - 1):
        total[:] = 0.0
        for j in index[start[v] : start[v + 1]]:
            for s in range(total.size):
                total[s] += table[j, s]
        out[v] = total[v % total.size]


def least(run: Callable[[], object], repeats: int) -> float:
    """Processor seconds, the least of `repeats`, after one call that compiles."""
    run()
    times = []
    for _ in range(repeats):
        began = time.process_time()
        run()
        times.append(time.process_time() - began)
    return min(times)


def step(repeats: int, visits: int) -> None:
    """One EM step (E and M) beside a bare pass over the table of all states with at most three on (float32)."""
    rng = np.random.default_rng(0)
    truth = network(rng)
    X, _ = sample(truth, visits, rng)
    start = naive(X, truth)
    table = rng.random((truth.n, 2048)).astype(np.float32)
    out = np.empty(visits)
    bare = least(lambda: bare_pass(X.indptr, X.indices, table, out), repeats)
    print(f"{visits} visits x {truth.n} x {truth.m}, {X.nnz / visits:.0f} present; bare pass {bare:.2f} s")
    print("max_on  a step  ratio  states weighed  mass left out at most")
    for max_on in (2, 3, 4):
        expectation = least(lambda k=max_on: fit_em(X, start, max_on=k, steps=0), repeats)  # type: ignore[misc]
        both = least(lambda k=max_on: fit_em(X, start, max_on=k, steps=1, sparsity=SPARSITY), repeats)  # type: ignore[misc]
        seen = fit_em(X, start, max_on=max_on, steps=0).history[0]
        one = both - expectation
        print(f"{max_on:6d} {one:7.2f} {one / bare:6.2f} {seen.weighed:15.0f} {seen.outside:22.4f}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeats", type=int, default=15)
    step(parser.parse_args().repeats, 11_000)


if __name__ == "__main__":
    main()
