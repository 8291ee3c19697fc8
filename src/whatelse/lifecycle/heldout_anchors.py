"""Held-out anchors of two models whose anchors differ: which condition's anchor was hidden? Needs no label.

In a visit where the anchor of condition i fires for both models it is hidden from both, and both say how likely each
anchor is to fire, P(A_c=1 | rest). Unobserved are, as in the paper, the hidden anchor and all that are silent. The
candidates, the same for both, are i and the conditions whose anchors are silent for both: where an accepted phrase
makes one model's anchor fire, ranking that condition high is no mistake of the other. A visit in which only one model's
anchor of i fires is not asked about: one of them would have been told what the other must guess.
"""

from __future__ import annotations

import numpy as np

from whatelse.lifecycle.model_view import ModelView
from whatelse.lifecycle.paired import LEVEL, OTHERS_LEVEL, Resamples, Row, paired_row
from whatelse.noisyor.heldout_metrics import heldout_anchor_draws, hidden_anchor, ranking
from whatelse.types import Bools, Floats, Ints

ANCHOR_RANK = "held-out anchor: reciprocal rank"
VISITS = 2_000


def heldout_anchor_rows(old: ModelView, new: ModelView, *, visits: int = VISITS, seed: int = 0) -> list[Row]:
    """Accuracy and reciprocal rank with intervals; nothing where no anchor fires for both. 2 posteriors a visit."""
    fired = anchors_of(old), anchors_of(new)
    both = fired[0] & fired[1]
    if not both.any():
        return []
    draws = heldout_anchor_draws(both, seed=seed, visits=visits)
    (hidden,) = draws.hidden
    candidates = ~(fired[0] | fired[1])[draws.rows]
    candidates[np.arange(len(hidden)), hidden] = True
    scores = [ranking(_scores(side.rows(draws.rows), hidden), candidates, hidden) for side in (old, new)]
    draw, one = Resamples(seed), np.ones(len(hidden))
    measures = (("held-out anchor: accuracy", 0, OTHERS_LEVEL), (ANCHOR_RANK, 2, LEVEL))
    return [
        paired_row(name, scores[0][:, k], scores[1][:, k], one, draw, good=True, level=level)
        for name, k, level in measures
    ]


def anchors_of(side: ModelView) -> Bools:
    """(V, m) which of the compared conditions' anchors fire."""
    columns = side.tagger.vocabulary_.anchor_columns[side.of]
    fired: Bools = side.X[:, columns].toarray().astype(bool)
    return fired


def _scores(side: ModelView, hidden: Ints) -> Floats:
    """(V, m) P(A_c=1 | rest) of the compared conditions, with the anchor of condition hidden[v] of visit v hidden."""
    columns = side.tagger.vocabulary_.anchor_columns
    return hidden_anchor(side.tagger.model_, side.X, columns, side.of[hidden])[0][:, side.of]
