"""The objective of the default learner and its gradient. Arrays only.

Model of the conditions y of a visit with findings x, whose anchors A are columns of x:

    P(y | x)  ~  exp( sum_i y_i h_i(x) + sum_{i<k} y_i y_k J_ik )
    h_i(x)    =  b_i + (sum_g s_g W0_gi + e_i W0_0i + D_i).(x - c) + l_i(A_i)        g: facts, names
    l_i(A)    =  log P(A | y_i = 1) / P(A | y_i = 0)        by sensitivity S_i and false-positive rate F_i of the anchor
    J         =  t J0 + q + P                               W0, J0: what knowledge says; q: the same for all pairs

Objective, to be minimised over b, s, e, D, t, q, P, S, F:

    - sum over labels  w log( p_vi B_vi + (1 - p_vi)(1 - B_vi) )       p_vi = P(y_i = 1 | x, the other labels)
    - sum over visits  omega_i log( g_vi S_i + (1 - g_vi) F_i )        g: p without anchors; 1 - ... if silent
    + sum over parameters  (parameter - mean)^2 / (2 sd^2)

B is the likelihood of the label given its annotators, as a probability under a 50/50 prior: 0 or 1 if certain. The
first sum is the pseudo-likelihood of the labels, the second the marginal likelihood of the anchors' votes. In the
second sum S and F are constants: votes alone cannot tell how often they are wrong, and would have every anchor right.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp
from scipy.special import expit, log_expit

from whatelse.learning.prior import Prior
from whatelse.noisyor.blocks import Arrays, Blocks, fires, matrix
from whatelse.types import Bools, Floats, Ints

TINY = 1e-12


@dataclass(frozen=True, eq=False)
class Strengths:
    """Standard deviations of the parameters around their means.

    delta (m, n), scale of each group of the prior, rate (m,) or one for all.
    """

    delta: Floats
    bias: float = 0.7
    scale: tuple[float, ...] = (0.05, 0.2)
    own_scale: float = 0.15
    pair_scale: float = 0.2
    pair_level: float = 0.3
    rate: Floats | float = 0.7
    pair: float = 0.3


class Parameters(NamedTuple):
    """Parameters of m conditions and n findings, in the notation of the module.

    b (m,), s (2,), e (m,), t (), q (), rates (2, m) logits of S and F, P (m, m) symmetric with zero diagonal, D (m, n)
    """

    b: Floats
    s: Floats
    e: Floats
    t: float
    q: float
    rates: Floats
    P: Floats
    D: Floats


class Labels(NamedTuple):
    """Labelled visits: X (L, n) findings, belief (L, m), weight (L, m; 0 where not known), company (L, m).

    company: the value of each condition as a neighbour of the others; the label, or a probability where not known.
    """

    X: sp.csr_matrix
    belief: Floats
    weight: Floats
    company: Floats


class Objective:
    """Value and gradient for a vector of whitened parameters: (parameter - mean) / sd.

    X          visits in blocks;  columns (m,): the anchors;  centre (n,): c
    omega      (m,) weight of an anchor's vote;  rates (2, m): S and F in the second sum
    start      means of the parameters;  labels: None where there are none
    """

    def __init__(
        self, X: Blocks, columns: Ints, centre: Floats, prior: Prior, start: Parameters, strengths: Strengths,
        omega: Floats, rates: Floats, labels: Labels | None = None,
    ) -> None:  # fmt: skip
        self.X, self.columns, self.centre, self.prior, self.start = X, columns, centre, prior, start
        self.sd, self.omega, self.rates, self.labels = strengths, omega, rates, labels
        self.groups, self.m, self.n = prior.weight.shape
        self.sd_scale = np.array(strengths.scale)
        self.upper = np.triu_indices(self.m, 1)
        self.free = np.ones((self.m, self.n), bool)
        self.free[np.arange(self.m), columns] = False
        self.fires = fires(_block_of(labels.X), columns, self.n) if labels is not None else None

    def with_labels(self, labels: Labels) -> Objective:
        """The same objective with other labels."""
        return Objective(
            self.X, self.columns, self.centre, self.prior, self.start, self.sd, self.omega, self.rates, labels,
        )  # fmt: skip

    # ---- from vectors to parameters

    @property
    def size(self) -> int:
        """Number of parameters."""
        return int(4 * self.m + 2 + self.groups + self.upper[0].size + self.m * self.n)

    def unpack(self, theta: Floats) -> Parameters:
        """Parameters of a whitened vector."""
        m, sd, at = self.m, self.sd, self.start
        cut = np.cumsum([m, self.groups, m, 1, 1, 2 * m, self.upper[0].size])
        b, s, e, t, q, rates, pairs, D = np.split(theta, cut)
        P = np.zeros((m, m))
        P[self.upper] = sd.pair * pairs
        return Parameters(
            at.b + sd.bias * b, at.s + self.sd_scale * s, sd.own_scale * e, at.t + sd.pair_scale * float(t[0]),
            at.q + sd.pair_level * float(q[0]),
            at.rates + sd.rate * rates.reshape(2, m), P + P.T, self.free * sd.delta * D.reshape(m, self.n),
        )  # fmt: skip

    def pack(self, p: Parameters) -> Floats:
        """The whitened vector of parameters."""
        sd, at = self.sd, self.start
        parts: list[Any] = [
            (p.b - at.b) / sd.bias, (p.s - at.s) / self.sd_scale, p.e / sd.own_scale, [(p.t - at.t) / sd.pair_scale],
            [(p.q - at.q) / sd.pair_level],
            ((p.rates - at.rates) / sd.rate).ravel(), p.P[self.upper] / sd.pair, (p.D / sd.delta).ravel(),
        ]  # fmt: skip
        return np.concatenate(parts)

    def weights(self, p: Parameters) -> Floats:
        """(m, n) weights of the findings: the scaled knowledge and what differs from it."""
        out: Floats = np.einsum("g,gij->ij", p.s, self.prior.weight) + p.e[:, None] * self.prior.weight[0] + p.D
        return out

    def coupling(self, p: Parameters) -> Floats:
        """(m, m) J."""
        out: Floats = p.t * self.prior.coupling + p.P + p.q * (1 - np.eye(self.m))
        return out

    # ---- the objective

    def __call__(self, theta: Floats) -> tuple[float, Floats]:
        """Value and gradient. O(nnz(X) m)."""
        p, sd = self.unpack(theta), self.sd
        W, m = self.weights(p), self.m
        votes = self._votes(p.b, W)
        value, bias = float(votes["value"]), votes["bias"]
        D = votes["scatter"] - np.outer(bias, self.centre)
        D[:, self.columns] = 0.0
        rates, M = np.zeros((2, m)), np.zeros((m, m))
        if self.labels is not None:
            own = self._labels(p, W)
            value, bias, rates, M = value + own.value, bias + own.bias, own.rates, own.pairs
            D = D + own.scatter - np.outer(own.bias, self.centre)
        scale = np.einsum("ij,gij->gi", D, self.prior.weight)
        parts: list[Any] = [
            sd.bias * bias, self.sd_scale * scale.sum(1), sd.own_scale * scale[0],
            [sd.pair_scale * (M * self.prior.coupling).sum()], [sd.pair_level * (M.sum() - np.trace(M))],
            (sd.rate * rates).ravel(),
            sd.pair * (M + M.T)[self.upper], (self.free * sd.delta * D).ravel(),
        ]  # fmt: skip
        return value + 0.5 * float(theta @ theta), np.concatenate(parts) + theta

    def _votes(self, b: Floats, W: Floats) -> Arrays:
        """The second sum: value, gradient by fields summed over visits (m,) and scattered to findings (m, n)."""
        W = W.copy()
        W[:, self.columns] = 0.0  # an anchor's vote is not predicted from other anchors
        return self.X.total(_Votes(W, b - W @ self.centre, self.rates, self.omega, self.columns))

    def _labels(self, p: Parameters, W: Floats) -> _LabelTerm:
        """The first sum and its gradient."""
        labels = self.labels
        assert labels is not None and self.fires is not None
        S, F = expit(p.rates)
        Z = self.label_fields(p, W)
        chance = expit(Z)
        likely = chance * labels.belief + (1 - chance) * (1 - labels.belief)
        value = -(labels.weight * np.log(np.maximum(likely, TINY))).sum()
        G = labels.weight * (chance - chance * labels.belief / np.maximum(likely, TINY))
        dS = (G * np.where(self.fires, 1 - S, -S)).sum(0)
        dF = (G * np.where(self.fires, F - 1, F)).sum(0)
        scatter = np.asarray((labels.X.T @ G).T)
        return _LabelTerm(float(value), G.sum(0), scatter, np.array([dS, dF]), labels.company.T @ G)

    def label_fields(self, p: Parameters, W: Floats) -> Floats:
        """(L, m) log odds of each condition of the labelled visits, given the other labels."""
        labels = self.labels
        assert labels is not None and self.fires is not None
        fields = np.asarray(labels.X @ W.T) + (p.b - W @ self.centre)
        out: Floats = fields + anchor_odds(p.rates, self.fires) + labels.company @ self.coupling(p)
        return out

    def information(self, p: Parameters) -> Floats:
        """(m, n) diagonal of the expected information about D, without the prior."""
        W = self.weights(p)
        votes = W.copy()
        votes[:, self.columns] = 0.0
        work = _Votes(votes, p.b - votes @ self.centre, self.rates, self.omega, self.columns, information=True)
        total = self.X.total(work)["scatter"]
        total[:, self.columns] = 0.0
        if self.labels is not None:
            chance = expit(self.label_fields(p, W))
            total = total + np.asarray((self.labels.X.T @ (self.labels.weight * chance * (1 - chance))).T)
        out: Floats = total * (1 - self.centre) ** 2
        return out

    def label_information(self, p: Parameters) -> tuple[Floats, Floats, Floats]:
        """Diagonal of the expected information of the labels about b (m,), e (m,) and P (m, m), without the prior."""
        labels = self.labels
        assert labels is not None
        W = self.weights(p)
        chance = expit(self.label_fields(p, W))
        V = labels.weight * chance * (1 - chance)
        facts = self.prior.weight[0]
        said = np.asarray(labels.X @ facts.T) - facts @ self.centre
        pairs = labels.company.T**2 @ V
        return V.sum(0), (V * said**2).sum(0), pairs + pairs.T


class _LabelTerm(NamedTuple):
    value: float
    bias: Floats
    scatter: Floats
    rates: Floats
    pairs: Floats


@dataclass(frozen=True, eq=False)
class _Votes:
    """What a block contributes to the second sum: O(nnz m). A class, so that Spark can send it to its workers."""

    W: Floats
    base: Floats
    rates: Floats
    omega: Floats
    columns: Ints
    information: bool = False

    def __call__(self, block: Arrays) -> Arrays:
        n = self.W.shape[1]
        X, A = matrix(block, n), fires(block, self.columns, n)
        S, F = self.rates
        p = expit(np.asarray(X @ self.W.T) + self.base)
        yes = np.clip(p * S + (1 - p) * F, TINY, 1 - TINY)
        slope = (S - F) * p * (1 - p)
        if self.information:
            G = self.omega * slope**2 / (yes * (1 - yes))
            value = np.zeros(())
        else:
            G = -self.omega * slope * np.where(A, 1 / yes, -1 / (1 - yes))
            value = -(self.omega * np.log(np.where(A, yes, 1 - yes))).sum()
        return {"value": np.asarray(value), "bias": G.sum(0), "scatter": np.asarray((X.T @ G).T)}


def anchor_odds(rates: Floats, fires: Bools) -> Floats:
    """(V, m) log likelihood ratio of anchors that fire or are silent; rates (2, m) logits of S and F."""
    firing, silent = (log_expit(sign * rates) for sign in (1, -1))
    out: Floats = np.where(fires, firing[0] - firing[1], silent[0] - silent[1])
    return out


def _block_of(X: sp.csr_matrix) -> Any:
    return {"indptr": X.indptr, "indices": X.indices}
