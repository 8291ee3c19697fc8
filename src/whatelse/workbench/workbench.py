"""Workbench: a folder that is open, and every action of its page, on the files that commands and people edit too."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

from whatelse.annotators import Anchor, AnchorSet
from whatelse.annotators.anchor_uses import Excerpt, as_anchor
from whatelse.annotators.discovery.edit import add_phrase, owner_of, phrases_of, take_out
from whatelse.annotators.discovery.meanings import plain_words
from whatelse.annotators.discovery.phrases import from_visits
from whatelse.annotators.discovery.suggest import Suggestion, by_condition, suggest
from whatelse.annotators.discovery.trial import Worth, try_phrase, with_judgements
from whatelse.annotators.label_set import LabelSet
from whatelse.cohort import Cohort
from whatelse.errors import ConditionError, WhatelseError
from whatelse.io.files import stamp
from whatelse.knowledge import load_knowledge
from whatelse.learning.learners import Progress
from whatelse.learning.prior import prior_of
from whatelse.lifecycle.rebuild import rebuild, records_of
from whatelse.workbench.folder import BenchFolder, judge_visit, read_judged
from whatelse.workbench.overview import BesideKnowledge, ConditionRow, beside_knowledge, lesson_of, overview
from whatelse.workbench.records import Records
from whatelse.workbench.training import Apart, Job, Status, promote

SHOWN = 10  # suggestions of a condition, and visits of a phrase, at a time
TRIED = 16  # phrases looked at that are kept: each judgement of a visit shows its phrase again
SPARE = 30  # suggestions kept for each condition: ten are shown, the rest follow as those are decided


@dataclass(frozen=True, eq=False)
class CandidateSearch:
    """A cohort of the records with `anchors`, and the suggestions by condition, best first."""

    anchors: AnchorSet
    cohort: Cohort
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
    return CandidateSearch(anchors, cohort, found)


@dataclass(frozen=True)
class AnchorLine:
    """An anchor as the conditions file has it, the visits in which it fires, and another condition that has it too."""

    phrase: str
    key: str
    system: str | None
    fires: int
    shared: str | None


@dataclass(frozen=True)
class Judged(Suggestion):
    """A suggested phrase with the visits that were judged, and those of them that have the condition."""

    judged: int = 0
    yes: int = 0


@dataclass(frozen=True)
class JudgedExcerpt(Excerpt):
    """An excerpt, and whether the visit has the condition: None if nobody said."""

    said: bool | None = None


@dataclass(frozen=True)
class Look:
    """A phrase looked at: what it would be worth, excerpts of visits that have it, the condition that has it now."""

    worth: Worth
    excerpts: tuple[JudgedExcerpt, ...]
    owner: str | None


class Workbench:
    """The workbench in a folder, beside a model file. `close` it."""

    def __init__(self, root: Path, model: Path) -> None:
        self.folder, self.model = BenchFolder(root), model
        self.cohort = self.folder.open()
        self.records = Records(self.cohort, records_of(self.cohort))
        if not len(self.records):
            raise ConditionError(f"{root}: none of the cohort's visits is in its records: build the cohort again")
        if len(self.records) < len(self.cohort):  # rows of the cohort and of what is found in the records must agree
            self.cohort = self.cohort.rows(self.records.rows)
            self.records = Records(self.cohort, self.records.visits)
        self.hunted: CandidateSearch | None = None
        self.job: Job | None = None
        self._apart: Apart | None = None
        self._overview: tuple[Any, tuple[list[ConditionRow], str]] | None = None
        self._prior_of = lru_cache(1)(lambda cohort: prior_of(cohort.vocabulary, load_knowledge()))
        self._again = False  # whether to hunt once more: the conditions changed meanwhile
        self._fires: dict[Anchor, int] = {}  # visits in which each anchor fires, as far as they were counted
        self._tried = lru_cache(TRIED)(self._try)

    # ---- in the background

    def start_hunt(self) -> None:
        """Look for suggestions with the conditions as they are now."""
        self.start("hunt", self._hunt)

    def hunt_soon(self) -> None:
        """The same; once more after one that is under way, and after other work only when told."""
        now = self.status()
        if now is None or not now.running:
            self.start_hunt()
        elif now.kind == "hunt":
            self._again = True

    def start_learning(self) -> None:
        """Learn a candidate from the conditions and labels as they are now."""
        self._apart = Apart(self.folder.root, self.model)
        self.start("learn", self._apart.run)

    def status(self) -> Status | None:
        return self.job.status() if self.job is not None else None

    def close(self) -> None:
        if self._apart is not None:
            self._apart.stop()

    def start(self, kind: str, work: Callable[[Progress], None]) -> None:
        """Do something in the background; an error if something is under way already."""
        if (now := self.status()) is not None and now.running:
            raise WhatelseError(f"something is under way already ({now.what}): wait until it is done")
        self.job = Job(kind, work)

    def _hunt(self, progress: Progress) -> None:
        self._again = True
        while self._again:
            self._again = False
            progress("counting anchors", 0, 3)
            self._count(anchor for c in self.folder.anchors().conditions for anchor in c.anchors)
            self.hunted = search_candidates(
                self.cohort, self.records, self.folder.anchors(), lambda c: lesson_of(self.folder, c)[0], progress
            )
            self._tried.cache_clear()  # its keys hold the cohort from before

    # ---- conditions

    @property
    def edited(self) -> bool:
        """Whether the conditions file has changed since suggestions were looked for."""
        return self.hunted is not None and self.hunted.anchors != self.folder.anchors()

    def conditions(self) -> tuple[list[ConditionRow], str]:
        """Every condition of the file, and where labels come from. Those that would gain most from another anchor come
        first, once that is known. Counted anew only when a file has changed."""
        now = (self.folder.anchors(), stamp(self.folder.labels), self.hunted, self.cohort)
        if self._overview is None or self._overview[0] != now:
            cohort = self.cohort if self.hunted is None else self.hunted.cohort
            gains = None if self.hunted is None else self.hunted.gains()
            said, source = lesson_of(self.folder, cohort)
            rows = sorted(overview(now[0], cohort, said, gains), key=lambda row: -(row.gain or 0.0))
            self._overview = now, (rows, source)
        return self._overview[1]

    def anchors(self, condition: str) -> list[AnchorLine]:
        known, lines = self.folder.anchors(), []
        phrases = phrases_of(self.folder.conditions, condition)
        anchors = [as_anchor(*phrase) for phrase in phrases]
        self._count(anchors)
        for (phrase, key, system), anchor in zip(phrases, anchors, strict=True):
            others = [c.name for c in known.conditions if anchor in c.anchors and c.name != condition]
            lines.append(AnchorLine(phrase, key, system, self._fires[anchor], others[0] if others else None))
        return lines

    def _count(self, anchors: Iterable[Anchor]) -> None:
        """Count in how many visits each anchor fires that was not counted yet: all notes are read once."""
        new = [anchor for anchor in dict.fromkeys(anchors) if anchor not in self._fires]
        self._fires |= {a: int(rows.size) for a, rows in zip(new, self.records.having(new), strict=True)} if new else {}

    def suggestions(self, condition: str) -> list[Judged]:
        """The ten best that are neither refused nor anchors by now; none before they were looked for."""
        if self.hunted is None:
            return []
        no = {plain_words(phrase) for phrase in self.folder.refusals().get(condition, ())}
        taken = {anchor.value.lower() for c in self.folder.anchors().conditions for anchor in c.anchors}
        found = [s for s in self.hunted.found.get(condition, []) if len(s.phrase.strip()) > 1]
        new = [s for s in found if plain_words(s.phrase) not in no and s.phrase.lower() not in taken]
        judged, out = read_judged(self.folder.judged), []
        for s in new[:SHOWN]:
            said = judged.get((condition, s.phrase, s.key, s.system or ""), {})
            out.append(Judged(**vars(s), judged=len(said), yes=sum(said.values())))
        return out

    def beside_knowledge(self, condition: str) -> BesideKnowledge | None:
        """What the knowledge base and the records say about a condition; None before the cohort has it."""
        if condition not in self.cohort.conditions:
            return None
        return beside_knowledge(self.cohort, self._prior_of(self.cohort), condition)

    # ---- phrases

    def look(self, condition: str, phrase: str, key: str = "notes", system: str | None = None) -> Look:
        """What a phrase would be worth, and ten visits that have it; 'whatelse anchors suggest'."""
        if condition not in self.folder.anchors().names:
            raise ConditionError(f"there is no condition {condition!r} in {self.folder.conditions}")
        phrase = " ".join(phrase.split())
        owner = owner_of(self.folder.conditions, phrase, key, system)
        cohort = self.cohort if self.hunted is None else self.hunted.cohort
        worth, found = self._tried(cohort, condition, phrase, key, system, stamp(self.folder.labels))
        judged = read_judged(self.folder.judged).get((condition, phrase, key, system or ""), {})
        excerpts = tuple(JudgedExcerpt(**vars(e), said=judged.get(e.visit)) for e in found)
        return Look(with_judgements(worth, judged.values()), excerpts, owner)

    def _try(
        self, cohort: Cohort, condition: str, phrase: str, key: str, system: str | None, _: object
    ) -> tuple[Worth, list[Excerpt]]:
        """Read the notes for a phrase. The last argument changes with labels.csv: then it is read again."""
        labels, visits = lesson_of(self.folder, cohort)[0], self.records.visits
        return try_phrase(cohort, condition, phrase, visits, key=key, system=system, labels=labels, looks=SHOWN)

    def judge(
        self, condition: str, phrase: str, key: str, system: str | None, visit: str, label: bool | None
    ) -> dict[str, bool]:
        """Note whether a visit with the phrase has the condition; None takes it back. Returns all judgements."""
        subject = (condition, " ".join(phrase.split()), key, system or "")
        return judge_visit(self.folder.judged, subject, visit, label)

    def accept(
        self, condition: str, phrase: str, key: str = "notes", system: str | None = None, *, take: bool = False
    ) -> None:
        """Make a phrase an anchor. take: from the condition that has it now; else that is an error."""
        owner = owner_of(self.folder.conditions, phrase, key, system)
        if take and owner is not None and owner != condition:
            mine = " ".join(phrase.split()).lower()
            for value, its_key, its_system in phrases_of(self.folder.conditions, owner):
                if " ".join(value.split()).lower() == mine and its_system == system:
                    take_out(self.folder.conditions, owner, value, its_key, its_system)
        add_phrase(self.folder.conditions, condition, phrase, key, system)

    # ---- the candidate

    def outcome(self) -> dict[str, Any] | None:
        """What the last learning found, if its candidate is still there."""
        return json.loads(self.folder.outcome.read_bytes()) if self.folder.outcome.is_file() else None

    def promote(self) -> str:
        """Put the candidate in the model's place; its digest."""
        digest = promote(self.folder, self.model)
        self.cohort = self.folder.open()
        return digest
