"""A cohort whose replacement was killed between two renames: the error says where the old one is."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from whatelse.annotators import AnchorSet
from whatelse.cohort import Cohort, build_cohort
from whatelse.errors import WhatelseError
from whatelse.simulate import simulate


def test_interrupted_replacement_says_where_the_old_cohort_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cohort = build_cohort(list(simulate(40, 1)), AnchorSet.shipped(), max_terms=20)
    cohort.save(tmp_path / "cohort")
    replaced = os.replace

    class Killed(BaseException):
        pass

    calls = []

    def kill_at_second(source: object, target: object) -> None:
        calls.append(source)
        if len(calls) >= 2:  # the second rename, and putting the old folder back: the process is gone
            raise Killed
        replaced(source, target)  # type: ignore[arg-type]

    monkeypatch.setattr(os, "replace", kill_at_second)
    with pytest.raises((Killed, WhatelseError)):
        cohort.save(tmp_path / "cohort")
    monkeypatch.undo()
    with pytest.raises(WhatelseError, match="move it back") as told:
        Cohort.open(tmp_path / "cohort")
    where = str(told.value).split("'")[1]
    replaced(tmp_path / where, tmp_path / "cohort")
    assert len(Cohort.open(tmp_path / "cohort")) == 40
