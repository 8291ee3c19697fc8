"""Inference: speed, error and certificates, beside enumeration, Gibbs sampling and other libraries.

    python -m benchmarks.inference [--visits 50] [--limit 120] [--no-peers]

Prints markdown tables. Times are medians (or the quantile named) of one run on one machine: read the ratios.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.inference_peers import PARENTS, PEERS, ask_peer, network
from whatelse.noisyor import NoisyOr, enumerate_posterior, gibbs, heldout_tag, posterior, sample

Visits = list[NDArray[np.int64]]


def fitted(rng: np.random.Generator, m: int = 23, n: int = 1003, share: float = 1.0) -> NoisyOr:
    """As models come out of learning: priors 1-12% (times `share`), 20-70 findings a condition, leaks 0.3-25%."""
    fail = np.ones((m, n))
    for i in range(m):
        own = rng.choice(n, rng.integers(20, 71), replace=False)
        fail[i, own] = rng.uniform(0.3, 0.97, own.size)
    leak = 0.003 * (0.25 / 0.003) ** rng.beta(1.0, 1.6, n)
    return NoisyOr(share * rng.uniform(0.01, 0.12, m), fail, leak)


def dense(rng: np.random.Generator, m: int = 23, n: int = 1003) -> NoisyOr:
    """Every condition a cause of every finding, mostly a weak one; about 60 present."""
    fail = 1.0 - 0.6 * rng.beta(0.3, 6.0, (m, n))
    leak = 0.003 * (0.25 / 0.003) ** rng.beta(0.9, 3.2, n)
    return NoisyOr(rng.uniform(0.01, 0.12, m), fail, leak)


def visits(
    model: NoisyOr, size: int, rng: np.random.Generator, on: int = 0, present: tuple[int, int] | None = None
) -> Visits:
    """Visits drawn from the model with at least `on` conditions and, if given, so many findings present."""
    chosen: Visits = []
    while len(chosen) < size:
        X, Y = sample(model, 500, rng)
        for x, y in zip(np.split(X.indices, X.indptr[1:-1]), Y, strict=True):
            if y.sum() >= on and (present is None or present[0] <= x.size <= present[1]):
                chosen.append(x.astype(np.int64))
    return chosen[:size]


def timed(
    ask: Callable[[NDArray[np.int64]], Any], xs: Visits, repeats: int = 3
) -> tuple[list[Any], NDArray[np.float64]]:
    """Each visit's answer and its seconds: the best of a few, as the machine has other work."""
    answers, seconds = [], np.full(len(xs), np.inf)
    ask(xs[0])
    for v, x in enumerate(xs):
        for _ in range(repeats):
            start = time.perf_counter()
            answer = ask(x)
            seconds[v] = min(seconds[v], time.perf_counter() - start)
        answers.append(answer)
    return answers, seconds


def row(*cells: object) -> None:
    print("| " + " | ".join(str(cell) for cell in cells) + " |", flush=True)


def header(title: str, *cells: str) -> None:
    print(f"\n### {title}\n")
    row(*cells)
    row(*["---"] * len(cells))


def against_enumeration(rng: np.random.Generator, size: int) -> None:
    """One query on dense `fail` against all 2^23 states and against Gibbs sampling at 1,000 sweeps in all."""
    model = dense(rng)
    xs = visits(model, size, rng, present=(55, 65))
    ours, t = timed(lambda x: posterior(model, x), xs, repeats=5)
    exact, t_exact = timed(lambda x: enumerate_posterior(model, x), xs, repeats=1)
    sampled, t_gibbs = timed(lambda x: gibbs(model, x, chains=2, sweeps=500, burn_in=0), xs, repeats=1)
    true = np.array([answer.marginals for answer in exact])
    error = np.array([np.abs(a.marginals - b).max() for a, b in zip(ours, true, strict=True)])
    bound = np.array([float(answer.error_bound) for answer in ours])
    header(
        f"{model.m} conditions, {model.n} findings, 55-65 present, dense fail, {size} visits",
        "method", "median ms", "95% ms", "times slower", "largest error", "largest certificate", "errors above it",
    )  # fmt: skip
    noise = np.array([np.abs(a.marginals - b).max() for a, b in zip(sampled, true, strict=True)])
    rows: tuple[tuple[str, NDArray[np.float64], NDArray[np.float64], object, object], ...] = (
        ("posterior", t, error, f"{bound.max():.1e}", int((error > bound).sum())),
        ("Gibbs, 2 x 500 sweeps", t_gibbs, noise, "", ""),
        ("all 2^23 states", t_exact, np.zeros(1), "", ""),
    )
    for name, seconds, wrong, certificate, above in rows:
        row(
            name, f"{1e3 * np.median(seconds):.3g}", f"{1e3 * np.quantile(seconds, 0.95):.3g}",
            f"{np.median(seconds) / np.median(t):.3g}", f"{wrong.max():.1e}", certificate, above,
        )  # fmt: skip


