"""Given this emergency visit and the conditions already confirmed, what else might the patient have?

The public names, each imported when it is first used (`import whatelse` itself costs nothing).
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

__version__ = "0.2.0"

_HOME = {
    "AnchorSet": "anchors",
    "Code": "visits",
    "Cohort": "cohort",
    "Known": "visits",
    "NoiseRates": "anchors",
    "NoisyOr": "noisyor",
    "Tagger": "tagger",
    "Visit": "visits",
    "WhatelseError": "errors",
    "build_cohort": "cohort",
    "read_visits": "sources",
}
__all__ = [*sorted(_HOME), "__version__"]

if TYPE_CHECKING:
    from whatelse.anchors import AnchorSet as AnchorSet
    from whatelse.anchors import NoiseRates as NoiseRates
    from whatelse.cohort import Cohort as Cohort
    from whatelse.cohort import build_cohort as build_cohort
    from whatelse.errors import WhatelseError as WhatelseError
    from whatelse.noisyor import NoisyOr as NoisyOr
    from whatelse.sources import read_visits as read_visits
    from whatelse.tagger import Tagger as Tagger
    from whatelse.visits import Code as Code
    from whatelse.visits import Known as Known
    from whatelse.visits import Visit as Visit


def __getattr__(name: str) -> Any:
    if name in _HOME:
        return getattr(import_module(f"whatelse.{_HOME[name]}"), name)
    raise AttributeError(f"module 'whatelse' has no attribute {name!r}")
