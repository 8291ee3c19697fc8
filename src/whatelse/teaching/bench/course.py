"""learn, promote, drop: a new model from the conditions as they are now, side by side with the one that serves.

A quarter of the visits, chosen by their ids (`refit.held_out`), is kept out of learning altogether. On it both models
are judged, each reading the visits by its own findings: by labels where there are any, and by held-out anchors, which
need none. A model that serves and may have seen those visits would be judged too kindly, so what it knows is then
learned again from the other three quarters: the same visits, the same labels, the conditions as they were.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from whatelse.anchors import AnchorSet
from whatelse.cohort import Cohort, build_cohort
from whatelse.cohort.again import rebuild
from whatelse.errors import InputError
from whatelse.files import sync, write_whole
from whatelse.learning.learners import Progress
from whatelse.tagger import Tagger
from whatelse.teaching.bench.folder import BenchFolder
from whatelse.teaching.bench.overview import lesson_of
from whatelse.teaching.compare import Comparison, Verdict, compare_sides, judge
from whatelse.teaching.heldout_anchors import ANCHOR_RANK, heldout_anchor_rows
from whatelse.teaching.label_set import LabelSet
from whatelse.teaching.paired import Row
from whatelse.teaching.refit import SHARE, beside, held_out, locked
from whatelse.teaching.side import Side, shared_conditions
from whatelse.visits import Visit

JUDGED_ON = 5_000  # labelled visits, at most
KEPT_OUT = "kept_out"  # note of a model: the share of visits that it has seen neither labels nor anchors of
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
    """What became of learning again.

    changed     conditions whose anchors differ
    labels      both models on labelled visits that neither has seen; None where there are none
    anchors     both models on hidden anchors of such visits
    verdict     by the labels if there are any, else by the anchors
    learned     how the labels came: where from, and how many visits
    relearned   whether the old model was learned again, because it might have seen the visits
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
    """What changes if the visits of a cohort are read with these anchors: (outcome, new cohort, new model).

    lesson    the labels of a cohort of these visits, and where they come from
    serving   the model to compare with; None: one learned from `old`

    Cost: building a cohort and learning from three quarters of it, once or (for the old one) twice.
    """
    told = progress or (lambda what, done, total: None)
    told("building the cohort", 0, 4)
    new = rebuild(old, visits, anchors)
    out = held_out(new, share)
    said, source = lesson(new)
    template = serving or Tagger()
    told("learning the new model", 1, 4)
    new_model = _fit(template, new, said, out, share)
    relearned = serving is None or serving.notes_.get(KEPT_OUT, 0.0) < share
    old_model = serving
    if old_model is None or relearned:
        told("learning the old model again", 2, 4)
        old_model = _fit(template, old, lesson(old)[0], held_out(old, share), share)
    told("comparing", 3, 4)
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
    told("comparing", 4, 4)
    return outcome, new, new_model


def some_of(cohort: Cohort, visits: Iterable[Visit], most: int) -> tuple[Cohort, list[Visit]]:
    """At most so many visits of a cohort at random, and their records; those without a record are left out."""
    rows = np.sort(np.random.default_rng(0).permutation(len(cohort))[:most])
    wanted = {str(cohort.ids[row]): row for row in rows.tolist()}
    found = {wanted[visit.id]: visit for visit in visits if visit.id in wanted}
    return cohort.rows(sorted(found)), [found[row] for row in sorted(found)]


def _fit(template: Tagger, cohort: Cohort, said: LabelSet, out: Any, share: float) -> Tagger:
    """A model learned as `template` was, from the visits that are not held out."""
    tagger = Tagger(template.learner, settings=template.settings, tolerance=template.tolerance, seed=template.seed)
    rest = said.on(cohort).rows(~out)
    known, weight, belief = rest.known, said.weight[~out], said.said[~out]
    tagger.fit(
        rest,
        weights=None if (weight[known] == 1).all() else weight,
        belief=None if np.isin(belief[known], (0, 1)).all() else belief,
    )
    tagger.notes_ |= {"held_out": share, KEPT_OUT: share}
    return tagger


def _compare(
    old: Tagger, new: Tagger, cohort: Cohort, said: LabelSet, visits: Sequence[Visit], out: Any
) -> tuple[Comparison | None, tuple[Row, ...], Verdict, str]:
    conditions = shared_conditions(old, new)
    seen_by_old = build_cohort(visits, like=old.vocabulary_).X
    sides = Side.about(old, seen_by_old, conditions), Side.about(new, cohort.X[np.flatnonzero(out)], conditions)
    anchors = tuple(heldout_anchor_rows(*sides))
    which = np.ix_(np.flatnonzero(out), np.array([cohort.conditions.index(c) for c in conditions], np.intp))
    judges = LabelSet(said.belief[which], said.known[which], said.weight[which], said.said[which])
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
    """Put the candidate in the model's place, which is kept as MODEL.previous. Returns the digest of the new one."""
    candidate = beside(model, "candidate")
    with locked(model):
        if not candidate.is_file() or not folder.outcome.is_file():
            raise InputError("there is no candidate: learn one first", file=folder.root)
        digest = Tagger.load(candidate).digest_  # a file that cannot be used must not serve
        if digest != json.loads(folder.outcome.read_bytes()).get("new"):
            raise InputError("the candidate is not the one that was compared: learn again", file=folder.root)
        Cohort.open(folder.new_cohort).save(folder.cohort)
        write_whole(beside(model, "previous"), model.read_bytes())
        os.replace(candidate, model)
        sync(model.absolute().parent)
        _forget(folder)
    return digest


def drop(folder: BenchFolder, model: Path) -> None:
    """Forget the candidate. The conditions file stays as it is: what is in it is for whoever edits it to take back."""
    with locked(model):
        beside(model, "candidate").unlink(missing_ok=True)
        _forget(folder)


def _forget(folder: BenchFolder) -> None:
    folder.outcome.unlink(missing_ok=True)
    shutil.rmtree(folder.new_cohort, ignore_errors=True)
