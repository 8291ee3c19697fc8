"""Visits that show what a joint model does: what confirming one tag does to the others.

They are looked for among visits whose truth is known, so they are illustrations, not a measure of anything.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from whatelse.cohort import Cohort
from whatelse.errors import CohortError
from whatelse.tagger import Tagger

LEAST = 0.01  # a change of probability worth showing


@dataclass(frozen=True)
class Example:
    """Confirming `confirmed` in a visit moves `other` from `before` to `after`; `true`: the visit has `other`."""

    visit: str
    confirmed: str
    other: str
    before: float
    after: float
    true: bool


def find_examples(
    tagger: Tagger, cohort: Cohort, wanted: tuple[str, str] = ("fall", "intracranial hemorrhage"), most: int = 600
) -> list[Example]:
    """Up to three visits, all different:

    1. confirming wanted[0], which is true, lifts wanted[1], if possible in a visit that has it too
    2. the largest lift of a true condition by another
    3. the largest fall of a condition that the visit does not have: it is explained away

    Where a model cannot do one of these (with independent priors, confirming can only lift by taking away a rival),
    the next largest of the others stands in. The first is looked for in `most` visits that have wanted[0], the others
    in `most` with two or more true conditions. Costs one posterior for each true condition of these visits.
    """
    if cohort.Y is None:
        raise CohortError("examples are chosen by the truth, and this cohort has no labels")
    names = list(cohort.conditions)
    several = np.flatnonzero(cohort.Y.sum(1) >= 2)[:most]
    known = set(wanted) <= set(names)
    having = np.flatnonzero(cohort.Y[:, names.index(wanted[0])])[:most] if known else several[:0]
    rows = np.union1d(several, having)
    which, given = np.nonzero(cohort.Y[rows])  # one question for each true condition of each visit
    confirmed = np.zeros((len(which), len(names)), bool)
    confirmed[np.arange(len(which)), given] = True
    X = cohort.X[rows]
    before = tagger.predict_proba(X)[which]
    after = tagger.predict_proba(X[which], confirmed)

    lift = np.where(confirmed, 0.0, after - before)
    truth, ids = cohort.Y[rows][which], cohort.ids[rows][which]
    pair = np.zeros_like(confirmed)
    if known:
        pair[given == names.index(wanted[0]), names.index(wanted[1])] = True
    found: list[Example] = []
    lifted, fallen = np.where(truth, lift, 0.0), np.where(truth, 0.0, -lift)
    asked = np.where(pair & truth, lift, 0.0)
    if asked.max(initial=0.0) < LEAST:
        asked = np.where(pair, lift, 0.0)
    for choose in (asked, lifted, fallen, lifted, fallen):
        fresh = choose * ~np.isin(ids, [example.visit for example in found])[:, None]
        if len(found) < 3 and fresh.size and fresh.max() >= LEAST:
            k, i = np.unravel_index(np.argmax(fresh), fresh.shape)
            moved = float(before[k, i]), float(after[k, i])
            found.append(Example(str(ids[k]), names[given[k]], names[i], *moved, bool(truth[k, i])))
    return found
