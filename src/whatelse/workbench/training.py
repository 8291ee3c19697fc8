"""Learn, promote, drop: a new model from edited conditions, compared with the model that serves.

Hold-out and learning are those of `lifecycle.refit`. Both models are compared on the held-out visits, each with its own
findings: on labels if there are any, and on held-out anchors, which need no labels. If the serving model may have seen
the held-out visits, it is learned again without them, from the old conditions.
"""

from __future__ import annotations

import json
import multiprocessing
import shutil
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import numpy as np

from whatelse.annotators import AnchorSet
from whatelse.annotators.label_set import LabelSet
from whatelse.cohort import Cohort, build_cohort
from whatelse.errors import InputError, WhatelseError
from whatelse.io.files import write_whole
from whatelse.learning.learners import Progress
from whatelse.lifecycle import compare, refit
from whatelse.lifecycle.compare import Comparison, ModelView, Row, Verdict
from whatelse.lifecycle.rebuild import rebuild, records_of
from whatelse.lifecycle.refit import KEPT_OUT, SHARE, beside, fit_without, held_out, locked
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
    """Result of learning again; it names no visit and quotes no record.

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
        part = _part(told, "learning the old model again", 4)
        old_model = fit_without(template, old, lesson(old)[0], held_out(old, share), share, part)
    told("comparing", STEPS - 1, STEPS)
    compared = _compare(old_model, new_model, new, said, [visits[k] for k in np.flatnonzero(out).tolist()], out)
    learned, again = (source, said.only(~out).visits), relearned and serving is not None
    outcome = Outcome(len(new), int(out.sum()), changes(old, new), *compared, learned, again)
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
    conditions = compare.shared_conditions(old, new)
    seen_by_old = build_cohort(visits, like=old.vocabulary_).X
    rows, columns = np.flatnonzero(out), np.array([cohort.conditions.index(c) for c in conditions], np.intp)
    sides = ModelView.about(old, seen_by_old, conditions), ModelView.about(new, cohort.X[rows], conditions)
    anchors, which = tuple(compare.heldout_anchor_rows(*sides)), np.ix_(rows, columns)
    judges = LabelSet(said.probability[which], said.known[which], said.weight[which])
    if judges.visits:
        found = compare.compare_sides(*sides, judges, conditions, visits=JUDGED_ON)
        return found, anchors, found.verdict, found.because
    verdict, because = (
        compare.judge(anchors, (compare.ANCHOR_RANK,)) if anchors else ("not known", "no visit is labelled")
    )
    return None, anchors, verdict, f"by hidden anchors, for no visit that was held out is labelled: {because}"


def changes(old: Cohort, new: Cohort) -> tuple[Changed, ...]:
    """The conditions whose anchors differ between two cohorts of the same visits."""
    before = {c.name: {a.value for a in c.anchors} for c in old.vocabulary.anchors.conditions}
    after = {c.name: {a.value for a in c.anchors} for c in new.vocabulary.anchors.conditions}
    fired = [dict(zip(c.conditions, c.A.sum(0).tolist(), strict=True)) for c in (old, new)]
    out = []
    for name in dict.fromkeys([*after, *before]):
        here, gone = after.get(name, set()), before.get(name, set())
        if here != gone or (name in after) != (name in before):
            came, went = tuple(sorted(here - gone)), tuple(sorted(gone - here))
            out.append(Changed(name, came, went, *(count.get(name, 0) for count in fired)))
    return tuple(out)


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
        outcome = replace(outcome, old=serving.digest_, new=tagger.save(beside(model, "candidate")))
        new.save(folder.new_cohort)
        write_whole(folder.outcome, json.dumps(asdict(outcome), indent=1).encode())
        return outcome


def promote(folder: BenchFolder, model: Path) -> str:
    """Put the candidate in the model's place, and its cohort in the cohort's. Returns the digest of the new model."""
    if not folder.outcome.is_file():
        raise InputError("there is no candidate: learn one first", file=folder.root)
    compared = str(json.loads(folder.outcome.read_bytes()).get("new"))
    digest = refit.promote_candidate(model, compared, lambda: Cohort.open(folder.new_cohort).save(folder.cohort))
    _forget(folder)
    return digest


def drop(folder: BenchFolder, model: Path) -> None:
    """Delete the candidate. The conditions file stays as it is."""
    refit.drop_candidate(model)
    _forget(folder)


def _forget(folder: BenchFolder) -> None:
    folder.outcome.unlink(missing_ok=True)
    shutil.rmtree(folder.new_cohort, ignore_errors=True)


# ---- in the background, one job at a time. Learning runs in a process of its own, so that a service goes on answering
# while it does; looking for suggestions runs in a thread, because what it finds stays in memory


@dataclass(frozen=True)
class Status:
    """How a job stands. problem: why it failed, in words that quote no record."""

    kind: str
    what: str
    done: int
    total: int
    seconds: float
    running: bool
    problem: str = ""


class Job:
    """One piece of work under way or ended; `work` is told how to report progress."""

    def __init__(self, kind: str, work: Callable[[Progress], None]) -> None:
        self._work, self._began = work, time.monotonic()
        self._status = Status(kind, "starting", 0, 1, 0.0, True)
        self._thread = threading.Thread(target=self._run, name=f"whatelse-{kind}", daemon=True)
        self._thread.start()

    def status(self) -> Status:
        now = self._status
        return replace(now, seconds=time.monotonic() - self._began) if now.running else now

    def wait(self, seconds: float | None = None) -> None:
        self._thread.join(seconds)

    def _run(self) -> None:
        problem = ""
        try:
            self._work(self._tell)
        except Exception as error:
            problem = problem_of(error)
        finally:
            self._status = replace(self.status(), running=False, problem=problem)

    def _tell(self, what: str, done: int, total: int) -> None:
        self._status = replace(self._status, what=what, done=done, total=total)


class Apart:
    """Learning in another process. `stop` ends it."""

    def __init__(self, root: Path, model: Path) -> None:
        self._args = (root, model)
        self._process: Any = None

    def run(self, progress: Progress) -> None:
        """Learn, and report what the process reports; WhatelseError if it failed."""
        context = multiprocessing.get_context("spawn")
        mine, theirs = context.Pipe(duplex=False)
        self._process = context.Process(target=learn_apart, args=(theirs, *self._args), daemon=True)
        self._process.start()
        theirs.close()
        problem = "the process that was learning has ended before it was done"
        with mine, suppress(EOFError):  # which is how a pipe says that the other side has ended
            while True:
                heard: tuple[Any, ...] | str = mine.recv()
                if isinstance(heard, str):
                    problem = heard
                else:
                    progress(*heard)
        self._process.join()
        if problem:
            raise WhatelseError(problem)

    def stop(self) -> None:
        if self._process is not None and self._process.is_alive():
            self._process.terminate()


def learn_apart(tell: Connection, root: Path, model: Path) -> None:
    """What the process does: `learn_in`, progress and the end told through a pipe ("" if all went well)."""
    try:
        folder = BenchFolder(root)
        tell.send(("reading the records", 0, 4))
        records = list(records_of(folder.open()))
        learn_in(folder, model, records, progress=lambda *now: tell.send(now))
        tell.send("")
    except Exception as error:
        tell.send(problem_of(error))


def problem_of(error: Exception) -> str:
    """Why a job failed. Messages that are not our own are left out: they may quote a record."""
    if isinstance(error, WhatelseError):
        return str(error)
    if isinstance(error, OSError):
        return f"a file of the workbench cannot be read or written ({error.strerror})"
    return f"it failed ({type(error).__name__}); the command line says more"
