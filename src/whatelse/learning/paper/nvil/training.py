"""One NVIL training run: the visits in minibatches, the parameters, and the step that moves them.

B visits in a minibatch, S samples, m conditions, n findings, H units in the baseline. All gradients are derived by
hand: the recognition model and the baseline are small enough that an automatic one would cost more than it saves.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from scipy.sparse import csr_matrix
from torch import Tensor

from whatelse.learning.paper.nvil.likelihood import cost_table, log_likelihood
from whatelse.learning.paper.nvil.settings import NvilSettings
from whatelse.noisyor.params import NoisyOr


@dataclass(frozen=True)
class Batch:
    """Some visits, in the two forms that a step needs.

    columns (B, P)     the present findings of each visit, padded with n
    x       (B, n + 1) the visit centred, its last entry 1: the input of the recognition model and of the baseline
    anchors (B, m)     0 or 1
    """

    columns: Tensor
    x: Tensor
    anchors: Tensor


@dataclass(frozen=True)
class Visits:
    """All visits: the index arrays of the CSR matrix, column means (n,) and anchor columns (m,)."""

    indptr: Tensor
    indices: Tensor
    centre: Tensor
    anchor_columns: Tensor

    def batch(self, rows: Tensor) -> Batch:
        """The visits in `rows` (B,): O(B n)."""
        n = self.centre.numel()
        first, last = self.indptr[rows], self.indptr[rows + 1]
        width = max(int((last - first).max()), 1)
        at = first[:, None] + torch.arange(width)
        present = at < last[:, None]
        columns = self.indices[at.clamp_(max=max(self.indices.numel() - 1, 0))] if self.indices.numel() else at
        columns = torch.where(present, columns, n)

        x = torch.zeros(rows.numel(), n + 1, dtype=self.centre.dtype)
        x.scatter_(1, columns, 1.0)  # what is padding lands in the last column, which is the constant 1 anyway
        anchors = x[:, self.anchor_columns]
        x[:, :n] -= self.centre
        x[:, n] = 1.0
        return Batch(columns, x, anchors)


def log_bernoulli(y: Tensor, logits: Tensor) -> Tensor:
    """sum_i log Bernoulli(y_i; sigmoid(logits_i)): y (B, S, m), logits (B, m) or (m,), answer (B, S)."""
    constant = torch.nn.functional.softplus(logits).sum(-1)
    return (y @ logits.unsqueeze(-1)).squeeze(-1) - (constant if logits.dim() == 1 else constant[:, None])


def censored_logits(batch: Batch, logits: Tensor, phi: Tensor, phi_extra: Tensor, anchor_columns: Tensor) -> Tensor:
    """phi . x~ + phi_0' (B, m): the recognition model blind to all anchors, from its logits with them."""
    return logits - batch.x[:, anchor_columns] @ phi[:, anchor_columns].T + phi_extra


def recognition_gradient(
    batch: Batch, pull: Tensor, supervised_pull: Tensor, anchor_columns: Tensor
) -> tuple[Tensor, Tensor]:
    """The gradients for phi (m, n + 1) and phi_0' (m,), summed over visits.

    pull (B, m) is the gradient of the bound with respect to the logits, supervised_pull (B, m) that of
    lambda R, which reaches every weight but those of the anchors.
    """
    phi = (pull + supervised_pull).T @ batch.x
    phi[:, anchor_columns] -= supervised_pull.T @ batch.x[:, anchor_columns]
    return phi, supervised_pull.sum(0)


