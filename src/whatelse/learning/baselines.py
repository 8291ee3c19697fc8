"""Baselines for the joint model: naive labels, an oracle, and two kinds of separate classifiers.

All are told the anchors' noise rates, as the paper does for fairness. The first two give a noisy-or model
(score it with `heldout_metrics.noisyor_scorer`), the classifiers are scorers themselves.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import scipy.sparse as sp
from numpy.typing import ArrayLike, NDArray
from scipy.optimize import minimize
from scipy.special import expit
from threadpoolctl import threadpool_limits

from whatelse.annotators import NoiseRates
from whatelse.noisyor.blocks import Blocks, LocalBlocks, as_blocks, fires
from whatelse.noisyor.mle import count_states, edit_anchors, model_of_counts
from whatelse.noisyor.params import NoisyOr
from whatelse.types import Bools, Floats

PENALTIES = (300.0, 100.0, 30.0, 10.0, 3.0)
HELD_OUT = 0.2  # share of the visits that the penalty is chosen by


def naive_labels(X: sp.csr_matrix | Blocks, anchor_columns: ArrayLike, rates: NoiseRates) -> NoisyOr:
    """Maximum likelihood with anchors taken for conditions; then priors and anchors as the noise rates say."""
    columns, n = np.asarray(anchor_columns, np.int64), X.shape[1]
    counts = count_states(as_blocks(X), lambda block: (block, fires(block, columns, n)))
    model = model_of_counts(counts, prior=rates.prior)
    return edit_anchors(model, columns, rates.sensitivity, rates.false_positive)


def oracle(X: sp.csr_matrix | Blocks, Y: ArrayLike | None, anchor_columns: ArrayLike, rates: NoiseRates) -> NoisyOr:
    """Maximum likelihood with the true conditions Y (N, m), anchors edited as for naive labels: the yardstick.

    Y   None where the blocks X bring it
    """
    blocks = X if isinstance(X, Blocks) else LocalBlocks(X, Y=np.asarray(Y, bool))
    model = model_of_counts(count_states(blocks, lambda block: (block, block["Y"])))
    return edit_anchors(model, anchor_columns, rates.sensitivity, rates.false_positive)


@dataclass(frozen=True, eq=False)
class Classifiers:
    """m separate logistic regressions, learned from anchors as noisy labels. A scorer: call it with X and confirmed.

    weight (n, m), zero for all anchors; bias (m,); scale (m,) what their answer is divided by;
    ppv (m,) P(Y=1 | A=1); penalty (m,) as chosen
    """

    weight: Floats
    bias: Floats
    scale: Floats
    ppv: Floats
    anchor_columns: NDArray[np.int64]
    penalty: Floats

    def probability(self, X: sp.csr_matrix) -> Floats:
        """P(Y_i=1 | visit) (V, m): the noise rate P(Y_i=1 | A_i=1) where the anchor is seen, else the classifier's."""
        seen = X[:, self.anchor_columns].toarray().astype(bool)
        classified = np.minimum(expit(X @ self.weight + self.bias) / self.scale, 1.0)
        probability: Floats = np.where(seen, self.ppv, classified)
        return probability

    def __call__(self, X: sp.csr_matrix, confirmed: Bools) -> Floats:
        """Separate classifiers cannot use what is confirmed."""
        return self.probability(X)


def noise_tolerant(
    X: sp.csr_matrix, anchor_columns: ArrayLike, rates: NoiseRates, *, penalties: Sequence[float] = PENALTIES,
    seed: int = 0,
) -> Classifiers:  # fmt: skip
    """Logistic regressions that minimise the unbiased loss of Natarajan et al. (2013) on visits without their anchors.

    With labels y in {-1, 1} flipped at rates rho_1 = 1 - sensitivity and rho_-1 = false positive rate, their loss

        l~(t, a) = ((1 - rho_-a) l(t, a) - rho_a l(t, -a)) / (1 - rho_1 - rho_-1)

    has the clean loss l(t, y) as its mean over the noise. For the log loss l~ is again a log loss, with a target that
    can lie outside [0, 1]:  l~ = log(1 + e^-t) + (1 - tau_a) t,

        tau = (1 - false positive) / (sensitivity - false positive)   where the anchor is seen,
        tau = -false positive / (sensitivity - false positive)        elsewhere,

    convex, but without a lower bound, so it needs its L2 penalty (penalty / 2) |w|^2. That is chosen for each condition
    by the log loss of held-out anchors, P(A=1|x) = fp + (sensitivity - fp) P(Y=1|x): proper, bounded, free of labels.
    Cost: O(nnz(X)) for each of some twenty L-BFGS steps per condition and penalty.
    """
    columns = np.asarray(anchor_columns, np.int64)
    sens, fpr = rates.informative().sensitivity, rates.false_positive
    fit, chosen = _choose(X, columns, sens, fpr, penalties, seed)
    return Classifiers(fit[:-1], fit[-1], np.ones(len(columns)), rates.ppv, columns, chosen)


