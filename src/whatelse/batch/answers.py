"""Certified probabilities of a batch of visits, for `tag --out` and Spark."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from whatelse.cohort.batches import BatchReader
from whatelse.errors import QueryError
from whatelse.noisyor.inference.posterior import posterior
from whatelse.noisyor.inference.solver import Posterior
from whatelse.tagger import Tagger
from whatelse.visits import Visit

AT_ONCE = 500  # visits a batch
BESIDE = ("id", "error_bound", "certified")  # columns that are no condition


@dataclass(frozen=True, eq=False)
class Asked:
    """Conditions confirmed and rejected in every visit, by number."""

    confirmed: NDArray[np.int64]
    rejected: NDArray[np.int64]

    @classmethod
    def of(cls, tagger: Tagger, confirmed: Iterable[str] = (), rejected: Iterable[str] = ()) -> Asked:
        """From names of conditions; QueryError for a name that is no condition."""
        if taken := [name for name in tagger.conditions_ if name in BESIDE]:
            raise QueryError(f"a condition is named {taken[0]!r}, as a column of the answer is: rename the condition")
        return cls(tagger.condition_indices(confirmed), tagger.condition_indices(rejected))


def schema_of(tagger: Tagger) -> pa.Schema:
    """id; the probability of every condition under its name; error_bound and certified, which hold for all of them."""
    conditions = [(name, pa.float64()) for name in tagger.conditions_]
    return pa.schema([("id", pa.string()), *conditions, ("error_bound", pa.float64()), ("certified", pa.bool_())])


def answers(tagger: Tagger, reader: BatchReader, visits: Sequence[Visit], asked: Asked) -> pa.RecordBatch:
    """The rows of `schema_of`, a visit each, on one core. `reader` is of the tagger's vocabulary."""
    present, unobserved = reader.present(visits), reader.unobserved(visits)
    known = asked.confirmed, asked.rejected
    found = posterior(tagger.model_, present, unobserved, *known, tolerance=tagger.tolerance, top=0, threads=1)
    return as_columns(tagger, visits, found)


def as_columns(tagger: Tagger, visits: Sequence[Visit], found: Posterior) -> pa.RecordBatch:
    """Posteriors of visits as the rows of `schema_of`."""
    columns = [pa.array([visit.id for visit in visits], pa.string())]
    columns += [pa.array(np.ascontiguousarray(column)) for column in found.marginals.T]
    columns += [pa.array(found.error_bound), pa.array(found.certified)]
    return pa.record_batch(columns, schema=schema_of(tagger))
