"""A simulated year: people decide on the page, and the model is fitted again every month from all they decided so far.

    python -m benchmarks.year --test 6000 --word-every 6 --out year.png

The department starts with no label at all: anchors and assumed noise rates. Its clinicians behave like this:

- half of a month's visits are opened, at random;
- the likeliest open tag is looked at, and after each the next one with a chance of 0.8: the list is the page's, so what
  is decided moves the rest;
- who looks decides: by the truth, and wrongly once in twenty times, either way;
- in one opened visit of ten a second clinician decides on the same tags, not knowing what the first one did.

At the end of each month four models are measured on the same visits of another year, on held-out tag, log loss and
calibration error:

    never refitted      the first model
    decisions           all decisions so far, errors estimated (the default)
    at their word       the same decisions without weights and taken for the truth: what ignoring both costs
    all true labels     every condition of every visit of the months so far known: the most there could be
"""

from __future__ import annotations

import argparse
import json
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp

from whatelse.annotators.decisions import Opinion, combine
from whatelse.annotators.label_set import LabelSet
from whatelse.cohort import Cohort, build_cohort
from whatelse.evaluation.calibration import EDGES, log_loss
from whatelse.noisyor.heldout_metrics import heldout_tag_draws, heldout_tag_scores, paired_test
from whatelse.simulate import simulate
from whatelse.tagger import Tagger

OPENED, GOES_ON, ERROR, TWICE, MOST = 0.5, 0.8, 0.05, 0.1, 12
ARMS = ("never refitted", "decisions", "at their word", "all true labels")
COLOURS = dict(zip(ARMS, ("#7a869a", "#1f5fbf", "#c2571a", "#2f8f5b"), strict=True))


def join(a: Cohort, b: Cohort) -> Cohort:
    """The visits of two cohorts of one vocabulary, labels and all."""
    assert a.Y is not None and b.Y is not None
    X = sp.csr_matrix(sp.vstack([a.X, b.X]))
    return Cohort(X, a.vocabulary, np.concatenate([a.ids, b.ids]), np.concatenate([a.Y, b.Y]))


def decide(tagger: Tagger, month: Cohort, rng: np.random.Generator) -> list[Opinion]:
    """What the clinicians of a month decide; one posterior of all visits a position."""
    assert month.Y is not None
    visits = np.flatnonzero(rng.random(len(month)) < OPENED)
    second = rng.random(visits.size) < TWICE
    m = len(month.conditions)
    said = {True: np.zeros((visits.size, m), bool), False: np.zeros((visits.size, m), bool)}
    going, out = np.ones(visits.size, bool), list[Opinion]()
    for position in range(1, MOST + 1):
        rows = np.flatnonzero(going)
        if not rows.size:
            break
        likely = tagger.predict_proba(month.X[visits[rows]], said[True][rows], said[False][rows])
        likely[said[True][rows] | said[False][rows]] = -1.0
        for k, i, p in zip(rows.tolist(), likely.argmax(1).tolist(), likely.max(1).tolist(), strict=True):
            visit, truth = str(month.ids[visits[k]]), bool(month.Y[visits[k], i])
            for person in ("first", "second") if second[k] else ("first",):
                verdict = truth ^ (rng.random() < ERROR)
                out.append(Opinion(visit, month.conditions[i], bool(verdict), person, position, p))
                if person == "first":
                    said[bool(verdict)][k, i] = True
        going &= rng.random(visits.size) < GOES_ON
    return out


@dataclass
class Judge:
    """The visits of another year, and what a model is worth on them."""

    cohort: Cohort
    seed: int
    draws: Any = field(init=False)

    def __post_init__(self) -> None:
        self.draws = heldout_tag_draws(self.cohort.Y, seed=self.seed, draws=3)

    def measure(self, tagger: Tagger) -> dict[str, Any]:
        """Means, and by visit what intervals are made of."""
        Y = self.cohort.Y
        assert Y is not None
        scores = heldout_tag_scores(tagger.heldout_tag, self.cohort.X, Y, self.draws, resamples=1)
        p = tagger.predict_proba(self.cohort)
        loss = log_loss(p, Y).mean(1)
        seen = p >= 0.02
        bin_of = np.searchsorted(EDGES, p[seen], side="right")
        off = np.abs(np.bincount(bin_of, p[seen] - Y[seen])).sum() / seen.sum()
        return {
            "accuracy": float(scores.by_visit["accuracy"].mean()),
            "log_loss": float(loss.mean()),
            "calibration": float(off),
            "expected": float(p.sum() / Y.sum()),
            "_accuracy": scores.by_visit["accuracy"],
            "_loss": loss,
        }


def fit(cohort: Cohort, labels: LabelSet) -> Tagger:
    return Tagger().fit(cohort, votes=labels)


