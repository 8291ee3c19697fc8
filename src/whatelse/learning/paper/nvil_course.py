"""Runs of NVIL side by side: one course for each weight decay, the model chosen by held-out anchors.

The paper's model selection: visits that learning does not see have one positive anchor hidden, and the epoch and the
weight decay under which the noisy-or finds it again most often (mean reciprocal rank) win. No label takes part. The
start is a candidate too: learning that only makes things worse is not used.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import ArrayLike, NDArray
from safetensors.numpy import load_file, save

from whatelse.errors import ModelError
from whatelse.io.files import write_whole
from whatelse.learning.paper.nvil.settings import L2_CHOICES, NvilSettings
from whatelse.noisyor.heldout_metrics import heldout_anchor_draws, heldout_anchor_scores
from whatelse.noisyor.params import NoisyOr
from whatelse.types import Bools

__all__ = ["L2_CHOICES", "Course", "HeldoutAnchors", "NvilSettings", "hold_out", "run_course", "run_courses"]

HELD_OUT = 1000
Watch = Callable[[NoisyOr], dict[str, float]]
Told = Callable[[str, int, int], None]


def hold_out(visits: int, seed: int, most: int = HELD_OUT) -> Bools:
    """(N,) the visits kept apart for selection: `most` at random, but never more than a tenth."""
    mask = np.zeros(visits, bool)
    mask[np.random.default_rng(seed).permutation(visits)[: min(most, visits // 10)]] = True
    return mask


@dataclass(frozen=True, eq=False)
class HeldoutAnchors:
    """What models are chosen by: visits X (V, n), in which the same anchors are hidden from every model."""

    X: sp.csr_matrix
    anchor_columns: NDArray[np.int64]
    seed: int = 0
    draws: int = 3

    def __call__(self, model: NoisyOr) -> float:
        """The mean reciprocal rank of the hidden anchors."""
        A = self.X[:, self.anchor_columns].toarray().astype(bool)
        draws = heldout_anchor_draws(A, seed=self.seed, draws=self.draws, visits=None)
        return heldout_anchor_scores(model, self.X, self.anchor_columns, draws, resamples=1).mrr.value


@dataclass(frozen=True, eq=False)
class Course:
    """One run. Epoch 0 is the start.

    bound    (epochs,)  after each epoch, per visit
    checked             the epochs at which the model was looked at, the first of them 0
    anchor              at those: held-out anchors
    watched             at those: what `watch` said, by name, which is for figures only
    best, model         the epoch with the best held-out anchors, and the model as it was then
    """

    settings: NvilSettings
    bound: tuple[float, ...]
    checked: tuple[int, ...]
    anchor: tuple[float, ...]
    watched: tuple[dict[str, float], ...]
    best: int
    model: NoisyOr

    @property
    def score(self) -> float:
        """Held-out anchors at the best epoch."""
        return max(self.anchor)

    def to_json(self) -> dict[str, Any]:
        """What a figure of the course needs, as JSON values: what was watched is null where it is not finite."""
        return {
            "l2": self.settings.l2,
            "supervised": self.settings.supervised,
            "burn_in": self.settings.burn_in,
            "bound": list(self.bound),
            "checked": list(self.checked),
            "heldout_anchor": list(self.anchor),
            "watched": {
                name: [value if np.isfinite(value := look.get(name, np.nan)) else None for look in self.watched]
                for name in sorted({name for look in self.watched for name in look})
            },
            "best_epoch": self.best,
        }


def run_courses(
    X: sp.csr_matrix,
    start: NoisyOr,
    anchor_columns: ArrayLike,
    check: HeldoutAnchors,
    settings: NvilSettings,
    l2: Sequence[float] = L2_CHOICES,
    seed: int = 0,
    **options: Any,
) -> tuple[Course, list[Course]]:
    """The best course and all of them, one for each weight decay. Options are those of `run_course`."""
    if not l2:
        raise ModelError("no weight decay to try: give at least one value, 0 for none")
    courses = [
        run_course(X, start, anchor_columns, check, replace(settings, l2=float(value)), seed, **options)
        for value in dict.fromkeys(l2)
    ]
    return max(courses, key=lambda course: course.score), courses


def run_course(
    X: sp.csr_matrix,
    start: NoisyOr,
    anchor_columns: ArrayLike,
    check: HeldoutAnchors,
    settings: NvilSettings,
    seed: int = 0,
    *,
    every: int = 5,
    watch: Watch | None = None,
    checkpoint: Path | None = None,
    told: Told | None = None,
) -> Course:
    """Learn from X (N, n), looking at the model at the start and at every `every`-th epoch after burn-in.

    In the folder `checkpoint` each course keeps where it is and its best model so far: started again with the same
    arguments it goes on where it was stopped. A look costs one posterior for each hidden anchor.
    """
    try:
        from whatelse.learning.paper.nvil.learner import EpochEnd, fit_nvil
    except ImportError:
        raise ModelError("NVIL needs PyTorch, which is not installed: pip install 'whatelse[nvil]'") from None

    name = f"l2 {settings.l2:g}" + ("" if settings.supervised else ", lambda 0")
    files = _Files.of(checkpoint, settings, seed, start)
    first = {"anchor": check(start)} | (watch(start) if watch else {})
    best = files.best(start) or (first["anchor"], 0, start)

    def look(end: EpochEnd) -> None:
        nonlocal best
        if told is not None:
            told(f"NVIL, {name}", end.epoch, settings.epochs)
        if end.epoch <= settings.burn_in or (end.epoch % every and end.epoch != settings.epochs):
            return
        model = end.model()
        end.notes["anchor"] = check(model)
        if watch is not None:
            end.notes.update(watch(model))
        if end.notes["anchor"] > best[0]:
            best = end.notes["anchor"], end.epoch, model
            files.keep(best)

    result = fit_nvil(X, start, anchor_columns, settings, seed, on_epoch=look, checkpoint=files.course)
    looks = [(0, first), *((r.epoch, r.notes) for r in result.history if "anchor" in r.notes)]
    return Course(
        settings,
        tuple(r.bound for r in result.history),
        tuple(epoch for epoch, _ in looks),
        tuple(notes["anchor"] for _, notes in looks),
        tuple({name: value for name, value in notes.items() if name != "anchor"} for _, notes in looks),
        best[1],
        best[2],
    )


@dataclass(frozen=True)
class _Files:
    """Where a course keeps its checkpoint and its best model; None throughout where nothing is kept."""

    course: Path | None
    chosen: Path | None

    @classmethod
    def of(cls, folder: Path | None, settings: NvilSettings, seed: int, start: NoisyOr) -> _Files:
        if folder is None:
            return cls(None, None)
        folder.mkdir(parents=True, exist_ok=True)
        origin = f"{int(np.abs(start.fail).sum() * 1e6) % 16**8:08x}"  # courses from other starts have other names
        name = f"seed{seed}-l2_{settings.l2:g}-lambda_{settings.supervised:g}-{origin}"
        return cls(folder / f"{name}.course", folder / f"{name}.best")

    def best(self, start: NoisyOr) -> tuple[float, int, NoisyOr] | None:
        """The best model so far, if the course was stopped and goes on."""
        if self.course is None or self.chosen is None or not (self.course.exists() and self.chosen.exists()):
            return None
        kept = load_file(self.chosen)
        model = replace(start, fail=kept["fail"], leak=kept["leak"])
        return float(kept["score"][0]), int(kept["epoch"][0]), model

    def keep(self, best: tuple[float, int, NoisyOr]) -> None:
        """Written before its epoch's checkpoint: cut short in between, that epoch is run again to the same result."""
        if self.chosen is None:
            return
        score, epoch, model = best
        arrays = {"score": np.array([score]), "epoch": np.array([epoch]), "fail": model.fail, "leak": model.leak}
        write_whole(self.chosen, save({name: np.ascontiguousarray(value) for name, value in arrays.items()}))
