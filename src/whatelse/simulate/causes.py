"""The cause of every word and code of a simulated visit: a condition, a cause outside the 23, a mention, or none.

`simulate --causes FILE` writes a JSON line for each visit: {"id": …, "causes": [[field, start, end, kind, cause], …]}.
In a text field start and end are characters of the text as it is in the visit; in a field of codes, places in its list.
kind is `condition`, `outside` (a reason for visit beyond the 23), `illness` (a chronic illness), `mention` (the word of
a condition that the patient does not have; cause is the condition, a colon and the kind of mention) or `none`.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from random import Random

from whatelse.io.files import writing
from whatelse.simulate.content import Department
from whatelse.simulate.departures import Departures
from whatelse.simulate.note_writer import NONE, Piece
from whatelse.simulate.notes import KINDS, MENTION, NAMED, REASON
from whatelse.simulate.observe import Chances
from whatelse.simulate.patients import Patients
from whatelse.visits import Visit

Cause = tuple[str, int, int, str, str]  # field, start, end, kind, cause


def causes_of(
    department: Department,
    departures: Departures,
    patients: Patients,
    chances: Chances,
    row: int,
    visit: Visit,
    pieces: Mapping[str, Sequence[Piece]],
    listed: Mapping[str, Sequence[tuple[str, int]]],
) -> list[Cause]:
    """The causes of one visit, field by field in the order of the text.

    A finding with several possible causes is given to one of them, drawn in proportion to their noisy-or rates.
    """
    on = [c for c in range(patients.on.shape[1]) if patients.on[row, c]]
    explain = _Explain(department, departures, patients, chances, row, on, Random(visit.id))
    result: list[Cause] = []
    for field, parts in pieces.items():
        start = 0
        for text, tag in parts:
            if text.strip():
                result.append((field, start, start + len(text), *explain(tag)))
            start += len(text)
    for field, drugs in listed.items():
        for k, (name, tag) in enumerate(drugs):
            result.append(
                (field, k, k + 1, *(explain.drug(name) if field == "dispensed" and tag == NONE else explain(tag)))
            )
    for k, _ in enumerate(visit.billing or ()):
        cause = [c for c in on if c < len(department.rates.codes) and department.rates.codes[c][0]][k]
        result.append(("billing", k, k + 1, *explain.name(cause)))
    for k, _ in enumerate(visit.coded or ()):
        result.append(("coded", k, k + 1, *explain.name(int(patients.primary[row]))))
    return result


@contextmanager
def write_causes(path: Path) -> Iterator[Callable[[Visit, list[Cause]], Visit]]:
    """A function that writes the causes of a visit and returns the visit. The file appears when the block ends."""
    with writing(path) as stream:

        def note(visit: Visit, causes: list[Cause]) -> Visit:
            line = json.dumps({"id": visit.id, "causes": causes}, separators=(",", ":")) + "\n"
            stream.write(line.encode())
            return visit

        yield note


class _Explain:
    """Turns the tags of one visit into (kind, cause)."""

    def __init__(
        self,
        department: Department,
        departures: Departures,
        patients: Patients,
        chances: Chances,
        row: int,
        on: list[int],
        chance: Random,
    ) -> None:
        self.department, self.on, self.chance = department, on, chance
        self.band, self.primary = int(patients.band[row]), int(patients.primary[row])
        m = len(department.conditions)
        leads = {self.primary, int(patients.lead[row])}
        faint = min(float(chances.shows[row].mean()), 1.0) * (1 - departures.prominence)
        self.scale = {c: 1.0 if c in leads or c >= m else faint for c in on}
        self.leak = department.leak_rate
        self.names = (*department.conditions, *department.reasons, *department.illnesses)

    def name(self, cause: int) -> tuple[str, str]:
        m, r = len(self.department.conditions), len(self.department.reasons)
        return ("condition" if cause < m else "outside" if cause < m + r else "illness"), self.names[cause]

    def __call__(self, tag: int) -> tuple[str, str]:
        if tag == NONE:
            return "none", ""
        if tag >= MENTION:
            condition, kind = divmod(tag - MENTION, 10)
            return "mention", f"{self.department.conditions[condition]}:{KINDS[kind]}"
        if tag >= NAMED:
            return "condition", self.department.conditions[tag - NAMED]
        if tag >= REASON:
            return self._among(
                [(c, self._said(c, tag - REASON)) for c in self.on if c < len(self.department.rates.causes)], 0.0
            )
        weights = [(c, float(self.department.rate[c, tag]) * self.scale[c]) for c in self.on]
        found = self._among(weights, float(self.leak[tag]))
        if found[0] == "none" and self.department.section[tag] not in (1, 6, 7) and tag in self.department.reason_key:
            return self.name(self.primary)
        return found

    def _said(self, cause: int, reason: int) -> float:
        rates = self.department.rates
        found, usual = float(rates.first[cause, self.band, reason]), float(rates.usual_first[self.band, reason])
        return max(found - usual, 0.0) if found > -math.inf < usual else 0.0

    def drug(self, name: str) -> tuple[str, str]:
        """The cause that a drug was given for, drawn by how much more often visits with the cause get the drug."""
        rates = self.department.rates
        d = rates.drugs.index(name)
        weights = [
            (c, max(float(rates.drug[c, self.band, d] - rates.usual_drug[self.band, d]), 0.0) ** 2)
            for c in self.on
            if c < len(rates.causes)
        ]
        return self._among(weights, 0.1)

    def _among(self, weights: list[tuple[int, float]], nothing: float) -> tuple[str, str]:
        total = nothing + sum(w for _, w in weights)
        if total <= 0:
            return self.name(self.primary) if self.primary in self.on else ("none", "")
        u = self.chance.random() * total
        for cause, w in weights:
            u -= w
            if u < 0:
                return self.name(cause)
        return "none", ""
