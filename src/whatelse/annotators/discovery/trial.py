"""try_phrase: what a phrase would be worth as an anchor, and ten visits in context for a person to judge.

Of k visits judged, y with the condition, the precision is y / k with the central 95% of Jeffreys' posterior,
Beta(y + 1/2, k - y + 1/2).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
from scipy.stats import beta

from whatelse.annotators.anchor_checks import Overlap, overlaps
from whatelse.annotators.anchor_uses import Excerpt, as_anchor, mentions
from whatelse.annotators.label_set import LabelSet
from whatelse.cohort import Cohort
from whatelse.visits import Visit

Answer = Literal["yes", "no", "skip", "undo", "stop"]


@dataclass(frozen=True)
class Worth:
    """What a phrase would be worth to a condition.

    fires, gained     visits that have it, and those of them where the anchor is silent
    anchored          visits where the anchor fires today
    overlaps          other conditions whose anchors fire in the same visits at least twice as often as chance
    labelled, true    visits with it that have labels, and those of them with the condition
    judged, yes       visits judged just now
    precision         (share of those judged, lower, upper); None if nobody judged
    """

    condition: str
    phrase: str
    key: str
    fires: int
    gained: int
    anchored: int
    overlaps: tuple[Overlap, ...]
    labelled: int
    true: int
    judged: int = 0
    yes: int = 0
    precision: tuple[float, float, float] | None = None


def try_phrase(
    cohort: Cohort,
    condition: str,
    phrase: str,
    visits: Iterable[Visit],
    *,
    key: str = "notes",
    system: str | None = None,
    labels: LabelSet | None = None,
    looks: int = 10,
) -> tuple[Worth, list[Excerpt]]:
    """What it would be worth in the cohort's visits, and `looks` of them at random to judge. Reads the records once.

    A condition that the cohort does not have is taken for a new one: it has no anchors and no labels there.
    Memory: an excerpt of some 200 characters for each visit that has the phrase.

    labels  of the cohort's visits; None: the cohort's own
    """
    said = LabelSet.of_cohort(cohort) if labels is None else labels
    i = cohort.conditions.index(condition) if condition in cohort.conditions else -1
    row_of = {str(visit): row for row, visit in enumerate(cohort.ids)}
    anchor = as_anchor(phrase, key, system)
    known = (visit for visit in visits if visit.id in row_of)
    vocabulary = cohort.vocabulary
    found = {row_of[e.visit]: e for _, e in mentions(known, [anchor], vocabulary.rules, vocabulary.lexicon)}
    rows = np.array(sorted(found), dtype=np.intp)
    labelled = rows[said.known[rows, i]] if i >= 0 else rows[:0]
    worth = Worth(
        condition=condition,
        phrase=phrase,
        key=key,
        fires=int(rows.size),
        gained=int((~cohort.A[rows, i]).sum()) if i >= 0 else int(rows.size),
        anchored=int(cohort.A[:, i].sum()) if i >= 0 else 0,
        overlaps=overlaps(cohort, rows, i)[:3],
        labelled=int(labelled.size),
        true=int((said.probability[labelled, i] > 0.5).sum()),
    )
    chosen = np.random.default_rng(0).permutation(rows)[:looks]
    return worth, [found[row] for row in chosen.tolist()]


def judge(excerpts: Sequence[Excerpt], ask: Callable[[int, Excerpt], Answer]) -> list[bool | None]:
    """Ask about each excerpt in turn: True, False, or None where it was skipped or not reached.

    `ask` gets the number of the excerpt and the excerpt. "undo" goes back to the one before, "stop" ends it.
    """
    said: list[bool | None] = [None] * len(excerpts)
    k = 0
    while k < len(excerpts):
        answer = ask(k, excerpts[k])
        if answer == "stop":
            break
        if answer == "undo":
            k = max(k - 1, 0)
            said[k] = None
            continue
        said[k] = {"yes": True, "no": False}.get(answer)
        k += 1
    return said


def with_judgements(worth: Worth, said: Iterable[bool | None]) -> Worth:
    """`worth` with the precision that the judgements give."""
    known = [answer for answer in said if answer is not None]
    if not known:
        return worth
    yes, k = sum(known), len(known)
    low, high = beta.ppf([0.025, 0.975], yes + 0.5, k - yes + 0.5)
    return replace(worth, judged=k, yes=yes, precision=(yes / k, float(low), float(high)))
