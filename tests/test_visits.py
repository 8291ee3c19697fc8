"""Visits check themselves, and say what is needed without quoting what they hold."""

from __future__ import annotations

from datetime import date
from typing import Any

import pytest

from whatelse.errors import InputError
from whatelse.visits import Code, Visit


@pytest.mark.parametrize(
    ("field", "value", "needed"),
    [
        ("id", "", "id must be text that is not empty"),
        ("id", 17, "id must be text"),
        ("age", 500, "from 0 to 130"),
        ("age", -1, "from 0 to 130"),
        ("age", float("nan"), "from 0 to 130"),
        ("age", "44", "from 0 to 130"),
        ("sex", "female", "'F', 'M' or None"),
        ("sex", float("nan"), "'F', 'M' or None"),
        ("triage_note", float("nan"), r"triage_note must be text.*float.*read_visits\(frame\)"),
        ("chief_complaint", b"fall", "chief_complaint must be text.*bytes"),
        ("md_comments", ["secret"], "md_comments must be text.*list"),
        ("billing", ("N390",), r"billing must hold codes, not str.*Code\("),
        ("dispensed", "aspirin", "dispensed must be a tuple of codes"),
        ("coded", (Code("a", "b"), None), "coded must hold codes, not NoneType"),
        ("medication_history", {"aspirin"}, "must be a tuple of codes"),
        ("truth", "fall", "truth must be a tuple of names"),
        ("truth", (1,), "truth must be a tuple of names"),
        ("time", date(2020, 1, 1), "time must be a datetime"),
        ("numbers", {"pulse": "fast"}, "numbers by name"),
        ("numbers", {"pulse": float("nan")}, "must be finite"),
        ("numbers", 88, "numbers by name"),
        ("numbers", {3: 4.0}, "must be finite"),
    ],
)
def test_what_a_visit_refuses(field: str, value: Any, needed: str) -> None:
    with pytest.raises(InputError, match=needed) as refused:
        Visit(**{"id": "1", field: value})
    assert "secret" not in str(refused.value)


def test_lists_and_mappings_are_kept_as_tuples() -> None:
    visit = Visit("1", billing=[Code("icd10", "N390")], truth=["fall"], numbers={"b": 1, "a": 2})  # type: ignore[arg-type]
    assert visit == Visit("1", billing=(Code("icd10", "N390"),), truth=("fall",), numbers=(("a", 2.0), ("b", 1.0)))
    assert hash(visit) == hash(Visit(**{f: getattr(visit, f) for f in visit.__slots__}))
