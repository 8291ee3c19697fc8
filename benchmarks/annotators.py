"""What votes of an annotator that errs are worth: labels corrupted to a stated annotator, learned from in four ways.

    python -m benchmarks.annotators TRAIN TEST [--visits 6000] [--votes 1000 10000] [--labels 0 50 200]
        [--annotators even varied length] [--ways votes truth snorkel] [--draws 1] [--json FILE]

TRAIN and TEST are cohort folders with labels. Of VISITS visits of TRAIN all have anchors, LABELS have true labels and
VOTES, the labelled among them, have votes of the annotator on every condition:

    even     sensitivity 0.85, precision 0.8
    varied   sensitivity and precision from 0.5 to 0.95, by condition, in random order
    length   as even on average; long records are read worse (sensitivity 0.97 to 0.73, false positives x 0.5 to 1.5)
    coin     a vote of 1 in 10 visits, whatever is true

Ways: `ignored` learns from anchors and labels alone; `votes` takes the votes with estimated error rates; `truth` takes
them as labels; `snorkel` takes as labels what Snorkel's LabelModel makes of anchors, votes and labels (left out if
Snorkel is not installed). Each is measured on TEST, on --tested visits at most: held-out tag on those with two
conditions or more, log loss per visit, each with its difference from `ignored` and a 95% interval (bootstrap, paired by
visit).
"""

from __future__ import annotations

import argparse
import json
import sys
import time
import warnings
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from whatelse.annotators.dawid_skene import estimate_rates
from whatelse.annotators.votes import Votes
from whatelse.cohort import Cohort
from whatelse.noisyor.heldout_metrics import heldout_tag_draws, heldout_tag_scores
from whatelse.tagger import Tagger
from whatelse.types import Bools, Floats

ANNOTATORS = ("even", "varied", "length", "coin")
WAYS = ("votes", "truth", "snorkel")
HEAD = (
    *("annotator", "votes", "labels", "draw", "way", "held-out tag", "gain", "log loss", "gain", "expected / observed"),
    *("rate errors: sensitivity, log false positive", "s"),
)


def corrupted(kind: str, cohort: Cohort, rng: np.random.Generator) -> tuple[Bools, Floats, Floats]:
    """(N, m) votes of an annotator on all visits; (m,) its true sensitivity and false-positive rate."""
    assert cohort.Y is not None
    Y = cohort.Y
    m, share = Y.shape[1], np.clip(Y.mean(0), 1e-4, 0.9)
    sensitivity, precision = np.full(m, 0.85), np.full(m, 0.8)
    if kind == "varied":
        sensitivity, precision = (rng.permutation(np.linspace(0.5, 0.95, m)) for _ in range(2))
    false_positive = sensitivity * share * (1 - precision) / (precision * (1 - share))
    if kind == "coin":
        sensitivity, false_positive = np.full(m, 0.1), np.full(m, 0.1)
    s, f = (np.broadcast_to(rate, Y.shape) for rate in (sensitivity, false_positive))
    if kind == "length":
        place = np.argsort(np.argsort(cohort.X.getnnz(axis=1), kind="stable"))[:, None] / len(cohort)  # 0 short, 1 long
        s, f = s + 0.12 * (1 - 2 * place), f * (0.5 + place)
    value = rng.random(Y.shape) < np.where(Y, s, f)
    rates = [(rate * who).sum(0) / np.maximum(who.sum(0), 1) for rate, who in ((s, Y), (f, ~Y))]
    return value, rates[0], rates[1]


def snorkel_labels(cohort: Cohort, votes: list[Votes], share: Floats) -> Votes | None:
    """Labels of Snorkel's LabelModel from anchors, votes and labels, condition by condition, where there are votes."""
    try:
        from snorkel.labeling.model import LabelModel
    except ImportError:
        return None
    rows = np.flatnonzero(np.any([v.known.any(1) for v in votes], 0))
    value = np.zeros(cohort.A.shape, bool)
    for i in range(value.shape[1]):
        columns = [np.where(v.known[rows, i], v.value[rows, i], -1) for v in votes]
        columns.append(np.where(cohort.A[rows, i], 1, -1))  # a silent anchor abstains
        table = np.array([*columns, columns[-1]]).T if len(columns) < 3 else np.array(columns).T  # it wants three
        model = LabelModel(cardinality=2, verbose=False)
        model.fit(table, class_balance=[1 - share[i], share[i]], n_epochs=200, seed=0, progress_bar=False)
        value[rows, i] = model.predict_proba(table)[:, 1] > 0.5
    known = np.zeros(len(cohort), bool)
    known[rows] = True
    return Votes("snorkel", value, known)


def fitted(cohort: Cohort, votes: list[Votes], seed: int) -> Tagger:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return Tagger(seed=seed).fit(cohort, votes=votes or None)


def measured(tagger: Tagger, test: Cohort) -> dict[str, Any]:
    """By visit: held-out tag accuracy (V,) and log loss (W,); expected / observed number of conditions."""
    assert test.Y is not None
    draws = heldout_tag_draws(test.Y, draws=3)
    scores = heldout_tag_scores(tagger.heldout_tag, test.X, test.Y, draws, resamples=1)
    p = np.clip(tagger.predict_proba(test), 1e-6, 1 - 1e-6)
    return {
        "heldout": np.asarray(scores.by_visit["accuracy"], float),
        "three": (scores.accuracy.value, scores.top5.value, scores.mrr.value),
        "loss": -np.where(test.Y, np.log(p), np.log1p(-p)).sum(1),
        "expected": float(p.sum() / test.Y.sum()),
    }