def year(months: int, learn: int, month: int, test: int, seed: int, word_every: int) -> list[dict[str, Any]]:
    """A row for each month and arm, month 0 before anything was decided."""
    rng = np.random.default_rng(seed)
    start = build_cohort(simulate(learn, 100 * seed + 1), max_terms=600)
    judge = Judge(build_cohort(simulate(test, 100 * seed + 2), like=start), seed)
    bare = Cohort(start.X, start.vocabulary, start.ids)
    first = Tagger().fit(bare)
    never = judge.measure(first)
    rows = [{"month": 0, "arm": arm, **_shown(never, never)} for arm in ARMS]
    served, so_far, opinions = first, start, list[Opinion]()
    for number in range(1, months + 1):
        began = time.perf_counter()
        fresh = build_cohort(simulate(month, 100 * seed + 10 + number), like=start)
        opinions += decide(served, fresh, rng)
        so_far = join(so_far, fresh)
        decisions = combine(opinions)
        served = fit(so_far, decisions.labels(so_far))
        arms = {"never refitted": never, "decisions": judge.measure(served)}
        if number % word_every == 0 or number == months:
            taken = combine(opinions, error=0.001).labels(so_far, weighted=False)
            arms["at their word"] = judge.measure(fit(so_far, taken))
        known = np.arange(len(so_far)) >= learn
        truth = LabelSet.of_cohort(so_far).only(known)
        arms["all true labels"] = judge.measure(fit(so_far, truth))
        for arm, found in arms.items():
            rows.append({"month": number, "arm": arm, **_shown(found, never)})
            print(_line(rows[-1]), flush=True)
        print(
            f"  {len(opinions):,} decisions; errors found {decisions.false_confirm:.3f}, {decisions.false_reject:.3f}; "
            f"{time.perf_counter() - began:.0f} s",
            flush=True,
        )
    return rows


def _shown(found: dict[str, Any], never: dict[str, Any]) -> dict[str, Any]:
    """Without what is by visit, and with paired differences from never refitting."""
    out = {name: value for name, value in found.items() if not name.startswith("_")}
    for name in ("_accuracy", "_loss"):
        test = paired_test(never[name], found[name], resamples=1000)
        out[name.removeprefix("_") + "_gain"] = [test.difference, test.low, test.high]
    return out


def _line(row: dict[str, Any]) -> str:
    a, b = row["accuracy_gain"], row["loss_gain"]
    return (
        f"| {row['month']} | {row['arm']} | {row['accuracy']:.3f} ({a[1]:+.3f} to {a[2]:+.3f}) | {row['log_loss']:.4f} "
        f"({b[1]:+.4f} to {b[2]:+.4f}) | {row['calibration']:.4f} | {row['expected']:.2f} |"
    )


def plot(rows: list[dict[str, Any]], path: Path) -> None:
    """Accuracy, log loss and calibration error by month, one line an arm; "at their word" would be far off the page."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(1, 3, figsize=(12, 3.6), constrained_layout=True)
    titles = (("accuracy", "held-out tag, accuracy"), ("log_loss", "log loss"), ("calibration", "calibration error"))
    for axis, (name, title) in zip(axes, titles, strict=True):
        for arm in (arm for arm in ARMS if arm != "at their word"):
            points = [(row["month"], row[name]) for row in rows if row["arm"] == arm]
            axis.plot(*zip(*points, strict=True), color=COLOURS[arm], label=arm, marker="o", markersize=3)
        axis.set_title(title, loc="left", fontsize=11)
        axis.set_xlabel("month")
        axis.spines[["top", "right"]].set_visible(False)
    axes[0].legend(frameon=False, fontsize=9)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=130)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--months", type=int, default=12)
    parser.add_argument("--learn", type=int, default=6000, help="visits before the year, of which no label is known")
    parser.add_argument("--month", type=int, default=1000, help="visits a month")
    parser.add_argument("--test", type=int, default=3000, help="visits of another year")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--word-every", type=int, default=4, help="months between two looks at the third model")
    parser.add_argument("--out", type=Path, help="a PNG file for the plot; the numbers go beside it as JSON")
    given = parser.parse_args()
    print("| month | model | accuracy (gain) | log loss (gain) | calibration error | expected / observed |")
    print("|---|---|---|---|---|---|", flush=True)
    rows = year(given.months, given.learn, given.month, given.test, given.seed, given.word_every)
    last = {row["arm"]: row for row in rows if row["month"] == given.months}
    for name in ("accuracy", "log_loss"):
        whole = last["all true labels"][name] - last["never refitted"][name]
        part = last["decisions"][name] - last["never refitted"][name]
        print(f"{name}: decisions close {part / whole:.0%} of the distance to all true labels")
    ours = [row for row in rows if row["arm"] == "decisions"]
    worse = [row["month"] for row in ours if row["loss_gain"][1] > 0 or row["accuracy_gain"][2] < 0]
    print(f"months in which it was worse than never refitting by more than the interval: {worse or 'none'}")
    if given.out:
        plot(rows, given.out)
        given.out.with_suffix(".json").write_text(json.dumps(rows, indent=1), encoding="utf-8")


if __name__ == "__main__":
    main()
