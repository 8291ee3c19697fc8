"""What the page shows with the shipped model, to be read and counted.

    python -m benchmarks.page answers [--simulated 25] [--seed 2026] [--visits FILE] [--model MODEL]
    python -m benchmarks.page counts [--simulated 200] [--seed 2026] [--visits FILE] [--vignettes FILE]

`answers` prints what the page shows of each visit, for a reader to judge. `counts` prints cards and alerts a visit,
reasons and questions that are no clinical concept, and how often the page shows the dangerous condition of a vignette.
"""

from __future__ import annotations

import argparse
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path

import numpy as np
import yaml

from benchmarks.knowledge import VIGNETTES, names_of_conditions
from whatelse.explanations import group
from whatelse.knowledge.entries import plain
from whatelse.reading import DEADLY
from whatelse.server import answers, reasons
from whatelse.simulate import simulate
from whatelse.sources import read_visits
from whatelse.store import State
from whatelse.tagger import Tagger
from whatelse.visits import Visit


def page(tagger: Tagger, visit: Visit) -> Iterator[str]:
    """The lines of one visit."""
    reading, state = answers.read(tagger, visit), State()
    answered, marked = answers.view(reading, state)[0], reasons.marks(reading, state)
    found = reading.suggest()
    home = ", ".join(code.name or code.code for code in visit.medication_history or ())
    given = ", ".join(code.name or code.code for code in visit.dispensed or ())
    yield f"{visit.age} {visit.sex} | {visit.chief_complaint} | {visit.triage_note} | {visit.md_comments}"
    yield f"  takes {home or '-'}; given {given or '-'}; {dict(visit.numbers or ()) or ''} truth {visit.truth}"
    yield "  known: " + ", ".join(tag.title or tag.condition for tag in found.known)
    for name, tags in (("likely", found.likely), ("MUST NOT MISS", found.must_not_miss)):
        for tag in tags:
            why = ", ".join(marked.explains.get(tag.condition, ()))
            yield f"  {name}: {tag.title or tag.condition} {tag.probability:.0%}, {tag.times:.0f}x: {why}"
    for q in answers.questions(reading, state):
        yield f"  {q.kind}: {q.text}? {q.about} {q.now:.0%}, yes {q.if_yes:.0%}, no {q.if_no:.0%}"
    yield from (f"  do: {test.text} ({test.about})" for test in answers.tests(answered))
    if found.likely:
        first = found.likely[0].condition
        moved = reasons.moved(reading, state, State(confirmed=(first,))).sentence
        yield f"  confirm {first}: {moved}"


def cards(tagger: Tagger, visits: Iterable[Visit]) -> None:
    """Cards, alerts, reasons and questions of visits."""
    likely, alerts, odd, seen = [], [], Counter[str](), 0
    for visit in visits:
        reading, state = answers.read(tagger, visit), State()
        found = reading.suggest()
        likely.append(len(found.likely))
        alerts.append(len(found.must_not_miss))
        asked = [question.finding for question in answers.questions(reading, state)]
        told = [r.finding for tag in found.likely for r in reasons.why(reading, state, tag.condition).reasons]
        seen += len(asked) + len(told)
        odd.update(finding for finding in (*asked, *told) if group(finding, tagger) == "words")
    shown = np.array(likely) + alerts
    print(f"{len(shown)} visits: {np.median(shown):.0f} cards a visit (median), {shown.mean():.2f} (mean), ", end="")
    print(f"{np.mean(alerts):.2f} alerts; nothing is shown in {np.mean(shown == 0):.0%}")
    print(f"{sum(odd.values())} of {seen} reasons and questions are no clinical concept: {dict(odd)}")


def dangers(tagger: Tagger, file: Path) -> None:
    """Vignettes of dangerous conditions: how many the page shows, by condition."""
    names, shown = names_of_conditions(), dict[str, list[str]]()
    for case in next(iter(yaml.safe_load_all(file.read_text("utf-8")))):
        condition = names.get(plain(case["answer"]))
        profile = tagger.profiles_.get(condition or "")
        if condition is None or profile is None or profile.danger < DEADLY:
            continue
        visit = Visit("v", age=case.get("age"), sex=case.get("sex"), triage_note=case["text"])
        reading = answers.read(tagger, visit)
        found = reading.suggest()
        forms = {condition, *profile.wider}
        shown.setdefault(condition, []).append(
            next((part for name, part in found.part_of.items() if name in forms), "not shown")
        )
    every = [part for listed in shown.values() for part in listed]
    print(f"{file.name}: {len(every)} dangerous conditions, {dict(Counter(every))}")
    for condition, listed in sorted(shown.items()):
        if "not shown" in listed:
            print(f"  {condition}: {dict(Counter(listed))}")


def main() -> None:
    """Read visits, then print or count what the page shows of them."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["answers", "counts"])
    parser.add_argument("--model", default="emergency")
    parser.add_argument("--simulated", type=int, help="visits; 25 for answers, 200 for counts unless given")
    parser.add_argument("--seed", type=int, default=2026)
    parser.add_argument("--visits", help="a file of visits; as many as --simulated are drawn at random")
    parser.add_argument("--vignettes", type=Path, default=VIGNETTES)
    given = parser.parse_args()
    size = given.simulated or (25 if given.what == "answers" else 200)
    visits: Iterable[Visit] = simulate(size, given.seed)
    if given.visits:
        pool = list(read_visits(given.visits))
        chosen = np.random.default_rng(given.seed).choice(len(pool), size, replace=False)
        visits = [pool[i] for i in sorted(chosen.tolist())]
    tagger = Tagger.load(given.model)
    if given.what == "counts":
        cards(tagger, visits)
        dangers(tagger, given.vignettes)
        return
    for number, visit in enumerate(visits, start=1):
        print(f"{number}.", *page(tagger, visit), sep="\n", flush=True)


if __name__ == "__main__":
    main()
