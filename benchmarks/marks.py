"""What a move could tell at most: the joint model's answers beside regressions that saw thousands of labelled moves.

    python -m benchmarks.marks TRAIN TEST [--labels all] [--visits 20000]

Moves as in `whatelse evaluate` (BENCHMARKS 1b) on visits of TEST. The regressions predict every *other* tag of a move
from its log odds before, and are learned from half of the moves and tried on the other half, both ways:

    levels        one slope and a shift for each tag: what the probabilities before lack, whatever is known
    pairs         and a shift for each pair of known and other tag: what the move itself has to tell
    pairs, change and the change that the model makes

A joint model cannot do much better than `pairs`; below `levels` there is nothing to be gained by knowing the tag.
"""

from __future__ import annotations

import argparse
import sys
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp
from scipy.special import logit
from sklearn.linear_model import LogisticRegression

from benchmarks.label_curve import labelled
from whatelse.annotators import NoiseRates
from whatelse.cohort import Cohort
from whatelse.evaluation.calibration import Move, answers_of, log_loss, moves, update
from whatelse.tagger import Tagger

RIDGE = 0.3
KINDS = ("levels", "pairs", "pairs, change")


def ratios(move: Move, half: Any) -> dict[str, float]:
    """Log loss after / before by each kind of regression; half (V,) says which half of the visits each is in."""
    where = np.nonzero(move.others)
    before, after = (logit(np.clip(p, 1e-6, 1 - 1e-6))[where] for p in (move.before, move.after))
    truth, first = move.truth[where], half[move.visit][where[0]]
    m, rows = move.truth.shape[1], np.arange(len(truth))
    other, known = where[1], move.subject[where[0]]

    def one_of(index: Any, size: int) -> sp.csr_matrix:
        return sp.csr_matrix((np.ones(rows.size), (rows, index)), shape=(rows.size, size))

    levels = [sp.csr_matrix(before[:, None]), one_of(other, m)]
    pairs = [*levels, one_of(known, m), one_of(other * m + known, m * m)]
    out = {}
    for kind, columns in zip(KINDS, (levels, pairs, [*pairs, sp.csr_matrix((after - before)[:, None])]), strict=True):
        x, p = sp.csr_matrix(sp.hstack(columns)), np.empty(rows.size)
        for side in (True, False):
            fit = LogisticRegression(C=RIDGE, max_iter=500).fit(x[first == side], truth[first == side])
            p[first != side] = fit.predict_proba(x[first != side])[:, 1]
        out[kind] = float(log_loss(p, truth).mean() / log_loss(move.before[where], truth).mean())
    return out


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("train", type=Path)
    parser.add_argument("test", type=Path)
    parser.add_argument("--labels", default="all", help="how many visits are labelled, or 'rates'")
    parser.add_argument("--visits", type=int, default=20_000)
    options = parser.parse_args()
    train, test = Cohort.open(options.train), Cohort.open(options.test)
    rates = NoiseRates.from_labels(train.A, train.Y, train.conditions) if options.labels == "rates" else None
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        tagger = Tagger(seed=0).fit(labelled(train, options.labels, 0), rates=rates)
    rng = np.random.default_rng(0)
    some = test.rows(np.sort(rng.permutation(len(test))[: options.visits]))
    assert some.Y is not None
    answer = answers_of(tagger.model_)
    made = moves(answer, some.X, some.Y, answer(some.X, None, None))
    half = rng.random(len(some)) < 0.5
    print("| log loss of the others after / before | times | joint model | " + " | ".join(KINDS) + " |")
    print("|" + "---|" * (3 + len(KINDS)))
    for name in ("confirmed", "likeliest rejected"):
        own, marks = update(made[name], resamples=200), ratios(made[name], half)
        cells = [name, f"{own.times:,}", f"{own.loss.value:.3f} ({own.loss.low:.3f}–{own.loss.high:.3f})"]
        print("| " + " | ".join([*cells, *(f"{marks[kind]:.3f}" for kind in KINDS)]) + " |", flush=True)


if __name__ == "__main__":
    sys.exit(main())
