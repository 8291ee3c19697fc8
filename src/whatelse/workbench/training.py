"""Learn, promote, drop: a new model from edited conditions, compared with the model that serves.

Hold-out and learning are those of `lifecycle.refit`. Both models are compared on the held-out visits, each with its own
findings: on labels if there are any, and on held-out anchors, which need no labels. If the serving model may have seen
the held-out visits, it is learned again without them, from the old conditions.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from whatelse.annotators import AnchorSet
from whatelse.annotators.label_set import LabelSet
from whatelse.cohort import Cohort, build_cohort
from whatelse.errors import InputError
from whatelse.io.files import write_whole
from whatelse.learning.learners import Progress
from whatelse.lifecycle.compare import ANCHOR_RANK, Comparison, Verdict, compare_sides, heldout_anchor_rows, judge
from whatelse.lifecycle.paired import ModelView, Row, shared_conditions
from whatelse.lifecycle.rebuild import rebuild
from whatelse.lifecycle.refit import (
    KEPT_OUT,
    SHARE,
    beside,
    drop_candidate,
    fit_without,
    held_out,
    locked,
    promote_candidate,
)
from whatelse.tagger import Tagger
from whatelse.visits import Visit
from whatelse.workbench.folder import BenchFolder
from whatelse.workbench.overview import lesson_of

JUDGED_ON = 5_000  # labelled visits, at most
STEPS, LEARNING = 8, 3  # of progress: learning takes most of the time, so it is most of the steps
Lesson = Callable[[Cohort], tuple[LabelSet, str]]


@dataclass(frozen=True)
class Changed:
    """A condition whose anchors differ: what came and went, and in how many visits the anchor fires."""

    condition: str
    came: tuple[str, ...]
    went: tuple[str, ...]
    fires_before: int
    fires_after: int


@dataclass(frozen=True)
class Outcome:
    """Result of learning again.

    changed     conditions whose anchors differ
    labels      both models on labelled held-out visits; None if there are none
    anchors     both models on held-out anchors of these visits
    verdict     from the labels if there are any, else from the anchors
    learned     source of the labels, number of labelled visits
    relearned   whether the old model was learned again because it may have seen the held-out visits
    """

    visits: int
    held_out: int
    changed: tuple[Changed, ...]
    labels: Comparison | None
    anchors: tuple[Row, ...]
    verdict: Verdict
    because: str
    learned: tuple[str, int]
    relearned: bool
    old: str = ""
    new: str = ""

    def to_json(self) -> dict[str, Any]:
        """As JSON values; it names no visit and quotes no record."""
        out = asdict(self)
        out["labels"] = None if self.labels is None else self.labels.to_json()
        out["anchors"] = [{**asdict(row), "says": row.says} for row in self.anchors]
        return out


def learn(
    old: Cohort,
    visits: Sequence[Visit],
    anchors: AnchorSet,
    lesson: Lesson,
    *,
    serving: Tagger | None = None,
    share: float = SHARE,
    progress: Progress | None = None,
) -> tuple[Outcome, Cohort, Tagger]:
    """Learn with these anchors and compare with the old model: (outcome, new cohort, new model).

    lesson    gives the labels of a cohort of these visits, and their source
    serving   the model to compare with; None: a model learned from `old`

    Cost: building a cohort and learning from three quarters of it, once or (for the old one) twice.
    """
    told = progress or (lambda what, done, total: None)
    told("building the cohort", 0, STEPS)
    new = rebuild(old, visits, anchors)
    out = held_out(new, share)
    said, source = lesson(new)
    template = serving or Tagger()
    new_model = fit_without(template, new, said, out, share, _part(told, "learning the new model", 1))
    relearned = serving is None or serving.notes_.get(KEPT_OUT, 0.0) < share
    old_model = serving
    if old_model is None or relearned:
        again = _part(told, "learning the old model again", 4)
        old_model = fit_without(template, old, lesson(old)[0], held_out(old, share), share, again)
    told("comparing", STEPS - 1, STEPS)
    found = _compare(old_model, new_model, new, said, [visits[k] for k in np.flatnonzero(out).tolist()], out)
    outcome = Outcome(
        visits=len(new),
        held_out=int(out.sum()),
        changed=changes(old, new),
        labels=found[0],
        anchors=found[1],
        verdict=found[2],
        because=found[3],
        learned=(source, said.only(~out).visits),
        relearned=relearned and serving is not None,
    )
    told("comparing", STEPS, STEPS)
    return outcome, new, new_model


def _part(told: Progress, what: str, start: int) -> Progress:
    """Progress of learning as a part of all steps, from `start` on."""
    told(what, start, STEPS)
    return lambda _, done, total: told(what, start * total + LEARNING * min(done, total), STEPS * total)


def some_of(cohort: Cohort, visits: Iterable[Visit], most: int) -> tuple[Cohort, list[Visit]]:
    """At most so many visits of a cohort at random, and their records; those without a record are left out."""
    rows = np.sort(np.random.default_rng(0).permutation(len(cohort))[:most])
    wanted = {str(cohort.ids[row]): row for row in rows.tolist()}
    found = {wanted[visit.id]: visit for visit in visits if visit.id in wanted}
    return cohort.rows(sorted(found)), [found[row] for row in sorted(found)]


def _compare(
    old: Tagger, new: Tagger, cohort: Cohort, said: LabelSet, visits: Sequence[Visit], out: Any
) -> tuple[Comparison | None, tuple[Row, ...], Verdict, str]:
    conditions = shared_conditions(old, new)
    seen_by_old = build_cohort(visits, like=old.vocabulary_).X
    sides = (
        ModelView.about(old, seen_by_old, conditions),
        ModelView.about(new, cohort.X[np.flatnonzero(out)], conditions),
    )
    anchors = tuple(heldout_anchor_rows(*sides))
    which = np.ix_(np.flatnonzero(out), np.array([cohort.conditions.index(c) for c in conditions], np.intp))
    judges = LabelSet(said.probability[which], said.known[which], said.weight[which])
    if judges.visits:
        found = compare_sides(*sides, judges, conditions, visits=JUDGED_ON)
        return found, anchors, found.verdict, found.because
    verdict, because = judge(anchors, (ANCHOR_RANK,)) if anchors else ("not known", "no visit is labelled")
    return None, anchors, verdict, f"by hidden anchors, for no visit that was held out is labelled: {because}"


def changes(old: Cohort, new: Cohort) -> tuple[Changed, ...]:
    """The conditions whose anchors differ between two cohorts of the same visits."""
    before = {c.name: {a.value for a in c.anchors} for c in old.vocabulary.anchors.conditions}
    after = {c.name: {a.value for a in c.anchors} for c in new.vocabulary.anchors.conditions}
    fired = [dict(zip(c.conditions, c.A.sum(0).tolist(), strict=True)) for c in (old, new)]
    return tuple(
        Changed(
            name,
            tuple(sorted(after.get(name, set()) - before.get(name, set()))),
            tuple(sorted(before.get(name, set()) - after.get(name, set()))),
            fired[0].get(name, 0),
            fired[1].get(name, 0),
        )
        for name in dict.fromkeys([*after, *before])
        if after.get(name) != before.get(name)
    )


# ---- in a folder


def learn_in(folder: BenchFolder, model: Path, visits: Sequence[Visit], *, progress: Progress | None = None) -> Outcome:
    """`learn` with the files of a workbench; the new model is MODEL.candidate until it is promoted or dropped."""
    with locked(model):
        cohort = folder.open()
        in_order = {visit.id: visit for visit in visits}
        found = [in_order[str(v)] for v in cohort.ids if str(v) in in_order]
        if len(found) < len(cohort):
            raise InputError(
                f"{len(cohort) - len(found):,} of {len(cohort):,} visits of the cohort have no record: give the files "
                "with --visits, or build the cohort again"
            )
        serving = Tagger.load(model)
        outcome, new, tagger = learn(
            cohort, found, folder.anchors(), lambda c: lesson_of(folder, c), serving=serving, progress=progress
        )
        digest = tagger.save(beside(model, "candidate"))
        new.save(folder.new_cohort)
        said = outcome.to_json() | {"old": serving.digest_, "new": digest}
        write_whole(folder.outcome, json.dumps(said, indent=1).encode())
        return Outcome(**{**vars(outcome), "old": serving.digest_, "new": digest})


def promote(folder: BenchFolder, model: Path) -> str:
    """Put the candidate in the model's place, and its cohort in the cohort's. Returns the digest of the new model."""
    if not folder.outcome.is_file():
        raise InputError("there is no candidate: learn one first", file=folder.root)
    compared = str(json.loads(folder.outcome.read_bytes()).get("new"))
    digest = promote_candidate(model, compared, lambda: Cohort.open(folder.new_cohort).save(folder.cohort))
    _forget(folder)
    return digest


def drop(folder: BenchFolder, model: Path) -> None:
    """Delete the candidate. The conditions file stays as it is."""
    drop_candidate(model)
    _forget(folder)


def _forget(folder: BenchFolder) -> None:
    folder.outcome.unlink(missing_ok=True)
    shutil.rmtree(folder.new_cohort, ignore_errors=True)
