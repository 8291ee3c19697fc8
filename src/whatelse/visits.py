"""Visit: one emergency department record, as plain typed fields; and Known: what people have said of it.

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


@dataclass(frozen=True)
class Known:
    """What people have said of a visit, by name.

    confirmed, rejected   conditions the patient has, or has not
    present, absent       findings somebody was asked about: there, or not there

    Any iterable of names is kept as a tuple; one name alone means one name.
    """

    confirmed: tuple[str, ...] = ()
    rejected: tuple[str, ...] = ()
    present: tuple[str, ...] = ()
    absent: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        for part in ("confirmed", "rejected", "present", "absent"):
            names = getattr(self, part)
            object.__setattr__(self, part, (names,) if isinstance(names, str) else tuple(names))

    def about(self, condition: str) -> bool:
        """Whether somebody confirmed or rejected a condition."""
        return condition in self.confirmed or condition in self.rejected

    def without(self, condition: str) -> Known:
        """The same but for one condition, about which nobody has said anything."""
        return Known(
            tuple(c for c in self.confirmed if c != condition),
            tuple(c for c in self.rejected if c != condition),
            self.present,
            self.absent,
        )


TEXT_FIELDS = ("chief_complaint", "triage_note", "md_comments")
CODE_FIELDS = ("medication_history", "dispensed", "coded")
