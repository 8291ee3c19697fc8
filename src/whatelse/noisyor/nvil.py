"""NVIL: the paper's learner. Stochastic ascent of a variational bound plus a term that predicts the anchors.

    sum_p  E_{y ~ q(y | x)} [log P(x, y; theta) - log q(y | x; phi)]                         the bound
           + lambda sum_i [a_i log s_i + (1 - a_i) log(1 - s_i)],  s = sigmoid(phi . x~ + phi_0')   the supervised term

q is m logistic regressions on the centred visit; x~ is that input with the anchors set to 0 (section "Semi-supervised
objective" and the appendices "Parameter settings" and "Semi-supervised objective details"). The gradient of phi is
the score function, (log P - log q - baseline) grad log q, with the variance reductions of Mnih and Gregor (2014):
an input-dependent baseline, centring by a running mean and division by a running standard deviation where that is
above 1. q is thrown away at the end: what is learned is the noisy-or.

This is the only part of the package that needs PyTorch (the extra `nvil`).
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import math
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from scipy.sparse import csr_matrix
from torch import Tensor

from whatelse.errors import ModelError
from whatelse.noisyor import _nvil_gradients as g
from whatelse.noisyor._nvil_checkpoint import read_checkpoint, write_checkpoint
from whatelse.noisyor.params import NoisyOr

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
    supervised      lambda (no value given)
    l2              weight decay on phi without its biases, per visit: the penalty is l2/2 |phi|^2 (see L2_CHOICES)
    phi_range       phi starts uniform in [-phi_range, phi_range]
    hidden          tanh units of the baseline
    minibatch       visits in a step (not given)
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
    supervised: float = 1.0
    l2: float = 0.0
    phi_range: float = 0.1
    hidden: int = 100
    minibatch: int = 100
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


@dataclass(frozen=True)
class EpochRecord:
    """One epoch. Bound and supervised term (without lambda) are means per visit over the epoch's own samples.

    `notes` is for the caller: what `on_epoch` puts there (a held-out accuracy, say) is kept with the history and
    in the checkpoint. Values must be numbers.
    """

    epoch: int
    bound: float
    supervised: float
    seconds: float
    notes: dict[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class EpochEnd(EpochRecord):
    """What `on_epoch` is given: the record, and the model as it stands at the end of this epoch."""

    model: Callable[[], NoisyOr] = field(kw_only=True, repr=False, compare=False)


@dataclass(frozen=True, eq=False)
class NvilResult:
    """The learned model and the course of learning.

    phi (m, n + 1), its last column the bias; phi_extra (m,) is phi_0'; centre (n,) the column means that the
    recognition model takes off its input. `stopped` says that on_epoch ended training before `epochs`.
    """

    model: NoisyOr
    history: list[EpochRecord]
    phi: NDArray[np.float64]
    phi_extra: NDArray[np.float64]
    centre: NDArray[np.float64]
    stopped: bool


def fit_nvil(
    X: csr_matrix,
    start: NoisyOr,
    anchor_columns: ArrayLike,
    settings: NvilSettings | None = None,
    seed: int = 0,
    *,
    device: str = "cpu",
    on_epoch: Callable[[EpochEnd], bool | None] | None = None,
    checkpoint: Path | None = None,
) -> NvilResult:
    """Learn from X (N, n) of 0/1, beginning at `start`.

    Priors, the entries of `start.frozen` and all parameters of the anchor columns stay as they are. An epoch costs
    O(N (n (m + hidden) + S m P)) with P findings present in a visit.

    `on_epoch` is called after each epoch; if it returns True, training ends there. With `checkpoint`, the file is
    rewritten after each call, and a later call with the same arguments goes on from it: the result is bit for bit that
    of an uninterrupted run (on a CPU with the same number of threads). An epoch cut short is run again, so `on_epoch`
    may see an epoch twice but never misses one.
    """
    settings = settings or NvilSettings()
    columns = _check(X, start, anchor_columns)
    training = _Training(X, start, columns, settings, seed, torch.device(device))
    history: list[EpochRecord] = []
    stopped = False
    fingerprint = _fingerprint(X, start, columns, settings, seed)
    if checkpoint is not None and checkpoint.exists():
        state, book = read_checkpoint(checkpoint, fingerprint)
        training.load(state)
        history = [EpochRecord(**entry) for entry in book["history"]]

    for epoch in range(len(history) + 1, settings.epochs + 1):
        began = time.perf_counter()
        bound, supervised = training.run_epoch(epoch)
        record = EpochRecord(epoch, bound, supervised, time.perf_counter() - began)
        history.append(record)
        if on_epoch is not None:
            stopped = on_epoch(EpochEnd(**vars(record), model=training.snapshot())) is True
        if checkpoint is not None:
            write_checkpoint(checkpoint, fingerprint, training.state(), {"history": [vars(r) for r in history]})
        if stopped:
            break

    phi = training.parameters["phi"].cpu().double().numpy()
    phi_extra = training.parameters["phi_extra"].cpu().double().numpy()
    centre = training.visits.centre.cpu().double().numpy()
    return NvilResult(training.snapshot()(), history, phi, phi_extra, centre, stopped)


class _Training:
    """Parameters, RMSprop's squared gradients and the running moments of the signal, and the step that moves them."""

    def __init__(
        self,
        X: csr_matrix,
        start: NoisyOr,
        anchor_columns: NDArray[np.int64],
        settings: NvilSettings,
        seed: int,
        device: torch.device,
        dtype: torch.dtype = torch.float32,
    ) -> None:
        m, n = start.m, start.n
        self.settings, self.seed, self.device, self.start = settings, seed, device, start

        def put(array: ArrayLike, kind: torch.dtype = dtype) -> Tensor:
            return torch.from_numpy(np.array(array, order="C")).to(device, kind)

        centre = np.bincount(X.indices, minlength=n) / X.shape[0]
        self.visits = g.Visits(
            put(X.indptr, torch.int64), put(X.indices, torch.int64), put(centre), put(anchor_columns, torch.int64)
        )
        fires = np.vstack([1.0 - start.fail, start.leak]).T  # (n, m + 1): P(this cause turns the finding on)
        free = ~start.frozen.T
        free[anchor_columns] = False
        self.free = put(free, torch.bool)
        self.fixed = put(-np.log1p(-np.minimum(fires, 1.0 - 1e-12)))
        self.prior_logits = put(np.log(start.prior) - np.log1p(-start.prior))

        inside = np.clip(fires, settings.margin, 1.0 - settings.margin)
        random = self._generator(epoch=0)

        def uniform(width: float, *shape: int) -> Tensor:
            return ((torch.rand(*shape, generator=random, dtype=dtype, device=device) * 2 - 1) * width).to(dtype)

        self.parameters = {
            "u": put(np.log(inside) - np.log1p(-inside)),
            "phi": uniform(settings.phi_range, m, n + 1),
            "phi_extra": uniform(settings.phi_range, m),
            "hidden": uniform((n + 1) ** -0.5, n + 1, settings.hidden),
            "out": uniform(settings.hidden**-0.5, settings.hidden),
        }
        self.squares = {name: torch.zeros_like(value) for name, value in self.parameters.items()}
        self.moments = torch.zeros(2, dtype=dtype, device=device)  # mean and variance of the signal

    def _generator(self, epoch: int) -> torch.Generator:
        """The random numbers of one epoch depend on nothing but the seed and its number."""
        word = np.random.SeedSequence([self.seed, epoch]).generate_state(1, np.uint64)[0]
        return torch.Generator(device=self.device).manual_seed(int(word))

    def run_epoch(self, epoch: int) -> tuple[float, float]:
        """One pass over the visits in random order; the means per visit of bound and supervised term."""
        random = self._generator(epoch)
        count = self.visits.indptr.numel() - 1
        order = torch.randperm(count, generator=random, device=self.device)
        totals = torch.zeros(2, dtype=torch.float64, device=self.device)
        for first in range(0, count, self.settings.minibatch):
            rows = order[first : first + self.settings.minibatch]
            smoothing = 0.0 if epoch == 1 and first == 0 else self.settings.smoothing
            theta = epoch > self.settings.burn_in
            ascent, sums = self.gradients(self.visits.batch(rows), random, smoothing, theta=theta)
            self.move(ascent)
            totals += sums
        bound, supervised = (totals / count).tolist()
        return bound, supervised

    def gradients(
        self, batch: g.Batch, random: torch.Generator, smoothing: float, *, theta: bool
    ) -> tuple[dict[str, Tensor], Tensor]:
        """Estimated gradients per visit by parameter name, and the sums of bound and supervised term (2,).

        Updates the running moments of the signal on the way: they are taken before they are used, as in NVIL.
        """
        settings, now, anchors = self.settings, self.parameters, self.visits.anchor_columns
        count, samples = batch.x.shape[0], settings.samples

        logits = batch.x @ now["phi"].T
        q = torch.sigmoid(logits)
        y = torch.ones(count, samples, q.shape[1] + 1, dtype=q.dtype, device=q.device)
        on = y[:, :, :-1]
        on.copy_(torch.rand(on.shape, generator=random, dtype=q.dtype, device=q.device) < q[:, None])

        table = g.cost_table(now["u"], self.fixed, self.free)
        log_p, inverse = g.log_likelihood(table, batch.columns, y)
        bound = log_p + g.log_bernoulli(on, self.prior_logits) - g.log_bernoulli(on, logits)  # (B, S)

        layer = torch.tanh(batch.x @ now["hidden"])
        signal = bound - (layer @ now["out"])[:, None]
        variance, mean = torch.var_mean(signal, correction=0)
        self.moments.mul_(smoothing).add_(torch.stack([mean, variance]), alpha=1 - smoothing)
        signal = (signal - self.moments[0]) / self.moments[1].sqrt().clamp(min=1.0)

        blind = g.censored_logits(batch, logits, now["phi"], now["phi_extra"], anchors)
        supervised = g.log_bernoulli(batch.anchors[:, None], blind).sum()
        pull = torch.bmm(signal[:, None] / samples, on).squeeze(1) - signal.mean(1, keepdim=True) * q
        supervised_pull = settings.supervised * (batch.anchors - torch.sigmoid(blind))

        ascent = {}
        ascent["phi"], ascent["phi_extra"] = g.recognition_gradient(batch, pull, supervised_pull, anchors)
        # The baseline follows the signal: this is the gradient of -signal^2 / 2 with the moments held fixed.
        error = signal.mean(1)
        ascent["out"] = error @ layer
        ascent["hidden"] = batch.x.T @ (torch.outer(error, now["out"]) * (1 - layer * layer))
        if theta:
            weight = torch.full_like(bound, 1.0 / samples)
            ascent["u"] = g.likelihood_gradient(table, batch.columns, y, inverse, weight, self.free)
        for gradient in ascent.values():
            gradient /= count
        if settings.l2:
            ascent["phi"][:, :-1] -= settings.l2 * now["phi"][:, :-1]
        return ascent, torch.stack([bound.sum() / samples, supervised])

    def move(self, ascent: dict[str, Tensor]) -> None:
        """One step of RMSprop, uphill: s <- d s + (1 - d) g^2, p <- p + rate g / (sqrt(s) + 1e-8)."""
        settings = self.settings
        for name, gradient in ascent.items():
            rate = settings.learning_rate * (settings.theta_rate if name == "u" else 1.0)
            square = self.squares[name].mul_(settings.rms_decay)
            square.addcmul_(gradient, gradient, value=1 - settings.rms_decay)
            self.parameters[name].addcdiv_(gradient, square.sqrt().add_(1e-8), value=rate)

    def snapshot(self) -> Callable[[], NoisyOr]:
        """The model as it is now, built when called; what is frozen comes back exactly as it was given."""
        start, free = self.start, self.free.cpu().numpy()
        u = self.parameters["u"].cpu().double().numpy().copy()

        def model() -> NoisyOr:
            fires = 1.0 / (1.0 + np.exp(-u))
            fail = np.where(free[:, :-1], 1.0 - fires[:, :-1], start.fail.T).T
            leak = np.where(free[:, -1], fires[:, -1], start.leak)
            return dataclasses.replace(start, fail=fail, leak=leak)

        return model

    def state(self) -> dict[str, NDArray[Any]]:
        """Everything that the next epoch depends on, by name."""
        state = {name: value.cpu().numpy() for name, value in self.parameters.items()}
        state |= {f"square.{name}": value.cpu().numpy() for name, value in self.squares.items()}
        return state | {"moments": self.moments.cpu().numpy()}

    def load(self, state: dict[str, NDArray[Any]]) -> None:
        """Take up where `state` was taken."""
        for name, value in self.parameters.items():
            value.copy_(torch.from_numpy(state[name]))
            self.squares[name].copy_(torch.from_numpy(state[f"square.{name}"]))
        self.moments.copy_(torch.from_numpy(state["moments"]))


