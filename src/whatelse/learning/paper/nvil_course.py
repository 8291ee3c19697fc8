"""Runs of NVIL side by side: one course for each weight decay, the model chosen by held-out anchors.

The paper's model selection: visits that learning does not see have one positive anchor hidden, and the epoch and the
weight decay under which the noisy-or finds it again most often (mean reciprocal rank) win. No label takes part. The
start is a candidate too: learning that only makes things worse is not used. PyTorch is needed only while a course runs.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import ArrayLike, NDArray

from whatelse.errors import ModelError
from whatelse.noisyor.heldout_metrics import heldout_anchor_draws, heldout_anchor_scores
from whatelse.noisyor.params import NoisyOr
from whatelse.types import Bools

HELD_OUT = 1000
L2_CHOICES = (0.0, 0.1, 0.01, 0.001)
"""The weight decays among which the paper selects by held-out anchors."""


@dataclass(frozen=True)
class NvilSettings:
    """The defaults are the paper's; where the paper gives none, that is said.

    epochs          passes over the visits, burn-in included (the paper stops by held-out anchors: any upper limit)
    burn_in         epochs at the start in which theta is held fixed
    samples         draws of the conditions for each visit and step
    learning_rate   of phi and of the baseline
    theta_rate      the learning rate of theta as a share of that
    supervised      lambda (no value given; with 1 tags drift away after some hundred epochs, docs/results.md)
    l2              weight decay on phi without its biases, per visit: the penalty is l2/2 |phi|^2 (see L2_CHOICES)
    phi_range       phi starts uniform in [-phi_range, phi_range]
    hidden          tanh units of the baseline
    minibatch       visits in a step (not given). RMSprop moves a parameter by about the learning rate a step, and the
                    biases of q must travel from 0 to the log odds of the priors, about -2.5, during burn-in: with
                    11,000 visits, 50 epochs and a rate of 1e-4 that takes minibatches of about 20. Five times both
                    minibatch and learning rate moves as far in an epoch at under half the cost
    smoothing       of the running mean and variance of the signal (not given)
    rms_decay       of RMSprop's squared gradients (not given: the default of Torch's RMSprop)
    margin          failures and leaks that are learned start within [margin, 1 - margin]: the sigmoid reaches
                    neither 0 nor 1 (not given)
    """

    epochs: int = 200
    burn_in: int = 50
    samples: int = 10
    learning_rate: float = 1e-4
    theta_rate: float = 0.2
    supervised: float = 10.0
    l2: float = 0.0
    phi_range: float = 0.1
    hidden: int = 100
    minibatch: int = 20
    smoothing: float = 0.8
    rms_decay: float = 0.99
    margin: float = 1e-4

    def __post_init__(self) -> None:
        for name in ("epochs", "burn_in", "learning_rate", "theta_rate", "supervised", "l2", "phi_range"):
            if not 0 <= getattr(self, name) < math.inf:
                raise ModelError(f"{name} is {getattr(self, name)}, must be finite and not negative")
        for name in ("samples", "hidden", "minibatch"):
            if getattr(self, name) < 1:
                raise ModelError(f"{name} is {getattr(self, name)}, must be at least 1")
        for name in ("smoothing", "rms_decay"):
            if not 0 <= getattr(self, name) < 1:
                raise ModelError(f"{name} is {getattr(self, name)}, must be at least 0 and below 1")
        if not 0 < self.margin < 0.5:
            raise ModelError(f"margin is {self.margin}, must be between 0 and 0.5")


def hold_out(visits: int, seed: int, most: int = HELD_OUT) -> Bools:
    """(N,) the visits kept apart for selection: `most` at random, but never more than a tenth."""
    mask = np.zeros(visits, bool)
    mask[np.random.default_rng(seed).permutation(visits)[: min(most, visits // 10)]] = True
    return mask


@dataclass(frozen=True, eq=False)
class HeldoutAnchors:
    """The score by which models are chosen, on visits X (V, n). The same anchors are hidden from every model."""

    X: sp.csr_matrix
    anchor_columns: NDArray[np.int64]
    seed: int = 0

    def __call__(self, model: NoisyOr) -> float:
        """The mean reciprocal rank of the hidden anchors."""
        A = self.X[:, self.anchor_columns].toarray().astype(bool)
        draws = heldout_anchor_draws(A, seed=self.seed, draws=3, visits=None)
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
    watch: Callable[[NoisyOr], dict[str, float]] = lambda model: {},
    checkpoint: Path | None = None,
    told: Callable[[str, int, int], None] = lambda what, done, total: None,
) -> Course:
    """Learn from X (N, n), looking at the model at the start and at every `every`-th epoch after burn-in.

    In the folder `checkpoint` each course keeps where it is and its best model so far: started again with the same
    arguments it goes on where it was stopped. A look costs one posterior for each hidden anchor.
    """
    try:
        from whatelse.learning.paper.nvil import Epoch, fit_nvil
    except ImportError:
        raise ModelError("NVIL needs PyTorch, which is not installed: pip install 'whatelse[nvil]'") from None

    name = f"l2 {settings.l2:g}" + ("" if settings.supervised else ", lambda 0")
    if checkpoint is not None:
        checkpoint.mkdir(parents=True, exist_ok=True)
        origin = f"{int(np.abs(start.fail).sum() * 1e6) % 16**8:08x}"  # courses from other starts have other names
        checkpoint /= f"seed{seed}-l2_{settings.l2:g}-lambda_{settings.supervised:g}-{origin}.course"

    def look(epoch: Epoch, model: Callable[[], NoisyOr]) -> None:
        told(f"NVIL, {name}", epoch.epoch, settings.epochs)
        if epoch.epoch > settings.burn_in and (epoch.epoch % every == 0 or epoch.epoch == settings.epochs):
            now = model()
            epoch.notes.update(watch(now), score=check(now))

    first = {**watch(start), "score": check(start)}
    found = fit_nvil(X, start, anchor_columns, settings, seed, on_epoch=look, checkpoint=checkpoint)
    looks = [(0, first), *((r.epoch, dict(r.notes)) for r in found.history if "score" in r.notes)]
    scores = tuple(notes.pop("score") for _, notes in looks)
    better = found.best is not None and found.best[0].notes["score"] > scores[0]
    best, model = (found.best[0].epoch, found.best[1]) if better and found.best is not None else (0, start)
    bound = tuple(r.bound for r in found.history)
    epochs, watched = zip(*looks, strict=True)
    return Course(settings, bound, epochs, scores, watched, best, model)
