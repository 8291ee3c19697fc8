"""Notice when numba compiles: at the first use after an install. Compiled code is cached beside the modules."""

from __future__ import annotations

from collections.abc import Callable

from numba.core import event


class _Once(event.Listener):  # type: ignore[misc]
    """Calls a function when the first compilation starts."""

    def __init__(self, call: Callable[[], None]) -> None:
        self._call: Callable[[], None] | None = call

    def on_start(self, event: object) -> None:
        call, self._call = self._call, None
        if call is not None:
            call()

    def on_end(self, event: object) -> None:
        """Nothing to do."""


def when_compiling(call: Callable[[], None]) -> None:
    """Call a function once, as soon as something is compiled in this process; loading cached code does not count."""
    event.register("numba:compile", _Once(call))
