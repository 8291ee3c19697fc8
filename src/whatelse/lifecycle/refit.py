"""Refit: learn a new model from all labels so far; it serves only if it is not worse than the old one.

    MODEL             the file that `serve` reads; only ever replaced by a rename, so it is whole at every moment
    MODEL.candidate   the new model while it is compared; it stays if it was not accepted
    MODEL.previous    the model before the last accepted refit: `roll_back` puts it back
    MODEL.lock        held during a refit; the system releases it when the process ends

The command and the workbench use the same hold-out: visits are chosen by their ids (SHA-256), so they are the same in
every refit, and no refit learns from them. Steps are reported in order: learning, saved, compared, kept, put. Stopped
at any step, MODEL is the old file or the new one.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from whatelse.annotators.label_set import LabelSet
from whatelse.cohort import Cohort
from whatelse.errors import CohortError, InputError, ModelFileError, WhatelseError
from whatelse.io.files import sync, write_whole
from whatelse.learning.learners import Progress
from whatelse.lifecycle.compare import Comparison, Verdict, compare_models
from whatelse.tagger import Tagger
from whatelse.types import Bools

SHARE = 0.25
KEPT_OUT = "kept_out"  # note of a model: share of visits of which it has seen neither labels nor anchors
ACCEPTED: dict[str, tuple[Verdict, ...]] = {"better": ("better",), "not-worse": ("better", "not worse")}
Told = Callable[[str], None]


@dataclass(frozen=True)
class RefitResult:
    """Result of a refit.

    put           whether the new model serves from now on
    fair          whether the old model had not seen the labels of the held-out visits
    learned_from  labelled visits that were learned from
    """

    comparison: Comparison
    put: bool
    fair: bool
    learned_from: int
    candidate: Path


def held_out(cohort: Cohort, share: float) -> Bools:
    """(N,) bool: the visits to compare on, a share of all, chosen by a hash of their ids."""
    hashes = (hashlib.sha256(str(visit).encode("utf-8", "surrogatepass")).digest() for visit in cohort.ids)
    return np.array([int.from_bytes(digest[:8], "big") < int(share * 2**64) for digest in hashes], bool)


def fit_without(
    template: Tagger, cohort: Cohort, lesson: LabelSet, out: Bools, share: float, progress: Progress | None = None
) -> Tagger:
    """A model with the learner and settings of `template`, learned from the visits that are not in `out` (N,)."""
    tagger = Tagger(template.learner, settings=template.settings, tolerance=template.tolerance, seed=template.seed)
    tagger.fit(cohort.rows(~out), votes=lesson.rows(~out), progress=progress)
    tagger.notes_ |= {"held_out": share, KEPT_OUT: share}
    return tagger


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
) -> RefitResult:
    """Learn a new model from the cohort and `lesson`, as the model at `model` was learned; it replaces that model.

    judges   labels of held-out visits to compare on; None: those of `lesson`
    share    share of the visits that is held out
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
        told("learning")
        new = fit_without(old, cohort, lesson, out, share, progress)
        candidate = beside(model, "candidate")
        new.save(candidate)
        told("saved")
        found = compare_models(old, new, cohort, judged)
        told("compared")
        accepted = found.verdict in ACCEPTED[require]
        if accepted:
            _put(model, told)
        fair = old.notes_.get("noise_rates") == "assumed" or old.notes_.get("held_out", 0.0) >= share
        return RefitResult(found, accepted, fair, lesson.only(~out).visits, candidate)


def promote_candidate(model: Path, compared: str | None = None, before: Callable[[], object] = lambda: None) -> str:
    """Put MODEL.candidate in the model's place. Returns the digest of the new model.

    compared  the digest of the candidate that was compared: another one is refused
    before    called just before the model is replaced
    """
    candidate = beside(model, "candidate")
    with locked(model):
        if not candidate.is_file():
            raise InputError("there is no candidate: learn one first", file=candidate)
        digest = Tagger.load(candidate).digest_  # a file that cannot be used must not serve
        if compared is not None and digest != compared:
            raise InputError("the candidate is not the one that was compared: learn again", file=candidate)
        before()
        _put(model)
    return digest


def drop_candidate(model: Path) -> None:
    """Delete MODEL.candidate, if there is one."""
    with locked(model):
        beside(model, "candidate").unlink(missing_ok=True)


def _put(model: Path, told: Told = lambda step: None) -> None:
    """Replace MODEL by MODEL.candidate; the old one is kept as MODEL.previous."""
    write_whole(beside(model, "previous"), model.read_bytes())
    told("kept")
    os.replace(beside(model, "candidate"), model)
    sync(model.absolute().parent)
    told("put")


def roll_back(model: Path) -> tuple[str, str]:
    """Put the previous model back; the current one stays as MODEL.rolled-back. Returns both digests, current first."""
    previous = beside(model, "previous")
    with locked(model):
        if not previous.is_file():
            raise ModelFileError(f"{previous}: there is no previous model: no refit has replaced {model.name} yet")
        back = Tagger.load(previous)  # a file that cannot be used must not serve
        data = model.read_bytes()
        now = Tagger.load(model).digest_
        if now == back.digest_:
            raise ModelFileError(f"{model}: the previous model serves already; nothing to go back to")
        write_whole(beside(model, "rolled-back"), data)
        write_whole(model, previous.read_bytes())
        return now, back.digest_


def beside(model: Path, name: str) -> Path:
    return model.with_name(f"{model.name}.{name}")


@contextmanager
def locked(model: Path) -> Iterator[None]:
    """One refit at a time."""
    if not model.is_file():
        raise ModelFileError(f"{model}: there is no such model; the first one is made with 'whatelse fit'")
    import fcntl  # POSIX only

    with beside(model, "lock").open("w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise WhatelseError(
                f"{model}: another 'whatelse refit' or a workbench is at work on it; wait for it to end"
            ) from None
        yield
