"""Files -> visits, one file per source.

for visit in read_visits("visits.csv"): ...
for visit in read_visits(["ed2016_sas.zip", "ed2017_sas.zip"], source="nhamcs", labels="nhamcs/"): ...
"""

from whatelse.sources.reader import SOURCES, VisitReader, read_visits
from whatelse.sources.write import write_visits

__all__ = ["SOURCES", "VisitReader", "read_visits", "write_visits"]