def _check(X: csr_matrix, start: NoisyOr, anchor_columns: ArrayLike) -> NDArray[np.int64]:
    """The anchor columns as an array, or ModelError with what does not fit."""
    columns = np.asarray(anchor_columns, np.int64)
    if X.format != "csr" or not X.has_canonical_format or X.nnz != np.count_nonzero(X.data == 1):
        raise ModelError("X must be a CSR matrix of ones in canonical form (no stored zeros, no duplicates)")
    if X.shape[0] == 0 or X.shape[1] != start.n:
        raise ModelError(f"X has shape {X.shape}, needs at least one visit and the model's {start.n} findings")
    if columns.shape != (start.m,) or len(set(columns.tolist())) != start.m:
        raise ModelError(f"anchor_columns must name one column for each of the {start.m} conditions, all different")
    if columns.min() < 0 or columns.max() >= start.n:
        raise ModelError(f"anchor_columns must be in [0, {start.n}), found {columns.min()} to {columns.max()}")
    if start.coupling.any() or (start.weight != 1).any():
        raise ModelError("NVIL learns the plain noisy-or: start from a model without coupling and weights")
    return columns


def _fingerprint(
    X: csr_matrix, start: NoisyOr, anchor_columns: NDArray[np.int64], settings: NvilSettings, seed: int
) -> str:
    """A hash of all that decides the course of learning (the number of epochs only decides where it ends)."""
    options = dataclasses.asdict(settings) | {"epochs": None, "seed": seed, "shape": [*X.shape]}
    digest = hashlib.sha256(json.dumps(options, sort_keys=True).encode())
    for array in (X.indptr, X.indices, anchor_columns):
        digest.update(np.asarray(array, np.int64).tobytes())
    for array in (start.prior, start.fail, start.leak, start.frozen):
        digest.update(np.ascontiguousarray(array).tobytes())
    return digest.hexdigest()
