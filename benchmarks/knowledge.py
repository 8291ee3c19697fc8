"""The shipped model, nothing learned: vignettes, moves, certificates, alerts, held-out tag of real visits.

    python -m benchmarks.knowledge vignettes [FILE] [--wrong]
    python -m benchmarks.knowledge moves [FILE] [--wrong]
    python -m benchmarks.knowledge alerts [--visits 300]
    python -m benchmarks.knowledge heldout COHORT [--visits 2000]

`heldout` takes a cohort of `whatelse build FILES --conditions FILE --vocabulary-from emergency`: its conditions are
matched with the base by name, title, code or phrase; labels only measure.
"""

from __future__ import annotations

import argparse
import os
import time
from collections.abc import Iterable
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import yaml

from whatelse.cohort import Cohort
from whatelse.explanations import Suggestions
from whatelse.knowledge import load_knowledge
from whatelse.knowledge.entries import plain
from whatelse.noisyor.heldout_metrics import heldout_tag_draws, heldout_tag_scores
from whatelse.noisyor.inference.posterior import posterior
from whatelse.simulate import simulate
from whatelse.sources import read_visits
from whatelse.tagger import Tagger
from whatelse.visits import Known, Visit

VIGNETTES = Path(__file__).parents[1] / "tests" / "data" / "vignettes.yaml"


def names_of_conditions() -> dict[str, str]:
    """Every phrase that names a condition -> the condition."""
    base, out = load_knowledge(), dict[str, str]()
    for condition in base.conditions.values():
        concept = base.concepts.get(condition.name)
        for phrase in (condition.name, condition.title, *condition.names, *(concept.same if concept else ())):
            out.setdefault(plain(phrase), condition.name)
    return out


def vignettes(file: Path, wrong: bool) -> None:
    """How often the right condition is first, among three, among five; certificates and times."""
    tagger, names = Tagger.load("emergency"), names_of_conditions()
    cases = next(iter(yaml.safe_load_all(file.read_text("utf-8"))))
    ranks, shown, bounds, took, unknown = [], [], [], [], []
    for case in cases:
        wanted = {names.get(plain(name)) for name in (case["answer"], *case.get("accept", ()))} - {None}
        reading = tagger.read(Visit("v", age=case.get("age"), sex=case.get("sex"), triage_note=case["text"]))
        found = reading.suggest()
        begun = time.process_time()
        posterior(tagger.model_, reading.present, reading.unobserved, top=1)
        took.append(time.process_time() - begun)
        ranks.append(_rank([tag.condition for tag in found.tags if not tag.stated], wanted))
        shown.append(_rank_shown(found, wanted))
        bounds.append(found.error_bound)
        if not wanted:
            unknown.append(case["answer"])
        if wrong and ranks[-1] >= 3:
            print(case.get("id"), case["answer"], ranks[-1], [tag.condition for tag in found.candidates[:5]])
    print(f"{file.name}: {len(cases)} vignettes; no condition of that name: {', '.join(unknown) or 'none'}")
    for title, places in (("all conditions in order", ranks), ("as shown, forms grouped", shown)):
        print(f"{title}: " + ", ".join(f"among {n} {np.mean(np.array(places) < n):.3f}" for n in (1, 3, 5)))
    certified = ", ".join(f"within {bound:g} {np.mean(np.array(bounds) <= bound):.3f}" for bound in (1e-3, 1e-2))
    print(f"certified: {certified}; median {1e3 * np.median(took):.2f} ms, 95% {1e3 * np.quantile(took, 0.95):.2f} ms")


