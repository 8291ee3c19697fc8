"""Print what the page shows of some visits, to be read and judged: `python scripts/page_answers.py --simulated 25`.

The answers are those of the shipped model, or of --model. `--visits FILE` takes a file of visits instead.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Iterator

import numpy as np

from whatelse.server import answers, reasons
from whatelse.server.parts import parts
from whatelse.simulate import simulate
from whatelse.sources import read_visits
from whatelse.store import State
from whatelse.tagger import Tagger
from whatelse.visits import Visit


def page(tagger: Tagger, visit: Visit) -> Iterator[str]:
    """The lines of one visit."""
    reading, state = tagger.read(visit), State()
    answered, marked = answers.view(reading, state), reasons.marks(reading, state)
    found = parts(reading, state, reading.suggest())
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


def main() -> None:
    """Read, answer, print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", default="emergency")
    parser.add_argument("--simulated", type=int, default=25)
    parser.add_argument("--seed", type=int, default=2026)
    parser.add_argument("--visits", help="a file of visits; as many as --simulated are drawn at random")
    given = parser.parse_args()
    visits: Iterable[Visit] = simulate(given.simulated, given.seed)
    if given.visits:
        pool = list(read_visits(given.visits))
        chosen = np.random.default_rng(given.seed).choice(len(pool), given.simulated, replace=False)
        visits = [pool[i] for i in sorted(chosen.tolist())]
    tagger = Tagger.load(given.model)
    for number, visit in enumerate(visits, start=1):
        print(f"{number}.", *page(tagger, visit), sep="\n", flush=True)


if __name__ == "__main__":
    main()
