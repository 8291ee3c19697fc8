"""Modules under their names of version 0.2: imported from their new place, with a DeprecationWarning."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from importlib import import_module
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

MODULES = {
    "whatelse.anchors": "whatelse.annotators",
    "whatelse.anchors.conditions": "whatelse.annotators.anchors",
    "whatelse.anchors.noise": "whatelse.annotators.noise_rates",
    "whatelse.evaluation.trust": "whatelse.evaluation.calibration",
    "whatelse.model": "whatelse.model_file",
    "whatelse.model.file": "whatelse.model_file.file",
    "whatelse.model.signing": "whatelse.model_file.signature",
    "whatelse.suggestions": "whatelse.explanations",
}
NAMES = {"Because": "Explanation"}


class Renamed(MetaPathFinder, Loader):
    """Finds the modules of MODULES. It stands first in `sys.meta_path`: a folder left by version 0.2 would hide it."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """The alias of a renamed module; None for any other name."""
        return ModuleSpec(fullname, self, is_package=True) if fullname in MODULES else None

    def exec_module(self, module: ModuleType) -> None:
        """Let the old module answer with the names of the new one."""
        new = import_module(MODULES[module.__name__])
        warnings.warn(f"{module.__name__} is now {new.__name__}", DeprecationWarning, stacklevel=2)

        def get(name: str) -> Any:
            return getattr(new, NAMES.get(name, name))

        module.__dict__["__getattr__"] = get
