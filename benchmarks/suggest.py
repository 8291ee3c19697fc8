"""A simulated person who looks at suggested anchors for ten minutes: what they accept, and what it is worth.

    python -m benchmarks.suggest TRAIN TEST --conditions FILE [--source nhamcs] [--labels FOLDER] [--most 10]

TRAIN and TEST are records with truth or billing codes (several files with commas between). The cohort that suggestions
are made from has no labels, unless --seen N gives it the labels of N visits. The person looks at ten visits drawn from
those of TRAIN that have a phrase, knows their labels, and accepts the phrase if seven (--enough) have the condition. A
phrase accepted for two conditions goes to the first. Then the anchors are written, both cohorts built again, and the
default learner run as before; noise rates are counted in TRAIN's labels both times. Held-out tag as in docs/results.md,
over three draws.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from pathlib import Path

import numpy as np

from whatelse.annotators import AnchorSet
from whatelse.annotators.discovery.edit import add_phrase, save_conditions
from whatelse.annotators.discovery.phrases import Phrase, PhraseTable, from_visits
from whatelse.annotators.discovery.suggest import Suggestion, by_condition, suggest
from whatelse.annotators.noise_rates import NoiseRates
from whatelse.cohort import Cohort, build_cohort
from whatelse.errors import ConditionError
from whatelse.noisyor.heldout_metrics import heldout_tag_draws, heldout_tag_scores
from whatelse.sources import read_visits
from whatelse.tagger import Tagger

LOOKED_AT = 10


def accuracy(train: Cohort, test: Cohort) -> str:
    """Held-out tag of the default learner: accuracy, top 5, mean reciprocal rank."""
    assert train.Y is not None and test.Y is not None
    tagger = Tagger().fit(train, rates=NoiseRates.from_labels(train.A, train.Y, train.conditions))
    some = test.multi()
    assert some.Y is not None
    draws = heldout_tag_draws(some.Y, seed=0, draws=3)
    scores = heldout_tag_scores(tagger.heldout_tag, some.X, some.Y, draws, resamples=1)
    return " / ".join(f"{value.mean():.3f}" for value in scores.by_visit.values())


def person(cohort: Cohort, table: PhraseTable, found: list[Suggestion], enough: float, seed: int) -> list[Suggestion]:
    """The suggestions that the simulated person accepts."""
    assert cohort.Y is not None
    rng = np.random.default_rng(seed)
    accepted = []
    for s in found:
        rows = table.rows(table.index[Phrase(s.phrase, s.key, s.system, s.label)])
        looked = rng.choice(rows, min(LOOKED_AT, rows.size), replace=False)
        if cohort.Y[looked, cohort.conditions.index(s.condition)].mean() >= enough:
            accepted.append(s)
    return accepted


def hidden(cohort: Cohort, seen: int, seed: int) -> Cohort:
    """The cohort with the labels of `seen` visits at random and no other."""
    labelled = np.zeros(len(cohort), bool)
    labelled[np.random.default_rng(seed).choice(len(cohort), min(seen, len(cohort)), replace=False)] = True
    Y = None if not seen or cohort.Y is None else cohort.Y & labelled[:, None]
    return Cohort(cohort.X, cohort.vocabulary, cohort.ids, Y, labelled & (Y is not None), cohort.about)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("train", help="records, with commas between files")
    parser.add_argument("test")
    parser.add_argument("--conditions", type=Path, help="the shipped ones if left out")
    parser.add_argument("--source", default="table")
    parser.add_argument("--labels", type=Path, help="nhamcs: the folder of label tables")
    parser.add_argument("--most", type=int, default=10)
    parser.add_argument("--seen", type=int, default=0, help="labels that suggestions may use")
    parser.add_argument("--enough", type=float, default=0.7, help="share of the visits looked at")
    parser.add_argument("--only", nargs="+", help="conditions to suggest for")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--show", action="store_true", help="list every suggestion, + for the accepted ones")
    args = parser.parse_args()
    survey = args.source == "nhamcs"
    options = {"max_terms": None, "min_visits": 10} if survey else {}

    def visits(files: str):  # type: ignore[no-untyped-def]
        return read_visits([Path(f) for f in files.split(",")], args.source, labels=args.labels)

    def cohorts(anchors: AnchorSet) -> tuple[Cohort, Cohort]:
        train = build_cohort(visits(args.train), anchors, **options)
        return train, build_cohort(visits(args.test), like=train)

    anchors = (AnchorSet.load(args.conditions) if args.conditions else AnchorSet.shipped()).anchored()
    train, test = cohorts(anchors)
    print(f"{len(train):,} visits to learn from, {len(test.multi()):,} with two or more conditions to test on")
    print(f"anchors as given: {accuracy(train, test)}", flush=True)
    began = time.perf_counter()
    table = from_visits(train, visits(args.train))
    found = suggest(hidden(train, args.seen, args.seed), table, most=args.most, conditions=args.only)
    seconds = time.perf_counter() - began
    accepted = person(train, table, found, args.enough, args.seed)
    print(f"{len(found)} suggestions in {seconds:.0f} s, {len(accepted)} accepted ({len(accepted) / len(found):.0%})")
    if args.show:
        for condition, group in by_condition(found).items():
            marks = (f"{'+' if s in accepted else '-'}{s.label or s.phrase}" for s in group)
            print(f"  {condition}: {', '.join(marks)}")
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "conditions.yaml"
        save_conditions(file, anchors)
        written = 0
        for s in accepted:
            try:
                add_phrase(file, s.condition, s.phrase, s.key, s.system)
                written += 1
            except ConditionError:
                continue
        train, test = cohorts(AnchorSet.load(file))
    print(f"with {written} phrases more: {accuracy(train, test)}")


if __name__ == "__main__":
    main()