def elkan_noto(
    X: sp.csr_matrix, anchor_columns: ArrayLike, rates: NoiseRates, *, penalties: Sequence[float] = PENALTIES,
    seed: int = 0,
) -> Classifiers:  # fmt: skip
    """Logistic regressions of each anchor on the rest of the visit, divided by a constant: Elkan and Noto (2008).

    They take an anchor for a label that is sometimes missing and never wrong, and missing at random among the visits
    that have the condition. Then P(A=1|x) = c P(Y=1|x) with c = P(A=1|Y=1), and so P(Y=1|x) = P(A=1|x) / c, at most 1.
    They estimate c by the mean of P(A=1|x) over visits whose anchor fires, which is too low wherever x leaves doubts
    about Y; here all baselines are told the noise rates, and c is the sensitivity. Cost: that of `noise_tolerant`.
    """
    columns = np.asarray(anchor_columns, np.int64)
    c = rates.informative().sensitivity
    fit, chosen = _choose(X, columns, np.ones(len(columns)), np.zeros(len(columns)), penalties, seed)
    return Classifiers(fit[:-1], fit[-1], c, rates.ppv, columns, chosen)


@threadpool_limits.wrap(limits=1, user_api="blas")  # steps are small
def _choose(
    X: sp.csr_matrix, columns: NDArray[np.int64], sens: Floats, fpr: Floats, penalties: Sequence[float], seed: int
) -> tuple[Floats, Floats]:
    """Weights and, last, biases (n+1, m) of the regressions, and the penalties (m,) that held-out anchors chose."""
    A = X[:, columns].toarray().astype(bool)
    keep = np.ones(X.shape[1])
    keep[columns] = 0.0
    censored = sp.csr_matrix(X.astype(float) @ sp.diags(keep))
    censored.eliminate_zeros()
    target = np.where(A, (1 - fpr) / (sens - fpr), -fpr / (sens - fpr))

    test = np.random.default_rng(seed).random(X.shape[0]) < HELD_OUT
    learn, check = censored[~test], censored[test]
    fit, chosen = np.empty((X.shape[1] + 1, len(columns))), np.empty(len(columns))
    path = sorted(penalties, reverse=True)
    for i in range(len(columns)):
        best, w = np.inf, np.zeros(X.shape[1] + 1)
        start, chosen[i] = w, path[0]
        for penalty in path if len(path) > 1 else ():
            w = _logistic(learn, target[~test, i], penalty, w)  # the most penalised is the easiest and starts the next
            p_anchor = np.clip(fpr[i] + (sens[i] - fpr[i]) * expit(check @ w[:-1] + w[-1]), 1e-12, 1 - 1e-12)
            loss = -np.where(A[test, i], np.log(p_anchor), np.log1p(-p_anchor)).mean()
            if loss >= best:
                break  # along the path the loss falls, then rises
            best, start, chosen[i] = loss, w, penalty
        fit[:, i] = _logistic(censored, target[:, i], chosen[i], start)
    fit[columns] = 0.0
    return fit, chosen


def _logistic(X: sp.csr_matrix, target: Floats, penalty: float, start: Floats) -> Floats:
    """Weights and, last, the bias (n+1,) that minimise sum_v log(1 + e^-t) + (1 - target) t, plus penalty |w|^2 / 2.

    L-BFGS on weights divided by the square root of their curvature at the mean rate: findings are present in ten
    visits or in ten thousand, and without that the steps of the rare ones are a thousand times too short.
    """
    visits = X.shape[0]
    rate = min(max(target.mean(), 1e-4), 0.5)
    curvature = rate * (1 - rate) * np.append(np.asarray(X.sum(0)).ravel(), visits)
    unit = 1 / np.sqrt(curvature + np.append(np.full(X.shape[1], penalty), 0.0))
    transposed = sp.csr_matrix(X.T)

    def loss(scaled: Floats) -> tuple[float, Floats]:
        w = scaled * unit
        t = X @ w[:-1] + w[-1]
        value = (np.logaddexp(0.0, -t) + (1 - target) * t).sum() + 0.5 * penalty * (w[:-1] @ w[:-1])
        residual = expit(t) - target
        gradient = np.append(transposed @ residual + penalty * w[:-1], residual.sum())
        return float(value), gradient * unit

    options = {"maxiter": 1000, "gtol": 1e-2, "ftol": 1e-10}
    found = minimize(loss, start / unit, jac=True, method="L-BFGS-B", options=options)
    if found.status == 1:
        warnings.warn(
            f"a noise-tolerant classifier had not converged after {found.nit} iterations; use larger penalties",
            RuntimeWarning,
            stacklevel=3,
        )
    result: Floats = found.x * unit
    return result
