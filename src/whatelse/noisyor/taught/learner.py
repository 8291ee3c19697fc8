"""From a joint model that anchors taught, and labelled visits, to a joint model that both taught.

1. What is believed of every condition of the labelled visits: labels as they are, where people may err or said nothing
   what the model makes of what was said (`said.py`).
2. Pseudo-likelihood of the labels (`pseudo.py`): biases, how much the anchors' evidence counts, couplings, explaining
   away, and a correction of what each finding says.
3. Couplings are taken down, all by the same, until no visit is expected to have far more conditions than any has: pairs
   say nothing of states with a dozen conditions on, and many couplings above zero would make such states the likeliest.
4. Fields of the labelled visits from fits that did not see them, and how sure these prove to be (`shape.py`). Where
   some of it is believed and not known, once more from 1, with what was learned: a step of EM.
5. Where people may have erred, what is unlikely is made as likely as leaves as many conditions in all as there are: one
   wrong confirmation in twenty hides whether a tag is true once in a hundred visits or once in fifty.
6. The joint model of both: the same certified search answers it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import scipy.sparse as sp
from scipy.special import expit

from whatelse.errors import ModelError
from whatelse.noisyor.evidence import Evidence
from whatelse.noisyor.inference.posterior import posterior
from whatelse.noisyor.joint import JointModel
from whatelse.noisyor.params import LARGEST, NoisyOr
from whatelse.noisyor.recalibration import length_of
from whatelse.noisyor.taught.alone import Alone
from whatelse.noisyor.taught.nearby import DEEPEST, Nearby
from whatelse.noisyor.taught.pseudo import Lesson, Taught, teach, unlike
from whatelse.noisyor.taught.said import SURE, believed, is_sure, log_odds
from whatelse.noisyor.taught.shape import Shape, fit_shape
from whatelse.types import Bools, Floats, Ints

FOLDS, FOLD_STEPS = 3, 40
JUDGES, MANY = 300, 8  # visits by which couplings are judged; conditions that a visit may be expected to have
STEEPER, FLATTER, HALVINGS = 2.0, 0.5, 7  # slopes below the first knot that are looked at, and how closely
DOWN, STEPS_DOWN = 0.1, 30  # by which couplings are lowered, and how often at most
ROUNDS = 2  # of believing and learning, where not all is known; more of them change little and drift
SHAPE_ON = 8_000  # labelled visits that the shape is learned from, at most


@dataclass(frozen=True, eq=False)
class FromLabels:
    """The joint model; taught and shape say what the labels did."""

    model: JointModel
    taught: Taught
    shape: Shape


def fit_labels(
    model: JointModel,
    anchor_columns: Any,
    X: sp.csr_matrix,
    Y: Bools | Floats,
    known: Bools,
    *,
    weight: Floats | None = None,
    centre: Floats | None = None,
    among: tuple[sp.csr_matrix, float] | None = None,
    seed: int = 0,
) -> FromLabels:
    """Teach a model the labels Y (L, m), where known (L, m), of visits X (L, n). O(nnz m) a step.

    Y       0 or 1, or the chance that it is 1 by what people said alone, where those who said it may have erred
    weight  (L,) or (L, m) how many visits each label that is sure stands for, up to a factor; None: one each, as
            what is not sure does (`said.py`)
    centre  (n,) how common each finding is among all visits; None: among these
    among   some of all visits (V, n), and how many conditions each has on average: sets what is unlikely where
            people may have erred: they hardly tell one in a hundred from one in fifty
    """
    if not known.any():
        raise ModelError("no label is known: nothing to teach")
    x = sp.csr_matrix(X, dtype=np.float64)
    told = log_odds(Y, known)
    w = _weights(weight, is_sure(told))
    alone = Alone.of(model, anchor_columns)
    average = np.asarray(x.mean(0)).ravel() if centre is None else np.asarray(centre, float)
    length = length_of(np.diff(x.indptr).astype(float), np.full(len(known), average.sum()))
    rng = np.random.default_rng(seed)
    judges = x[np.sort(rng.permutation(len(known))[:JUDGES])]
    fold = rng.integers(0, FOLDS, len(known))
    start = shape = Shape.of(model.evidence)
    fields, coupling, kappa = alone(x), model.noisyor.coupling, alone.kappa
    crossed = fields
    for _ in range(1 if is_sure(told).all() else ROUNDS):
        belief = believed(x, model.noisyor, alone.ordinary, shape(crossed, length), told, coupling, kappa, shape.real)
        lesson = Lesson(x, np.where(known, belief, np.nan), fields, alone.taken(x, belief > 0.5), belief, w)
        most = max(MANY, 2 * int(belief.sum(1).max()))
        taught = teach(lesson, model.noisyor.coupling, alone.kappa)
        taught = _held_down(taught, lambda t: assembled(alone, t, start, average), judges, most)
        coupling, kappa = taught.coupling, taught.kappa
        crossed = _crossed(lesson, alone, taught, fold)
        shape = _shape(lesson, alone, taught, crossed, told, length, rng, start)
    if among is not None and not is_sure(told)[known].all():
        shape = _in_all(lambda s: assembled(alone, taught, s, average), shape, *among)
    taught = _held_down(taught, lambda t: assembled(alone, t, shape, average), judges, most)
    return FromLabels(assembled(alone, taught, shape, average), taught, shape)


def _weights(weight: Floats | None, sure: Bools) -> Floats:
    """(L, m), one on average over the labels that are sure, and one elsewhere."""
    if weight is None or not sure.any():
        return np.ones(sure.shape)
    given = np.asarray(weight, float)
    whole = np.broadcast_to(given[:, None] if given.ndim == 1 else given, sure.shape)
    return np.where(sure, whole / whole[sure].mean(), 1.0)


def _held_down(taught: Taught, make: Callable[[Taught], JointModel], x: sp.csr_matrix, most: int) -> Taught:
    """Couplings lowered until no visit x, its likeliest condition confirmed, is expected to have more than `most`.

    In steps, and one step more for visits not looked at; as they are if that holds from the start.
    """
    off = 1 - np.eye(len(taught.bias))
    for step in range(STEPS_DOWN):
        lower = replace(taught, coupling=taught.coupling - step * DOWN * off)
        model = make(lower)
        if most >= model.m or not _runs_away(model, x, most):
            return lower if step == 0 else replace(lower, coupling=lower.coupling - DOWN * off)
    raise ModelError(
        "labels couple the conditions so strongly that visits with nearly all of them become the likeliest: look for "
        "labelled visits that have many conditions at once, and for conditions that are labelled alike"
    )


def _runs_away(model: JointModel, x: sp.csr_matrix, most: int) -> bool:
    """Whether some visit is expected to have more than `most` conditions, once its likeliest is confirmed."""
    alone = posterior(model, x, tolerance=1e-2, budget=2000, top=0).marginals
    if (alone.sum(1) > most).any():
        return True
    likeliest = np.arange(model.m) == alone.argmax(1)[:, None]
    after = posterior(model, x, confirmed=likeliest, tolerance=1e-2, budget=2000, top=0).marginals
    return bool((after.sum(1) > most).any())


def _crossed(lesson: Lesson, alone: Alone, taught: Taught, fold: Ints) -> Floats:
    """(L, m) fields of visits by fits to the others; by what all of them taught where a fold is all or none."""
    fields = taught.fields(lesson.x, lesson.alone)
    for k in range(FOLDS):
        out = fold == k
        if out.any() and not out.all():
            rest = teach(
                lesson.rows(np.flatnonzero(~out)), alone.model.noisyor.coupling, alone.kappa,
                precision=taught.precision, steps=FOLD_STEPS,
            )  # fmt: skip
            fields[out] = rest.fields(lesson.x[out], lesson.alone[out])
    return fields


def _shape(
    lesson: Lesson, alone: Alone, taught: Taught, fields: Floats, told: Floats, length: Floats,
    rng: np.random.Generator, start: Shape,
) -> Shape:  # fmt: skip
    """By some of the visits, those with more sure conditions than any of the states near them left out."""
    some = np.flatnonzero((told == SURE).sum(1) <= DEEPEST)
    if not some.size:
        return start
    some = np.sort(rng.permutation(some)[:SHAPE_ON])
    h, said, known = fields[some], told[some], ~np.isnan(lesson.y[some])
    near = Nearby.of(lesson.x[some], alone.model.noisyor, alone.ordinary, h + said)
    weight = (lesson.weight[some] * known).sum(1) / np.maximum(known.sum(1), 1)
    return fit_shape(h, length[some], said, weight, near, taught.coupling, taught.kappa, start, unlike(known))


def _in_all(make: Callable[[Shape], JointModel], shape: Shape, x: sp.csr_matrix, total: float) -> Shape:
    """Steeper or flatter below the first knot, nowhere else, so that visits x are expected to have `total` each."""

    def more(steeper: float) -> float:
        found = posterior(make(shape.below(steeper)), x, tolerance=1e-2, budget=1000, top=0)
        return float(found.marginals.sum(1).mean()) - total

    low, high = (0.0, STEEPER) if more(0.0) > 0 else (-FLATTER, 0.0)
    for _ in range(HALVINGS):
        middle = (low + high) / 2
        low, high = (middle, high) if more(middle) > 0 else (low, middle)
    return shape.below((low + high) / 2)


def assembled(alone: Alone, taught: Taught, shape: Shape, centre: Floats) -> JointModel:
    """The taught fields as prior and evidence around the noisy-or, whose ordinary findings count kappa.

    Wanted: field_i = bias_i + scale_i alone_i(x) + w_i . x. What the noisy-or says already is taken off the evidence.
    An anchor that is excused says nothing, so what it would have told is scaled along.
    """
    noisyor, old = alone.model.noisyor, alone.model.evidence
    kappa = float(np.clip(taught.kappa, 0.0, 1.0))
    weight = np.where(alone.ordinary, kappa, noisyor.weight)
    scale = taught.scale[:, None]
    before, after = noisyor.weight * alone.ratio, weight * alone.ratio
    total = scale * (old.weight + before) + taught.weight  # (m, n) slope of the field by each finding
    slope = total - after  # of which the noisy-or brings `after`
    said = (noisyor.weight * alone.log_fail).sum(1)
    at_centre = alone.prior + old.weight @ (centre - old.centre) + before @ centre + said
    at_centre = taught.bias + taught.scale * at_centre + taught.weight @ centre
    bias = at_centre - after @ centre - (weight * alone.log_fail).sum(1)
    log_odds = np.clip(bias + shape.shift, -LARGEST, LARGEST)  # what is beyond goes into the evidence
    coupling = (taught.coupling + taught.coupling.T) / 2
    np.fill_diagonal(coupling, 0.0)
    evidence = Evidence(
        slope, centre, old.excuse, old.anchor_columns, scale.T * old.anchor_log_odds,
        bias=bias + shape.shift - log_odds, field_weight=total, field_centre=at_centre, curve=shape.curve,
        real=shape.real,
    )  # fmt: skip
    return JointModel(NoisyOr(expit(log_odds), noisyor.fail, noisyor.leak, noisyor.frozen, weight, coupling), evidence)
