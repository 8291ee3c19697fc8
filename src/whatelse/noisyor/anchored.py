"""The default learner: a noisy-or from anchors, weighed and joined by what hidden anchors teach. No labels, no drift.

1. Findings beside which an anchor fires more often than its condition allows (`excuse.py`) excuse it, if the rest of
   those visits looks less like the condition than that of other visits with the anchor.
2. A noisy-or by maximum likelihood from the anchors that are not excused, taken for conditions; edges from a condition
   to what excuses its anchor are cut.
3. How much its findings count, which conditions go together and, where it helps, linear evidence: fitted to hidden
   anchors, a concave problem (`hidden.py`), on visits that the noisy-or of step 2 did not see.
4. Whether linear evidence is used, and how strongly it is penalised, is chosen on held-out anchors, split by the model
   without it into those that are probably true and those that are probably not. Evidence that gains more than twice
   as much on false anchors as on true ones has learned how a condition is mentioned, not what it does: it is refused.
5. One temperature and one shift of all log odds, so that visits with and without anchors have, by the model's own
   probabilities, as many conditions as the noise rates say. Neither changes the order of tags.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import ArrayLike
from scipy.special import expit, logit

from whatelse.errors import ModelError
from whatelse.noisyor.evidence import Evidence
from whatelse.noisyor.excuse import CONFIDENCE, excused, excusing
from whatelse.noisyor.hidden import HiddenFit, Pairs, fit_hidden, noisyor_gains
from whatelse.noisyor.mle import edit_anchors, mle_model
from whatelse.noisyor.params import Bools, Floats, NoisyOr
from whatelse.noisyor.posterior import posterior

PENALTIES: tuple[float | None, ...] = (None, 64.0, 24.0)
TRUSTED, DISTRUSTED = 0.7, 0.3  # probabilities that a held-out anchor is true, above and below which it judges
PROPORTION = 2.0  # gains, in log odds of finding an anchor again, on distrusted anchors over those on trusted ones
SELECT_ON = 60_000  # visits used for choosing a penalty, at most
CALIBRATE_ON = 5_000
Step = Callable[[str, int, int], None]


@dataclass(frozen=True, eq=False)
class Anchored:
    """model and evidence to answer with; history of the objective; and what was found on the way.

    excuse   (m, n) bool: which findings excuse which anchor
    penalty  the penalty chosen for linear evidence, None if none is used
    trials   penalty -> share of trusted and of distrusted held-out anchors found again, by which it was chosen
    """

    model: NoisyOr
    evidence: Evidence
    excuse: Bools
    penalty: float | None
    kappa: float
    trials: dict[str, tuple[float, float]]
    history: tuple[float, ...]
    converged: bool


def fit_anchored(
    X: sp.csr_matrix,
    anchor_columns: ArrayLike,
    prior: ArrayLike,
    sensitivity: ArrayLike,
    false_positive: ArrayLike,
    *,
    penalties: tuple[float | None, ...] = PENALTIES,
    seed: int = 0,
    on_step: Step | None = None,
) -> Anchored:
    """Learn from visits X (N, n), anchors included, and the noise rates (m,) of the anchors. O(nnz(X) m) a step."""
    columns = np.asarray(anchor_columns, np.int64)
    rates = _Rates(*(np.asarray(v, float) for v in (prior, sensitivity, false_positive)))
    if (rates.sensitivity <= rates.false_positive).any():
        i = int(np.argmax(rates.sensitivity <= rates.false_positive))
        raise ModelError(
            f"the anchor of condition {i} fires no more often with it ({rates.sensitivity[i]:.3g}) than without "
            f"({rates.false_positive[i]:.3g}): nothing can be learned from it; choose another anchor"
        )
    tell = on_step or (lambda what, done, total: None)
    rng = np.random.default_rng(seed)
    excuse = _false_mentions(X, columns, rates, rng)
    visits = _Visits.of(X, columns, excuse)
    steps = len(penalties) + 2

    trials: dict[str, tuple[float, float]] = {}
    chosen = penalties[0]
    if len(penalties) > 1:
        tell("choosing how to weigh findings", 0, steps)
        some = visits.rows(np.sort(rng.permutation(X.shape[0])[:SELECT_ON]))
        fold = rng.integers(0, 3, some.x.shape[0])
        learn, judge = some.rows(fold > 0), some.rows(fold == 0)
        noisyor, gains = _noisyor(learn, rates, excuse), _crossed_gains(learn, rates, excuse, rng)
        judged = noisyor_gains(noisyor, judge.pairs, columns)
        truth = np.empty(0)
        for k, penalty in enumerate(penalties):
            fit = fit_hidden(learn.pairs, gains, learn.log_rate, weight_penalty=penalty)
            if not k:
                truth = _truth(_assemble(noisyor, fit, rates, visits, excuse), judge, rates)
            found = fit.scores(judge.pairs, judged).argmax(1) == judge.pairs.hidden
            trials[str(penalty)] = (_share(found[truth > TRUSTED]), _share(found[truth < DISTRUSTED]))
            tell("choosing how to weigh findings", k + 1, steps)
        chosen = _choose(penalties, trials)
    tell("learning from hidden anchors", len(penalties), steps)
    noisyor = _noisyor(visits, rates, excuse)
    fit = fit_hidden(visits.pairs, _crossed_gains(visits, rates, excuse, rng), visits.log_rate, weight_penalty=chosen)
    tell("calibrating", steps - 1, steps)
    model, evidence = _calibrated(*_assemble(noisyor, fit, rates, visits, excuse), visits, rates, rng)
    return Anchored(model, evidence, excuse, chosen, fit.kappa, trials, fit.history, fit.converged)


@dataclass(frozen=True, eq=False)
class _Rates:
    prior: Floats
    sensitivity: Floats
    false_positive: Floats

    @property
    def anchor_log_odds(self) -> Floats:
        """(2, m): what an anchor that is silent, or fires, adds to the log odds of its condition; never infinite."""
        s, t = (np.clip(rate, 1e-9, 1 - 1e-9) for rate in (self.sensitivity, self.false_positive))
        return np.stack([np.log1p(-s) - np.log1p(-t), np.log(s) - np.log(t)])

    @property
    def ppv(self) -> Floats:
        fires = self.sensitivity * self.prior + self.false_positive * (1 - self.prior)
        ppv: Floats = self.sensitivity * self.prior / fires
        return ppv


@dataclass(frozen=True, eq=False)
class _Visits:
    """X whole, its findings without anchors (x, same columns), anchors A that are not excused, their pairs."""

    X: sp.csr_matrix
    x: sp.csr_matrix
    A: Bools
    columns: Any
    pairs: Pairs

    @classmethod
    def of(cls, X: sp.csr_matrix, columns: Any, excuse: Bools) -> _Visits:
        keep = np.ones(X.shape[1])
        keep[columns] = 0.0
        x = sp.csr_matrix(sp.csr_matrix(X, dtype=np.float64) @ sp.diags(keep))
        x.eliminate_zeros()
        A = X[:, columns].toarray().astype(bool) & ~excused(X, excuse)
        return cls(sp.csr_matrix(X), x, A, columns, Pairs.of(x, A))

    def rows(self, which: Any) -> _Visits:
        A, x = self.A[which], self.x[which]
        return _Visits(self.X[which], x, A, self.columns, Pairs.of(x, A))

    @property
    def log_rate(self) -> Floats:
        """(m,) log of how often each anchor fires unexcused; never -inf."""
        rate: Floats = np.log((self.A.sum(0) + 0.5) / (len(self.A) + 1))
        return rate


def _false_mentions(X: sp.csr_matrix, columns: Any, rates: _Rates, rng: np.random.Generator) -> Bools:
    """(m, n) step 1. A true mention has a context too ("low" of low back pain): beside it, the other findings speak for
    the condition as they do elsewhere. Beside a false one they speak less, by Welch's test of the noisy-or's gains."""
    candidates = excusing(X, columns, rates.sensitivity)
    if not candidates.any():
        return candidates
    visits = _Visits.of(X, columns, np.zeros_like(candidates))
    pairs = visits.pairs
    own = _crossed_gains(visits, rates, candidates, rng)[np.arange(len(pairs)), pairs.hidden]
    kept = np.zeros_like(candidates)
    for i in np.flatnonzero(candidates.any(1)):
        mine = pairs.hidden == i
        found, gain = np.flatnonzero(candidates[i]), own[mine]
        beside = pairs.x[mine][:, found].toarray() > 0
        for j, here in zip(found, beside.T, strict=True):
            near, far = gain[here], gain[~here]
            if min(near.size, far.size) >= 2:
                error = np.sqrt(near.var(ddof=1) / near.size + far.var(ddof=1) / far.size)
                kept[i, j] = near.mean() + CONFIDENCE * error < far.mean()
    return kept


def _noisyor(visits: _Visits, rates: _Rates, excuse: Bools) -> NoisyOr:
    """Step 2. Anchors end up as the noise rates say, and edges to what excuses an anchor are cut."""
    model = mle_model(visits.x, visits.A, prior=rates.prior)
    cut = NoisyOr(model.prior, np.where(excuse, 1.0, model.fail), model.leak)
    return edit_anchors(cut, visits.columns, rates.sensitivity, rates.false_positive)


def _crossed_gains(visits: _Visits, rates: _Rates, excuse: Bools, rng: np.random.Generator) -> Floats:
    """(P, m) gains of each pair by the noisy-or learned from the half of the visits it is not in."""
    half = rng.random(len(visits.A)) < 0.5
    out = np.empty(visits.pairs.confirmed.shape)
    for side in (half, ~half):
        theirs = side[visits.pairs.visit]
        noisyor = _noisyor(visits.rows(~side), rates, excuse)
        out[theirs] = noisyor_gains(noisyor, visits.pairs.rows(theirs), visits.columns)
    return out


def _assemble(
    noisyor: NoisyOr, fit: HiddenFit, rates: _Rates, visits: _Visits, excuse: Bools
) -> tuple[NoisyOr, Evidence]:
    """The joint model: the softmax's scores as log odds of the conditions, with anchors back in as findings.

    The biases speak of anchors: those of conditions are log(pi / P(A)) higher.
    """
    weight = np.full(noisyor.n, fit.kappa)
    weight[visits.columns] = 1.0
    centre = np.asarray(visits.x.mean(0)).ravel()
    bias = fit.bias - visits.log_rate + np.log(rates.prior) + fit.weight @ centre
    model = NoisyOr(
        np.clip(expit(bias), 1e-9, 1 - 1e-9), noisyor.fail, noisyor.leak, noisyor.frozen, weight, fit.coupling
    )
    return model, Evidence(fit.weight, centre, excuse, visits.columns, rates.anchor_log_odds)


def _calibrated(
    model: NoisyOr, evidence: Evidence, visits: _Visits, rates: _Rates, rng: np.random.Generator, rounds: int = 4
) -> tuple[NoisyOr, Evidence]:
    """Step 5. Each round solves for temperature and shift as if conditions were independent given the visit."""
    X = visits.X[np.sort(rng.permutation(visits.X.shape[0])[:CALIBRATE_ON])]
    fires = X[:, visits.columns].toarray().astype(bool)
    fires_not = (1 - rates.sensitivity) * rates.prior
    fn = fires_not / (fires_not + (1 - rates.false_positive) * (1 - rates.prior))
    wanted = (fires * rates.ppv).sum(), (~fires * fn).sum()
    for _ in range(rounds):
        found = posterior(model, X, evidence=evidence(X), tolerance=1e-2, budget=2000, top=0).marginals
        own = logit(np.clip(found, 1e-9, 1 - 1e-9))
        temperature, shift = _solve(own, fires, wanted)
        temperature = min(temperature, 1 / model.weight[visits.columns[0]])  # weights stay within [0, 1]
        prior = np.clip(expit(temperature * logit(model.prior) + shift), 1e-9, 1 - 1e-9)
        model = NoisyOr(
            prior, model.fail, model.leak, model.frozen, temperature * model.weight, temperature * model.coupling
        )
        evidence = replace(
            evidence,
            weight=temperature * evidence.weight,
            anchor_log_odds=temperature * evidence.anchor_log_odds,
        )
    return model, evidence


def _solve(log_odds: Floats, fires: Bools, wanted: tuple[float, float]) -> tuple[float, float]:
    """Temperature t and shift c with sum of expit(t log_odds + c) as wanted where the anchor fires, and where not.

    For each t one c gives the sum where it does not fire; a higher t raises the other sum. Bisection in both.
    """
    on, off = log_odds[fires], log_odds[~fires]
    low, high = 0.1, 4.0
    shift = 0.0
    for _ in range(25):
        temperature = np.sqrt(low * high)
        shift = _shift(temperature * off, wanted[1] / off.size)
        too_many = expit(temperature * on + shift).sum() > wanted[0]
        low, high = (low, temperature) if too_many else (temperature, high)
    return float(np.sqrt(low * high)), shift


def _truth(assembled: tuple[NoisyOr, Evidence], judge: _Visits, rates: _Rates) -> Floats:
    """(P,) probability that the anchor of each held-out pair is true: P(Y_i=1 | visit), shifted for each condition so
    that its mean over visits with the anchor is P(Y_i=1 | A_i=1)."""
    model, evidence = assembled
    rows, where = np.unique(judge.pairs.visit, return_inverse=True)
    X = judge.X[rows]
    found = posterior(model, X, evidence=evidence(X), tolerance=1e-2, budget=2000, top=0).marginals
    own = logit(np.clip(found[where, judge.pairs.hidden], 1e-9, 1 - 1e-9))
    truth = np.zeros(len(judge.pairs))
    for i, ppv in enumerate(rates.ppv):
        mine = judge.pairs.hidden == i
        if mine.any():
            truth[mine] = expit(own[mine] + _shift(own[mine], ppv))
    return truth


def _share(found: Bools) -> float:
    """Share of True, away from 0 and 1 by half a count."""
    return float((found.sum() + 0.5) / (len(found) + 1))


def _choose(penalties: tuple[float | None, ...], trials: dict[str, tuple[float, float]]) -> float | None:
    """The penalty that finds most trusted anchors, of those whose gain on distrusted ones is not out of proportion."""
    base = logit(trials[str(penalties[0])])
    gains = {penalty: logit(trials[str(penalty)]) - base for penalty in penalties}
    fair = [penalty for penalty, (trusted, distrusted) in gains.items() if distrusted <= PROPORTION * trusted]
    return max(fair or penalties[:1], key=lambda penalty: trials[str(penalty)][0])


def _shift(log_odds: Floats, mean: float) -> float:
    """What to add to log odds so that the mean probability is `mean`, by bisection."""
    low, high = -40.0, 40.0
    for _ in range(50):
        middle = 0.5 * (low + high)
        low, high = (low, middle) if expit(log_odds + middle).mean() > mean else (middle, high)
    return 0.5 * (low + high)
