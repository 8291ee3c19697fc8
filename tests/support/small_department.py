"""A small simulated department for tests of learning: built once for each test process."""

from __future__ import annotations

from functools import cache

from whatelse.cohort import Cohort, build_cohort
from whatelse.simulate import simulate
from whatelse.visits import Visit


@cache
def visits(name: str = "train") -> tuple[Visit, ...]:
    count, seed = {"train": (2500, 11), "test": (1500, 12)}[name]
    return tuple(simulate(count, seed))


@cache
def cohort(name: str = "train") -> Cohort:
    like = None if name == "train" else cohort("train")
    about = {"files": [f"{name}.parquet"]}
    return build_cohort(visits(name), max_terms=300, like=like, about=about, lexicon="none")
