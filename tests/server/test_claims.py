"""What README, docs and demo claim of the shipped model's moves, each on a hundred simulated visits."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from itertools import islice

import numpy as np
import pytest

from whatelse.simulate import simulate
from whatelse.tagger import Tagger
from whatelse.visits import Visit

HUNDRED = 100


@cache
def shipped() -> Tagger:
    return Tagger.load("emergency")


def anybody(_: Visit) -> bool:
    return True


def old(visit: Visit) -> bool:
    return visit.age is not None and visit.age >= 65


@pytest.mark.slow
@pytest.mark.parametrize(
    ("true", "who", "confirmed", "rises", "least"),
    [
        ("fall", anybody, "fall", ("subdural_hematoma", "intracranial_hemorrhage"), 90),
        ("pneumonia", anybody, "pneumonia", ("sepsis",), 90),
        ("kidney stone", anybody, "kidney_stone", ("hematuria",), 95),
        ("uti", old, "urinary_tract_infection", ("sepsis",), 95),
    ],
)
def test_a_confirmation_raises_what_a_clinician_thinks_of_next(
    true: str, who: Callable[[Visit], bool], confirmed: str, rises: tuple[str, ...], least: int
) -> None:
    made = simulate(40_000, 31, min_conditions=1)
    visits = list(islice((v for v in made if true in (v.truth or ()) and who(v)), HUNDRED))
    tagger = shipped()
    known = np.zeros((HUNDRED, len(tagger.conditions_)), bool)
    known[:, tagger.conditions_.index(confirmed)] = True
    before, after = tagger.predict_proba(visits), tagger.predict_proba(visits, known)
    columns = [tagger.conditions_.index(name) for name in rises]
    rose = (after[:, columns] > before[:, columns]).any(axis=1)
    assert rose.sum() >= least, f"{rises} rose in {rose.sum()} of {HUNDRED} visits after {confirmed} was confirmed"
