"""Learning from hidden anchors: which anchor of this visit was taken away?

For every anchor that fires, hide it, take the visit's other anchors for confirmed conditions C, and ask which of the
rest it was. The answer is a softmax over conditions,

    P(hidden = i | x, C)  ~  exp( b_i + w_i . x + sum_{k in C} J_ik + kappa r_i(x, C) ),
    r_i(x, C) = log P(x | C + i) - log P(x | C)      of a given noisy-or, over the findings that are not anchors,

so it is the held-out tag's question asked of anchors, with an exact gradient. It is concave in (b, w, J, kappa)
jointly: one optimum, the same at every run, and no drift. kappa says how much a finding's likelihood is to count (1 if
findings are independent given the conditions, less if they repeat one another), J which conditions go together, w what
a noisy-or cannot say.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial

import numpy as np
import scipy.sparse as sp
from numba import njit
from scipy.optimize import Bounds, minimize, minimize_scalar
from threadpoolctl import threadpool_limits

from whatelse.noisyor.blocks import Arrays, Blocks, LocalBlocks
from whatelse.noisyor.params import NoisyOr
from whatelse.types import Bools, Floats, Ints

LOSS = ("loss", "bias", "weight", "coupling", "kappa")  # the loss and its gradient, by name
TOLERANCE = 1e-5  # largest gradient a pair at which the optimum counts as reached
FLAT = 1e-8  # relative gain of a step below which it does too
MAX_STEPS = 150


@dataclass(frozen=True, eq=False)
class Pairs:
    """P (visit, hidden anchor) pairs.

    visit      (P,) row of X;  hidden (P,) condition whose anchor is hidden
    confirmed  (P, m) bool: conditions whose anchors are seen; they are not candidates
    x          CSR (P, n) of the visits' findings without anchors
    """

    visit: Ints
    hidden: Ints
    confirmed: Bools
    x: sp.csr_matrix

    @classmethod
    def of(cls, x: sp.csr_matrix, A: Bools) -> Pairs:
        """Every anchor that fires, hidden once. x (N, n) has no anchors; A (N, m)."""
        visit, hidden = np.nonzero(A)
        confirmed = A[visit]
        confirmed[np.arange(len(hidden)), hidden] = False
        return cls(visit, hidden, confirmed, x[visit])

    def rows(self, which: Bools) -> Pairs:
        """The pairs of a mask (P,)."""
        return Pairs(self.visit[which], self.hidden[which], self.confirmed[which], self.x[which])

    def __len__(self) -> int:
        return len(self.hidden)


@dataclass(frozen=True, eq=False)
class HiddenFit:
    """The optimum: bias (m,), weight (m, n), coupling (m, m) symmetric, kappa; objective a pair, by step."""

    bias: Floats
    weight: Floats
    coupling: Floats
    kappa: float
    history: tuple[float, ...] = ()
    converged: bool = False

    @classmethod
    def blank(cls, log_rate: Floats, n: int) -> HiddenFit:
        """Where to begin: anchors by their rates (m,), findings for half of what they say, and nothing else."""
        m = len(log_rate)
        return cls(log_rate, np.zeros((m, n)), np.zeros((m, m)), 0.5)

    def scores(self, pairs: Pairs, gains: Floats) -> Floats:
        """(P, m) log of the softmax; -inf for confirmed conditions."""
        z = self.bias + pairs.x @ self.weight.T + pairs.confirmed @ self.coupling + self.kappa * gains
        z[pairs.confirmed] = -np.inf
        z -= z.max(1, keepdims=True)
        out: Floats = z - np.log(np.exp(z).sum(1, keepdims=True))
        return out

    def reweighed(self, pairs: Pairs, gains: Floats) -> HiddenFit:
        """The same with the kappa that is best for other pairs, if there are any."""
        if not len(pairs):
            return self
        own = np.arange(len(pairs))

        def loss(kappa: float) -> float:
            return -float(replace(self, kappa=kappa).scores(pairs, gains)[own, pairs.hidden].mean())

        return replace(self, kappa=float(minimize_scalar(loss, bounds=(0.0, 1.0), method="bounded").x))


def blocks_of(pairs: Pairs, gains: Floats) -> Blocks:
    """Pairs in blocks, as `fit_hidden` takes them."""
    return LocalBlocks.of(pairs.x, hidden=pairs.hidden, confirmed=pairs.confirmed, gains=gains)


def noisyor_gains(model: NoisyOr, pairs: Pairs, anchor_columns: Ints) -> Floats:
    """(P, m) r_i(x, C) of a noisy-or over the findings that are not anchors. O(nnz m).

    An absent finding brings log f_ij; a present one log((1 - q f_ij) / (1 - q)), q = P(X_j = 0 | C).
    """
    out = np.zeros((len(pairs), model.m))
    x, fail = pairs.x, np.maximum(model.fail, 1e-12)
    _gains(x.indptr.astype(np.int64), x.indices.astype(np.int64), pairs.confirmed, fail.T.copy(), model.leak, out)
    out += np.log(np.delete(fail, anchor_columns, axis=1)).sum(1)  # as if all findings were absent
    return out


def fit_hidden(
    pairs: Blocks,
    start: HiddenFit,
    *,
    weight_penalty: float | None,
    coupling_penalty: float = 8.0,
    max_steps: int = MAX_STEPS,
) -> HiddenFit:
    """Maximise the likelihood of the hidden anchors less (penalty / 2) |.|^2 of w and J, by L-BFGS.

    pairs  in blocks (`blocks_of`), whose gains (P, m) are from `noisyor_gains`, of a noisy-or that did not see them
    weight_penalty  None: no w; the noisy-or, how much it counts, and the couplings
    """
    m, n = len(start.bias), pairs.shape[1]
    total = max(int(pairs.total(lambda block: {"pairs": np.array(block["hidden"].size)})["pairs"]), 1)
    with_weight = weight_penalty is not None
    size_w = n * m if with_weight else 0
    upper = np.triu_indices(m, 1)
    history: list[float] = []
    latest = [np.nan]

    def unpack(flat: Floats) -> tuple[Floats, Floats, Floats, float]:
        coupling = np.zeros((m, m))
        coupling[upper] = flat[m + size_w : -1]
        weight = flat[m : m + size_w].reshape(n, m) if with_weight else np.zeros((1, m))
        return flat[:m], weight, coupling + coupling.T, float(flat[-1])

    def objective(flat: Floats) -> tuple[float, Floats]:
        bias, weight, coupling, kappa = unpack(flat)
        found = pairs.total(partial(_loss_of, at=(bias, weight, coupling, kappa), with_weight=with_weight))
        loss, g_bias, g_weight, g_coupling, g_kappa = (found[name] for name in LOSS)
        g_pairs = (g_coupling + g_coupling.T)[upper] + coupling_penalty * coupling[upper]
        loss += 0.5 * coupling_penalty * float((coupling[upper] ** 2).sum())
        pieces = [g_bias]
        if with_weight:
            loss += 0.5 * float(weight_penalty or 0) * float((weight**2).sum())
            pieces.append((g_weight + (weight_penalty or 0) * weight).ravel())
        gradient = np.concatenate([*pieces, g_pairs, [g_kappa]])
        latest[0] = float(loss) / total
        return latest[0], gradient / total

    w = start.weight.T.ravel() if with_weight else np.zeros(0)
    first = np.concatenate([start.bias, w, start.coupling[upper], [start.kappa]])
    limits = Bounds(np.append(np.full(len(first) - 1, -np.inf), 0.0), np.append(np.full(len(first) - 1, np.inf), 1.0))
    with threadpool_limits(1, "blas"):  # its vectors are too short to share
        found = minimize(
            objective, first, jac=True, method="L-BFGS-B", bounds=limits,
            callback=lambda _: history.append(-latest[0]),
            options={"maxiter": max_steps, "maxcor": 15, "gtol": TOLERANCE, "ftol": FLAT},
        )  # fmt: skip
    bias, weight, coupling, kappa = unpack(found.x)
    full = np.ascontiguousarray(weight.T) if with_weight else np.zeros((m, n))
    return HiddenFit(bias, full, coupling, kappa, tuple(history), bool(found.status == 0))


def _loss_of(block: Arrays, at: tuple[Floats, Floats, Floats, float], with_weight: bool) -> Arrays:
    """What a block of pairs adds to the loss and its gradient, at (bias, weight, coupling, kappa)."""
    indptr, indices = block["indptr"].astype(np.int64), block["indices"].astype(np.int64)
    loss, gradient = _loss(
        0, len(indptr) - 1, indptr, indices, block["hidden"], block["confirmed"], block["gains"], *at, with_weight
    )
    return dict(zip(LOSS, (np.asarray(part) for part in (loss, *gradient)), strict=True))


@njit(cache=True, nogil=True)
def _gains(indptr, indices, confirmed, fail, leak, out):  # type: ignore[no-untyped-def]
    """Add to out (P, m) the present findings' terms, less log f (which all findings get as if absent).

    Products, not logs: one log for each pair and condition.
    """
    m = out.shape[1]
    product = np.empty(m)
    for p in range(out.shape[0]):
        product[:] = 1.0
        for k in range(indptr[p], indptr[p + 1]):
            j = indices[k]
            quiet = 1.0 - leak[j]
            for i in range(m):
                if confirmed[p, i]:
                    quiet *= fail[j, i]
            off = max(1.0 - quiet, 1e-12)
            for i in range(m):
                product[i] *= (1.0 - quiet * fail[j, i]) / (off * fail[j, i])
                if product[i] > 1e200 or product[i] < 1e-200:
                    out[p, i] += np.log(product[i])
                    product[i] = 1.0
        for i in range(m):
            out[p, i] += np.log(product[i])


@njit(cache=True, nogil=True)
def _loss(first, end, indptr, indices, hidden, confirmed, gains, bias, weight, coupling, kappa, with_weight):  # type: ignore[no-untyped-def]
    """-log likelihood of pairs first … end - 1 and its gradient by bias, weight, coupling and kappa."""
    m = bias.size
    g_bias, g_weight, g_coupling, g_kappa = np.zeros(m), np.zeros_like(weight), np.zeros((m, m)), 0.0
    z, loss = np.empty(m), 0.0
    for p in range(first, end):
        for i in range(m):
            z[i] = bias[i] + kappa * gains[p, i]
        for k in range(m):
            if confirmed[p, k]:
                for i in range(m):
                    z[i] += coupling[k, i]
        if with_weight:
            for k in range(indptr[p], indptr[p + 1]):
                row = weight[indices[k]]
                for i in range(m):
                    z[i] += row[i]
        top = -np.inf
        for i in range(m):
            if not confirmed[p, i] and z[i] > top:
                top = z[i]
        total = 0.0
        target = z[hidden[p]]
        for i in range(m):
            z[i] = 0.0 if confirmed[p, i] else np.exp(z[i] - top)
            total += z[i]
        loss += np.log(total) + top - target
        for i in range(m):
            z[i] /= total
        z[hidden[p]] -= 1.0
        for i in range(m):
            g_bias[i] += z[i]
            g_kappa += z[i] * gains[p, i]
        for k in range(m):
            if confirmed[p, k]:
                for i in range(m):
                    g_coupling[k, i] += z[i]
        if with_weight:
            for k in range(indptr[p], indptr[p + 1]):
                row = g_weight[indices[k]]
                for i in range(m):
                    row[i] += z[i]
    return loss, (g_bias, g_weight, g_coupling, g_kappa)
