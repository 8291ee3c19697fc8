"""Updates: how confirming or rejecting one tag changes the accuracy of the other tags of a visit.

Three moves are made on labelled visits, and every *other* tag is looked at before and after:

    confirmed           every true tag of a visit confirmed, one at a time
    likeliest confirmed the likeliest tag, where it is true and at least `SHOWN`
    likeliest rejected  the likeliest tag, where it is false and at least `SHOWN`

All true tags of a visit are confirmed, not one drawn at random: else visits with many tags would count once, and the
other tags would look rarer than they are. Log loss is per tag; a ratio below one says that the move made the others
better. Expected over observed is the number of other conditions that the probabilities add up to, over those there
were.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse as sp

from whatelse.evaluation.reliability import CLIP, ratio, reliability
from whatelse.noisyor.heldout_metrics import Interval
from whatelse.noisyor.inference.posterior import posterior
from whatelse.noisyor.joint import Model
from whatelse.types import Bools, Floats

SHOWN = 0.2  # the probability from which on a tag is taken to be looked at
TOLERANCE, BUDGET = 1e-4, 20_000  # of the posteriors that are measured
Answer = Callable[[sp.csr_matrix, Bools | None, Bools | None], Floats]
"""What is measured: (visits X (V, n), confirmed (V, m), rejected (V, m)) -> probabilities (V, m)."""


def answers_of(model: Model) -> Answer:
    """The answers of a model, to a tolerance that log losses need."""

    def answer(X: sp.csr_matrix, confirmed: Bools | None, rejected: Bools | None) -> Floats:
        return posterior(
            model, X, confirmed=confirmed, rejected=rejected, tolerance=TOLERANCE, budget=BUDGET, top=0
        ).marginals

    return answer


@dataclass(frozen=True, eq=False)
class Move:
    """One kind of move, made K times.

    visit          (K,) which of the visits;  subject (K,) the condition that was decided
    before, after  (K, m) probabilities;  truth (K, m)
    """

    visit: Any
    subject: Any
    before: Floats
    after: Floats
    truth: Bools

    def __len__(self) -> int:
        return len(self.subject)

    @property
    def others(self) -> Bools:
        """(K, m) every condition but the one that was decided."""
        return ~one_of(self.subject, self.truth.shape[1])


def moves(answer: Answer, X: sp.csr_matrix, Y: Bools, before: Floats) -> dict[str, Move]:
    """All three kinds on visits X (V, n) with truth Y (V, m) and probabilities before (V, m). One posterior a move."""
    likeliest = before.argmax(1)
    rows = np.arange(len(Y))
    shown, true = before[rows, likeliest] >= SHOWN, Y[rows, likeliest]

    def made(visit: Any, subject: Any, yes: bool) -> Move:
        decided = one_of(subject, Y.shape[1])
        after: Floats = np.zeros(decided.shape)
        if len(visit):
            after = answer(X[visit], decided if yes else None, None if yes else decided)
        return Move(visit, subject, before[visit], after, Y[visit])

    visit_of, true_tag = np.nonzero(Y)
    return {
        "confirmed": made(visit_of, true_tag, yes=True),
        "likeliest confirmed": made(rows[shown & true], likeliest[shown & true], yes=True),
        "likeliest rejected": made(rows[shown & ~true], likeliest[shown & ~true], yes=False),
    }


@dataclass(frozen=True)
class Update:
    """What a kind of move does to the other tags, with bootstrap intervals over visits.

    loss        log loss per tag after over before;  before, after: the two
    expected    expected over observed number of other conditions, after the move;  expected_before: before it
    reliability (bins) of the others' probabilities after the move
    """

    times: int
    visits: int
    loss: Interval
    before: float
    after: float
    expected: Interval
    expected_before: Interval
    bins: tuple[dict[str, Any], ...]


def update(move: Move, *, resamples: int = 1000, seed: int = 0) -> Update:
    """Sum a kind of move up."""
    others = move.others
    losses = [np.where(others, log_loss(p, move.truth), 0.0).sum(1) for p in (move.before, move.after)]
    expected = [np.where(others, p, 0.0).sum(1) for p in (move.before, move.after)]
    observed = (move.truth & others).sum(1).astype(float)
    options: dict[str, Any] = {"groups": move.visit, "resamples": resamples, "seed": seed}
    count = max(int(others.sum()), 1)
    return Update(
        len(move),
        len(np.unique(move.visit)),
        ratio(losses[1], losses[0], **options),
        float(losses[0].sum() / count),
        float(losses[1].sum() / count),
        ratio(expected[1], observed, **options),
        ratio(expected[0], observed, **options),
        reliability(move.after[others], move.truth[others]),
    )


def log_loss(probability: Floats, truth: Bools | Floats) -> Floats:
    """-log P(truth), of the same shape. truth: 0 or 1, or the probability that a label is true (cross entropy).

    Probabilities are kept `CLIP` away from 0 and 1.
    """
    p = np.clip(probability, CLIP, 1 - CLIP)
    loss: Floats = -(truth * np.log(p) + (1 - truth.astype(float)) * np.log1p(-p))
    return loss


def one_of(subject: Any, m: int) -> Bools:
    """(K, m): True at condition subject[k] of row k."""
    marked: Bools = np.asarray(subject)[:, None] == np.arange(m)
    return marked
