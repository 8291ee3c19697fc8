"""simulate: visits in blocks, each from its own seed, so that a longer run begins with a shorter one."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta

import numpy as np

from whatelse.simulate.content import SECTIONS, Department, load
from whatelse.simulate.departures import Departures
from whatelse.simulate.notes import DRAWS, Case, Writer, split, words
from whatelse.simulate.observe import observe
from whatelse.simulate.patients import START, draw_patients
from whatelse.visits import Code, Visit

BLOCK = 2048


def simulate(
    visits: int, seed: int, departures: Departures | None = None, *, min_conditions: int = 0
) -> Iterator[Visit]:
    """Yield `visits` visits, each with its true conditions in `truth`. Constant memory.

    The same seed gives the same visits, whatever `visits` is. With `min_conditions` only visits with at least that many
    of the 23 are written and yielded, until there are `visits` of them: they are the same visits, with the same ids,
    that a run without it gives among others.
    """
    if visits < 0:
        raise ValueError(f"visits is {visits}, must not be negative")
    if not 0 <= min_conditions <= 4:
        raise ValueError(f"min_conditions is {min_conditions}, must be between 0 and 4: more are too rare to wait for")
    department, departures = load(), departures or Departures()
    writer = Writer(department)
    left, block = visits, 0
    while left > 0:
        for visit in _block(department, writer, departures, seed, block, min_conditions):
            yield visit
            left -= 1
            if left == 0:
                return
        block += 1


def _block(
    department: Department, writer: Writer, departures: Departures, seed: int, block: int, min_conditions: int
) -> Iterator[Visit]:
    """The kept visits of one block. Everything is drawn for all of it, so that what is kept does not matter."""
    rng = np.random.default_rng(np.random.SeedSequence(seed, spawn_key=(block,)))
    m, first = len(department.conditions), block * BLOCK
    patients = draw_patients(department, departures, first, BLOCK, rng)
    keep = np.flatnonzero(patients.on[:, :m].sum(axis=1) >= min_conditions)
    if not keep.size:
        return
    observed = observe(department, departures, patients, rng)
    draws = rng.random((BLOCK, DRAWS))[keep]
    codes = rng.random((BLOCK, patients.on.shape[1]))[keep]

    cases = split(department, *np.nonzero(observed.findings[keep]), keep.size)
    home, given = SECTIONS.index("home"), SECTIONS.index("given")
    for k, row in enumerate(keep.tolist()):
        true = patients.on[row]
        causes = np.flatnonzero(true).tolist()
        case = Case(
            cases[k],
            [(i, bool(true[i])) for i in np.flatnonzero(observed.anchors[row]).tolist()],
            int(patients.primary[row]),
            int(patients.age[row]),
            bool(patients.male[row]),
            int(observed.nurse[row]),
            int(observed.doctor[row]),
        )
        written = writer.write(case, draws[k].tolist()) if departures.prose else words(department, case)
        yield Visit(
            id=f"S{seed}-{first + row:07d}",
            age=float(case.age) if departures.demographics else None,
            sex=("M" if case.male else "F") if departures.demographics else None,
            chief_complaint=written.complaint,
            triage_note=written.triage,
            md_comments=written.md,
            medication_history=_drugs(department, case.on[home], written.home),
            dispensed=_drugs(department, case.on[given], written.given),
            billing=_billing(department, causes, codes[k]),
            time=START + timedelta(seconds=int(patients.seconds[row])),
            truth=tuple(department.conditions[i] for i in causes if i < m),
        )


def _drugs(department: Department, columns: list[int], more: list[Code]) -> tuple[Code, ...]:
    named = [code for j in columns if (code := department.codes[j]) is not None]
    return tuple(dict.fromkeys([*named, *more])) if more else tuple(named)


def _billing(
    department: Department, causes: list[int], draws: "np.ndarray[tuple[int], np.dtype[np.float64]]"
) -> tuple[Code, ...]:
    """One ICD-9 code for each cause that has any."""
    billed = []
    for cause in causes:
        table = department.billing[cause]
        if table is not None:
            codes, cumulative = table
            billed.append(codes[min(int(np.searchsorted(cumulative, draws[cause])), len(codes) - 1)])
    return tuple(billed)