def moves(file: Path, wrong: bool) -> None:
    """Tags that move as a clinician expects when a condition is confirmed: right by 2% or more, against by 10% or
    more; cases of the file that have a `confirm`."""
    tagger, names = Tagger.load("emergency"), names_of_conditions()
    count, unknown = {"right": 0, "against": 0, "neither": 0}, []
    for case in (case for part in yaml.safe_load_all(file.read_text("utf-8")) for case in part if "confirm" in case):
        confirmed = names.get(plain(case["confirm"]))
        if confirmed is None:
            unknown.append(case["confirm"])
            continue
        reading = tagger.read(Visit("v", age=case.get("age"), sex=case.get("sex"), triage_note=case["text"]))
        before, after = (
            {tag.condition: tag.probability for tag in reading.suggest(known).tags}
            for known in (Known(), Known(confirmed=(confirmed,)))
        )
        for sign, part in ((1, "up"), (-1, "down")):
            for name in case.get(part) or ():
                condition = names.get(plain(name))
                if condition not in after or condition == confirmed:
                    unknown.append(name)
                    continue
                change = (after[condition] / max(before[condition], 1e-9)) ** sign
                result = "right" if change > 1.02 else "against" if change < 0.9 else "neither"
                count[result] += 1
                if wrong and result != "right":
                    numbers = f"{before[condition]:.2g} -> {after[condition]:.2g}"
                    print(f"{result}: {confirmed} confirmed, {condition} goes {part}: {numbers} | {case['text'][:60]}")
    print(f"{file.name}: " + ", ".join(f"{value} {key}" for key, value in count.items()))
    print(f"not a condition: {', '.join(unknown) or 'none'}")


def _rank(order: list[str], wanted: set[Any]) -> int:
    return min((order.index(name) for name in wanted if name in order), default=len(order))


def _rank_shown(found: Suggestions, wanted: set[Any]) -> int:
    """Place among the candidates; a form of a condition has that condition's place."""
    for place, tag in enumerate(found.candidates):
        if tag.condition in wanted or any(form.condition in wanted for form in found.forms(tag)):
            return place
    return len(found.tags)


def alerts(visits: int) -> None:
    """Alerts a visit, and suggestions shown, on ordinary visits: simulated ones, and injuries (neiss)."""
    tagger = Tagger.load("emergency")
    sets: dict[str, Iterable[Visit]] = {"simulated": simulate(visits, 7)}
    file = Path(os.environ.get("WHATELSE_DATA", "../shared/data")) / "neiss" / "visits_2003_2020.jsonl.gz"
    if file.exists():
        sets["neiss"] = islice(read_visits(file), visits)
    for title, some in sets.items():
        found = [tagger.read(replace(visit, truth=None)).suggest() for visit in some]
        count = np.array([len(f.must_not_miss) for f in found])
        print(
            f"{title}: {len(found)} visits, {count.mean():.2f} alerts a visit, {np.mean(count > 0):.2f} of visits with "
            f"one; {np.mean([len(f.likely) for f in found]):.1f} suggestions"
        )


def heldout(folder: Path, most: int) -> None:
    """Held-out tag: accuracy, top 5, MRR, of visits with two true conditions or more."""
    cohort = Cohort.open(folder)
    if cohort.Y is None:
        raise SystemExit(f"{folder} has no labels")
    rows = np.flatnonzero(cohort.Y.sum(1) >= 2)[:most]
    tagger, Y = Tagger.from_knowledge(cohort.vocabulary.anchors), cohort.Y[rows]
    scores = heldout_tag_scores(tagger.heldout_tag, cohort.X[rows], Y, heldout_tag_draws(Y))
    measured = " / ".join(f"{score.value:.3f}" for score in (scores.accuracy, scores.top5, scores.mrr))
    print(f"{folder.name}: {len(rows)} visits, {len(cohort.conditions)} conditions: {measured}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parts = parser.add_subparsers(dest="part", required=True)
    one = parts.add_parser("vignettes")
    one.add_argument("file", type=Path, nargs="?", default=VIGNETTES)
    one.add_argument("--wrong", action="store_true", help="print those not among three")
    one = parts.add_parser("moves")
    one.add_argument("file", type=Path, nargs="?", default=VIGNETTES)
    one.add_argument("--wrong", action="store_true", help="print those that are not right")
    one = parts.add_parser("alerts")
    one.add_argument("--visits", type=int, default=300)
    one = parts.add_parser("heldout")
    one.add_argument("cohort", type=Path)
    one.add_argument("--visits", type=int, default=2000)
    given = parser.parse_args()
    if given.part == "vignettes":
        vignettes(given.file, given.wrong)
    elif given.part == "moves":
        moves(given.file, given.wrong)
    elif given.part == "alerts":
        alerts(given.visits)
    else:
        heldout(given.cohort, given.visits)


if __name__ == "__main__":
    main()
