"""NVIL at the paper's size: seconds an epoch, and the course of learning.

    python benchmarks/nvil.py speed
    python benchmarks/nvil.py course --epochs 200 --minibatch 20 --supervised 0 1

Visits are drawn from a noisy-or network (11,000 to learn from, 23 conditions, 1,003 findings, about 55 present), so
the model is obeyed. The start is denoised moments, with the anchors' true noise rates.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.sparse import csr_matrix

from whatelse.annotators import NoiseRates
from whatelse.learning.paper.moments import Counts, moments_model
from whatelse.learning.paper.nvil import Epoch, Training, fit_nvil
from whatelse.learning.paper.nvil_course import NvilSettings
from whatelse.noisyor.params import NoisyOr

M, N_FINDINGS = 23, 1003
ANCHORS = np.arange(M)


def network(rng: np.random.Generator) -> NoisyOr:
    """A random network: each condition causes one finding in twenty, a few often and most seldom; small leaks."""
    edge = rng.random((M, N_FINDINGS)) < 0.05
    fail = 1 - edge * rng.beta(0.3, 5, (M, N_FINDINGS))
    leak = rng.beta(0.5, 11, N_FINDINGS)
    seen, false_alarm = rng.uniform(0.15, 0.5, M), rng.uniform(0.005, 0.02, M)
    fail[:, ANCHORS] = 1.0
    fail[np.arange(M), ANCHORS] = (1 - seen) / (1 - false_alarm)
    leak[ANCHORS] = false_alarm
    return NoisyOr(rng.uniform(0.03, 0.12, M), fail, leak)


def draw(model: NoisyOr, visits: int, rng: np.random.Generator) -> tuple[csr_matrix, NDArray[np.bool_]]:
    y = rng.random((visits, model.m)) < model.prior
    absent = (1 - model.leak) * np.exp(y @ np.log(model.fail))
    return csr_matrix((rng.random((visits, model.n)) > absent).astype(np.uint8)), y


def moments_start(X: csr_matrix, truth: NoisyOr) -> NoisyOr:
    """Denoised moments, given the anchors' true noise rates."""
    false_alarm = truth.leak[ANCHORS]
    seen = 1 - (1 - false_alarm) * truth.fail[np.arange(M), ANCHORS]
    return moments_model(Counts.of(X, ANCHORS), NoiseRates(truth.prior, seen, false_alarm), ANCHORS)


def held_out_tag(model: NoisyOr, X: csr_matrix, Y: NDArray[np.bool_], rng: np.random.Generator) -> float:
    """Share of visits with two conditions or more whose hidden one is ranked first, the others given."""
    cost = -np.log(np.maximum(model.fail, 1e-12))
    leak_cost = -np.log1p(-np.minimum(model.leak, 1 - 1e-12))
    log_odds = np.log(model.prior) - np.log1p(-model.prior)
    right = visits = 0
    for row in np.flatnonzero(Y.sum(1) >= 2):
        hidden = rng.choice(np.flatnonzero(Y[row]))
        known = Y[row].copy()
        known[hidden] = False
        present = X.indices[X.indptr[row] : X.indptr[row + 1]]
        base = leak_cost[present] + cost[known][:, present].sum(0)
        z = np.maximum(base + cost[:, present], 1e-9)
        score = log_odds - cost.sum(1) + np.log(np.expm1(z)).sum(1)
        score[known] = -np.inf
        right += int(score.argmax() == hidden)
        visits += 1
    return right / visits


def speed(repeats: int) -> None:
    """Processor seconds (one thread) an epoch, the least of `repeats`: burn-in, and after it."""
    torch.set_num_threads(1)
    rng = np.random.default_rng(1)
    truth = network(rng)
    X, _ = draw(truth, 11_000, rng)
    print(f"{X.shape[0]} visits x {X.shape[1]} findings x {M} conditions, {X.nnz / X.shape[0]:.0f} present")
    print("minibatch  burn-in  learning")
    for minibatch in (20, 50, 100, 200):
        seconds = []
        for burn_in in (10**6, 0):
            settings = NvilSettings(minibatch=minibatch, burn_in=burn_in)
            training = Training(X, truth, ANCHORS, settings, 0)
            times = []
            for epoch in range(1, repeats + 2):
                began = time.process_time()
                training.run_epoch(epoch)
                times.append(time.process_time() - began)
            seconds.append(min(times[1:]))
        print(f"{minibatch:9d}  {seconds[0]:7.2f}  {seconds[1]:8.2f}")


def course(settings: NvilSettings, supervised: list[float], seed: int, every: int) -> None:
    """Bound and held-out tag by epoch, from denoised moments."""
    rng = np.random.default_rng(seed)
    truth = network(rng)
    X, _ = draw(truth, 11_000, rng)
    X_test, Y_test = draw(truth, 5_000, rng)
    start = moments_start(X, truth)
    for name, model in (("truth", truth), ("start", start)):
        print(f"{name}: held-out tag {held_out_tag(model, X_test, Y_test, np.random.default_rng(0)):.3f}")
    for weight in supervised:
        print(f"lambda {weight:g}\nepoch    bound  supervised  held-out tag  seconds")

        def show(end: Epoch, model: Callable[[], NoisyOr]) -> None:
            if end.epoch == 1 or end.epoch % every == 0:
                tag = held_out_tag(model(), X_test, Y_test, np.random.default_rng(0))
                print(
                    f"{end.epoch:5d} {end.bound:8.2f} {end.supervised:11.3f} {tag:13.3f} {end.seconds:8.2f}", flush=True
                )

        fit_nvil(X, start, ANCHORS, replace(settings, supervised=weight), seed, on_epoch=show)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["speed", "course"])
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--epochs", type=int, default=200)
    parser.add_argument("--minibatch", type=int, default=NvilSettings().minibatch)
    parser.add_argument("--learning-rate", type=float, default=NvilSettings().learning_rate)
    parser.add_argument("--burn-in", type=int, default=NvilSettings().burn_in)
    parser.add_argument("--l2", type=float, default=0.0)
    parser.add_argument("--supervised", type=float, nargs="+", default=[0.0, 1.0])
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--every", type=int, default=25)
    options = parser.parse_args()
    if options.what == "speed":
        speed(options.repeats)
    else:
        settings = NvilSettings(
            epochs=options.epochs,
            burn_in=options.burn_in,
            minibatch=options.minibatch,
            learning_rate=options.learning_rate,
            l2=options.l2,
        )
        course(settings, options.supervised, options.seed, options.every)


if __name__ == "__main__":
    main()
