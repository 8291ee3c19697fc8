"""Noise rates from few labels, chosen at random and by `label_next`: how wrong they are, and what that costs.

    python benchmarks/few_labels.py TRAIN TEST [--labels 50 200 1000] [--draws 10] [--fits 2]

TRAIN and TEST are cohort folders in which every visit has labels ('whatelse build'); the labels of TRAIN that are not
drawn are used only to know how wrong the rates are. Errors are means over conditions of the absolute difference from
the rates counted in all labels, and over draws of the visits to label; accuracy is that of the default learner on the
held-out tag, over TEST's visits with two or more conditions (the first 2,500 of them), for the first FITS draws.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np
from scipy.special import logit

from whatelse.annotators import NoiseRates
from whatelse.cohort import Cohort
from whatelse.lifecycle.label_next import guess_probabilities, label_next
from whatelse.noisyor.heldout_metrics import heldout_tag_draws, heldout_tag_scores
from whatelse.tagger import Tagger

ERRORS = ("log prior", "log sensitivity", "log odds ppv", "log odds fn")


def errors(found: NoiseRates, true: NoiseRates) -> list[float]:
    """Mean absolute error over conditions, in the order of ERRORS."""
    pairs = [
        (np.log(found.prior), np.log(true.prior)),
        (np.log(found.sensitivity), np.log(true.sensitivity)),
        (logit(found.ppv), logit(true.ppv)),
        (logit(found.fn), logit(true.fn)),
    ]
    return [float(np.abs(a - b).mean()) for a, b in pairs]


def accuracy(train: Cohort, test: Cohort, rates: NoiseRates) -> float:
    assert test.Y is not None
    tagger = Tagger().fit(train, rates=rates)
    draws = heldout_tag_draws(test.Y, seed=0, draws=3)
    scores = heldout_tag_scores(tagger.heldout_tag, test.X, test.Y, draws, resamples=1)
    return float(scores.by_visit["accuracy"].mean())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("train", type=Path)
    parser.add_argument("test", type=Path)
    parser.add_argument("--labels", type=int, nargs="+", default=[50, 200, 1000])
    parser.add_argument("--draws", type=int, default=10)
    parser.add_argument("--fits", type=int, default=2)
    args = parser.parse_args()
    train, test = Cohort.open(args.train), Cohort.open(args.test).multi()
    test = test.rows(np.arange(min(len(test), 2500)))
    assert train.Y is not None
    A, Y = train.A, train.Y
    true = NoiseRates.from_labels(A, Y, train.conditions)
    probability = guess_probabilities(train)
    if args.fits:
        print(
            f"all {len(Y):,} labels: accuracy {accuracy(train, test, true):.3f} on {len(test):,} visits\n", flush=True
        )
    print(
        "| labels | chosen | " + " | ".join(ERRORS) + " | accuracy |\n" + "|---" * (len(ERRORS) + 3) + "|", flush=True
    )
    for count in args.labels:
        for way in ("at random", "label-next"):
            wrong, right = [], []
            for seed in range(args.draws):
                if way == "at random":
                    rows, weights = np.random.default_rng(seed).choice(len(Y), count, replace=False), None
                else:
                    chosen = label_next(A, probability, count, seed=seed)
                    rows, weights = chosen.rows, chosen.weights
                rates = NoiseRates.from_sample(A, Y[rows], rows, train.conditions, weights=weights)
                wrong.append(errors(rates, true))
                if seed < args.fits:
                    right.append(accuracy(train, test, rates))
            shown = [f"{value:.3f}" for value in np.mean(wrong, 0)]
            print(f"| {count:,} | {way} | {' | '.join(shown)} | {', '.join(f'{r:.3f}' for r in right)} |", flush=True)


if __name__ == "__main__":
    main()
