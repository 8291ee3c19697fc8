"""The default learner: its time beside NVIL's, its time and memory by number of visits, and 100 conditions.

    python -m benchmarks.learning nvil [--epochs 800] [--every 20]
    python -m benchmarks.learning visits [--sizes 10000 30000 100000 273174 1000000]
    python -m benchmarks.learning conditions
    python -m benchmarks.learning seeds [--seed 77]

Prints markdown tables. `nvil` is the paper's size: 11,000 visits with two conditions or more, about 1,000 findings, 23
conditions, from the simulated department, as it is and obeying the model; held-out tag on 2,000 others. NVIL has the
paper's settings, one weight decay, and starts from the moments. Its model is looked at every so many epochs (the looks
are not counted): its time is that until it first came within 0.002 of the best accuracy of its whole course, which is
kinder to it than any rule for stopping. The default learner's time is that of a whole fit, trial and choices included.

`seeds` shows four departments that nobody has looked at, of the seed given and the three odd ones after it: how much of
the distance from naive labels to the oracle is closed, and the log loss of the other tags after / before a move.

`visits` measures each size in a process of its own: peak memory is the whole process's, libraries and visits included.
"obeying" visits are drawn from a network; "departing" ones say every finding three times. Processor
seconds are those of all threads: on a busy machine they tell more than the clock, and on two idle cores the clock shows
a little over half of them.
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import scipy.sparse as sp

from whatelse.annotators import AnchorSet, Condition, NoiseRates
from whatelse.cohort import Cohort, build_cohort
from whatelse.cohort.vocabulary import Vocabulary
from whatelse.evaluation.calibration import trust
from whatelse.learning.learners import Learned, learn
from whatelse.noisyor import sample
from whatelse.noisyor.heldout_metrics import heldout_tag_draws, heldout_tag_scores, noisyor_scorer
from whatelse.noisyor.joint import JointModel
from whatelse.noisyor.mle import edit_anchors
from whatelse.noisyor.params import NoisyOr
from whatelse.simulate import Departures, simulate

SIZES = (10_000, 30_000, 100_000, 273_174, 1_000_000)
PAPER_VISITS, TEST_VISITS = 11_000, 2_000
DRAWN = 100_000  # distinct visits at most; beyond, they repeat


def network(rng: np.random.Generator, m: int = 23, n: int = 1003) -> NoisyOr:
    """A random network whose first m findings are the anchors, frozen."""
    fail = np.ones((m, n))
    for i in range(m):
        columns = rng.choice(np.arange(m, n), rng.integers(20, 71), replace=False)
        fail[i, columns] = 1 - rng.beta(0.5, 8.0, columns.size)
    prior = 23 / m * np.exp(rng.uniform(np.log(0.01), np.log(0.12), m))  # as many on in a visit, whatever m
    leak = np.exp(rng.uniform(np.log(0.003), np.log(0.25), n))
    return edit_anchors(NoisyOr(prior, fail, leak), np.arange(m), rng.uniform(0.3, 0.8, m), rng.uniform(0.002, 0.02, m))


def rates(model: NoisyOr) -> tuple[Any, Any, Any]:
    """Anchor columns, sensitivities and false positive rates."""
    own = np.arange(model.m)
    return own, 1 - (1 - model.leak[own]) * model.fail[own, own], model.leak[own]


def as_cohort(X: sp.csr_matrix, m: int) -> Cohort:
    """Arrays whose first m findings are anchors, as a cohort (where the last m are)."""
    moved = sp.csr_matrix(sp.hstack([X[:, m:], X[:, :m]], format="csr"), dtype=np.uint8)
    moved.sort_indices()
    anchors = AnchorSet(tuple(Condition(f"c{i}", f"C{i}", "acute", {}, ()) for i in range(m)))
    names = (*(f"w{j}" for j in range(X.shape[1] - m)), *(f"anchor:{name}" for name in anchors.names))
    counts = np.bincount(moved.indices, minlength=moved.shape[1])
    ids = np.arange(X.shape[0]).astype(object)
    return Cohort(moved, Vocabulary(names, counts, X.shape[0], anchors), ids)


def draw(visits: int, kind: str, m: int = 23, seed: int = 0) -> tuple[Cohort, NoiseRates]:
    """Visits (about 1,000 findings) that obey the model, or depart from it, and their noise rates."""
    rng = np.random.default_rng(seed)
    n = 1003 if kind == "obeying" else m + (1003 - m) // 3
    truth = network(rng, m, n)
    X, _ = sample(truth, min(visits, DRAWN), rng)
    _, sensitivity, false_positive = rates(truth)
    noise = NoiseRates(truth.prior, sensitivity, false_positive, tuple(f"c{i}" for i in range(m)))
    if kind == "departing":
        X = sp.csr_matrix(sp.hstack([X, X[:, m:], X[:, m:]], format="csr"))
    return as_cohort(X[np.arange(visits) % X.shape[0]], m), noise


def department(kind: str, learn: int, test: int, seed: int, least: int = 0) -> tuple[Cohort, Cohort, NoiseRates]:
    """Simulated visits with at least so many conditions, to learn from and to test on, and the noise rates."""
    departures = Departures() if kind == "departing" else Departures.none()
    whole = build_cohort(simulate(learn + test, seed, departures, min_conditions=least))
    cohort = whole.rows(np.arange(learn))
    assert cohort.Y is not None
    rates = NoiseRates.from_labels(cohort.A, cohort.Y, cohort.conditions)
    return cohort, whole.rows(np.arange(learn, learn + test)), rates


def heldout_accuracy(learned: Learned, test: Cohort) -> float:
    """Of the held-out tag, over the visits with two conditions or more."""
    multi = test.multi()
    assert multi.Y is not None
    scorer = noisyor_scorer(learned.model)
    draws = heldout_tag_draws(multi.Y, draws=3)
    return heldout_tag_scores(scorer, multi.X, multi.Y, draws, resamples=1).accuracy.value


class Clock:
    """Wall and processor seconds since it was made."""

    def __init__(self) -> None:
        self.began = time.perf_counter(), time.process_time()

    def read(self) -> tuple[float, float]:
        return time.perf_counter() - self.began[0], time.process_time() - self.began[1]


def warm() -> None:
    """Compile the kernels, which a first fit would pay for."""
    cohort, noise = draw(400, "obeying", m=3)
    learn(cohort, noise, "joint")


# ---- beside NVIL


def beside_nvil(epochs: int, every: int, kinds: list[str], seed: int) -> None:
    """Processor seconds of the default learner, and of the paper's until it is as good as it gets."""
    print("| visits | model | accuracy | processor s | times the default learner's |")
    print("|---|---|---|---|---|")
    warm()
    for kind in kinds:
        cohort, test, noise = department(kind, PAPER_VISITS, TEST_VISITS, seed, least=2)

        def row(name: str, value: float, seconds: float, ratio: str = "", kind: str = kind) -> None:
            print(f"| {kind} | {name} | {value:.3f} | {seconds:.1f} | {ratio} |", flush=True)

        for name in ("naive", "oracle"):
            clock = Clock()
            learned = learn(cohort, noise, name)
            row(name, heldout_accuracy(learned, test), clock.read()[1])
        clock = Clock()
        default = learn(cohort, noise, "joint")
        ours = clock.read()[1]
        row("default", heldout_accuracy(default, test), ours, "1")
        course = _nvil(cohort, test, noise, epochs, every, seed)
        best = max(value for _, _, value in course)
        epoch, seconds, value = next(look for look in course if look[2] >= best - 0.002)
        row(f"NVIL, epoch {epoch} of {epochs}", value, seconds, f"{seconds / ours:.0f}")


