"""Drift: false alarms are as rare as stated, and what has changed is said in a sentence."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import date, datetime, timedelta
from functools import cache
from pathlib import Path

import numpy as np
import pytest
from scipy.stats import binom
from typer.testing import CliRunner

from whatelse.annotators import AnchorSet
from whatelse.annotators.decisions import Opinion
from whatelse.cli import app
from whatelse.cohort import Cohort, Vocabulary, build_cohort
from whatelse.lifecycle.drift import FALSE_ALARMS, Week, alarms, band, by_week, monday, summary, unrest
from whatelse.simulate import Departures, simulate
from whatelse.sources.write import write_visits
from whatelse.tagger import Tagger
from whatelse.visits import Visit

STILL = Departures(drift=0.0)  # no seasons, no trends


def made_up(n: int, visits: int, rng: np.random.Generator) -> tuple[Vocabulary, np.ndarray]:
    """A vocabulary of n words and its anchors, counted in visits that follow rates; and the rates."""
    anchors = AnchorSet.shipped()
    names = (*(f"word{j}" for j in range(n)), *(f"anchor:{c}" for c in anchors.names))
    rates = np.exp(rng.uniform(np.log(0.0005), np.log(0.4), len(names)))
    return Vocabulary(names, rng.binomial(visits, rates), visits, anchors), rates


def week_of(rates: np.ndarray, visits: int, begins: date, rng: np.random.Generator) -> Week:
    days = {begins + timedelta(days=d): (visits // 7, rng.binomial(visits // 7, rates)) for d in range(7)}
    return Week(begins, days, rng.normal(0.3, 0.1, visits // 7 * 7).tolist())


def test_weeks_without_drift_bring_few_sentences_and_months_with_it_do() -> None:
    rng = np.random.default_rng(5)
    begins, said, looked = date(2026, 1, 5), 0, 0
    for visits in (120, 900):
        for _ in range(60):
            vocabulary, rates = made_up(500, 20_000, rng)
            weeks = [week_of(rates, visits, begins + timedelta(days=7 * k), rng) for k in range(4)]
            said += len({alarm.week for alarm in alarms(vocabulary, weeks)})
            looked += 4
    # at most FALSE_ALARMS a week: more than this would be a chance of one in ten thousand
    assert said <= binom.ppf(0.9999, looked, FALSE_ALARMS)
    rates[3] = 0.2
    vocabulary.counts[3] = 0.1 * vocabulary.visits
    found = alarms(vocabulary, [week_of(rates, 900, begins, rng)])
    assert [alarm.name for alarm in found] == ["word3"] and found[0].low < 0.1 < found[0].high < found[0].observed
    assert (
        found[0].sentence.startswith("In the week of 2026-01-05 'word3' was in ")
        and "learned from" in found[0].sentence
    )


@pytest.mark.parametrize("learned", [0, 3, 40, 400])
def test_bands_of_rare_findings_by_counting_up(learned: int) -> None:
    N, n, chance = 10_000, 300, 0.001
    low, high = band(np.array([float(learned)]), N, n, chance)
    share, c = n / (n + N), 0
    while c < n and binom.sf(c, c + 1 + learned, share) >= chance / 2:
        c += 1
    assert high[0] == c
    c = 0
    while binom.cdf(c, c + learned, share) < chance / 2:
        c += 1
    assert low[0] == c
    wide = band(np.array([float(learned)]), N, n, chance, 4.0)
    assert wide[1][0] - high[0] == pytest.approx(high[0] - n * (learned + 0.5) / (N + 1), abs=1.01)


def test_days_that_differ_widen_the_bands() -> None:
    rng = np.random.default_rng(0)
    _, rates = made_up(200, 1000, rng)
    weeks = [week_of(rates, 1400, date(2026, 1, 5) + timedelta(days=7 * k), rng) for k in range(6)]
    calm = unrest(weeks)
    for week in weeks:  # a doctor who writes word0 of every patient, on two days a week
        for day in list(week.days)[:2]:
            week.days[day][1][0] = week.days[day][0] * 0.9
    assert np.median(calm) < 1.1 and unrest(weeks)[0] > 10


@cache
def simulated() -> tuple[Cohort, tuple[Visit, ...]]:
    return build_cohort(simulate(1500, 3, STILL), max_terms=200), tuple(simulate(1000, 4, STILL))


def test_simulated_weeks_and_a_department_that_changes() -> None:
    learned, visits = simulated()
    weeks = by_week(visits, learned.vocabulary)
    assert sum(week.visits for week in weeks) == 1000 and weeks[0].begins == monday(visits[0].time)
    assert alarms(learned.vocabulary, weeks) == []
    told = summary(learned.vocabulary, weeks, [])
    assert told["weeks"][0]["visits"] == weeks[0].visits and 0 < told["weeks"][0]["unknown_words"] < 1
    # from the second week on, notes say something new, of everybody
    first, new = datetime(2026, 1, 5), " seen by televisit platform zeta, consent by proxy scanned"
    changed = [
        replace(v, time=first + timedelta(hours=k / 3), triage_note=(v.triage_note or "") + (new if k >= 504 else ""))
        for k, v in enumerate(visits)
    ]
    kinds = {alarm.kind for alarm in alarms(learned.vocabulary, by_week(changed, learned.vocabulary))}
    assert "words" in kinds


def test_confirmations_that_were_not_expected() -> None:
    learned, _ = simulated()
    at = datetime(2026, 3, 4, 12).isoformat()
    fair = [Opinion(f"v{k}", "fall", k % 5 == 0, "ann", 1, 0.2, at) for k in range(300)]
    assert alarms(learned.vocabulary, [], fair) == []
    off = [Opinion(f"v{k}", "fall", k % 2 == 0, "ann", 1, 0.2, at) for k in range(300)]
    found = alarms(learned.vocabulary, [], off)
    assert {alarm.name for alarm in found} == {"all", "fall"}
    assert "150 of 300 tags of fall that were decided on were confirmed" in found[1].sentence


def test_on_the_command_line(tmp_path: Path) -> None:
    learned, visits = simulated()
    Tagger("naive").fit(learned).save(tmp_path / "model")
    write_visits(iter(visits), tmp_path / "visits.jsonl")
    out = CliRunner().invoke(app, ["drift", str(tmp_path / "model"), str(tmp_path / "visits.jsonl")])
    assert out.exit_code == 0 and "nothing left its band" in out.output and "at most 1%" in out.output
    write_visits(iter(visits[:20]), tmp_path / "few.jsonl")
    out = CliRunner().invoke(app, ["drift", str(tmp_path / "model"), str(tmp_path / "few.jsonl")])
    assert out.exit_code == 0 and "nothing was judged" in out.output and "nothing left its band" not in out.output
    short = [replace(v, triage_note=None, md_comments=None) for v in visits]
    write_visits(iter(short), tmp_path / "short.jsonl")
    out = CliRunner().invoke(app, ["drift", str(tmp_path / "model"), str(tmp_path / "short.jsonl"), "--json"])
    assert out.exit_code == 1 and json.loads(out.output)["weeks"][0]["alarms"]
