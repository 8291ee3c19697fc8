"""Decisions made on the page, as labels: their chance of being looked at, and the error rates of people.

**What was looked at.** People decide about what is shown, and mostly about what is high on the list. It is assumed that
whether somebody decides on a tag of a visit that they opened depends on where it stands in the list, and on nothing
else: not on whether it is true. A tag's *position* is its rank among the open tags plus the number of tags decided
before on that visit, for a list moves up as its first entries are decided. The chance q_k of position k is the share of
decided visits in which the tag there was decided, never rising with k; where noise rates are counted a decision counts
1 / q_k (at most `CAP` times as much as one at the top). Learning goes by the likelihood of the votes, which needs no
weights (`LabelSet.likelihood`). A tag nobody decided on is no label: it was perhaps not looked at.

Where people confirm what they see is true and pass over the rest, the assumption is wrong and confirmed tags are
too many; `confirmed_only` says how many visits have confirmations and no rejection.

**Who erred.** Decision d of one person about a tag: P(d = confirmed | Y = 0) = a, P(d = rejected | Y = 1) = b, the same
for all people, independent of each other given Y (which they are not, if one sees what another has decided). Before
any decision the log odds of Y are those of the probability p that was shown, shifted by as much as the decisions say
for each bin of p (at first not at all: a shift of 1 is one standard deviation). a and b are found by EM (Dawid
and Skene, 1979, with two parameters) under a Beta prior that is worth `PRIOR_DECISIONS` decisions with an error of
`ERROR`. What tells them apart from the truth are tags that several people decided on, and tags that were all but
impossible and were confirmed, or all but certain and were rejected. So one confirmation of a tag to which the model
gives one in a thousand is taken for a slip; two are not.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.isotonic import IsotonicRegression

from whatelse.annotators.label_set import LabelSet
from whatelse.annotators.vote_files import table_rows
from whatelse.annotators.votes import Votes
from whatelse.cohort import Cohort
from whatelse.errors import InputError
from whatelse.io.spreadsheet import unescape_formula
from whatelse.types import Bools, Floats

PEOPLE = "people"  # annotator name of all who decide on the page
ERROR, PRIOR_DECISIONS = 0.05, 200.0
CAP = 10.0
BINS = (0.0, 0.02, 0.05, 0.1, 0.2, 0.4, 0.6, 0.8, 1.0)
STEPS = 500
SHOWN = (1e-4, 0.97)  # what a model may be too sure of is not what people err in
LAST = 100_000  # positions in a list
UNKNOWN = 0.1  # probability of a tag, where the history does not say which was shown


@dataclass(frozen=True, slots=True)
class Opinion:
    """One person's last decision on one tag of a visit.

    position     of the tag in the list when the person decided, from 1; None where the list is not known
    probability  that was shown; None where the list is not known
    """

    visit: str
    condition: str
    confirmed: bool
    person: str
    position: int | None = None
    probability: float | None = None
    at: str = ""


@dataclass(frozen=True, eq=False)
class Decisions:
    """Decisions of many people, with estimated error rates and weights.

    looked            (K,) chance that the tag at position 1 … K of an opened visit is decided on; never rising
    false_confirm     a: P(confirmed | the tag is not true)
    false_reject      b: P(rejected | the tag is true)
    chance            (visit, condition) -> probability that the decided tag is true
    weight            (visit, condition) -> 1 / chance of being decided on, relative to the top of the list
    """

    opinions: tuple[Opinion, ...]
    looked: Floats
    false_confirm: float
    false_reject: float
    chance: dict[tuple[str, str], float]
    weight: dict[tuple[str, str], float]

    def labels(self, cohort: Cohort) -> LabelSet:
        """The decisions as labels of a cohort. Visits and conditions that the cohort does not have are ignored.

        The votes are of one annotator, `PEOPLE`: the first decision on each tag, the second, and so on.
        """
        shape = (len(cohort), len(cohort.conditions))
        probability, weight, count = np.zeros(shape), np.zeros(shape), np.zeros(shape, np.int64)
        rows = {str(visit): row for row, visit in enumerate(cohort.ids)}
        columns = {c: i for i, c in enumerate(cohort.conditions)}
        layers: list[tuple[Bools, Bools]] = []  # value and known of the first decisions, the second …
        for opinion in self.opinions:
            v, i = rows.get(opinion.visit), columns.get(opinion.condition)
            if v is None or i is None:
                continue
            if count[v, i] == len(layers):
                layers.append((np.zeros(shape, bool), np.zeros(shape, bool)))
            value, known = layers[count[v, i]]
            value[v, i], known[v, i] = opinion.confirmed, True
            count[v, i] += 1
            key = opinion.visit, opinion.condition
            probability[v, i], weight[v, i] = self.chance[key], self.weight[key]
        rates = {"sensitivity": np.full(shape[1], 1 - self.false_reject)}
        rates["false_positive"] = np.full(shape[1], self.false_confirm)
        votes = tuple(Votes(PEOPLE, value, known, weight, "person", **rates) for value, known in layers)
        return LabelSet(probability, count > 0, weight, votes)

    @property
    def confirmed_only(self) -> tuple[int, int]:
        """Decided visits in which nothing was rejected, and all decided visits."""
        everybody = {o.visit for o in self.opinions}
        return len(everybody - {o.visit for o in self.opinions if not o.confirmed}), len(everybody)


def combine(opinions: Iterable[Opinion], *, error: float | None = None) -> Decisions:
    """Estimate the weights of decisions, error rates and probabilities; error: the rate of both errors, if known."""
    said = tuple(opinions)
    if not said:
        raise InputError("there are no decisions about tags yet")
    tags: dict[tuple[str, str], list[Opinion]] = {}
    for opinion in said:
        tags.setdefault((opinion.visit, opinion.condition), []).append(opinion)
    yes = np.array([sum(o.confirmed for o in group) for group in tags.values()], float)
    no = np.array([sum(not o.confirmed for o in group) for group in tags.values()], float)
    shown = [_first(o.probability for o in group) for group in tags.values()]
    a, b, chance = judge(yes, no, np.array([UNKNOWN if p is None else p for p in shown]), error)
    looked = looking([_first(o.position for o in group) for group in tags.values()], len({o.visit for o in said}))
    weight = {}
    for key, group in tags.items():
        place = _first(o.position for o in group)
        q = looked[min(place, len(looked)) - 1] if place is not None and len(looked) else 1.0
        weight[key] = float(min((looked[0] if len(looked) else 1.0) / q, CAP))
    return Decisions(said, looked, a, b, dict(zip(tags, chance.tolist(), strict=True)), weight)


def judge(yes: Floats, no: Floats, shown: Floats, error: float | None) -> tuple[float, float, Floats]:
    """EM: a, b and (K,) probabilities of K tags, that `yes` people confirmed and `no` rejected."""
    a = b = ERROR if error is None else error
    p = np.clip(shown, *SHOWN)
    field = np.log(p / (1 - p))
    bin_of = np.searchsorted(BINS[1:-1], p, side="right")
    count = len(BINS) - 1
    shift = np.zeros(count)
    chance = p
    for _ in range(STEPS):
        prior = 1 / (1 + np.exp(-field - shift[bin_of]))
        odds = prior / (1 - prior) * ((1 - b) / a) ** yes * (b / (1 - a)) ** no
        chance = odds / (1 + odds)
        # one Newton step to where the chances of a bin add up, under a normal prior of the shift
        slope = np.bincount(bin_of, prior * (1 - prior), count) + 1.0
        step = (np.bincount(bin_of, chance - prior, count) - shift) / slope
        if error is None:
            wrong, strength = PRIOR_DECISIONS * ERROR, PRIOR_DECISIONS
            a_new = float(((1 - chance) @ yes + wrong) / ((1 - chance) @ (yes + no) + strength))
            b_new = float((chance @ no + wrong) / (chance @ (yes + no) + strength))
        else:
            a_new, b_new = a, b
        moved = max(abs(a_new - a), abs(b_new - b), float(np.abs(step).max()))
        a, b, shift = min(a_new, 0.45), min(b_new, 0.45), shift + step
        if moved < 1e-7:
            break
    return a, b, chance


def looking(positions: Sequence[int | None], visits: int) -> Floats:
    """(K,) chance that the tag at each position is decided on in a visit where anything is; never rising."""
    known = np.array([p for p in positions if p is not None], np.int64)
    if not known.size or not visits:
        return np.zeros(0)
    counts = np.bincount(known)[1:].astype(float)
    share = np.minimum((counts + 0.5) / (visits + 1.0), 1.0)
    falling: Floats = IsotonicRegression(increasing=False).fit_transform(np.arange(len(share)), share)
    return falling


# ---- where they come from


def opinions_of(lines: Iterable[Any]) -> Iterable[Opinion]:
    """From the history of visits, in order of visit and version (`Store.tag_lines`): one opinion a person and tag.

    A person's last word counts. What is taken back, or reopened, is nobody's word any more.
    """
    for _, of_visit in groupby(lines, key=lambda line: line.visit):
        yield from _of_visit(list(of_visit))


def _of_visit(lines: list[Any]) -> Iterable[Opinion]:
    standing: dict[str, dict[str, Opinion]] = {}
    by_version = {line.version: line for line in lines}
    for line in lines:
        said = standing.setdefault(line.subject, {})
        if line.undoes is not None:
            undone = by_version.get(line.undoes)
            said.pop(undone.actor if undone is not None else line.actor, None)
        elif line.verdict == "open":
            said.clear()
        else:
            said[line.actor] = _opinion(line)
    for people in standing.values():
        yield from people.values()


def _opinion(line: Any) -> Opinion:
    shown: Mapping[str, Any] = line.shown or {}
    rank = shown.get("rank")
    before = len(shown.get("confirmed", ())) + len(shown.get("rejected", ()))
    position, probability = None if rank is None else int(rank) + before, shown.get("probability")
    confirmed, at = line.verdict == "confirmed", line.at.isoformat()
    return Opinion(line.visit, line.subject, confirmed, line.actor, position, probability, at)


def read_opinions(path: Path) -> Iterable[Opinion]:
    """Decisions of a file that `whatelse store decisions` wrote, CSV or Parquet.

    A tag may have several rows, of several people. Without the column `before` the rank is the position.
    """
    for number, row in enumerate(table_rows(path), start=1):
        try:
            rank, before, probability = row.get("rank"), row.get("before"), row.get("probability")
            place = None if rank in (None, "") else int(rank) + int(before or 0)
            chance = None if probability in (None, "") else float(probability)
            if not ((place is None or 1 <= place <= LAST) and (chance is None or 0 <= chance <= 1)):
                raise ValueError
            visit, condition, actor = (unescape_formula(str(row[name])) for name in ("visit", "condition", "actor"))
            confirmed = {"1": True, "0": False}[str(row["label"])]
            opinion = Opinion(visit, condition, confirmed, actor, place, chance, str(row.get("at") or ""))
        except (KeyError, ValueError, OverflowError):
            problem = "is not a row of decisions, as 'whatelse store decisions' writes them: needs "
            needs = "visit, condition, label (1 or 0), actor; rank (from 1) and probability (0 to 1) where known"
            raise InputError(problem + needs, file=path, row=number) from None
        yield opinion


def _first(values: Iterable[Any]) -> Any:
    return next((value for value in values if value is not None), None)
