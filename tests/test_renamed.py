"""Modules and names of version 0.2 are still imported, with a warning that names the new place."""

from __future__ import annotations

import importlib
import sys

import pytest

from whatelse._renamed import MODULES


@pytest.mark.parametrize("old", MODULES)
def test_old_module_answers_with_the_names_of_the_new_one(old: str) -> None:
    sys.modules.pop(old, None)
    new = importlib.import_module(MODULES[old])
    with pytest.warns(DeprecationWarning, match=f"{old} is now {new.__name__}"):
        module = importlib.import_module(old)
    for name in (name for name in vars(new) if not name.startswith("_")):
        assert getattr(module, name) is getattr(new, name)


def test_old_class_name_is_the_new_class() -> None:
    from whatelse.explanations import Explanation

    assert importlib.import_module("whatelse.suggestions").Because is Explanation


def test_unknown_module_is_still_an_import_error() -> None:
    with pytest.raises(ModuleNotFoundError):
        importlib.import_module("whatelse.nothing")