def gain(one: Floats, other: Floats) -> tuple[float, float, float]:
    """Mean difference and its 95% interval over visits."""
    difference = np.asarray(one - other)
    difference = difference.reshape(len(difference), -1).mean(1)
    means = difference[np.random.default_rng(0).integers(len(difference), size=(1000, len(difference)))].mean(1)
    low, high = np.quantile(means, [0.025, 0.975])
    return float(difference.mean()), float(low), float(high)


def rate_errors(votes: list[Votes], sensitivity: Floats, false_positive: Floats) -> list[float]:
    """Mean absolute error over conditions of the rates estimated from votes and labels."""
    found = next(v for v in estimate_rates(votes)[0] if v.annotator == "program")
    assert found.sensitivity is not None and found.false_positive is not None
    wrong = np.abs(found.sensitivity - sensitivity), np.abs(np.log(found.false_positive / false_positive))
    return [float(error.mean()) for error in wrong]


def setting(
    train: Cohort, test: Cohort, kind: str, count: int, labelled: int, draw: int, ways: list[str], base: dict[str, Any]
) -> list[dict[str, Any]]:
    """All ways with one annotator, number of votes and of labels. base: measures of `ignored`."""
    assert train.Y is not None
    rng = np.random.default_rng([draw, ANNOTATORS.index(kind)])
    value, sensitivity, false_positive = corrupted(kind, train, rng)
    order = np.random.default_rng(draw).permutation(len(train))  # the labelled visits are those of `ignored`
    program = Votes("program", value, np.isin(np.arange(len(train)), order[:count]), kind="program")
    labels = Votes("labels", train.Y, np.isin(np.arange(len(train)), order[:labelled]))
    bare = Cohort(train.X, train.vocabulary, train.ids, about=train.about)
    given = [labels, program] if labelled else [program]
    out = []
    for way in ways:
        began = time.process_time()
        used: list[Votes] | None = given
        if way == "truth":
            used = [*given[:-1], replace(program, kind="label", known=program.known & ~labels.known)]
        elif way == "snorkel":
            made = snorkel_labels(bare, given, np.clip(train.Y.mean(0), 1e-3, 0.9))
            used = None if made is None else [*given[:-1], replace(made, known=made.known & ~labels.known)]
        if used is None:
            continue
        found = measured(fitted(bare, used, draw), test)
        row = {"annotator": kind, "votes": count, "labels": labelled, "draw": draw, "way": way}
        row |= {"heldout": found["three"], "heldout_gain": gain(found["heldout"], base["heldout"])}
        row |= {"loss": float(found["loss"].mean()), "loss_gain": gain(base["loss"], found["loss"])}
        row |= {"expected": found["expected"], "seconds": time.process_time() - began}
        if way == "votes":
            row["rate_errors"] = rate_errors(given, sensitivity, false_positive)
        out.append(row)
    return out


def line(row: dict[str, Any]) -> str:
    def interval(name: str) -> str:
        return "{:+.3f} ({:+.3f} to {:+.3f})".format(*row[name]) if name in row else ""

    cells = [str(row[name]) for name in ("annotator", "votes", "labels", "draw", "way")]
    cells += ["{:.3f} / {:.3f} / {:.3f}".format(*row["heldout"]), interval("heldout_gain")]
    cells += [f"{row['loss']:.3f}", interval("loss_gain"), f"{row['expected']:.2f}"]
    cells += ["{:.3f}, {:.2f}".format(*row["rate_errors"]) if "rate_errors" in row else "", f"{row['seconds']:.0f}"]
    return "| " + " | ".join(cells) + " |"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("train", type=Path)
    parser.add_argument("test", type=Path)
    parser.add_argument("--visits", type=int, default=20_000, help="of TRAIN, at most")
    parser.add_argument("--tested", type=int, default=5000, help="visits of TEST, at most")
    parser.add_argument("--votes", type=int, nargs="+", default=[1000, 10_000])
    parser.add_argument("--labels", type=int, nargs="+", default=[0, 50, 200])
    parser.add_argument("--annotators", nargs="+", default=["even", "varied", "length"], choices=ANNOTATORS)
    parser.add_argument("--ways", nargs="+", default=list(WAYS), choices=WAYS)
    parser.add_argument("--draws", type=int, default=1)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    train, test = Cohort.open(options.train), Cohort.open(options.test)
    assert train.Y is not None
    test = test.rows(np.arange(min(len(test), options.tested)))
    train = train.rows(np.sort(np.random.default_rng(0).permutation(len(train))[: options.visits]))
    print("| " + " | ".join(HEAD) + " |\n|" + "---|" * len(HEAD), flush=True)
    rows = []
    for draw in range(options.draws):
        order = np.random.default_rng(draw).permutation(len(train))
        for labelled in options.labels:
            bare = Cohort(train.X, train.vocabulary, train.ids, about=train.about)
            labels = Votes("labels", train.Y, np.isin(np.arange(len(train)), order[:labelled]))  # type: ignore[arg-type]
            began = time.process_time()
            base = measured(fitted(bare, [labels] if labelled else [], draw), test)
            row = {"annotator": "", "votes": 0, "labels": labelled, "draw": draw, "way": "ignored"}
            row |= {"heldout": base["three"], "loss": float(base["loss"].mean()), "expected": base["expected"]}
            rows.append(row | {"seconds": time.process_time() - began})
            print(line(rows[-1]), flush=True)
            for kind in options.annotators:
                for count in options.votes:
                    found = setting(train, test, kind, count, labelled, draw, options.ways, base)
                    print("\n".join(map(line, found)), flush=True)
                    rows += found
                    if options.json:
                        options.json.write_text(json.dumps(rows), encoding="utf-8")


if __name__ == "__main__":
    sys.exit(main())
