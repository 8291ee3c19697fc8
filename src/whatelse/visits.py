"""Visit: one emergency department record, as plain typed fields that check themselves; Known: what people said of it.

Unknown is not the same as absent: a field that the source does not have is None, a field that is there
and empty is "" or (). What a model makes of the difference is decided in `cohort/`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Literal

from whatelse.errors import InputError

Sex = Literal["F", "M"]
OLDEST = 130
TEXT_FIELDS = ("chief_complaint", "triage_note", "md_comments")
CODE_FIELDS = ("medication_history", "dispensed", "coded")


@dataclass(frozen=True, slots=True)
class Code:
    """A code with the system it belongs to: Code("icd10", "N390"), Code("gsn", "003136", "ondansetron")."""

    system: str
    code: str
    name: str | None = None


@dataclass(frozen=True, slots=True)
class Visit:
    """One visit. `billing` and `truth` are for evaluation: they are never findings unless asked for.

    A field that is not what it should be is an InputError that says what is needed, and never quotes the field.
    """

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
    numbers: tuple[tuple[str, float], ...] | None = None  # measurements by name, sorted; a mapping will do
    shown: tuple[tuple[str, str], ...] = field(default=(), compare=False)  # for labellers by name, never a finding

    def __post_init__(self) -> None:
        # Written out field by field: a visit is made for every row, and this costs a microsecond.
        if type(self.id) is not str or not self.id:
            raise InputError("a visit's id must be text that is not empty: write str(id)")
        age = self.age
        if age is not None and (isinstance(age, str) or not 0 <= age <= OLDEST):  # a NaN is not between any two
            raise InputError(f"a visit's age must be a number of years from 0 to {OLDEST}, or None where it is unknown")
        if self.sex not in (None, "F", "M"):
            raise InputError("a visit's sex must be 'F', 'M' or None where it is unknown")
        if not (
            (self.chief_complaint is None or isinstance(self.chief_complaint, str))
            and (self.triage_note is None or isinstance(self.triage_note, str))
            and (self.md_comments is None or isinstance(self.md_comments, str))
        ):
            name = next(f for f in TEXT_FIELDS if not isinstance(getattr(self, f), str | None))
            found = type(getattr(self, name)).__name__
            raise InputError(
                f"a visit's {name} must be text, or None where there is none; it is of type {found} "
                "(a missing cell of a data frame is NaN: give None, or read the frame with read_visits(frame))"
            )
        if self.medication_history is not None:
            self._codes("medication_history")
        if self.dispensed is not None:
            self._codes("dispensed")
        if self.billing is not None:
            self._codes("billing")
        if self.coded is not None:
            self._codes("coded")
        if self.truth is not None:
            self._truth()
        if self.time is not None and not isinstance(self.time, datetime):
            raise InputError("a visit's time must be a datetime, or None where it is unknown")
        if self.numbers is not None:
            self._numbers()

    def _codes(self, field: str) -> None:
        codes = getattr(self, field)
        if type(codes) is not tuple:
            if not isinstance(codes, list | tuple):
                raise InputError(f"a visit's {field} must be a tuple of codes, or None where it is unknown")
            codes = tuple(codes)
            object.__setattr__(self, field, codes)
        for code in codes:
            if type(code) is not Code:
                raise InputError(
                    f"a visit's {field} must hold codes, not {type(code).__name__}: write "
                    f'{field}=(Code("icd10", "N390"),) or Code("name", "aspirin", "aspirin")'
                )

    def _truth(self) -> None:
        if isinstance(self.truth, str) or not all(isinstance(name, str) for name in self.truth or ()):
            raise InputError("a visit's truth must be a tuple of names of conditions, or None where nobody knows")
        object.__setattr__(self, "truth", tuple(self.truth or ()))

    def _numbers(self) -> None:
        given: Any = self.numbers
        try:
            pairs = sorted(given.items() if isinstance(given, Mapping) else given)
            numbers = tuple((name, float(value)) for name, value in pairs)
        except (TypeError, ValueError):
            raise InputError('a visit\'s numbers must be numbers by name: numbers={"pulse": 88}') from None
        if any(not isinstance(name, str) or not abs(value) < float("inf") for name, value in numbers):
            raise InputError("a visit's numbers must be finite: leave out what was not measured")
        object.__setattr__(self, "numbers", numbers)


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
        """What is known, less what was said of one condition."""
        return Known(
            tuple(c for c in self.confirmed if c != condition),
            tuple(c for c in self.rejected if c != condition),
            self.present,
            self.absent,
        )
