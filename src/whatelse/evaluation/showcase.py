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
MOST = 1500  # visits to look at


@dataclass(frozen=True)
class Example:
    """Confirming `confirmed` in a visit moves `other` from `before` to `after`; `true`: the visit has `other`."""

    visit: str
    confirmed: str
    other: str
    before: float
    after: float
    true: bool


COMPANIONS = (
    ("fall", "intracranial hemorrhage"),
    ("pneumonia", "severe sepsis"),
    ("uti", "severe sepsis"),
    ("alcohol", "fall"),
    ("kidney stone", "hematuria"),
    ("fall", "back pain"),
    ("alcohol", "suicidal ideation"),
)
"""What a clinician thinks of next: confirmed, and what to look for then."""


def find_examples(tagger: Tagger, cohort: Cohort) -> list[Example]:
    """Up to three visits, all different:

    1. confirming a tag lifts its companion (one of COMPANIONS), in a visit that has both
    2. the same for another pair or, where there is none, the largest lift of a true condition by another
    3. the largest fall of a condition that the visit does not have: it is explained away

    Where a model cannot do one of these (with independent priors, confirming can only lift by taking away a rival),
    the next largest of the others stands in. Looked for in MOST visits with two or more true conditions. Costs one
    posterior for each true condition of these visits.
    """
    if cohort.Y is None:
        raise CohortError("examples are chosen by the truth, and this cohort has no labels")
    names = list(cohort.conditions)
    rows = np.flatnonzero(cohort.Y.sum(1) >= 2)[:MOST]
    which, given = np.nonzero(cohort.Y[rows])  # one question for each true condition of each visit
    confirmed = np.zeros((len(which), len(names)), bool)
    confirmed[np.arange(len(which)), given] = True
    X = cohort.X[rows]
    before = tagger.predict_proba(X)[which]
    after = tagger.predict_proba(X[which], confirmed)

    lift = np.where(confirmed, 0.0, after - before)
    truth, ids = cohort.Y[rows][which], cohort.ids[rows][which]
    pair = np.zeros((len(names), len(names)), bool)
    for first, then in COMPANIONS:
        if first in names and then in names:
            pair[names.index(first), names.index(then)] = True
    found: list[Example] = []
    lifted, fallen = np.where(truth, lift, 0.0), np.where(truth, 0.0, -lift)
    asked = np.where(pair[given], lifted, 0.0)
    for choose in (asked, asked, fallen, lifted, fallen, lifted):
        seen = np.isin(ids, [example.visit for example in found])
        again = np.isin([names[g] for g in given], [example.confirmed for example in found])
        fresh = choose * ~(seen | again)[:, None]
        if len(found) < 3 and fresh.size and fresh.max() >= LEAST:
            k, i = np.unravel_index(np.argmax(fresh), fresh.shape)
            moved = float(before[k, i]), float(after[k, i])
            found.append(Example(str(ids[k]), names[given[k]], names[i], *moved, bool(truth[k, i])))
    return found
