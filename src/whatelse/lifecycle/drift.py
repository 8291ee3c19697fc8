"""Drift: compares the rates of findings by week with their rates in the visits that the model learned from.

Finding j was in c_j of N visits learned from, and is in c of n visits of a week. If nothing has changed, given the sum
c + c_j, c is Binomial(c + c_j, n / (n + N)) for a rare finding, which is exact enough; for common ones (30 expected
or more) the difference of two shares is normal. Words that the model does not know, as a share of a visit's words, have
no rate to be compared with: a week's mean is compared with that of the weeks before it. Decisions: the probabilities
that were shown with the tags decided on in a week add up to as many confirmations as there should be.

Visits are not independent: those of a day have a doctor or a cold in common. How much more the days of a week differ
than independent visits would (`unrest`) is found for each finding from the weeks themselves, with the help of all other
findings, and bands are wider for it.

**False alarms.** A week is looked at `tests` times; each look may be wrong with chance `FALSE_ALARMS` / tests, so a
week in which nothing has changed brings any sentence with a chance of at most `FALSE_ALARMS` (Bonferroni). Departments
change from week to week by themselves: what left its band by less than a factor of `WORTH` is not said.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import date, datetime, timedelta
from itertools import islice
from typing import Any

import numpy as np
from scipy.stats import nbinom, norm

from whatelse.annotators.decisions import Opinion
from whatelse.cohort import Vocabulary
from whatelse.types import Bools, Floats, Ints
from whatelse.visits import Visit

AT_ONCE = 500  # visits read in one pass
FALSE_ALARMS = 0.01  # a week
WORTH = 1.25
COMMON = 30  # expected visits from which on shares are compared as normal
WORDS_WORTH = 0.02  # a rise of the share of unknown words that is worth saying
POOLED = 10
FEW = 50  # visits of a week below which nothing is said of it


@dataclass
class Week:
    """Counts of a week that begins on a Monday; None: of visits without a time.

    days     by day, the number of visits and (n,) of those that have each finding
    unknown  of each visit that has words, the share of those that the model does not know
    """

    begins: date | None
    days: dict[date | None, tuple[int, Ints]] = field(default_factory=dict)
    unknown: list[float] = field(default_factory=list)

    @property
    def visits(self) -> int:
        return sum(visits for visits, _ in self.days.values())

    @property
    def counts(self) -> Ints:
        """(n,) visits of the week that have each finding."""
        total: Ints = np.sum([counts for _, counts in self.days.values()], 0)
        return total


@dataclass(frozen=True)
class Alarm:
    """A share or a rate that was outside its band in a week."""

    week: date | None
    kind: str  # anchor, finding, words or decisions
    name: str
    observed: float
    usual: float
    low: float
    high: float
    sentence: str


def by_week(visits: Iterable[Visit], vocabulary: Vocabulary) -> list[Week]:
    """What the visits of each week have, in order of time. O(length of the records)."""
    weeks: dict[date | None, Week] = {}
    remaining = iter(visits)
    while some := list(islice(remaining, AT_ONCE)):
        found = vocabulary.reader.present(some)
        unknown, words = vocabulary.reader.unknown_words(some)
        for v, visit in enumerate(some):
            begins = monday(visit.time)
            week = weeks.setdefault(begins, Week(begins))
            day = None if visit.time is None else visit.time.date()
            visits_of_day, counts = week.days.get(day) or (0, np.zeros(len(vocabulary.names), np.int64))
            counts[found.indices[found.indptr[v] : found.indptr[v + 1]]] += 1
            week.days[day] = (visits_of_day + 1, counts)
            if words[v]:
                week.unknown.append(unknown[v] / words[v])
    return sorted(weeks.values(), key=lambda week: week.begins or date.min)


def alarms(vocabulary: Vocabulary, weeks: list[Week], opinions: Iterable[Opinion] = ()) -> list[Alarm]:
    """Everything outside its band, week by week. Weeks with fewer than `FEW` visits are not judged."""
    decided, wider = _decided(opinions), unrest(weeks)
    out: list[Alarm] = []
    before: list[float] = []
    only_decided = sorted(decided.keys() - {week.begins for week in weeks}, key=lambda begins: begins or date.min)
    for week in (*weeks, *map(Week, only_decided)):
        tags_of = decided.get(week.begins, {})
        chance = FALSE_ALARMS / (len(vocabulary.names) + 1 + len(tags_of))
        if week.visits >= FEW:
            out += _findings(vocabulary, week, wider, chance)
            out += _words(week, before, chance)
        for condition, tags in tags_of.items():
            out += _confirmed(week.begins, condition, tags, chance)
        before += week.unknown
    return out


def unrest(weeks: list[Week]) -> Floats:
    """(n,) variance of findings between the days of a week over that of independent visits; at least 1.

    Pearson's statistic over its degrees of freedom, to which `POOLED` more are added with the mean of all findings.
    """
    squares, freedom = np.zeros_like(weeks[0].counts if weeks else (), float), 0
    for week in weeks:
        days = [day for day in week.days.values() if day[0] >= 10]
        if len(days) < 2:
            continue
        n, c = np.array([day[0] for day in days], float)[:, None], np.stack([day[1] for day in days])
        p = c.sum(0) / n.sum()
        squares += ((c - n * p) ** 2 / np.maximum(n * p * (1 - p), 0.05)).sum(0)
        freedom += len(days) - 1
    if not freedom:
        return np.ones(squares.size)
    mean = max(float(squares.mean()) / freedom, 1.0)
    return np.maximum((squares + POOLED * mean) / (freedom + POOLED), 1.0)


def band(learned: Floats, N: int, n: int, chance: float, wider: Floats | float = 1.0) -> tuple[Floats, Floats]:
    """(k,) lowest and highest usual number of n visits with each finding, which `learned` (k,) of N visits had.

    chance: of being outside the band though nothing has changed
    """
    c = np.asarray(learned, float)
    p, tail = (c + 0.5) / (N + 1.0), chance / 2
    z = float(norm.ppf(1 - tail))
    wide = z * np.sqrt(p * (1 - p) * n * (1 + n / N))
    # Rare findings: C is Binomial(C + c, n / (n + N)), so C has the tails of a negative binomial with c (low) or c + 1
    # (high) failures of probability N / (n + N).
    low = np.where(n * p >= COMMON, n * p - wide, np.where(c > 0, nbinom.ppf(tail, np.maximum(c, 1), N / (n + N)), 0))
    high = np.where(n * p >= COMMON, n * p + wide, nbinom.isf(tail, c + 1, N / (n + N)))
    middle, more = n * p, np.sqrt(wider)
    low, high = middle - more * (middle - low), middle + more * (high - middle)
    return np.maximum(np.ceil(low), 0), np.minimum(np.floor(high), n)


def out_of_band(vocabulary: Vocabulary, counts: Ints, visits: int) -> Bools:
    """(n,) the findings whose `counts` (n,) among so many visits left their bands; none where visits are too few."""
    if visits < FEW:
        return np.zeros(counts.size, bool)
    low, high = band(vocabulary.counts.astype(float), vocabulary.visits, visits, FALSE_ALARMS / counts.size)
    return _left(vocabulary, counts, visits, low, high)


def _left(vocabulary: Vocabulary, counts: Ints, visits: int, low: Floats, high: Floats) -> Bools:
    """(n,) the findings whose counts are outside of low … high, by a factor that is worth saying."""
    ratio = (counts + 0.5) / (visits * (vocabulary.counts + 0.5) / (vocabulary.visits + 1.0) + 0.5)
    left: Bools = ((counts < low) | (counts > high)) & ((ratio >= WORTH) | (ratio <= 1 / WORTH))
    return left


def _findings(vocabulary: Vocabulary, week: Week, wider: Floats, chance: float) -> list[Alarm]:
    N, n, counts = vocabulary.visits, week.visits, week.counts
    low, high = band(vocabulary.counts.astype(float), N, n, chance, wider)
    out = []
    for j in np.flatnonzero(_left(vocabulary, counts, n, low, high)).tolist():
        name = vocabulary.names[j]
        kind = "anchor" if name.startswith("anchor:") else "finding"
        what = f"the anchor of {name.removeprefix('anchor:')}" if kind == "anchor" else f"'{name}'"
        share, least, most = (float(count[j]) / n for count in (counts, low, high))
        usual = (float(vocabulary.counts[j]) + 0.5) / (N + 1.0)
        sentence = (
            f"{_when(week.begins)} {what} was in {share:.1%} of {n:,} visits; of those learned from it "
            f"was in {usual:.1%}, and between {least:.1%} and {most:.1%} would be chance"
        )
        out.append(Alarm(week.begins, kind, name, share, usual, least, most, sentence))
    return out


def _words(week: Week, before: list[float], chance: float) -> list[Alarm]:
    if min(len(week.unknown), len(before)) < FEW:
        return []
    now, usual = float(np.mean(week.unknown)), float(np.mean(before))
    variance = float(np.var(before)) * (1 / len(week.unknown) + 1 / len(before))
    wide = float(norm.ppf(1 - chance / 2)) * math.sqrt(variance)
    if abs(now - usual) <= max(wide, WORDS_WORTH):
        return []
    sentence = (
        f"{_when(week.begins)} the model did not know {now:.1%} of the words of the notes; in the weeks before it "
        f"did not know {usual:.1%}, and up to {usual + wide:.1%} would be chance"
    )
    return [Alarm(week.begins, "words", "words", now, usual, usual - wide, usual + wide, sentence)]


def _decided(opinions: Iterable[Opinion]) -> dict[date | None, dict[str, list[tuple[float, bool]]]]:
    """Week -> condition, and "" for all -> (probability shown, whether confirmed) of the tags decided on."""
    out: dict[date | None, dict[str, list[tuple[float, bool]]]] = {}
    for opinion in opinions:
        if opinion.probability is not None and opinion.at:
            of_week = out.setdefault(monday(datetime.fromisoformat(opinion.at)), {})
            for name in ("", opinion.condition):
                of_week.setdefault(name, []).append((opinion.probability, opinion.confirmed))
    return out


def _confirmed(begins: date | None, condition: str, tags: list[tuple[float, bool]], chance: float) -> list[Alarm]:
    p, n = np.array([tag[0] for tag in tags]), len(tags)
    expected, confirmed = float(p.sum()), sum(tag[1] for tag in tags)
    wide = float(norm.ppf(1 - chance / 2)) * float(np.sqrt((p * (1 - p)).sum())) + 1.0  # one for small numbers
    ratio = (confirmed + 0.5) / (expected + 0.5)
    if n < FEW or abs(confirmed - expected) <= wide or 1 / WORTH < ratio < WORTH:
        return []
    what = f"tags of {condition}" if condition else "tags"
    low, high = max(expected - wide, 0.0), expected + wide
    sentence = (
        f"{_when(begins)} {confirmed:,} of {n:,} {what} that were decided on were confirmed; the probabilities shown "
        f"with them add up to {expected:.0f}, and between {low:.0f} and {high:.0f} would be chance"
    )
    return [Alarm(begins, "decisions", condition or "all", confirmed / n, expected / n, low / n, high / n, sentence)]


def monday(time: datetime | None) -> date | None:
    return None if time is None else time.date() - timedelta(days=time.weekday())


def _when(begins: date | None) -> str:
    return "Without a time," if begins is None else f"In the week of {begins}"


def summary(vocabulary: Vocabulary, weeks: list[Week], found: list[Alarm]) -> dict[str, Any]:
    """Weeks and alarms, and what they were compared with, as JSON values."""
    names, columns = vocabulary.conditions, vocabulary.anchor_columns
    return {
        "learned_from": vocabulary.visits,
        "findings": len(vocabulary.names),
        "false_alarms_a_week": FALSE_ALARMS,
        "weeks": [
            {
                "begins": None if week.begins is None else week.begins.isoformat(),
                "visits": week.visits,
                "judged": week.visits >= FEW,
                "unknown_words": float(np.mean(week.unknown)) if week.unknown else None,
                "anchors": dict(zip(names, (week.counts[columns] / week.visits).tolist(), strict=True)),
                "alarms": [alarm.sentence for alarm in found if alarm.week == week.begins],
            }
            for week in weeks
        ],
    }
