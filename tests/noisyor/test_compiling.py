"""A compilation is noticed once."""

from __future__ import annotations

from numba import njit

from whatelse.noisyor.compiling import when_compiling


def test_the_first_compilation_is_said_and_no_other() -> None:
    said: list[str] = []
    when_compiling(lambda: said.append("compiling"))
    assert said == []
    add = njit(lambda a, b: a + b)
    assert add(1, 2) == 3 and said == ["compiling"]
    assert add(1.0, 2.0) == 3.0 and said == ["compiling"]
