"""NVIL: the paper's learner. Stochastic ascent of a variational bound plus a term that predicts the anchors.

    sum_p  E_{y ~ q(y | x)} [log P(x, y; theta) - log q(y | x; phi)]                         the bound
           + lambda sum_i [a_i log s_i + (1 - a_i) log(1 - s_i)],  s = sigmoid(phi . x~ + phi_0')   the supervised term

q is m logistic regressions on the centred visit; x~ is that input with the anchors set to 0 (section "Semi-supervised
objective" and the appendices "Parameter settings" and "Semi-supervised objective details"). The gradient of phi is
the score function, (log P - log q - baseline) grad log q, with the variance reductions of Mnih and Gregor (2014):
an input-dependent baseline, centring by a running mean and division by a running standard deviation where that is
above 1. q is thrown away at the end: what is learned is the noisy-or.

Every finding has m + 1 possible causes: the conditions and the leak, which is always on. With the cost of cause i not
turning on finding j

    w_ij = -log f_ij,   w_mj = -log(1 - l_j),   w = softplus(u),   P(cause i turns on j) = sigmoid(u_ij)
    z_j = sum_i y_i w_ij,   log P(x | y) = -sum_{j absent} z_j + sum_{j present} log(1 - e^-z_j)

B visits in a minibatch, S samples, m conditions, n findings. This is the only module that needs PyTorch (the extra
`nvil`).
"""

from __future__ import annotations

import dataclasses
import hashlib
import io
import json
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from scipy.sparse import csr_matrix
from torch import Tensor
from torch.nn.functional import softplus

from whatelse.errors import ModelError, ModelFileError
from whatelse.io.files import write_whole
from whatelse.learning.paper.nvil_course import NvilSettings
from whatelse.noisyor.params import NoisyOr

SMALLEST_CHANCE = 1e-6
"""A present finding that nothing explains (leak 0, no parent on) would make the bound -inf. It counts as this much
probability instead, far below what a leak that is learned comes to."""


@dataclass(frozen=True)
class Epoch:
    """One epoch. Bound and supervised term (without lambda) are means per visit over the epoch's own samples.

    notes  numbers of the caller's: what `on_epoch` puts there is kept with the history and in the checkpoint
    """

    epoch: int
    bound: float
    supervised: float
    seconds: float
    notes: dict[str, float] = field(default_factory=dict)


@dataclass(frozen=True, eq=False)
class NvilResult:
    """The model after the last epoch, the epoch and model with the largest note "score" (None without one), all epochs.

    phi (m, n + 1), its last column the bias; phi_extra (m,) is phi_0'.
    """

    model: NoisyOr
    best: tuple[Epoch, NoisyOr] | None
    history: list[Epoch]
    phi: NDArray[np.float64]
    phi_extra: NDArray[np.float64]


