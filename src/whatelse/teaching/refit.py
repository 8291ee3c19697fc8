"""A round of teaching: a new model from all that people have said so far, which serves only if it is not worse.

    MODEL             the file that `serve` has; whole at every moment, for it is only ever replaced by a rename
    MODEL.candidate   the new model while it is judged; it stays where it is if it was refused
    MODEL.previous    the model before the last round that was accepted: `roll_back` puts it back
    MODEL.lock        held while a round is under way; the system lets it go when the process ends, however it ends

The visits that a round is judged on are chosen by their ids (SHA-256), so that they are the same in every round and no
round learns from them. Steps are told in order: learning, saved, compared, kept, put. Stopped at any of them MODEL is
the old file or the new one.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from whatelse.cohort import Cohort
from whatelse.errors import CohortError, ModelFileError, WhatelseError
from whatelse.files import sync, write_whole
from whatelse.learning.learners import Progress
from whatelse.tagger import Tagger
from whatelse.teaching.compare import Comparison, Verdict, compare_models
from whatelse.teaching.label_set import LabelSet

SHARE = 0.25
ACCEPTED: dict[str, tuple[Verdict, ...]] = {"better": ("better",), "not-worse": ("better", "not worse")}
Told = Callable[[str], None]


@dataclass(frozen=True)
class Round:
    """What came of a round. `put`: the new model serves from now on. `fair`: the old one had not seen the visits."""

    comparison: Comparison
    put: bool
    fair: bool
    learned_from: int
    candidate: Path


def held_out(cohort: Cohort, share: float) -> NDArray[np.bool_]:
    """(N,) the visits to judge by: a share of all, by their ids alone."""
    limit = int(share * 2**64)
    return np.array([_number(str(visit)) < limit for visit in cohort.ids], bool)


def _number(visit: str) -> int:
    return int.from_bytes(hashlib.sha256(visit.encode("utf-8", "surrogatepass")).digest()[:8], "big")


def refit(
    model: Path,
    cohort: Cohort,
    lesson: LabelSet,
    *,
    judges: LabelSet | None = None,
    share: float = SHARE,
    require: str = "not-worse",
    told: Told = lambda step: None,
    progress: Progress | None = None,
) -> Round:
    """Learn anew from the cohort and a lesson, as the model at `model` was learned, and put the new model there.

    judges   labels to judge by, of the visits held out; the lesson's own if None
    share    of the visits that is held out
    require  what the comparison must say: "better" or "not-worse"
    """
    with locked(model):
        old = Tagger.load(model)
        old.vocabulary_.check_same(cohort.vocabulary)
        out = held_out(cohort, share)
        judged = (lesson if judges is None else judges).only(out)
        if not judged.visits:
            raise CohortError(
                f"none of the {share:.0%} of visits that are held out is labelled, so a new model cannot be judged: "
                "label some of them ('whatelse anchors label-next'), or hold out more with --hold-out"
            )
        rest = lesson.only(~out)
        told("learning")
        new = Tagger(old.learner, settings=old.settings, tolerance=old.tolerance, seed=old.seed)
        new.fit(rest.on(cohort), weights=rest.weight, belief=rest.said, progress=progress)
        new.notes_["held_out"] = share
        candidate = beside(model, "candidate")
        new.save(candidate)
        told("saved")
        found = compare_models(old, new, cohort, judged)
        told("compared")
        accepted = found.verdict in ACCEPTED[require]
        if accepted:
            write_whole(beside(model, "previous"), model.read_bytes())
            told("kept")
            os.replace(candidate, model)
            sync(model.absolute().parent)
            told("put")
        fair = old.notes_.get("noise_rates") == "assumed" or old.notes_.get("held_out", 0.0) >= share
        return Round(found, accepted, fair, rest.visits, candidate)


def roll_back(model: Path) -> tuple[str, str]:
    """Put the previous model back; the one that served is kept as MODEL.rolled-back. Returns the digests, old first."""
    previous = beside(model, "previous")
    with locked(model):
        if not previous.is_file():
            raise ModelFileError(f"{previous}: there is no previous model: no round has replaced {model.name} yet")
        back = Tagger.load(previous)  # a file that cannot be used must not serve
        data = model.read_bytes()
        now = Tagger.load(model).digest_
        if now == back.digest_:
            raise ModelFileError(f"{model}: the model before the last round serves already; nothing to go back to")
        write_whole(beside(model, "rolled-back"), data)
        write_whole(model, previous.read_bytes())
        return now, back.digest_


def beside(model: Path, name: str) -> Path:
    """MODEL.name."""
    return model.with_name(f"{model.name}.{name}")


@contextmanager
def locked(model: Path) -> Iterator[None]:
    """One round at a time."""
    if not model.is_file():
        raise ModelFileError(f"{model}: there is no such model; the first one is made with 'whatelse fit'")
    import fcntl  # POSIX only: `refit` is, the rest of this module is not

    with beside(model, "lock").open("w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise WhatelseError(
                f"{model}: another 'whatelse refit' or a workbench is at work on it; wait for it to end"
            ) from None
        yield
