"""simulate: visits in blocks. Each block has its own seed, so a longer run begins with the visits of a shorter run.

`truth_model` is the noisy-or model that the visits obey when every departure is off.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Iterator
from datetime import timedelta
from functools import cache
from itertools import count, islice, pairwise

import numpy as np
from numpy.typing import NDArray

from whatelse.simulate.causes import Cause, Causes
from whatelse.simulate.content import SECTIONS, WORD_SIGNAL, Department, load, word_leak
from whatelse.simulate.departures import Departures
from whatelse.simulate.note_writer import NONE, Case
from whatelse.simulate.notes import Writer, words
from whatelse.simulate.observe import Chances, observe
from whatelse.simulate.patients import A_DAY, START, YEAR, draw_patients
from whatelse.simulate.presentation import draw_presentation
from whatelse.simulate.rates import MEASURES
from whatelse.sources.vitals import AMBULANCE, vital_codes
from whatelse.types import Floats
from whatelse.visits import Code, Visit

BLOCK = 16 * A_DAY
OF_WOMEN = "O|N[78]|N9[0-8]|Z3[3-9]|Z3A|C5[1-8]|D2[5-8]|R87"  # chapters of ICD-10
OF_MEN = "N4|N5[013]|C6[0-3]|R86"
HOME, GIVEN = SECTIONS.index("home"), SECTIONS.index("given")
NEW_TEMPLATES = 1.0  # years after which the department writes by new templates
_VITALS = ("temperature", "pulse", "respirations", "systolic", "saturation", "triage", "pain")
_WHERE = [MEASURES.index(name) for name in _VITALS]


def simulate(
    visits: int, seed: int, departures: Departures | None = None, *, min_conditions: int = 0
) -> Iterator[Visit]:
    """Yield `visits` visits, each with its true conditions in `truth`. Constant memory.

    The same seed gives the same visits, whatever `visits` is. With `min_conditions` only visits with at least that many
    of the 23 are written and yielded, until there are `visits` of them: they are the same visits, with the same ids,
    that a run without it gives among others.
    """
    return (visit for visit, _ in _stream(visits, seed, departures, min_conditions))


def simulate_causes(
    visits: int, seed: int, departures: Departures | None = None, *, min_conditions: int = 0
) -> Iterator[tuple[Visit, list[Cause]]]:
    """The visits of `simulate`, each with the cause of every stretch of its text and of every code."""
    return _stream(visits, seed, departures, min_conditions, explain=True)


def _stream(
    visits: int, seed: int, departures: Departures | None, min_conditions: int, explain: bool = False
) -> Iterator[tuple[Visit, list[Cause]]]:
    if visits < 0:
        raise ValueError(f"visits is {visits}, must not be negative")
    if not 0 <= min_conditions <= 4:
        raise ValueError(f"min_conditions is {min_conditions}, must be between 0 and 4: more are too rare to wait for")
    department, departures = load(), departures or Departures()
    given = department, Writer(department), departures, seed
    yield from islice((pair for k in count() for pair in _block(*given, k, min_conditions, explain)), visits)


def _block(
    department: Department,
    writer: Writer,
    departures: Departures,
    seed: int,
    block: int,
    min_conditions: int,
    explain: bool,
) -> Iterator[tuple[Visit, list[Cause]]]:
    """The visits of one block with at least `min_conditions`. All are drawn, so the limit changes no visit."""
    rng = np.random.default_rng(np.random.SeedSequence(seed, spawn_key=(block,)))
    m, first = len(department.conditions), block * BLOCK
    everyone = draw_patients(department, departures, first, BLOCK, rng)
    keep = np.flatnonzero(everyone.on[:, :m].sum(axis=1) >= min_conditions)
    presentation = draw_presentation(department, everyone, keep, rng) if departures.prose else None
    patients, chances = everyone.take(keep), Chances.draw(department, BLOCK, rng).take(keep)
    seen = observe(department, departures, patients, chances, presentation)

    shown, named, mentioned, causes = (_rows(x) for x in (seen.findings, seen.named, seen.mentioned, patients.on))
    late = departures.drift * patients.seconds / 86_400 > NEW_TEMPLATES * YEAR
    for k, row in enumerate(keep.tolist()):
        on, age, male = shown[k], int(patients.age[k]), bool(patients.male[k])
        cuts = [bisect_left(on, edge) for edge in department.edges]
        case = Case(
            on=[on[a:b] for a, b in pairwise(cuts)],
            reasons=[r for r in presentation.reasons[k].tolist() if r >= 0] if presentation is not None else [],
            named=named[k],
            mentioned=mentioned[k],
            primary=int(patients.primary[k]),
            lead=int(patients.lead[k]),
            age=age,
            male=male,
            nurse=int(chances.nurse[k]),
            doctor=int(chances.doctor[k]),
            talk=(float(seen.talk[k, 0]), float(seen.talk[k, 1])),
            measure=presentation.measure[k].tolist() if presentation is not None else [],
            hour=int(patients.seconds[k] // 3600) % 24,
            late=bool(late[k]),
        )
        written = writer.write(case, chances.notes[k].tolist()) if presentation is not None else words(department, case)
        home = [(department.keys[j], j) for j in case.on[HOME]]
        home += [drug for drug in written.home if drug[0] not in {name for name, _ in home}]
        given = [(department.keys[j], j) for j in case.on[GIVEN]]
        if presentation is not None:  # the causes of these drugs are found from the survey's rates: they have no tag
            given = [(department.rates.drugs[d], NONE) for d in presentation.drugs[k].tolist() if d >= 0]
        visit = Visit(
            id=f"S{seed}-{first + row:07d}",
            age=(float(age) if age >= 2 else case.months / 12) if departures.demographics else None,
            sex=("M" if male else "F") if departures.demographics else None,
            chief_complaint=written.complaint,
            triage_note=written.triage,
            md_comments=written.md,
            medication_history=tuple([_code(name) for name, _ in home]),
            dispensed=tuple([_code(name) for name, _ in given]),
            billing=_billing(department, causes[k], chances.billing[k].tolist(), age, male),
            coded=_coded(case.measure) if presentation is not None else None,
            time=START + timedelta(seconds=int(patients.seconds[k])),
            truth=tuple([department.conditions[i] for i in causes[k] if i < m]),
        )
        if explain:
            listed = {"medication_history": home, "dispensed": given}
            yield visit, Causes(department, departures, patients, chances, k).of(visit, written.pieces, listed)
        else:
            yield visit, []


def _rows(on: NDArray[np.bool_]) -> list[list[int]]:
    """The columns that are on, row by row."""
    return [np.flatnonzero(row).tolist() for row in on]


@cache
def _code(name: str) -> Code:
    return Code("name", name, name)


def _coded(measure: list[float]) -> tuple[Code, ...]:
    """Arrival, vital signs out of range, triage level and pain, by the thresholds that every source has."""
    values = [None if (value := measure[where]) != value else value for where in _WHERE]
    codes = vital_codes(**dict(zip(_VITALS, values, strict=True)))
    if measure[MEASURES.index("ambulance")] == 1:
        codes.insert(0, AMBULANCE)
    return tuple(codes)


def _billing(department: Department, causes: list[int], draws: list[float], age: int, male: bool) -> tuple[Code, ...]:
    """One ICD-10 code for each condition and outside reason. A code of the other sex or of newborns is not drawn."""
    tables = [(department.rates.codes[cause], draws[cause]) for cause in causes if cause < len(department.rates.codes)]
    unfit = re.compile(f"{OF_WOMEN if male else OF_MEN}{'' if age < 1 else '|P'}")
    drawn = [(codes, bisect_left(shares, u)) for (codes, shares), u in tables if codes]
    fitting = (next((c for c in (*codes[k:], *codes[:k]) if not unfit.match(c)), None) for codes, k in drawn)
    return tuple([Code("icd10", code) for code in fitting if code is not None])


def truth_model() -> tuple[tuple[str, ...], Floats, Floats, Floats]:
    """(finding names, prior (m,), fail (m, n), leak (n,)) of the visits that `simulate(…, Departures.none())` gives.

    The names are those a vocabulary built from the visits has, the 23 `anchor:` findings last; conditions are in the
    order of `conditions.yaml`, which is the paper's.
    """
    department = load()
    m, miss = len(department.conditions), department.false_alarm
    names = (*department.names, *(f"anchor:{name}" for name in department.conditions))
    anchors = np.ones((m, m))
    np.fill_diagonal(anchors, (1 - department.sensitivity) / (1 - miss))
    fail = np.hstack([np.exp(-WORD_SIGNAL * department.rate[:m]), anchors])
    return names, department.prior.copy(), fail, np.concatenate([-np.expm1(-word_leak(department)), miss])
