"""The simulated department: what it promises about its visits, and that it obeys the model when told to."""

from __future__ import annotations

from collections import Counter

import pytest

from whatelse.simulate import Departures, simulate


def test_same_seed_same_visits_and_a_longer_run_begins_with_a_shorter_one() -> None:
    short, long = list(simulate(50, 3)), list(simulate(2100, 3))
    assert short == long[:50]
    assert short != list(simulate(50, 4))


def test_only_visits_with_several_conditions_are_the_same_visits() -> None:
    every = [visit for visit in simulate(2048, 5) if len(visit.truth or ()) >= 2]
    only = list(simulate(len(every), 5, min_conditions=2))
    assert only == every


@pytest.mark.parametrize("departures", [Departures(), Departures.none()], ids=["default", "none"])
def test_about_six_in_a_hundred_have_two_conditions(departures: Departures) -> None:
    counts = Counter(len(visit.truth or ()) for visit in simulate(12_000, 1, departures))
    several = sum(count for size, count in counts.items() if size >= 2) / 12_000
    assert 0.05 < several < 0.075
    assert 0.25 < 1 - counts[0] / 12_000 < 0.37
