"""EM at the paper's size: a step beside a bare pass over the table, its cost by visits, and the time NVIL takes.

    python -m benchmarks.em step
    python -m benchmarks.em slope --visits 10000 100000 300000
    python -m benchmarks.em conditions
    python -m benchmarks.em nvil --epochs 200

Visits are drawn from a noisy-or network that looks like a fitted one: priors 1-12%, 20-70 findings per condition, leaks
0.3-25%, anchors with sensitivity 0.3-0.8. The start is naive labels, the noise rates are given. Times are processor
seconds of all threads, the least of a few repeats: other work on the machine lengthens them less than wall time.
"""

from __future__ import annotations

import argparse
import resource
import time
from collections.abc import Callable

import numpy as np
from numba import njit
from numpy.typing import NDArray
from scipy.sparse import csr_matrix

from whatelse.baselines import naive_labels, oracle
from whatelse.evaluate import heldout_tag_draws, heldout_tag_scores, noisyor_scorer
from whatelse.noisyor import NoisyOr, sample
from whatelse.noisyor.em import EmStep, fit_em
from whatelse.noisyor.mle import edit_anchors

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
    return naive_labels(X, columns, truth.prior, sensitivity, false_positive)


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


def slope(sizes: list[int], steps: int) -> None:
    """Seconds a step and memory by number of visits: visits of one draw, repeated beyond 100,000."""
    rng = np.random.default_rng(0)
    truth = network(rng)
    drawn, _ = sample(truth, min(max(sizes), 100_000), rng)
    print("visits   cpu s a step   us a visit   wall s a step   peak memory GB")
    for size in sizes:
        X = drawn[np.arange(size) % drawn.shape[0]]
        start = naive(X, truth)
        began, wall = time.process_time(), time.perf_counter()
        fit_em(X, start, steps=steps, tolerance=-1.0, sparsity=SPARSITY)
        cpu, wall = (time.process_time() - began) / (steps + 1), (time.perf_counter() - wall) / (steps + 1)
        memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
        print(f"{size:8d} {cpu:12.2f} {cpu / size * 1e6:12.0f} {wall:15.2f} {memory:16.2f}", flush=True)


def conditions(visits: int) -> None:
    """Seconds a step by number of conditions."""
    print("conditions  cpu s a step  states weighed  mass left out at most")
    for m in (23, 50, 100):
        rng = np.random.default_rng(0)
        truth = network(rng, m)
        X, _ = sample(truth, visits, rng)
        began = time.process_time()
        last = fit_em(X, naive(X, truth), steps=2, tolerance=-1.0, sparsity=SPARSITY).history[-1]
        cpu = (time.process_time() - began) / 3
        print(f"{m:10d} {cpu:13.2f} {last.weighed:15.0f} {last.outside:22.4f}", flush=True)


def nvil(epochs: int, steps: int, seed: int) -> None:
    """Processor time for EM to reach the held-out-tag accuracy that NVIL ends with, and both final accuracies."""
    from whatelse.noisyor.nvil import NvilSettings, fit_nvil  # PyTorch is an extra

    rng = np.random.default_rng(seed)
    truth = network(rng)
    X, Y = sample(truth, 11_000, rng)
    X_test, Y_test = sample(truth, 20_000, rng)
    draws = heldout_tag_draws(Y_test, draws=1)
    columns, sensitivity, false_positive = rates(truth)

    def accuracy(model: NoisyOr) -> float:
        return heldout_tag_scores(noisyor_scorer(model), X_test, Y_test, draws, resamples=1).accuracy.value

    start = naive(X, truth)
    best = oracle(X, Y, columns, sensitivity, false_positive)
    print(f"naive {accuracy(start):.4f}  oracle {accuracy(best):.4f}  truth {accuracy(truth):.4f}")
    began = time.process_time()
    learned = fit_nvil(X, start, columns, NvilSettings(epochs=epochs), seed).model
    slow, goal = time.process_time() - began, accuracy(learned)
    print(f"NVIL, {epochs} epochs: {goal:.4f} in {slow:.1f} s, {slow / epochs:.2f} s an epoch")
    fit_em(X[:50], start, steps=1)  # compile
    spent, reached, began = 0.0, 0.0, time.process_time()

    def watch(step: EmStep, model: NoisyOr) -> None:
        nonlocal spent, reached, began
        spent += time.process_time() - began
        now = accuracy(model)
        if step.step > 0 and not reached and now >= goal:
            reached = spent
            print(f"EM reaches it after step {step.step}, {spent:.2f} s: {slow / spent:.0f} times less")
        if step.step in (1, 2, 5, 10, 20, steps):
            print(f"EM step {step.step}: {now:.4f} after {spent:.2f} s", flush=True)
        began = time.process_time()

    fit_em(X, start, steps=steps, tolerance=-1.0, sparsity=SPARSITY, on_step=watch)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["step", "slope", "conditions", "nvil"])
    parser.add_argument("--repeats", type=int, default=15)
    parser.add_argument("--visits", type=int, nargs="+", default=[10_000, 30_000, 100_000, 300_000])
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--epochs", type=int, default=200)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    if options.what == "step":
        step(options.repeats, 11_000)
    elif options.what == "slope":
        slope(options.visits, 1)
    elif options.what == "conditions":
        conditions(5_000)
    else:
        nvil(options.epochs, options.steps, options.seed)


if __name__ == "__main__":
    main()
