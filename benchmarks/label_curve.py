"""The label curve: what labels add to anchors, and what moves do to the other tags along it (BENCHMARKS 1b and 1c).

    python -m benchmarks.label_curve TRAIN TEST [--labels 0 200 1000 all] [--draws 5] [--json FILE]

All visits of TRAIN are learned from by their anchors; N of them, at random, are labelled, every other label is taken
out before learning. `0` assumes typical noise rates, `rates` is the label-free learner told the rates of all visits.
Beside it plain logistic regressions on the same labels, one a condition, the penalty chosen by cross-validation of the
log loss. Held-out tag on the visits of TEST with two conditions or more; moves on 5,000 visits of TEST, by the model of
the first draw.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp
from sklearn.linear_model import LogisticRegression

from whatelse.annotators import NoiseRates
from whatelse.cohort import Cohort
from whatelse.evaluation.calibration import trust
from whatelse.noisyor.heldout_metrics import heldout_tag_draws, heldout_tag_scores
from whatelse.tagger import Tagger

PENALTIES = (0.03, 0.1, 0.3, 1.0)
HEAD = (
    *("labels", "draw", "held-out tag", "regression", "confirmed", "exp/obs", "rejected", "exp/obs"),
    *("0.6–0.9, 0.9+: observed − predicted", "shortest, longest tenth", "by condition", "log loss", "processor s"),
)


def labelled(train: Cohort, count: str, draw: int) -> Cohort:
    """TRAIN with so many labels, at random, and no other."""
    if count == "all":
        return train
    if count in ("0", "rates"):
        return Cohort(train.X, train.vocabulary, train.ids, about=train.about)
    assert train.Y is not None
    known = np.zeros(train.A.shape, bool)
    known[np.random.default_rng(draw).permutation(np.flatnonzero(train.labelled))[: int(count)]] = True
    return Cohort(train.X, train.vocabulary, train.ids, train.Y & known, known, train.about)


def accuracy(scorer: Any, test: Cohort) -> tuple[float, float, float]:
    """Held-out tag: accuracy, top 5, MRR over three draws."""
    assert test.Y is not None
    draws = heldout_tag_draws(test.Y, draws=3)
    found = heldout_tag_scores(scorer, test.X, test.Y, draws, resamples=1)
    return found.accuracy.value, found.top5.value, found.mrr.value


def regression(train: Cohort, test: Cohort) -> tuple[float, float, float]:
    """Held-out tag of `regressions` on the labelled visits, anchors among the findings."""
    assert train.Y is not None and test.Y is not None
    rows = np.flatnonzero(train.labelled)
    X, other = (sp.csr_matrix(x, dtype=float) for x in (train.X[rows], test.X))
    p = regressions(X, train.Y[rows], other)[test.Y.sum(1) >= 2]
    return accuracy(lambda X, confirmed: p, test)


def regressions(X: Any, Y: Any, other: Any) -> Any:
    """(V, m) probabilities for the rows of `other`: one logistic regression a condition, one penalty for all, chosen by
    the log loss of a fifth of the rows of X."""
    kept = np.random.default_rng(0).random(X.shape[0]) < 0.2
    losses = dict.fromkeys(PENALTIES, 0.0)
    for c in PENALTIES:
        for i in range(Y.shape[1]):
            p = _fitted(X[~kept], Y[~kept, i], c, X[kept])
            losses[c] -= np.where(Y[kept, i], np.log(p), np.log1p(-p)).sum()
    best = min(PENALTIES, key=lambda c: losses[c])
    return np.array([_fitted(X, y, best, other) for y in Y.T]).T


def _fitted(X: sp.csr_matrix, y: Any, c: float, other: sp.csr_matrix) -> Any:
    if not y.any():
        return np.full(other.shape[0], 0.5 / (len(y) + 1))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        fit = LogisticRegression(C=c, max_iter=200, solver="liblinear").fit(X, y)
    return np.clip(fit.predict_proba(other)[:, 1], 1e-6, 1 - 1e-6)


def point(train: Cohort, test: Cohort, count: str, draw: int, moves: bool, peers: bool) -> dict[str, Any]:
    """One point of the curve."""
    cohort = labelled(train, count, draw)
    rates = NoiseRates.from_labels(train.A, train.Y, train.conditions) if count == "rates" else None
    began = time.process_time()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        tagger = Tagger(seed=draw).fit(cohort, rates=rates)
    out: dict[str, Any] = {"labels": count, "draw": draw, "seconds": time.process_time() - began}
    out["heldout"] = accuracy(tagger.heldout_tag, test)
    if moves:
        out["trust"] = trust(tagger.model_, test)
    if peers and count not in ("0", "rates"):
        out["regression"] = regression(cohort, test)
    return out


def line(found: dict[str, Any]) -> str:
    """One line of the table."""
    cells = [found["labels"], str(found["draw"]), "{:.3f} / {:.3f} / {:.3f}".format(*found["heldout"])]
    cells.append("{:.3f}".format(found["regression"][0]) if "regression" in found else "")
    if "trust" in found:
        t = found["trust"]
        bins = {(b["low"]): b for b in t["reliability"]}
        for name in ("confirmed", "likeliest rejected"):
            move = t["updates"].get(name) or {}
            loss, expected = move.get("loss"), move.get("expected")  # a move that nobody made has neither
            cells.append(f"{loss['value']:.3f} ({loss['low']:.3f}–{loss['high']:.3f})" if loss else "–")
            cells.append(f"{expected['value']:.2f}" if expected else "–")
        cells.append(" ".join(_gap(bins, low, high) for low, high in ((0.6, 0.9), (0.9, 1.0))))
        cells.append(" ".join(f"{r['value']:.2f}" for r in t["by_length"].values()))
        own = [c["value"] for c in t["by_condition"] if c["value"] is not None and c["observed"] >= 10]
        cells.append(f"{min(own):.2f} to {max(own):.2f}")
        cells.append(f"{t['log_loss']:.5f}")
    return "| " + " | ".join([*cells, f"{found['seconds']:.0f}"]) + " |"


def _gap(bins: dict[float, dict[str, Any]], low: float, high: float) -> str:
    """Observed minus predicted between two probabilities."""
    inside = [b for at, b in bins.items() if low <= at < high]
    count = sum(b["count"] for b in inside)
    if not count:
        return "–"
    return f"{sum(b['count'] * (b['observed'] - b['predicted']) for b in inside) / count:+.3f} ({count})"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("train", type=Path)
    parser.add_argument("test", type=Path)
    parser.add_argument("--labels", nargs="+", default=["0", "rates", "200", "1000", "3000", "10000", "all"])
    parser.add_argument("--draws", type=int, default=1)
    parser.add_argument("--no-moves", action="store_true")
    parser.add_argument("--no-peers", action="store_true")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    train, test = Cohort.open(options.train), Cohort.open(options.test)
    print("| " + " | ".join(HEAD) + " |")
    print("|" + "---|" * len(HEAD))
    found = []
    for count in options.labels:
        for draw in range(1 if count in ("0", "rates", "all") else options.draws):
            found.append(point(train, test, count, draw, draw == 0 and not options.no_moves, not options.no_peers))
            print(line(found[-1]), flush=True)
    if options.json:
        options.json.write_text(json.dumps(found), encoding="utf-8")


if __name__ == "__main__":
    sys.exit(main())
