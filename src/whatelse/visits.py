"""Visit: one emergency department record, as plain typed fields.

Unknown is not the same as absent: a field that the source does not have is None, a field that is there
and empty is "" or (). What a model makes of the difference is decided in `cohort.py`.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Literal

Sex = Literal["F", "M"]


@dataclass(frozen=True, slots=True)
class Code:
    """A code with the system it belongs to: Code("icd10", "N390"), Code("gsn", "003136", "ondansetron")."""

    system: str
    code: str
    name: str | None = None


@dataclass(frozen=True, slots=True)
class Visit:
    """One visit. `billing` and `truth` are for evaluation: they are never findings unless asked for."""

    id: str
    age: float | None = None
    sex: Sex | None = None
    chief_complaint: str | None = None
    triage_note: str | None = None
    md_comments: str | None = None
    medication_history: tuple[Code, ...] | None = None
    dispensed: tuple[Code, ...] | None = None
    billing: tuple[Code, ...] | None = None
    coded: tuple[Code, ...] | None = None  # reasons for visit, triage level, vital signs out of range …
    time: datetime | None = None
    truth: tuple[str, ...] | None = None  # names of the conditions known to be true, where somebody knows


TEXT_FIELDS = ("chief_complaint", "triage_note", "md_comments")
CODE_FIELDS = ("medication_history", "dispensed", "coded")
