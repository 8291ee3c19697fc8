"""Negation on NegEx's test kit: `python -m benchmarks.negation [--rules FILE] [--errors]`.

Each line of the kit is a concept, a sentence it stands in and whether it is negated there. The verdict is that of the
token in which the concept's first word begins; positive class: Negated (`Possible`, where a kit has it, is not).
Where the concept occurs more than once in its sentence the occurrence in capitals counts, which is how the kit marks
it, then the first; where its text runs over the end of the sentence, the longest part that is there, from either end.
"""

from __future__ import annotations

import argparse
import csv
import os
import re
from collections.abc import Iterator
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


class Score(NamedTuple):
    precision: float
    recall: float
    f1: float


def read_kit(path: Path) -> Iterator[Mention]:
    """The mentions of a kit file, tab-separated: line number, concept, sentence, negation status, …"""
    with path.open(encoding="utf-8", errors="replace", newline="") as file:
        for row in csv.DictReader(file, delimiter="\t", quoting=csv.QUOTE_NONE):
            line, concept, sentence, status = list(row.values())[:4]
            yield Mention(line, sentence, _find(concept, sentence), status.strip().lower() == "negated")


def _find(concept: str, sentence: str) -> int:
    words = concept.split()
    parts = [words] + [part for n in range(len(words) - 1, 0, -1) for part in (words[:n], words[-n:])]
    for part in parts:
        found = list(re.finditer(r"\s+".join(map(re.escape, part)), sentence, re.IGNORECASE))
        if found:
            return next((m for m in found if m.group().isupper()), found[0]).start()
    raise ValueError(f"the concept does not occur in its sentence: {concept!r}")


def predict(mention: Mention, rules: str) -> bool:
    """Whether the token at, or first after, the concept's start is negated."""
    return next((t.negated for t in tokenize(mention.sentence, rules) if t.end > mention.start), False)


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
    parser.add_argument("--kit", type=Path, default=DATA / "negex" / "annotated_sentences_dev.tsv")
    parser.add_argument("--rules", action="append", help="default, paper or a rules file; may be given again")
    parser.add_argument("--errors", action="store_true", help="print the sentences that are judged wrongly")
    args = parser.parse_args()
    mentions = list(read_kit(args.kit))
    truth = np.array([m.negated for m in mentions])
    half = np.array([int(m.line) % 2 == 1 for m in mentions])  # rules were written looking at the odd lines only
    print(f"{args.kit.name}: {len(mentions)} mentions, {truth.sum()} negated")
    print("rules      precision  recall  F1     95% interval    odd lines  even lines")
    for rules in args.rules or ["default", "paper"]:
        predicted = np.array([predict(m, rules) for m in mentions])
        p, r, f1 = score(truth, predicted)
        low, high = interval(truth, predicted, np.random.default_rng(0))
        odd, even = (score(truth[h], predicted[h]).f1 for h in (half, ~half))
        print(f"{rules:10} {p:9.3f} {r:7.3f}  {f1:.3f}  {low:.3f} to {high:.3f}  {odd:9.3f} {even:11.3f}")
        if args.errors:
            for m, guess in zip(mentions, predicted, strict=True):
                if guess != m.negated:
                    kind = "false negation" if guess else "missed negation"
                    before, after = m.sentence[max(0, m.start - 70) : m.start], m.sentence[m.start :][:70]
                    print(f"  {kind}, line {m.line}: …{before}>>{after}")


if __name__ == "__main__":
    main()
