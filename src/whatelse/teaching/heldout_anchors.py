"""Held-out anchors of two models whose anchors differ: which condition's anchor was hidden? Needs no label.

In a visit where the anchor of condition i fires for both models it is hidden from both, and both say how likely each
anchor is to fire, P(A_c=1 | rest). Unobserved are, as in the paper, the hidden anchor and all that are silent. The
candidates, the same for both, are i and the conditions whose anchors are silent for both: where an accepted phrase
makes one model's anchor fire, ranking that condition high is no mistake of the other. A visit in which only one model's
anchor of i fires is not asked about: one of them would have been told what the other must guess.
"""

from __future__ import annotations

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from whatelse.noisyor.gibbs import held_out_anchor
from whatelse.noisyor.posterior import posterior
from whatelse.noisyor.recovery import RANKING_BUDGET, RANKING_TOLERANCE, heldout_anchor_draws, ranking
from whatelse.teaching.paired import LEVEL, OTHERS_LEVEL, Resamples, Row, paired_row
from whatelse.teaching.side import Side

Floats = NDArray[np.float64]
Bools = NDArray[np.bool_]
ANCHOR_RANK = "held-out anchor: reciprocal rank"
VISITS = 2_000


def heldout_anchor_rows(old: Side, new: Side, *, visits: int = VISITS, seed: int = 0) -> list[Row]:
    """Accuracy and reciprocal rank with intervals; nothing where no anchor fires for both. 2 posteriors a visit."""
    fired = anchors_of(old), anchors_of(new)
    both = fired[0] & fired[1]
    if not both.any():
        return []
    draws = heldout_anchor_draws(both, seed=seed, visits=visits)
    (hidden,) = draws.hidden
    candidates = ~(fired[0] | fired[1])[draws.rows]
    candidates[np.arange(len(hidden)), hidden] = True
    scores = [ranking(hidden_anchor(side.rows(draws.rows), hidden), candidates, hidden) for side in (old, new)]
    draw, one = Resamples(seed), np.ones(len(hidden))
    measures = (("held-out anchor: accuracy", 0, OTHERS_LEVEL), (ANCHOR_RANK, 2, LEVEL))
    return [
        paired_row(name, scores[0][:, k], scores[1][:, k], one, draw, good=True, level=level)
        for name, k, level in measures
    ]


def anchors_of(side: Side) -> Bools:
    """(V, m) which of the compared conditions' anchors fire."""
    columns = side.tagger.vocabulary_.anchor_columns[side.of]
    fired: Bools = side.X[:, columns].toarray().astype(bool)
    return fired


def hidden_anchor(side: Side, hidden: NDArray[np.int64]) -> Floats:
    """(V, m) P(A_c=1 | rest), the anchor of condition hidden[v] of visit v and all silent ones unobserved."""
    tagger = side.tagger
    columns = tagger.vocabulary_.anchor_columns
    fired = side.X[:, columns].toarray().astype(bool)
    unseen = ~fired
    unseen[np.arange(len(hidden)), side.of[hidden]] = True
    rows, which = np.nonzero(unseen)
    unobserved = sp.csr_matrix((np.ones(rows.size, np.uint8), (rows, columns[which])), side.X.shape)
    rest = sp.csr_matrix(side.X - side.X.multiply(unobserved))
    rest.eliminate_zeros()
    marginals = posterior(
        tagger.model_, rest, unobserved, tolerance=RANKING_TOLERANCE, budget=RANKING_BUDGET, top=0
    ).marginals
    noisyor, own = tagger.model_.noisyor, np.arange(len(tagger.conditions_))
    false_positive = noisyor.leak[columns]
    sensitivity = 1 - (1 - false_positive) * noisyor.fail[own, columns]
    return held_out_anchor(marginals, sensitivity, false_positive)[:, side.of]
