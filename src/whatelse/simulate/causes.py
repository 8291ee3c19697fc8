"""The cause of every word and code of a simulated visit: a condition, a cause outside the 23, a mention, or none.

`simulate --causes FILE` writes a JSON line for each visit: {"id": …, "causes": [[field, start, end, kind, cause], …]}.
In a text field start and end are characters of the text; in a field of codes, places in its list. kind is `condition`,
`outside` (a reason for visit beyond the 23), `illness` (a chronic illness), `mention` (the word of a condition that the
patient does not have; cause is the condition, a colon and the kind of mention) or `none`.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from random import Random

from whatelse.io.files import writing
from whatelse.simulate.content import SECTIONS, Department
from whatelse.simulate.departures import Departures
from whatelse.simulate.note_writer import NONE, Piece
from whatelse.simulate.notes import KINDS, MENTION, NAMED, REASON
from whatelse.simulate.observe import Chances
from whatelse.simulate.patients import Patients
from whatelse.visits import Visit

Cause = tuple[str, int, int, str, str]  # field, start, end, kind, cause
_NOT_COMPLAINED_OF = tuple(SECTIONS.index(name) for name in ("negative", "home", "given"))


@contextmanager
def write_causes(path: Path) -> Iterator[Callable[[Visit, list[Cause]], Visit]]:
    """A function that writes the causes of a visit and returns the visit. The file appears when the block ends."""
    with writing(path) as stream:

        def note(visit: Visit, causes: list[Cause]) -> Visit:
            line = json.dumps({"id": visit.id, "causes": causes}, separators=(",", ":")) + "\n"
            stream.write(line.encode())
            return visit

        yield note


class Causes:
    """The causes of one visit, `row` of a block. A finding with several possible causes is given to one of them, drawn
    in proportion to their noisy-or rates."""

    def __init__(
        self, department: Department, departures: Departures, patients: Patients, chances: Chances, row: int
    ) -> None:
        self.department, self.band, self.primary = department, int(patients.band[row]), int(patients.primary[row])
        self.on = [c for c in range(patients.on.shape[1]) if patients.on[row, c]]
        leads = {self.primary, int(patients.lead[row])}
        faint = min(float(chances.shows[row].mean()), 1.0) * (1 - departures.prominence)
        self.scale = {c: 1.0 if c in leads or c >= len(department.conditions) else faint for c in self.on}
        self.names = (*department.conditions, *department.reasons, *department.illnesses)
        self.in_survey = [c for c in self.on if c < len(department.rates.causes)]

    def of(
        self, visit: Visit, pieces: Mapping[str, Sequence[Piece]], listed: Mapping[str, Sequence[tuple[str, int]]]
    ) -> list[Cause]:
        """Field by field in the order of the text. listed: names and tags of drugs, by field."""
        self.draw = Random(visit.id)
        found: list[Cause] = []
        for field, parts in pieces.items():
            start = 0
            for text, tag in parts:
                if text.strip():
                    found.append((field, start, start + len(text), *self._of_tag(tag)))
                start += len(text)
        for field, drugs in listed.items():
            for k, (name, tag) in enumerate(drugs):
                given = field == "dispensed" and tag == NONE
                found.append((field, k, k + 1, *(self._of_drug(name) if given else self._of_tag(tag))))
        coded = [c for c in self.in_survey if self.department.rates.codes[c][0]]
        found += [("billing", k, k + 1, *self._named(coded[k])) for k, _ in enumerate(visit.billing or ())]
        return found + [("coded", k, k + 1, *self._named(self.primary)) for k, _ in enumerate(visit.coded or ())]

    def _named(self, cause: int) -> tuple[str, str]:
        m, r = len(self.department.conditions), len(self.department.reasons)
        return ("condition" if cause < m else "outside" if cause < m + r else "illness"), self.names[cause]

    def _of_tag(self, tag: int) -> tuple[str, str]:
        department = self.department
        if tag == NONE:
            return "none", ""
        if tag >= MENTION:
            condition, kind = divmod(tag - MENTION, 10)
            return "mention", f"{department.conditions[condition]}:{KINDS[kind]}"
        if tag >= NAMED:
            return "condition", department.conditions[tag - NAMED]
        if tag >= REASON:
            return self._drawn([(c, self._excess_said(c, tag - REASON)) for c in self.in_survey], 0.0)
        weights = [(c, float(department.rate[c, tag]) * self.scale[c]) for c in self.on]
        found = self._drawn(weights, float(department.leak_rate[tag]))
        complained_of = department.section[tag] not in _NOT_COMPLAINED_OF and tag in department.reason_key
        return self._named(self.primary) if found[0] == "none" and complained_of else found

    def _excess_said(self, cause: int, reason: int) -> float:
        """How much more often (in log shares) visits with the cause give the reason."""
        rates = self.department.rates
        found, usual = float(rates.first[cause, self.band, reason]), float(rates.usual_first[self.band, reason])
        return max(found - usual, 0.0) if found > -math.inf < usual else 0.0

    def _of_drug(self, name: str) -> tuple[str, str]:
        """The cause that a drug was given for, drawn by how much more often visits with the cause get the drug."""
        rates = self.department.rates
        d = rates.drugs.index(name)
        usual = float(rates.usual_drug[self.band, d])
        excess = [(c, max(float(rates.drug[c, self.band, d]) - usual, 0.0) ** 2) for c in self.in_survey]
        return self._drawn(excess, 0.1)

    def _drawn(self, weights: list[tuple[int, float]], nothing: float) -> tuple[str, str]:
        total = nothing + sum(w for _, w in weights)
        if total <= 0:
            return self._named(self.primary) if self.primary in self.on else ("none", "")
        u = self.draw.random() * total
        for cause, w in weights:
            u -= w
            if u < 0:
                return self._named(cause)
        return "none", ""
