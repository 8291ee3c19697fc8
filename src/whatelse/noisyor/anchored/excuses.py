"""Excuses: findings that give an anchor away as a mere mention, found without a label.

If an anchor depends on nothing but its condition, cases split s : 1 - s between visits where it fires and visits where
it is silent (s the sensitivity), whatever finding j is beside it:

    true anchors beside j  =  s / (1 - s) * cases with j and a silent anchor.                                    (count)

The right side is at most s / (1 - s) times all visits with j and a silent anchor, and beside "childhood" or "well
controlled" asthma's anchor is never silent: none of those anchors can be true. Where the bound does not bite ("prior"
beside suicidal ideation, a word with other uses), the cases are counted by how those visits' other findings speak.

Mentions can be true, though: "low" is found only beside "back pain". So a finding is an excuse only if, beside it and
the anchor, other findings speak less than half as much for the condition as beside the condition's other anchors. Its
mates, which come with j wherever the anchor fires and so are parts of the same phrase, have no say in that. A mention
stands in a visit like others: where the rest speaks as clearly against the condition, as in one text copied over and
over with a word changed, scores learned from other visits tell nothing, and nothing is excused.                  (rest)

Many findings are tried: the rest must say less than half by so many standard errors that one excuse in twenty
conditions would be found by chance. Visits that are alike in every finding count once.

Findings speak by the scores of a naive noisy-or, learned from the other half of the visits. Findings that break the
bound are taken first, and the scores learned anew without the anchors they excuse, until there are none; then the rest.

Where an excuse is present the anchor says nothing about its condition, and the excuse is no evidence for it.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import scipy.sparse as sp
from numpy.typing import ArrayLike
from scipy.stats import t as student

from whatelse.noisyor.evidence import excused
from whatelse.noisyor.mle import mle_model
from whatelse.noisyor.params import NoisyOr
from whatelse.types import Bools, Floats, Ints

CONFIDENCE = 2.0  # standard errors by which cases may be undercounted
WRONG = 0.05  # excuses of a condition that may be found by chance, of all that are tried
LIFT = 3.0  # an anchor that fires less than so many times more often beside j than elsewhere needs no excuse
LEAST = 8  # anchors beside j from which on it is tested
HALF = 0.5  # of the anchors beside j may be true, and of what the rest says beside other anchors may be said, at most
ROUNDS = 8
MOST = 60_000  # visits that are looked at


def only(X: sp.csr_matrix, keep: Bools) -> sp.csr_matrix:
    """Visits X (N, n) with these findings (n,) and no others; the same columns, as floats."""
    x = sp.csr_matrix(sp.csr_matrix(X, dtype=np.float64) @ sp.diags(keep.astype(float)))
    x.eliminate_zeros()
    return x


def find_excuses(
    X: sp.csr_matrix,
    anchor_columns: ArrayLike,
    prior: ArrayLike,
    sensitivity: ArrayLike,
    rng: np.random.Generator,
    refused: Bools | None = None,
) -> Bools:
    """(m, n) bool: finding j excuses the anchor of condition i. Anchors excuse nothing, nor does what is refused."""
    columns = np.asarray(anchor_columns, np.int64)
    pi, s = np.asarray(prior, float), np.clip(np.asarray(sensitivity, float), 1e-9, 1 - 1e-9)
    X = _distinct(sp.csr_matrix(X[np.sort(rng.permutation(X.shape[0])[:MOST])], dtype=np.float64))
    x = only(X, np.isin(np.arange(X.shape[1]), columns, invert=True))
    fires = X[:, columns].toarray() > 0
    side = (rng.random(len(fires)) < 0.5).astype(np.int64)
    excuse = np.zeros((len(columns), X.shape[1]), bool)
    never = np.zeros_like(excuse) if refused is None else refused
    for _ in range(ROUNDS):
        trusted = fires & ~excused(x, excuse)
        visits = _Visits.of(x, side, _scores(x, trusted, side, pi, excuse))
        ppv = np.clip(s * pi / np.maximum(trusted.mean(0), 1e-12), 0.02, 0.98)  # what is excused is taken to be false
        broken, found = np.zeros_like(excuse), np.zeros_like(excuse)
        for i in range(len(columns)):
            broken[i], found[i] = _tested(visits, i, trusted[:, i], ~fires[:, i], ppv[i], s[i], ~excuse[i] & ~never[i])
        if not found.any():
            break
        excuse |= broken if broken.any() else found
    return excuse


def _distinct(X: sp.csr_matrix) -> sp.csr_matrix:
    """Visits X (N, n), each kind of visit once: what was copied forty times has been said once. O(nnz)."""
    X.sort_indices()
    first: dict[bytes, int] = {}
    for v, (start, end) in enumerate(pairwise(X.indptr)):
        first.setdefault(X.indices[start:end].tobytes(), v)
    return X[np.fromiter(first.values(), np.int64, len(first))]


def refuted(X: sp.csr_matrix, anchor_columns: ArrayLike, Y: Bools, known: Bools) -> Bools:
    """(m, n) bool: labels say that beside finding j the anchor of condition i is true at least as often as false.

    X (L, n) are labelled visits, Y and known (L, m). O(nnz m). What is refuted so cannot be an excuse.
    """
    fires = (X[:, np.asarray(anchor_columns, np.int64)].toarray() > 0) & known
    x = sp.csr_matrix(X, dtype=np.float64)
    true, false = (np.asarray((x.T @ who.astype(float)).T) for who in (fires & Y, fires & ~Y))
    against: Bools = (true > 0) & (true >= false)
    return against


@dataclass(frozen=True, eq=False)
class _Visits:
    """Findings x without anchors by row and by column, each visit's half, and the scores (2, m, n) for either.

    total  (N, m) what all findings of a visit say
    """

    x: sp.csr_matrix
    by_finding: sp.csc_matrix
    side: Ints
    scores: Floats
    total: Floats

    @classmethod
    def of(cls, x: sp.csr_matrix, side: Ints, scores: Floats) -> _Visits:
        total: Floats = np.where((side == 0)[:, None], x @ scores[0].T, x @ scores[1].T)
        return cls(x, x.tocsc(), side, scores, total)

    def said(self, score: Floats, rows: Ints) -> Floats:
        """(R,) what the findings of some visits say, by a score (2, n) for either half."""
        said: Floats = (self.x[rows] @ score.T)[np.arange(rows.size), self.side[rows]]
        return said


def _scores(x: sp.csr_matrix, A: Bools, side: Ints, prior: Floats, excuse: Bools) -> Floats:
    """(2, m, n) log likelihood ratios of present findings by the naive noisy-or of the other half; 0 for excuses."""
    found = []
    for other in (1, 0):
        model = mle_model(x[side == other], A[side == other], prior=prior)
        found.append(np.where(excuse, 0.0, _log_ratios(model)))
    return np.stack(found)


def _log_ratios(model: NoisyOr) -> Floats:
    """(m, n) log P(X_j=1 | Y_i=1) / P(X_j=1) - log P(X_j=0 | Y_i=1) / P(X_j=0), all other conditions absent."""
    fail, leak = np.clip(model.fail, 1e-3, 1.0), np.clip(model.leak, 1e-6, 1 - 1e-6)
    ratios: Floats = np.log((1 - (1 - leak) * fail) / (leak * fail))
    return ratios


def _tested(
    visits: _Visits, i: int, fires: Bools, silent: Bools, ppv: float, sensitivity: float, open_: Bools
) -> tuple[Bools, Bools]:
    """(n,) findings that break the bound of the anchors, and all that are excuses. O(candidates * their visits)."""
    x = visits.x
    by_half = [
        np.stack([np.asarray(x[who & (visits.side == half)].sum(0)).ravel() for half in (0, 1)])
        for who in (fires, silent)
    ]
    beside, without = (counts.sum(0) for counts in by_half)
    anchors, quiet = int(fires.sum()), int(silent.sum())
    lower = _wilson_lower(beside, beside + without)
    broken, found = np.zeros(x.shape[1], bool), np.zeros(x.shape[1], bool)
    candidates = np.flatnonzero(
        open_ & (beside >= LEAST) & (beside < anchors) & (lower > LIFT * anchors / len(fires))
        & (HALF * beside < (1 - ppv) * anchors)  # no more are excused than are false
    )  # fmt: skip
    if not candidates.size or not quiet:
        return broken, found

    needed = _t_quantiles(WRONG / candidates.size, anchors)

    def means(score: Floats) -> tuple[float, float]:
        """Of a score (2, n), by half: over all visits with the anchor, and over those where it is silent."""
        return float((by_half[0] * score).sum()) / anchors, float((by_half[1] * score).sum()) / quiet

    for j, mates in zip(candidates, _mates(x[fires], candidates, beside), strict=True):
        rows = visits.by_finding.indices[visits.by_finding.indptr[j] : visits.by_finding.indptr[j + 1]]
        score = np.where(mates, 0.0, visits.scores[:, i])
        with_anchor, base = means(score)
        near = visits.said(score, rows[fires[rows]])
        far = (with_anchor * anchors - near.sum()) / (anchors - near.size)
        said, limit = near.mean() - base, HALF * (far - base)
        if said + needed[near.size] * _error(near) >= limit or said < -limit:
            continue
        broken[j] = lower[j] > sensitivity
        with_anchor, base = means(np.where(np.arange(x.shape[1]) == j, 0.0, visits.scores[:, i]))
        of_case = (with_anchor - base) / ppv  # visits with the anchor are a mixture of cases and others
        others = rows[silent[rows]]
        alone = visits.total[others, i] - visits.scores[visits.side[others], i, j]
        cases = 0.0
        if alone.size and of_case > 0:
            share = np.clip((alone.mean() - base) / of_case, 0, 1) + CONFIDENCE * _error(alone) / of_case
            cases = alone.size * share
        found[j] = broken[j] or (of_case > 0 and sensitivity / (1 - sensitivity) * cases < HALF * near.size)
    return broken, found


def _mates(x: sp.csr_matrix, candidates: Ints, count: Floats) -> Bools:
    """(c, n) findings that come with a candidate, among visits x with the anchor, far more often than without it."""
    together = np.asarray((x[:, candidates].T @ x).todense())
    with_j = count[candidates, None]
    near, far = together / with_j, (count - together) / (x.shape[0] - with_j)
    error = np.sqrt(far * (1 - far) / with_j + 1e-4)
    mates: Bools = (near > far + 2 * CONFIDENCE * error) & (near > 2 * far)
    mates[np.arange(candidates.size), candidates] = True
    return mates


def _wilson_lower(hits: Floats, count: Floats) -> Floats:
    """Lower end of Wilson's interval of a share, which is far below 1 where there are few."""
    n, z2 = np.maximum(count, 1e-12), CONFIDENCE**2
    rate = hits / n
    half = CONFIDENCE * np.sqrt(np.maximum(rate * (1 - rate), 0) / n + z2 / (4 * n**2))
    lower: Floats = (rate + z2 / (2 * n) - half) / (1 + z2 / n)
    return lower


def _t_quantiles(chance: float, most: int) -> Floats:
    """Standard errors that the mean of k values passes with that chance, for k = 0 … most; none for fewer than two."""
    freedom = np.maximum(np.arange(most + 1) - 1, 0)
    quantiles: Floats = np.where(freedom > 0, student.isf(chance, np.maximum(freedom, 1)), np.inf)
    return quantiles


def _error(values: Floats) -> float:
    """Standard error of the mean; of a single value, or none, nothing is known."""
    return float(values.std(ddof=1) / np.sqrt(values.size)) if values.size > 1 else np.inf