def certificates(rng: np.random.Generator, size: int) -> None:
    """How often 1e-2 is certified, and in what time, on models that look fitted."""
    header(
        "Certificates of 1e-2", "visits", "present", "certified", "within 5 ms", "within 25 ms", "within 100 ms",
        "median ms", "98% ms", "median states", "98% states",
    )  # fmt: skip
    small, large = fitted(rng), fitted(rng, 200, 5000, share=0.25)
    crowded, full = fitted(rng, 200, 5000), dense(rng)
    tempered = NoisyOr(small.prior, small.fail, small.leak, weight=np.full(small.n, 0.35))
    J = np.triu(rng.normal(0.0, 0.5, (small.m, small.m)), 1)
    coupled = NoisyOr(small.prior, small.fail, small.leak, coupling=J + J.T)
    plain, several = visits(small, size, rng), visits(small, size, rng, on=2)
    for name, model, xs in (
        ("23 x 1,003", small, plain),
        ("23 x 1,003, two or more on", small, several),
        ("the same, weights 0.35", tempered, several),
        ("the same, couplings N(0, 0.5)", coupled, several),
        ("23 x 1,003, dense", full, visits(full, size, rng)),
        ("the same, visits of another such model", full, visits(dense(rng), size, rng)),
        ("200 x 5,000, 3 on", large, visits(large, size // 10, rng)),
        ("200 x 5,000, 13 on", crowded, visits(crowded, size // 10, rng)),
    ):
        answers, t = timed(lambda x, model=model: posterior(model, x, tolerance=1e-2), xs)  # type: ignore[misc]
        held = np.array([bool(a.certified) for a in answers])
        states = np.array([int(a.states) for a in answers])
        row(
            name, f"{np.mean([x.size for x in xs]):.0f}", f"{held.mean():.1%}",
            *(f"{(held & (t <= limit)).mean():.1%}" for limit in (5e-3, 25e-3, 100e-3)),
            f"{1e3 * np.median(t):.3g}", f"{1e3 * np.quantile(t, 0.98):.3g}",
            f"{np.median(states):.0f}", f"{np.quantile(states, 0.98):.0f}",
        )  # fmt: skip


def batches(rng: np.random.Generator, size: int = 20_000) -> None:
    """Visits a second, all cores."""
    model = fitted(rng)
    X, Y = sample(model, size, rng)
    header(f"Batches of {size:,} visits, 23 x 1,003, {X.nnz / size:.0f} present", "query", "visits/s")
    for name, ask in (
        ("held-out tag", lambda: heldout_tag(model, X, Y)),
        ("posterior, tolerance 1e-3", lambda: posterior(model, X)),
    ):
        ask()
        start = time.perf_counter()
        ask()
        row(name, f"{size / (time.perf_counter() - start):,.0f}")


def peers(limit: float) -> None:
    """The network of 23 conditions and 300 findings, with more and more parents a finding, until each gives up.

    A library less wrong than our default is compared with our answer to rounding.
    """
    header(
        f"23 conditions, 300 findings, one visit; {limit:.0f} s and 6 GiB each",
        "parents a finding", "library", "seconds", "times slower", "largest error", "build s",
    )  # fmt: skip
    standing = list(PEERS)
    for parents in PARENTS:
        model, present = network(parents)
        exact = enumerate_posterior(model, present).marginals
        own = []  # (error, seconds), the most precise first
        for label, tolerance in (("whatelse, to rounding", 1e-15), ("whatelse", 1e-3)):

            def ask(x: NDArray[np.int64], model: NoisyOr = model, tolerance: float = tolerance) -> Any:
                return posterior(model, x, tolerance=tolerance, budget=1_000_000)

            (ours,), (seconds,) = timed(ask, [present], repeats=25)
            own.append((np.abs(ours.marginals - exact).max(), seconds))
            row(parents, label, f"{seconds:.2g}", "", f"{own[-1][0]:.1e}", "")
        for name in list(standing):
            answer: dict[str, Any] = ask_peer(name, parents, limit)
            if "gave_up" in answer:
                standing.remove(name)
                row(parents, name, answer["gave_up"], "", "", "")
                continue
            error = np.abs(np.array(answer["marginals"]) - exact).max()
            fair = own[1][1] if own[1][0] <= error else own[0][1]
            row(
                parents, name, f"{answer['seconds']:.3g}", f"{answer['seconds'] / fair:,.0f}", f"{error:.1e}",
                f"{answer['build']:.3g}",
            )  # fmt: skip


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description="Benchmark inference.")
    parser.add_argument(
        "--visits", type=int, default=50, help="visits to enumerate; ten times as many for certificates"
    )
    parser.add_argument("--limit", type=float, default=120.0, help="seconds each library gets per network")
    parser.add_argument("--no-peers", action="store_true")
    options = parser.parse_args(arguments)
    rng = np.random.default_rng(2016)
    certificates(rng, 10 * options.visits)
    batches(rng)
    against_enumeration(rng, options.visits)
    if not options.no_peers:
        peers(options.limit)


if __name__ == "__main__":
    main()