def fit_nvil(
    X: csr_matrix,
    start: NoisyOr,
    anchor_columns: ArrayLike,
    settings: NvilSettings | None = None,
    seed: int = 0,
    *,
    on_epoch: Callable[[Epoch, Callable[[], NoisyOr]], None] = lambda epoch, model: None,
    checkpoint: Path | None = None,
) -> NvilResult:
    """Learn from X (N, n) of 0/1, beginning at `start`. An epoch costs O(N (n (m + hidden) + S m P)), P
    the findings present in a visit.

    Priors and all parameters of the anchor columns stay as they are. `on_epoch` is called after each epoch, with a
    function that gives the model as it stands. With `checkpoint`, the file is rewritten after each call, and a later
    call with the same arguments goes on from it: the result is bit for bit that of an uninterrupted run. An epoch cut
    short is run again, so `on_epoch` may see an epoch twice but never misses one.
    """
    settings = settings or NvilSettings()
    columns = _check(X, start, anchor_columns)
    training = Training(X, start, columns, settings, seed)
    fingerprint = _fingerprint(X, start, columns, settings, seed)
    kept: dict[str, Any] = {"history": [], "best": None}
    if checkpoint is not None and checkpoint.exists():
        kept = _read(checkpoint, fingerprint)
        training.load(kept["training"])
    for number in range(len(kept["history"]) + 1, settings.epochs + 1):
        began = time.perf_counter()
        with _one_thread():
            bound, supervised = training.run_epoch(number)
        epoch = Epoch(number, bound, supervised, time.perf_counter() - began)
        on_epoch(epoch, training.model)
        kept["history"].append(vars(epoch))
        if kept["best"] is None or epoch.notes.get("score", -np.inf) > kept["best"][0]:
            u = training.parameters["u"].detach().clone()
            kept["best"] = (epoch.notes["score"], number, u) if "score" in epoch.notes else None
        if checkpoint is not None:
            stream = io.BytesIO()
            torch.save(kept | {"fingerprint": fingerprint, "training": training.state()}, stream)
            write_whole(checkpoint, stream.getvalue())
    history = [Epoch(**entry) for entry in kept["history"]]
    best = None if kept["best"] is None else (history[kept["best"][1] - 1], training.model(kept["best"][2]))
    phi, phi_extra = (training.parameters[name].detach().double().numpy() for name in ("phi", "phi_extra"))
    return NvilResult(training.model(), best, history, phi, phi_extra)


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
        self.X, self.start, self.settings, self.seed, self.dtype = X, start, settings, seed, dtype
        self.anchors = torch.from_numpy(anchor_columns)
        self.centre = torch.as_tensor(np.bincount(X.indices, minlength=n) / X.shape[0], dtype=dtype)
        self.prior_logits = torch.logit(torch.tensor(start.prior)).to(dtype)
        fires = np.vstack([1.0 - start.fail, start.leak])  # (m + 1, n): P(this cause turns the finding on)
        self.free = torch.ones(fires.shape, dtype=torch.bool)
        self.free[:, self.anchors] = False
        self.fixed = torch.as_tensor(-np.log1p(-np.minimum(fires, 1.0 - 1e-12)), dtype=dtype)
        inside = torch.as_tensor(np.clip(fires, settings.margin, 1.0 - settings.margin))
        random = self._generator(epoch=0)

        def uniform(width: float, *shape: int) -> Tensor:
            return (torch.rand(*shape, generator=random, dtype=dtype) * 2 - 1) * width

        self.parameters = {
            "u": torch.logit(inside).to(dtype),
            "phi": uniform(settings.phi_range, m, n + 1),
            "phi_extra": uniform(settings.phi_range, m),
            "hidden": uniform((n + 1) ** -0.5, n + 1, settings.hidden),
            "out": uniform(settings.hidden**-0.5, settings.hidden),
        }
        rates = [settings.learning_rate * (settings.theta_rate if name == "u" else 1.0) for name in self.parameters]
        groups = [
            {"params": [value.requires_grad_()], "lr": rate}
            for value, rate in zip(self.parameters.values(), rates, strict=True)
        ]
        self.optimizer = torch.optim.RMSprop(groups, alpha=settings.rms_decay)
        self.moments = torch.zeros(2, dtype=dtype)  # mean and variance of the signal

    def _generator(self, epoch: int) -> torch.Generator:
        """The random numbers of one epoch depend on nothing but the seed and its number."""
        word = np.random.SeedSequence([self.seed, epoch]).generate_state(1, np.uint64)[0]
        return torch.Generator().manual_seed(int(word))

    def visits(self, rows: Tensor) -> Tensor:
        """(B, n) of 0/1."""
        return torch.as_tensor(self.X[rows.numpy()].toarray(), dtype=self.dtype)

    def run_epoch(self, epoch: int) -> tuple[float, float]:
        """One pass over the visits in random order; the means per visit of bound and supervised term."""
        random = self._generator(epoch)
        count, totals = self.X.shape[0], torch.zeros(2, dtype=torch.float64)
        self.parameters["u"].requires_grad_(epoch > self.settings.burn_in)
        for step, rows in enumerate(torch.randperm(count, generator=random).split(self.settings.minibatch)):
            smoothing = 0.0 if epoch == 1 and step == 0 else self.settings.smoothing
            objective, sums = self.objective(self.visits(rows), random, smoothing)
            self.optimizer.zero_grad()
            (-objective).backward()
            self.optimizer.step()
            totals += sums
        bound, supervised = (totals / count).tolist()
        return bound, supervised

    def objective(self, x: Tensor, random: torch.Generator, smoothing: float) -> tuple[Tensor, Tensor]:
        """A number whose gradient is the estimate per visit, and the sums of bound and supervised term (2,).

        Updates the running moments of the signal on the way: they are taken before they are used, as in NVIL.
        """
        settings, now = self.settings, self.parameters
        seen = torch.cat([x - self.centre, torch.ones_like(x[:, :1])], 1)  # (B, n + 1): the input of q and baseline
        logits = seen @ now["phi"].T
        shape = (len(x), settings.samples, self.start.m)
        drawn = torch.rand(shape, generator=random, dtype=self.dtype)
        y = (drawn < torch.sigmoid(logits.detach())[:, None]).to(self.dtype)
        log_p, log_q = self.log_likelihood(x, y), log_bernoulli(y, logits)
        bound = (log_p + log_bernoulli(y, self.prior_logits) - log_q).detach()  # (B, S)
        baseline = torch.tanh(seen @ now["hidden"]) @ now["out"]
        signal = bound - baseline.detach()[:, None]
        variance, mean = torch.var_mean(signal, correction=0)
        self.moments.mul_(smoothing).add_(torch.stack([mean, variance]), alpha=1 - smoothing)
        signal = (signal - self.moments[0]) / self.moments[1].sqrt().clamp(min=1.0)
        supervised = log_bernoulli(x[:, None, self.anchors], self.blind_logits(seen)).sum()
        # The baseline follows the signal: its part has the gradient of -signal^2 / 2 with the moments held fixed.
        total = (log_p + signal * (log_q + baseline[:, None])).mean() + settings.supervised * supervised / len(x)
        decay = 0.5 * settings.l2 * now["phi"][:, :-1].square().sum()
        return total - decay, torch.stack([bound.sum() / settings.samples, supervised.detach()])

    def log_likelihood(self, x: Tensor, y: Tensor) -> Tensor:
        """log P(x | y) (B, S) of visits x (B, n) and samples y (B, S, m). O(S m) a finding that is present."""
        table = torch.where(self.free, softplus(self.parameters["u"]), self.fixed)
        causes = torch.cat([y, torch.ones_like(y[:, :, :1])], 2)
        row, column = x.nonzero(as_tuple=True)
        z = torch.bmm(causes[row], table.T[column][:, :, None])[:, :, 0]  # (present findings, S)
        present = torch.log((-torch.expm1(-z)).clamp(min=SMALLEST_CHANCE)) + z
        return (-causes @ table.sum(1)).index_add(0, row, present)

    def blind_logits(self, seen: Tensor) -> Tensor:
        """phi . x~ + phi_0' (B, m): the recognition model blind to all anchors."""
        blind = seen.index_fill(1, self.anchors, 0.0)
        return blind @ self.parameters["phi"].T + self.parameters["phi_extra"]

    def model(self, u: Tensor | None = None) -> NoisyOr:
        """The model as it is now, or of another u; anchors come back exactly as they were given."""
        fires = torch.sigmoid((self.parameters["u"] if u is None else u).detach().double()).numpy()
        free, start = self.free.numpy(), self.start
        fail, leak = np.where(free[:-1], 1.0 - fires[:-1], start.fail), np.where(free[-1], fires[-1], start.leak)
        return dataclasses.replace(start, fail=fail, leak=leak)

    def state(self) -> dict[str, Any]:
        """Everything that the next epoch depends on."""
        values = {name: value.detach() for name, value in self.parameters.items()}
        return {"parameters": values, "optimizer": self.optimizer.state_dict(), "moments": self.moments}

    def load(self, state: dict[str, Any]) -> None:
        """Take up where `state` was taken."""
        with torch.no_grad():
            for name, value in self.parameters.items():
                value.copy_(state["parameters"][name])
        self.optimizer.load_state_dict(state["optimizer"])
        self.moments.copy_(state["moments"])


