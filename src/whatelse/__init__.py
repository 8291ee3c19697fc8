"""Given this emergency visit and the conditions already confirmed, what else might the patient have?

The public names, each imported when it is first used (`import whatelse` itself costs nothing).
"""

from __future__ import annotations

import sys
from importlib import import_module
from typing import TYPE_CHECKING, Any

from whatelse._renamed import Renamed

__version__ = "1.0.0"

_PUBLIC = {
    "Code": "visits",
    "Cohort": "cohort",
    "JointModel": "noisyor.joint",
    "Knowledge": "knowledge",
    "Known": "visits",
    "Reading": "reading",
    "Suggestions": "explanations",
    "Tagger": "tagger",
    "Visit": "visits",
    "Votes": "annotators.votes",
    "WhatelseError": "errors",
    "build_cohort": "cohort",
    "load_knowledge": "knowledge",
    "read_visits": "sources",
    "read_votes": "annotators.vote_files",
}
# Of version 0.2: they can be imported from here, and are not shown by `dir(whatelse)`.
_FORMER = {"AnchorSet": "annotators", "NoiseRates": "annotators", "NoisyOr": "noisyor"}
__all__ = [*sorted(_PUBLIC), "__version__"]

if TYPE_CHECKING:
    from whatelse.annotators import AnchorSet as AnchorSet
    from whatelse.annotators import NoiseRates as NoiseRates
    from whatelse.annotators.vote_files import read_votes as read_votes
    from whatelse.annotators.votes import Votes as Votes
    from whatelse.cohort import Cohort as Cohort
    from whatelse.cohort import build_cohort as build_cohort
    from whatelse.errors import WhatelseError as WhatelseError
    from whatelse.explanations import Suggestions as Suggestions
    from whatelse.knowledge import Knowledge as Knowledge
    from whatelse.knowledge import load_knowledge as load_knowledge
    from whatelse.noisyor import NoisyOr as NoisyOr
    from whatelse.noisyor.joint import JointModel as JointModel
    from whatelse.reading import Reading as Reading
    from whatelse.sources import read_visits as read_visits
    from whatelse.tagger import Tagger as Tagger
    from whatelse.visits import Code as Code
    from whatelse.visits import Known as Known
    from whatelse.visits import Visit as Visit

sys.meta_path.insert(0, Renamed())


def __getattr__(name: str) -> Any:
    if home := _PUBLIC.get(name) or _FORMER.get(name):
        return getattr(import_module(f"whatelse.{home}"), name)
    raise AttributeError(f"module 'whatelse' has no attribute {name!r}")


def __dir__() -> list[str]:
    return __all__
