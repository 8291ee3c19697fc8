"""Are the reasons that `why` gives the right ones? Only the simulator knows what put every word into a visit.

    python -m benchmarks.reasons TRAIN [--labels 0 1000 …] [--visits 3000] [--seed 2]

Learns from the cohort TRAIN of simulated visits, with so many labels (`rates`: none, but the noise rates of all), then
looks at new visits of another seed. For every true tag the three strongest reasons for it that stand in the record
(age, sex and other facts without a place are left out) are compared with what caused those words and codes: the tag
itself, another condition, something outside the 23, a mention, or nothing in particular.
"""

from __future__ import annotations

import argparse
import sys
import warnings
from collections import Counter
from pathlib import Path

from benchmarks.label_curve import labelled
from whatelse.annotators import NoiseRates
from whatelse.cohort import Cohort
from whatelse.explanations import Place
from whatelse.simulate import simulate_causes
from whatelse.simulate.causes import Cause
from whatelse.tagger import Tagger
from whatelse.visits import Known

STRONGEST = 3
KINDS = ("the tag itself", "another condition", "outside", "illness", "mention", "none")


def kind_of(places: tuple[Place, ...], causes: list[Cause], condition: str) -> str | None:
    """What put a finding there, the tag itself before all else; None for a finding without a place."""
    found = set()
    for place in places:
        start, end = (place.item, None if place.item is None else place.item + 1) if place.start is None else (
            place.start, place.end)  # fmt: skip
        if start is None or end is None:
            continue
        for field, a, b, kind, cause in causes:
            if field == place.field and a < end and start < b:
                same = kind == "condition" and cause == condition
                found.add("the tag itself" if same else "another condition" if kind == "condition" else kind)
    return next((kind for kind in KINDS if kind in found), None)


def measure(tagger: Tagger, visits: int, seed: int) -> dict[str, Counter[str]]:
    """Condition -> how many of the strongest reasons for it, where it is true, came from where."""
    found: dict[str, Counter[str]] = {}
    for visit, causes in simulate_causes(visits, seed):
        if not visit.truth:
            continue
        reading = tagger.read(visit)
        for condition in visit.truth:
            because = reading.why(Known(), condition)
            speaking = (r for r in because.reasons if r.present and r.log_odds > 0)
            kinds = [k for k in (kind_of(r.places, causes, condition) for r in speaking) if k is not None]
            found.setdefault(condition, Counter()).update(kinds[:STRONGEST])
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("train", type=Path)
    parser.add_argument("--labels", nargs="+", default=["rates", "1000"])
    parser.add_argument("--visits", type=int, default=3000)
    parser.add_argument("--seed", type=int, default=2)
    options = parser.parse_args()
    train = Cohort.open(options.train)
    print("| labels | reasons | " + " | ".join(KINDS) + " | worst conditions |")
    print("|" + "---|" * (len(KINDS) + 3))
    for count in options.labels:
        rates = NoiseRates.from_labels(train.A, train.Y, train.conditions) if count == "rates" else None
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            tagger = Tagger().fit(labelled(train, count, 0), rates=rates)
        found = measure(tagger, options.visits, options.seed)
        whole = sum(found.values(), Counter())
        total = whole.total()
        own = {c: k["the tag itself"] / k.total() for c, k in found.items() if k.total() >= 30}
        worst = ", ".join(f"{c} {own[c]:.2f}" for c in sorted(own, key=own.__getitem__)[:4])
        print(f"| {count} | {total:,} | " + " | ".join(f"{whole[k] / total:.3f}" for k in KINDS) + f" | {worst} |")


if __name__ == "__main__":
    sys.exit(main())