def log_bernoulli(y: Tensor, logits: Tensor) -> Tensor:
    """sum_i log Bernoulli(y_i; sigmoid(logits_i)): y (B, S, m), logits (B, m) or (m,), answer (B, S)."""
    constant = softplus(logits).sum(-1)
    return (y @ logits.unsqueeze(-1)).squeeze(-1) - (constant if logits.dim() == 1 else constant[:, None])


@contextmanager
def _one_thread() -> Iterator[None]:
    """Run PyTorch on one thread, then give back what was set.

    The tensors of a step are too small to share out: more threads gain nothing on an idle machine and wait for one
    another on a busy one (40 times slower was measured). They would also make the result depend on their number,
    which any parallel numba function called from `on_epoch` changes behind PyTorch's back (they share OpenMP).
    """
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def _check(X: csr_matrix, start: NoisyOr, anchor_columns: ArrayLike) -> NDArray[np.int64]:
    """The anchor columns as an array, or ModelError with what does not fit."""
    columns = np.array(anchor_columns, np.int64)
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
    for array in (start.prior, start.fail, start.leak):
        digest.update(np.ascontiguousarray(array).tobytes())
    return digest.hexdigest()


def _read(path: Path, fingerprint: str) -> dict[str, Any]:
    """A checkpoint, if it belongs to the run that `fingerprint` names. Nothing in the file is run."""
    try:
        kept: dict[str, Any] = torch.load(path, weights_only=True)
        same = kept["fingerprint"] == fingerprint
    except Exception as error:  # PyTorch has many kinds of them for a damaged file
        raise ModelFileError(f"{path} is not a training checkpoint or is damaged: delete it to start again") from error
    if not same:
        raise ModelFileError(
            f"{path} belongs to another run: its visits, starting model, settings or seed differ. "
            "Resume with the same ones (only the number of epochs may change), or choose another file"
        )
    return kept
