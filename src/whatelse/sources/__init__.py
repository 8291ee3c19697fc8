"""Files -> visits, one file per source.

for visit in read_visits("visits.csv"): ...
for visit in read_visits(data_frame, columns={"id": "visit no"}): ...
for visit in read_visits(["ed2016_sas.zip", "ed2017_sas.zip"], source="nhamcs", labels="nhamcs/"): ...
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

_HOME = {"SOURCES": "registry", "VisitReader": "reader", "read_visits": "reader", "write_visits": "write"}
__all__ = ["SOURCES", "VisitReader", "read_visits", "write_visits"]

if TYPE_CHECKING:
    from whatelse.sources.reader import VisitReader as VisitReader
    from whatelse.sources.reader import read_visits as read_visits
    from whatelse.sources.registry import SOURCES as SOURCES
    from whatelse.sources.write import write_visits as write_visits


def __getattr__(name: str) -> Any:
    """Each name when it is first used: the registry is read by every command, and pyarrow takes long to load."""
    if name in _HOME:
        return getattr(import_module(f"whatelse.sources.{_HOME[name]}"), name)
    raise AttributeError(f"module 'whatelse.sources' has no attribute {name!r}")
