"""CandidateSearch: candidate phrases and suggestions found in the records with one version of the conditions."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from whatelse.annotators import AnchorSet
from whatelse.annotators.discovery.phrases import PhraseTable, from_visits
from whatelse.annotators.discovery.suggest import Suggestion, by_condition, suggest
from whatelse.annotators.label_set import LabelSet
from whatelse.cohort import Cohort
from whatelse.learning.learners import Progress
from whatelse.lifecycle.rebuild import rebuild
from whatelse.workbench.records import Records

SPARE = 30  # suggestions kept for each condition: ten are shown, the rest follow as those are decided


@dataclass(frozen=True, eq=False)
class CandidateSearch:
    """A cohort of the records with `anchors`, its candidates, and the suggestions by condition, best first."""

    anchors: AnchorSet
    cohort: Cohort
    table: PhraseTable
    found: dict[str, list[Suggestion]]

    def gains(self, most: int = 10) -> dict[str, float]:
        """By condition, the cases that its first suggestions are expected to add."""
        return {name: sum(s.precision * s.gained for s in found[:most]) for name, found in self.found.items()}


def search_candidates(
    cohort: Cohort, records: Records, anchors: AnchorSet, lesson: Callable[[Cohort], LabelSet], progress: Progress
) -> CandidateSearch:
    """Look for suggestions; the cohort is built again if its anchors are others. Some 40 s for 50,000 visits.

    lesson  the labels of a cohort: phrases are counted in them
    """
    wanted = anchors.anchored()
    if cohort.vocabulary.anchors != wanted:
        progress("reading the records with the conditions as they are now", 0, 3)
        cohort = rebuild(cohort, records.visits, anchors)
    progress("collecting phrases", 1, 3)
    table = from_visits(cohort, records.visits)
    progress("ranking suggestions", 2, 3)
    found = by_condition(suggest(lesson(cohort).on(cohort), table, most=SPARE))
    progress("ranking suggestions", 3, 3)
    return CandidateSearch(anchors, cohort, table, found)
