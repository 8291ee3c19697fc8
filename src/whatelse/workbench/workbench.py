"""Workbench: a folder that is open, and every action of its page, on the files that commands and people edit too."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from whatelse.annotators import Anchor, AnchorSet
from whatelse.annotators.anchor_checks import overlaps
from whatelse.annotators.anchor_uses import Excerpt, as_anchor
from whatelse.annotators.discovery.edit import add_phrase, owner_of, phrases_of, take_out
from whatelse.annotators.discovery.meanings import plain_words
from whatelse.annotators.discovery.suggest import Suggestion
from whatelse.annotators.discovery.trial import Worth, with_judgements
from whatelse.cohort import Cohort
from whatelse.errors import ConditionError, WhatelseError
from whatelse.knowledge import load_knowledge
from whatelse.learning.learners import Progress
from whatelse.learning.prior import Prior, prior_of
from whatelse.lifecycle.rebuild import records_of
from whatelse.lifecycle.refit import beside, roll_back
from whatelse.workbench.candidate_search import CandidateSearch, search_candidates
from whatelse.workbench.folder import BenchFolder, judge_visit, read_judged
from whatelse.workbench.jobs import Apart, Job, Status
from whatelse.workbench.overview import BesideKnowledge, ConditionRow, beside_knowledge, lesson_of, overview
from whatelse.workbench.records import Records
from whatelse.workbench.training import drop, promote

SHOWN = 10  # suggestions of a condition, and visits of a phrase, at a time


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

    def __init__(self, root: Path, model: Path, visits: Sequence[Path] = ()) -> None:
        self.folder, self.model, self._visits = BenchFolder(root), model, tuple(visits)
        self.cohort = self.folder.open()
        self.records = Records(self.cohort, records_of(self.cohort, list(visits) or None))
        if not len(self.records):
            raise ConditionError(f"{root}: none of the cohort's visits is in its records: build the cohort again")
        if len(self.records) < len(self.cohort):  # rows of the cohort and of what is found in the records must agree
            self.cohort = self.cohort.rows(self.records.rows)
            self.records = Records(self.cohort, self.records.visits)
        self.hunted: CandidateSearch | None = None
        self.job: Job | None = None
        self._apart: Apart | None = None
        self._overview: tuple[Any, tuple[list[ConditionRow], str]] | None = None
        self._prior: tuple[Cohort, Prior] | None = None
        self._again = False  # whether to hunt once more: the conditions changed meanwhile
        self._fires: dict[Anchor, int] = {}

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
        self._apart = Apart(self.folder.root, self.model, self._visits)
        self.start("learn", self._apart.run)

    def status(self) -> Status | None:
        """What is being done, or was last."""
        return self.job.status() if self.job is not None else None

    def close(self) -> None:
        """End what is under way."""
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
            self.hunted = search_candidates(
                self.cohort, self.records, self.folder.anchors(), lambda c: lesson_of(self.folder, c)[0], progress
            )

    # ---- conditions

    @property
    def edited(self) -> bool:
        """Whether the conditions file has changed since suggestions were looked for."""
        return self.hunted is not None and self.hunted.anchors != self.folder.anchors()

    def conditions(self) -> tuple[list[ConditionRow], str]:
        """Every condition of the file, and where labels come from. Those that would gain most from another anchor come
        first, once that is known. Counted anew only when a file has changed."""
        now = (self.folder.anchors(), _stamp(self.folder.labels), self.hunted, self.cohort)
        if self._overview is None or self._overview[0] != now:
            cohort = self.cohort if self.hunted is None else self.hunted.cohort
            gains = None if self.hunted is None else self.hunted.gains()
            said, source = lesson_of(self.folder, cohort)
            rows = sorted(overview(now[0], cohort, said, gains), key=lambda row: -(row.gain or 0.0))
            self._overview = now, (rows, source)
        return self._overview[1]

    def anchors(self, condition: str) -> list[AnchorLine]:
        """The anchors of one condition."""
        known = self.folder.anchors()
        lines = []
        for phrase, key, system in phrases_of(self.folder.conditions, condition):
            anchor = as_anchor(phrase, key, system)
            others = [c.name for c in known.conditions if anchor in c.anchors and c.name != condition]
            lines.append(AnchorLine(phrase, key, system, self._count(anchor), others[0] if others else None))
        return lines

    def suggestions(self, condition: str) -> list[Judged]:
        """The ten best that are neither refused nor anchors by now; none before they were looked for."""
        if self.hunted is None:
            return []
        no = {plain_words(phrase) for phrase in self.folder.refusals().get(condition, ())}
        taken = _values(self.folder.anchors())
        found = self.hunted.found.get(condition, [])
        new = [s for s in found if plain_words(s.phrase) not in no and s.phrase.lower() not in taken]
        judged, out = read_judged(self.folder.judged), []
        for s in [s for s in new if len(s.phrase.strip()) > 1][:SHOWN]:
            said = judged.get((condition, s.phrase, s.key, s.system or ""), {})
            out.append(Judged(**vars(s), judged=len(said), yes=sum(said.values())))
        return out

    def beside_knowledge(self, condition: str) -> BesideKnowledge | None:
        """What the knowledge base and the records say about a condition; None before the cohort has it."""
        if condition not in self.cohort.conditions:
            return None
        if self._prior is None or self._prior[0] is not self.cohort:
            self._prior = self.cohort, prior_of(self.cohort.vocabulary, load_knowledge())
        return beside_knowledge(self.cohort, self._prior[1], condition)

    # ---- phrases

    def look(self, condition: str, phrase: str, key: str = "notes", system: str | None = None) -> Look:
        """What a phrase would be worth, and ten visits that have it; 'whatelse anchors suggest'."""
        if condition not in self.folder.anchors().names:
            raise ConditionError(f"there is no condition {condition!r} in {self.folder.conditions}")
        phrase = " ".join(phrase.split())
        anchor = as_anchor(phrase, key, system)
        owner = owner_of(self.folder.conditions, phrase, key, system)
        hunted = self.hunted
        cohort = self.cohort if hunted is None else hunted.cohort
        rules, lexicon = cohort.vocabulary.rules, cohort.vocabulary.lexicon
        rows = self.records.having(anchor, rules, None if hunted is None else hunted.table, lexicon)
        i = cohort.conditions.index(condition) if condition in cohort.conditions else -1
        said, _ = lesson_of(self.folder, cohort)
        labelled = rows[said.known[rows, i]] if i >= 0 else rows[:0]
        worth = Worth(
            condition=condition,
            phrase=phrase,
            key=key,
            fires=int(rows.size),
            gained=int((~cohort.A[rows, i]).sum()) if i >= 0 else int(rows.size),
            anchored=int(cohort.A[:, i].sum()) if i >= 0 else 0,
            overlaps=overlaps(cohort, rows, i)[:3],
            labelled=int(labelled.size),
            true=int((said.probability[labelled, i] > 0.5).sum()) if i >= 0 else 0,
        )
        chosen = np.random.default_rng(0).permutation(rows)[:SHOWN].tolist()
        found = self.records.excerpts(anchor, rules, chosen, lexicon)
        judged = read_judged(self.folder.judged).get((condition, phrase, key, system or ""), {})
        shown = (found[row] for row in chosen if row in found)
        excerpts = tuple(JudgedExcerpt(**vars(e), said=judged.get(e.visit)) for e in shown)
        return Look(with_judgements(worth, judged.values()), excerpts, owner)

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
        if take and owner not in (None, condition):
            assert owner is not None
            mine = " ".join(phrase.split()).lower()
            for value, its_key, its_system in phrases_of(self.folder.conditions, owner):
                if " ".join(value.split()).lower() == mine and its_system == system:
                    take_out(self.folder.conditions, owner, value, its_key, its_system)
        add_phrase(self.folder.conditions, condition, phrase, key, system)

    def _count(self, anchor: Anchor) -> int:
        if anchor not in self._fires:
            table = None if self.hunted is None else self.hunted.table
            rules, lexicon = self.cohort.vocabulary.rules, self.cohort.vocabulary.lexicon
            self._fires[anchor] = int(self.records.having(anchor, rules, table, lexicon).size)
        return self._fires[anchor]

    # ---- the candidate

    def outcome(self) -> dict[str, Any] | None:
        """What the last learning found, if its candidate is still there."""
        if not self.folder.outcome.is_file():
            return None
        found: dict[str, Any] = json.loads(self.folder.outcome.read_bytes())
        return found

    def promote(self) -> str:
        """Put the candidate in the model's place; its digest."""
        digest = promote(self.folder, self.model)
        self.cohort = self.folder.open()
        return digest

    def roll_back(self) -> str:
        """Put the model back that served before the last promotion; its digest."""
        return roll_back(self.model)[1]

    @property
    def has_previous(self) -> bool:
        """Whether there is a model to go back to."""
        return beside(self.model, "previous").is_file()

    def drop(self) -> None:
        """Forget the candidate."""
        drop(self.folder, self.model)


def _values(anchors: AnchorSet) -> set[str]:
    return {a.value.lower() for c in anchors.conditions for a in c.anchors}


def _stamp(path: Path) -> tuple[int, int] | None:
    """What changes when a file is replaced."""
    return (path.stat().st_mtime_ns, path.stat().st_ino) if path.exists() else None