class Training:
    """Parameters, RMSprop's squared gradients and the running moments of the signal, and the step that moves them."""

    def __init__(
        self,
        X: csr_matrix,
        start: NoisyOr,
        anchor_columns: NDArray[np.int64],
        settings: NvilSettings,
        seed: int,
        dtype: torch.dtype = torch.float32,
    ) -> None:
        m, n = start.m, start.n
        self.settings, self.seed, self.start = settings, seed, start

        def put(array: ArrayLike, kind: torch.dtype = dtype) -> Tensor:
            return torch.from_numpy(np.array(array, order="C")).to(kind)

        centre = np.bincount(X.indices, minlength=n) / X.shape[0]
        self.visits = Visits(
            put(X.indptr, torch.int64), put(X.indices, torch.int64), put(centre), put(anchor_columns, torch.int64)
        )
        fires = np.vstack([1.0 - start.fail, start.leak]).T  # (n, m + 1): P(this cause turns the finding on)
        free = np.ones(fires.shape, bool)
        free[anchor_columns] = False
        self.free = put(free, torch.bool)
        self.fixed = put(-np.log1p(-np.minimum(fires, 1.0 - 1e-12)))
        self.prior_logits = put(np.log(start.prior) - np.log1p(-start.prior))

        inside = np.clip(fires, settings.margin, 1.0 - settings.margin)
        random = self._generator(epoch=0)

        def uniform(width: float, *shape: int) -> Tensor:
            return ((torch.rand(*shape, generator=random, dtype=dtype) * 2 - 1) * width).to(dtype)

        self.parameters = {
            "u": put(np.log(inside) - np.log1p(-inside)),
            "phi": uniform(settings.phi_range, m, n + 1),
            "phi_extra": uniform(settings.phi_range, m),
            "hidden": uniform((n + 1) ** -0.5, n + 1, settings.hidden),
            "out": uniform(settings.hidden**-0.5, settings.hidden),
        }
        self.squares = {name: torch.zeros_like(value) for name, value in self.parameters.items()}
        self.moments = torch.zeros(2, dtype=dtype)  # mean and variance of the signal

    def _generator(self, epoch: int) -> torch.Generator:
        """The random numbers of one epoch depend on nothing but the seed and its number."""
        word = np.random.SeedSequence([self.seed, epoch]).generate_state(1, np.uint64)[0]
        return torch.Generator().manual_seed(int(word))

    def run_epoch(self, epoch: int) -> tuple[float, float]:
        """One pass over the visits in random order; the means per visit of bound and supervised term."""
        random = self._generator(epoch)
        count = self.visits.indptr.numel() - 1
        order = torch.randperm(count, generator=random)
        totals = torch.zeros(2, dtype=torch.float64)
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
        self, batch: Batch, random: torch.Generator, smoothing: float, *, theta: bool
    ) -> tuple[dict[str, Tensor], Tensor]:
        """Estimated gradients per visit by parameter name, and the sums of bound and supervised term (2,).

        Updates the running moments of the signal on the way: they are taken before they are used, as in NVIL.
        """
        settings, now, anchors = self.settings, self.parameters, self.visits.anchor_columns
        count, samples = batch.x.shape[0], settings.samples

        logits = batch.x @ now["phi"].T
        q = torch.sigmoid(logits)
        size = (count, samples, q.shape[1])
        y = (torch.rand(size, generator=random, dtype=q.dtype) < q[:, None]).to(q.dtype)

        table = cost_table(now["u"], self.fixed, self.free)
        share = torch.full(size[:2], 1.0 / (samples * count), dtype=q.dtype)
        log_p, u = log_likelihood(table, batch.columns, y, share, gradient=theta)
        bound = log_p + log_bernoulli(y, self.prior_logits) - log_bernoulli(y, logits)  # (B, S)

        layer = torch.tanh(batch.x @ now["hidden"])
        signal = bound - (layer @ now["out"])[:, None]
        variance, mean = torch.var_mean(signal, correction=0)
        self.moments.mul_(smoothing).add_(torch.stack([mean, variance]), alpha=1 - smoothing)
        signal = (signal - self.moments[0]) / self.moments[1].sqrt().clamp(min=1.0)

        blind = censored_logits(batch, logits, now["phi"], now["phi_extra"], anchors)
        supervised = log_bernoulli(batch.anchors[:, None], blind).sum()
        signal /= samples * count
        error = signal.sum(1)
        pull = torch.bmm(signal[:, None], y).squeeze(1) - error[:, None] * q
        supervised_pull = settings.supervised / count * (batch.anchors - torch.sigmoid(blind))

        ascent = {}
        ascent["phi"], ascent["phi_extra"] = recognition_gradient(batch, pull, supervised_pull, anchors)
        # The baseline follows the signal: this is the gradient of -signal^2 / 2 with the moments held fixed.
        ascent["out"] = error @ layer
        ascent["hidden"] = batch.x.T @ (torch.outer(error, now["out"]) * (1 - layer * layer))
        if u is not None:
            ascent["u"] = u.mul_(self.free)
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
        """The model as it is now, built when called; anchors come back exactly as they were given."""
        start, free = self.start, self.free.numpy()
        u = self.parameters["u"].double().numpy().copy()

        def model() -> NoisyOr:
            fires = 1.0 / (1.0 + np.exp(-u))
            fail = np.where(free[:, :-1], 1.0 - fires[:, :-1], start.fail.T).T
            leak = np.where(free[:, -1], fires[:, -1], start.leak)
            return dataclasses.replace(start, fail=fail, leak=leak)

        return model

    def state(self) -> dict[str, NDArray[Any]]:
        """Everything that the next epoch depends on, by name."""
        state = {name: value.numpy() for name, value in self.parameters.items()}
        state |= {f"square.{name}": value.numpy() for name, value in self.squares.items()}
        return state | {"moments": self.moments.numpy()}

    def load(self, state: dict[str, NDArray[Any]]) -> None:
        """Take up where `state` was taken."""
        for name, value in self.parameters.items():
            value.copy_(torch.from_numpy(state[name]))
            self.squares[name].copy_(torch.from_numpy(state[f"square.{name}"]))
        self.moments.copy_(torch.from_numpy(state["moments"]))
