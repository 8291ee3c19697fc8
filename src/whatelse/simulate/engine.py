"""simulate: visits in blocks, each from its own seed, so that a longer run begins with a shorter one."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator
from datetime import timedelta
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from whatelse.simulate.content import SECTIONS, Department, load
from whatelse.simulate.departures import Departures
from whatelse.simulate.notes import Case, Writer, words
from whatelse.simulate.observe import Chances, observe
from whatelse.simulate.patients import START, draw_patients
from whatelse.visits import Code, Visit

BLOCK = 2048
HOME, GIVEN = SECTIONS.index("home"), SECTIONS.index("given")


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
    everyone = draw_patients(department, departures, first, BLOCK, rng)
    keep = np.flatnonzero(everyone.on[:, :m].sum(axis=1) >= min_conditions)
    patients, chances = everyone.take(keep), Chances.draw(department, BLOCK, rng).take(keep)
    findings, anchors = observe(department, departures, patients, chances)

    shown, written_anchors, causes = _rows(findings), _rows(anchors), _rows(patients.on)
    sections = department.edges
    columns = zip(
        keep.tolist(),
        patients.primary.tolist(),
        patients.age.tolist(),
        patients.male.tolist(),
        patients.seconds.tolist(),
        chances.nurse.tolist(),
        chances.doctor.tolist(),
        strict=True,
    )
    for k, (row, primary, age, male, seconds, nurse, doctor) in enumerate(columns):
        on = shown[k]
        cuts = [bisect_left(on, edge) for edge in sections]
        true = causes[k]
        case = Case(
            [on[a:b] for a, b in pairwise(cuts)],
            [(i, i in true) for i in written_anchors[k]],
            primary,
            int(age),
            male,
            nurse,
            doctor,
        )
        written = writer.write(case, chances.notes[k].tolist()) if departures.prose else words(department, case)
        yield Visit(
            id=f"S{seed}-{first + row:07d}",
            age=age if departures.demographics else None,
            sex=("M" if male else "F") if departures.demographics else None,
            chief_complaint=written.complaint,
            triage_note=written.triage,
            md_comments=written.md,
            medication_history=_drugs(department, case.on[HOME], written.home),
            dispensed=_drugs(department, case.on[GIVEN], written.given),
            billing=_billing(department, true, chances.billing[k].tolist()),
            time=START + timedelta(seconds=int(seconds)),
            truth=tuple([department.conditions[i] for i in true if i < m]),
        )


def _rows(on: NDArray[np.bool_]) -> list[list[int]]:
    """The columns that are on, row by row."""
    rows, columns = np.nonzero(on)
    ends = np.searchsorted(rows, np.arange(on.shape[0] + 1)).tolist()
    flat = columns.tolist()
    return [flat[a:b] for a, b in pairwise(ends)]


def _drugs(department: Department, columns: list[int], more: list[Code]) -> tuple[Code, ...]:
    named = [code for j in columns if (code := department.codes[j]) is not None]
    return tuple(dict.fromkeys([*named, *more])) if more else tuple(named)


def _billing(department: Department, causes: list[int], draws: list[float]) -> tuple[Code, ...]:
    """One ICD-9 code for each cause that has any."""
    tables = [(department.billing[cause], draws[cause]) for cause in causes]
    return tuple([codes[bisect_left(shares, u)] for (codes, shares), u in tables if codes])