def _nvil(
    cohort: Cohort, test: Cohort, noise: NoiseRates, epochs: int, every: int, seed: int
) -> list[tuple[int, float, float]]:
    """(epoch, processor seconds until then without the looks, accuracy) of a course with the paper's settings."""
    from whatelse.learning.paper.nvil import Epoch, fit_nvil  # PyTorch is an extra
    from whatelse.learning.paper.nvil_course import NvilSettings

    course: list[tuple[int, float, float]] = []
    start = learn(cohort, noise, "moments").model.noisyor
    clock, looking = Clock(), [0.0]

    def look(end: Epoch, model: Callable[[], NoisyOr]) -> None:
        if end.epoch % every == 0:
            spent = clock.read()[1]
            course.append((end.epoch, spent - looking[0], heldout_accuracy(Learned(JointModel.plain(model())), test)))
            print("epoch {}: {:.0f} s, {:.4f}".format(*course[-1]), file=sys.stderr, flush=True)
            looking[0] += clock.read()[1] - spent

    fit_nvil(cohort.X, start, cohort.anchor_columns, NvilSettings(epochs=epochs), seed, on_epoch=look)
    return course


# ---- departments that nobody has looked at


def by_seed(seed: int) -> None:
    """How much of the distance is closed, and what moves do to the other tags, on four departments."""
    print("| visits | naive labels | whatelse | oracle | of the distance | a tag confirmed | the likeliest rejected |")
    print("|---|---|---|---|---|---|---|")
    kinds = [(30_000, 30_000, 0, "departing"), (30_000, 30_000, 0, "obeying")]
    kinds += [(PAPER_VISITS, 5_000, 2, "departing"), (PAPER_VISITS, 5_000, 2, "obeying")]
    for k, (count, others, least, kind) in enumerate(kinds):
        cohort, test, noise = department(kind, count, others, seed + 2 * k, least)
        naive, found, oracle = (learn(cohort, noise, name) for name in ("naive", "joint", "oracle"))
        low, own, high = (heldout_accuracy(learned, test) for learned in (naive, found, oracle))
        measured = trust(found.model, test)
        assert measured is not None
        moved = measured["updates"]
        title = f"{count:,} {kind}" + (", two conditions or more" if least else "")
        print(
            f"| {title} | {low:.3f} | {own:.3f} | {high:.3f} | {(own - low) / (high - low):.0%} | "
            f"{moved['confirmed']['loss']['value']:.3f} | {moved['likeliest rejected']['loss']['value']:.3f} |",
            flush=True,
        )


