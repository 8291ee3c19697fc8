"""How hard the simulated department is: the held-out tag by a noisy-or given the truth, and by one given the anchors.

    python benchmarks/difficulty.py [visits to learn from] [seed]

Visits with two or more conditions only, as in the paper; the last 2,000 are for testing. The figures that set the
simulator's difficulty once are in docs/simulator.md.
"""

from __future__ import annotations

import sys

import numpy as np

from whatelse.cohort import build_cohort
from whatelse.noisyor.inference.heldout import heldout_tag
from whatelse.noisyor.mle import StateCounts, edit_anchors, model_of_counts
from whatelse.simulate import Departures, simulate

TEST = 2000


def measure(departures: Departures, train: int, seed: int) -> dict[str, tuple[float, float, float]]:
    """Accuracy, top 5 and mean reciprocal rank of the two models."""
    cohort = build_cohort(simulate(train + TEST, seed, departures, min_conditions=2))
    learn, test = cohort.rows(np.arange(train)), cohort.rows(np.arange(train, train + TEST))
    A, Y = learn.A, learn.Y
    assert Y is not None and test.Y is not None
    rng = np.random.default_rng(seed)
    hidden = np.array([rng.choice(np.flatnonzero(row)) for row in test.Y])
    confirmed = test.Y.copy()
    confirmed[np.arange(TEST), hidden] = False
    sensitivity, false_alarm = (A & Y).sum(0) / Y.sum(0), (A & ~Y).sum(0) / (~Y).sum(0)
    results = {}
    for name, labels in (("oracle", Y), ("naive", A)):
        model = model_of_counts(StateCounts.of(learn.X, labels), prior=Y.mean(0))
        if name == "naive":
            model = edit_anchors(model, cohort.anchor_columns, sensitivity, false_alarm)
        tags = heldout_tag(model, test.X, confirmed)
        rank = (tags > tags[np.arange(TEST), hidden][:, None]).sum(1)
        results[name] = float(np.mean(rank == 0)), float(np.mean(rank < 5)), float(np.mean(1 / (rank + 1)))
    return results


if __name__ == "__main__":
    train = int(sys.argv[1]) if len(sys.argv) > 1 else 9000
    seed = int(sys.argv[2]) if len(sys.argv) > 2 else 7
    for title, departures in (("default", Departures()), ("none", Departures.none())):
        for name, scores in measure(departures, train, seed).items():
            print(f"departures {title:8s} {name:7s}" + "  ".join(f"{score:.3f}" for score in scores))
