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
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from scipy.sparse import csr_matrix

from whatelse.errors import ModelError
from whatelse.learning.paper.nvil.checkpoint import read_checkpoint, write_checkpoint
from whatelse.learning.paper.nvil.settings import L2_CHOICES, NvilSettings
from whatelse.learning.paper.nvil.training import Training
from whatelse.noisyor.params import NoisyOr

__all__ = ["L2_CHOICES", "EpochEnd", "EpochRecord", "NvilResult", "NvilSettings", "fit_nvil"]


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

    phi (m, n + 1), its last column the bias; phi_extra (m,) is phi_0'.
    """

    model: NoisyOr
    history: list[EpochRecord]
    phi: NDArray[np.float64]
    phi_extra: NDArray[np.float64]


def fit_nvil(
    X: csr_matrix,
    start: NoisyOr,
    anchor_columns: ArrayLike,
    settings: NvilSettings | None = None,
    seed: int = 0,
    *,
    on_epoch: Callable[[EpochEnd], None] | None = None,
    checkpoint: Path | None = None,
) -> NvilResult:
    """Learn from X (N, n) of 0/1, beginning at `start`.

    Priors and all parameters of the anchor columns stay as they are. An epoch costs O(N (n (m + hidden) + S m P)), P
    the findings present in a visit.

    `on_epoch` is called after each epoch. With `checkpoint`, the file is rewritten after each call, and a later call
    with the same arguments goes on from it: the result is bit for bit that of an uninterrupted run. An epoch cut short
    is run again, so `on_epoch` may see an epoch twice but never misses one.
    """
    settings = settings or NvilSettings()
    columns = _check(X, start, anchor_columns)
    training = Training(X, start, columns, settings, seed)
    history: list[EpochRecord] = []
    fingerprint = _fingerprint(X, start, columns, settings, seed)
    if checkpoint is not None and checkpoint.exists():
        state, book = read_checkpoint(checkpoint, fingerprint)
        training.load(state)
        history = [EpochRecord(**entry) for entry in book["history"]]

    for epoch in range(len(history) + 1, settings.epochs + 1):
        began = time.perf_counter()
        with _one_thread():
            bound, supervised = training.run_epoch(epoch)
        record = EpochRecord(epoch, bound, supervised, time.perf_counter() - began)
        history.append(record)
        if on_epoch is not None:
            on_epoch(EpochEnd(**vars(record), model=training.snapshot()))
        if checkpoint is not None:
            write_checkpoint(checkpoint, fingerprint, training.state(), {"history": [vars(r) for r in history]})

    phi, phi_extra = (training.parameters[name].double().numpy() for name in ("phi", "phi_extra"))
    return NvilResult(training.snapshot()(), history, phi, phi_extra)


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
    for array in (start.prior, start.fail, start.leak):
        digest.update(np.ascontiguousarray(array).tobytes())
    return digest.hexdigest()
