"""Assertion on NegEx's test kit: `python -m benchmarks.negation [--rules FILE] [--errors CLASS]`.

Each line of a kit file is a concept, a sentence it stands in, and its negation, temporality and experiencer there. The
verdict is the assertion of the token in which the concept's first word begins. A token has one assertion, a line of
the kit has three answers: "no history of stroke" is both negated and historical in the kit, and negated here. So
`historical` is also counted over the lines that are neither negated nor about another person (`historical alone`).
Where the concept occurs more than once in its sentence the occurrence in capitals counts, which is how the kit marks
it, then the first; where its text runs over the end of the sentence, the longest part that is there, from either end.
"""

from __future__ import annotations

import argparse
import csv
import os
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np

from whatelse.text import tokenize

DATA = Path(os.environ.get("WHATELSE_DATA", Path(__file__).parents[2] / "shared" / "data"))


class Mention(NamedTuple):
    line: str
    sentence: str
    start: int  # offset of the concept in the sentence
    negated: bool
    historical: bool
    hypothetical: bool
    other: bool


class Score(NamedTuple):
    precision: float
    recall: float
    f1: float


CLASSES: dict[str, tuple[Callable[[Mention], bool], str]] = {  # name: (truth, assertion that predicts it)
    "negated": (lambda m: m.negated, "negated"),
    "historical": (lambda m: m.historical, "historical"),
    "historical alone": (lambda m: m.historical and not m.negated and not m.other, "historical"),
    "hypothetical": (lambda m: m.hypothetical, "hypothetical"),
    "other": (lambda m: m.other, "other"),
}


def read_kit(path: Path) -> Iterator[Mention]:
    """Mentions of a kit file, tab-separated: [line,] concept, sentence, negation, temporality, experiencer."""
    with path.open(encoding="utf-8", errors="replace", newline="") as file:
        for count, row in enumerate(csv.DictReader(file, delimiter="\t", quoting=csv.QUOTE_NONE), start=1):
            values = [value.strip() for value in row.values()]
            line = values.pop(0) if len(values) > 5 else str(count)
            concept, _, negation, temporality, experiencer = values
            sentence = row.get("sentence") or ""
            yield Mention(
                line,
                sentence,
                _find(concept, sentence),
                negation.lower() == "negated",
                temporality.lower() == "historical",
                temporality.lower() == "not particular",
                experiencer.lower() != "patient",
            )


def _find(concept: str, sentence: str) -> int:
    words = concept.split()
    parts = [words] + [part for n in range(len(words) - 1, 0, -1) for part in (words[:n], words[-n:])]
    for part in parts:
        found = list(re.finditer(r"\s+".join(map(re.escape, part)), sentence, re.IGNORECASE))
        if found:
            return next((m for m in found if m.group().isupper()), found[0]).start()
    raise ValueError(f"the concept does not occur in its sentence: {concept!r}")


def assertion(mention: Mention, rules: str) -> str:
    """Assertion of the token at, or first after, the concept's start."""
    return next((t.assertion for t in tokenize(mention.sentence, rules) if t.end > mention.start), "present")


def score(truth: np.ndarray, predicted: np.ndarray) -> Score:
    """Precision, recall and F1 = 2 TP / (2 TP + FP + FN) of two boolean vectors."""
    hits = int((truth & predicted).sum())
    f1 = 2 * hits / max(int(truth.sum() + predicted.sum()), 1)
    return Score(hits / max(int(predicted.sum()), 1), hits / max(int(truth.sum()), 1), f1)


def interval(truth: np.ndarray, predicted: np.ndarray, rng: np.random.Generator) -> tuple[float, float]:
    """95% bootstrap interval of F1 over mentions."""
    picks = rng.integers(0, len(truth), size=(1000, len(truth)))
    return tuple(np.quantile([score(truth[p], predicted[p]).f1 for p in picks], [0.025, 0.975]))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    folder = DATA / "negex"
    parser.add_argument(
        "--kit", type=Path, nargs="+", default=[folder / "annotated_sentences_dev.tsv", folder / "context_dev.tsv"]
    )
    parser.add_argument("--rules", default="default", help="default, paper or a rules file")
    parser.add_argument("--errors", choices=CLASSES, help="print the mentions on odd lines that are judged wrongly")
    args = parser.parse_args()
    for path in args.kit:
        mentions = list(read_kit(path))
        odd = np.array([int(m.line) % 2 == 1 for m in mentions])  # rules were written looking at the odd lines only
        found = [assertion(m, args.rules) for m in mentions]
        print(f"{path.name}: {len(mentions)} mentions, rules {args.rules}")
        print("class             lines  precision  recall  F1     95% interval    odd lines  even lines")
        for name, (holds, wanted) in CLASSES.items():
            truth = np.array([holds(m) for m in mentions])
            predicted = np.array([code == wanted for code in found])
            p, r, f1 = score(truth, predicted)
            low, high = interval(truth, predicted, np.random.default_rng(0))
            halves = [score(truth[h], predicted[h]).f1 for h in (odd, ~odd)]
            print(
                f"{name:16} {truth.sum():6} {p:10.3f} {r:7.3f}  {f1:.3f}  {low:.3f} to {high:.3f}  "
                f"{halves[0]:9.3f} {halves[1]:11.3f}"
            )
            if args.errors == name:
                for m in [m for k, m in enumerate(mentions) if odd[k] and truth[k] != predicted[k]]:
                    kind = "missed" if holds(m) else f"falsely {wanted}"
                    before, after = m.sentence[max(0, m.start - 90) : m.start], m.sentence[m.start :][:90]
                    print(f"  {kind}, line {m.line}: …{before}>>{after}")


if __name__ == "__main__":
    main()