# ---- by number of visits


def measure(visits: int, kind: str, m: int) -> dict[str, Any]:
    """One fit in this process."""
    cohort, noise = draw(visits, kind, m)
    warm()
    loaded = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    clock = Clock()
    learned = learn(cohort, noise, "joint")
    wall, cpu = clock.read()
    return {
        "visits": visits,
        "steps": len(learned.history),
        "wall": wall,
        "cpu": cpu,
        "loaded": loaded / 2**20,
        "peak": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20,
    }


def apart(visits: int, kind: str, m: int = 23) -> dict[str, Any]:
    """`measure` in a process of its own."""
    command = [sys.executable, "-m", "benchmarks.learning", "measure", "--sizes", str(visits), "--kind", kind]
    done = subprocess.run([*command, "--conditions", str(m)], check=True, stdout=subprocess.PIPE, text=True)
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def by_visits(sizes: list[int], kinds: list[str]) -> None:
    print("| visits | which | rounds | processor s | wall s | peak GB (before learning) |")
    print("|---|---|---|---|---|---|")
    for kind in kinds:
        cpu = []
        for size in sizes:
            found = apart(size, kind)
            cpu.append(found["cpu"])
            print(
                f"| {size:,} | {kind} | {found['steps']} | {found['cpu']:.0f} | "
                f"{found['wall']:.0f} | {found['peak']:.2f} ({found['loaded']:.2f}) |",
                flush=True,
            )
        if len(sizes) > 1:
            slope = np.polyfit(np.log(sizes), np.log(cpu), 1)[0]
            last = np.log(cpu[-1] / cpu[-2]) / np.log(sizes[-1] / sizes[-2])
            print(f"\n{kind}: slope of log processor time on log visits {slope:.2f}, of the last two {last:.2f}\n")


def by_conditions(visits: int) -> None:
    print("| conditions | processor s | wall s | peak GB |")
    print("|---|---|---|---|")
    for m in (23, 50, 100):
        found = apart(visits, "obeying", m)
        print(f"| {m} | {found['cpu']:.0f} | {found['wall']:.0f} | {found['peak']:.2f} |", flush=True)


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["nvil", "seeds", "visits", "conditions", "measure"])
    parser.add_argument("--epochs", type=int, default=800, help="epochs of NVIL to run, 50 of them burn-in")
    parser.add_argument("--every", type=int, default=20, help="epochs of NVIL between two looks")
    parser.add_argument("--sizes", type=int, nargs="+", default=list(SIZES))
    parser.add_argument("--kind", choices=["obeying", "departing"], nargs="+", default=["obeying", "departing"])
    parser.add_argument("--conditions", type=int, default=23)
    parser.add_argument("--seed", type=int, default=6)
    options = parser.parse_args(arguments)
    if options.what == "nvil":
        beside_nvil(options.epochs, options.every, options.kind, options.seed)
    elif options.what == "seeds":
        by_seed(options.seed)
    elif options.what == "visits":
        by_visits(options.sizes, options.kind)
    elif options.what == "conditions":
        by_conditions(10_000)
    else:
        print(json.dumps(measure(options.sizes[0], options.kind[0], options.conditions)))


if __name__ == "__main__":
    main()
