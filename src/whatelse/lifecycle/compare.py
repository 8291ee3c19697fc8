"""Two models on the same visits: is the new one better, not worse, or worse than the old one?

Every measure is taken of each visit by both models, and the differences of visits are resampled: what the visits have
in common drops out. Two models may differ in findings (words of an anchor are no findings) and in conditions: each
reads the visits with its own vocabulary, and both are asked about the conditions that both know. Only labels that are
known count, so visits may be labelled in part. Losses are of the labels' *chance*: a decision that may be wrong counts
for both sides.

    held-out tag  accuracy and mean reciprocal rank (visits with two true tags or more; one is hidden)
    log loss      per label, nothing confirmed
    confirmed     log loss of the other labels once a true tag is confirmed, every true tag in turn
    rejected      the same once the likeliest false tag (by both models together) is rejected
    reliability   calibration error over bins of predicted probability, of labels to which either gives 2% or more

The verdict. *Worse*: the 95% interval of log loss or of the held-out tag's reciprocal rank lies wholly on the wrong
side of zero, or the 99% interval of any other measure does, and the difference matters: at least 1% of the old log
loss, 0.005 of rank, accuracy or calibration error (`matters`). *Better*: one of those two lies wholly on the right
side, and nothing is worse. *Not worse*: both intervals exclude a loss of more than the margin, 5% of the old log loss
and 0.02 of reciprocal rank. Else *not known*: too few labels to tell.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, Literal

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from whatelse.annotators.label_set import LabelSet
from whatelse.cohort import Cohort
from whatelse.errors import CohortError
from whatelse.evaluation.calibration import EDGES, answers_of, log_loss, one_of
from whatelse.noisyor.heldout_metrics import (
    heldout_anchor_draws,
    heldout_tag_draws,
    hidden_anchor,
    ranking,
    resample_counts,
)
from whatelse.tagger import Tagger
from whatelse.types import Bools, Floats

Verdict = Literal["better", "not worse", "not known", "worse"]
LOSS_MARGIN, RANK_MARGIN = 0.05, 0.02
SMALLEST_LOSS, SMALLEST = 0.01, 0.005  # difference that matters: share of the old log loss; of any other measure
RELIABILITY = "reliability: calibration error"
PRIMARY = ("log loss", "held-out tag: reciprocal rank")
ANCHOR_RANK = "held-out anchor: reciprocal rank"
VISITS, ANCHOR_VISITS = 5_000, 2_000
SEEN = 0.02
LEVEL, OTHERS_LEVEL = 0.95, 0.99
RESAMPLES = 2_000


# ---- two models side by side


@dataclass(frozen=True, eq=False)
class ModelView:
    """A model, the visits X (V, n) in its own findings, and which of its conditions the m compared ones are, (m,)."""

    tagger: Tagger
    X: sp.csr_matrix
    of: NDArray[np.intp]

    @classmethod
    def about(cls, tagger: Tagger, X: sp.csr_matrix, conditions: Sequence[str]) -> ModelView:
        """The side of a model that knows all these conditions."""
        return cls(tagger, X, np.array([tagger.conditions_.index(c) for c in conditions], np.intp))

    def rows(self, which: Any) -> ModelView:
        """The same model with some of the visits, or with visits several times."""
        return ModelView(self.tagger, self.X[which], self.of)

    def answer(self, confirmed: Bools | None = None, rejected: Bools | None = None) -> Floats:
        """(V, m) probabilities, given what is confirmed and rejected, each (V, m)."""
        masks = (None if mask is None else self._own(mask) for mask in (confirmed, rejected))
        return answers_of(self.tagger.model_)(self.X, *masks)[:, self.of]

    def heldout(self, confirmed: Bools) -> Floats:
        """(V, m) which one condition is on besides those confirmed."""
        return self.tagger.heldout_tag(self.X, self._own(confirmed))[:, self.of]

    def _own(self, mask: Bools) -> Bools:
        """(V, m) as (V, number of the model's own conditions)."""
        wide = np.zeros((len(mask), len(self.tagger.conditions_)), bool)
        wide[:, self.of] = mask
        return wide


def shared_conditions(old: Tagger, new: Tagger) -> tuple[str, ...]:
    """The conditions that both know, in the order of the old model."""
    return tuple(c for c in old.conditions_ if c in set(new.conditions_))


@dataclass(frozen=True)
class Row:
    """One measure of both models on the same visits, and new minus old with its interval. good: a rise is good."""

    measure: str
    visits: int
    old: float
    new: float
    difference: float
    low: float
    high: float
    good: bool
    says: Literal["better", "worse", "same"] = field(init=False)  # by the interval; "same" where it holds zero

    def __post_init__(self) -> None:
        same = not self.low > 0 and not self.high < 0
        says = "same" if same else "better" if (self.low > 0) == self.good else "worse"
        object.__setattr__(self, "says", says)


Draw = Callable[[int], Floats]


def resampling(seed: int = 0, resamples: int = RESAMPLES) -> Draw:
    """V -> how often each of V visits is drawn, (resamples, V): the same for all measures of as many visits."""
    return lru_cache(1)(lambda visits: np.stack(list(resample_counts(visits, resamples, seed))).astype(float))


def paired_row(
    measure: str, old: Floats, new: Floats, size: Floats, draw: Draw, *, good: bool = False, level: float = LEVEL
) -> Row:
    """sum(new - old) / sum(size), each (V,), with an interval over the visits that have any size."""
    there = size > 0
    a, b, n = old[there], new[there], size[there]
    counts = draw(len(n))
    low, high = interval((counts @ (b - a)) / (counts @ n), level)
    total = float(n.sum())
    left, right = float(a.sum()) / total, float(b.sum()) / total
    return Row(measure, len(n), left, right, right - left, low, high, good)


def interval(drawn: Floats, level: float) -> tuple[float, float]:
    low, high = np.quantile(drawn, [(1 - level) / 2, (1 + level) / 2])
    return float(low), float(high)


# ---- what it comes to


@dataclass(frozen=True)
class Comparison:
    """Rows for all conditions, rows of the log loss of each condition, and what it comes to."""

    old: str
    new: str
    visits: int
    labels: int
    rows: tuple[Row, ...]
    by_condition: tuple[Row, ...]
    verdict: Verdict
    because: str


@dataclass(frozen=True, eq=False)
class _Both:
    """Labelled visits with what both models say of them: truth, known and weight are (V, m), before two of (V, m)."""

    truth: Floats
    known: Bools
    weight: Floats
    sides: tuple[ModelView, ModelView]
    before: tuple[Floats, Floats]


def compare_models(
    old: Tagger, new: Tagger, cohort: Cohort, labels: LabelSet | None = None, **options: int
) -> Comparison:
    """Compare on the cohort's own labels, or on others; options: visits, seed and resamples as of `compare_sides`.

    Both models must have the conditions and findings of the cohort. Cost: for each model a posterior for each visit,
    each true tag and each false one that is rejected.
    """
    for tagger in (old, new):
        tagger.vocabulary_.check_same(cohort.vocabulary)
    said = LabelSet.of_cohort(cohort) if labels is None else labels
    before, after = (ModelView.about(tagger, cohort.X, cohort.conditions) for tagger in (old, new))
    return compare_sides(before, after, said, cohort.conditions, **options)


def compare_sides(
    old: ModelView,
    new: ModelView,
    said: LabelSet,
    conditions: Sequence[str],
    *,
    visits: int = VISITS,
    seed: int = 0,
    resamples: int = RESAMPLES,
) -> Comparison:
    """The same for two models that read the same visits each in its own way; `said` is of these m conditions.

    visits  labelled visits to compare on, at most, at random
    """
    labelled = np.flatnonzero(said.known.any(1))
    if not labelled.size:
        raise CohortError("no visit is labelled, and without labels nobody can tell which model is better: label some")
    rows = np.sort(np.random.default_rng(seed).permutation(labelled)[:visits])
    sides = old.rows(rows), new.rows(rows)
    known = said.known[rows]
    weight = np.where(known, said.weight[rows], 0.0)
    both = _Both(said.probability[rows], known, weight, sides, (sides[0].answer(), sides[1].answer()))
    losses = [log_loss(p, both.truth) * both.weight for p in both.before]
    draw = resampling(seed, resamples)
    found = [
        *_heldout(both, draw, seed),
        paired_row("log loss", losses[0].sum(1), losses[1].sum(1), both.weight.sum(1), draw),
        *_updates(both, draw),
        _reliability(both, draw),
    ]
    by_condition = tuple(
        paired_row(condition, losses[0][:, i], losses[1][:, i], both.weight[:, i], draw)
        for i, condition in enumerate(conditions)
        if both.weight[:, i].any()
    )
    verdict, because = judge(found)
    because = f"{because}; {by_conditions(by_condition)}"
    digests = old.tagger.digest_, new.tagger.digest_
    return Comparison(*digests, len(rows), int(both.known.sum()), tuple(found), by_condition, verdict, because)


def judge(rows: Sequence[Row], primary: Sequence[str] = PRIMARY) -> tuple[Verdict, str]:
    """The verdict on measures that were taken, and a sentence."""
    if worse := [row.measure for row in rows if row.says == "worse" and matters(row)]:
        return "worse", f"the new model is worse by {' and '.join(worse)}"
    main = [row for row in rows if row.measure in primary]
    if better := [row.measure for row in main if row.says == "better"]:
        return "better", f"the new model is better by {' and '.join(better)}, and worse by nothing"
    unsure, needed = [], 1.0
    for row in main:
        margin = RANK_MARGIN if row.good else LOSS_MARGIN * row.old
        loss = -row.low if row.good else row.high
        if loss > margin:
            unsure.append(row.measure)
            needed = max(needed, (loss / margin) ** 2)
    if not unsure:
        return "not worse", "no difference shows, and one larger than the margin would"
    more = int(np.ceil(max(row.visits for row in main) * (needed - 1) / 50) * 50)
    return "not known", (
        f"too few labelled visits to tell whether the new model is worse by {' and '.join(unsure)}; some {more:,} more "
        "would do"
    )


def matters(row: Row) -> bool:
    """Whether a difference is large enough to call a model worse for it."""
    smallest = SMALLEST if row.good or row.measure == RELIABILITY else SMALLEST_LOSS * row.old
    return abs(row.difference) >= smallest


def by_conditions(rows: Sequence[Row]) -> str:
    """Which conditions got better and which worse by their log loss, in a sentence."""
    names = {w: [row.measure for row in rows if row.says == w and matters(row)] for w in ("better", "worse")}
    said = [f"{word}: {', '.join(found)}" for word, found in names.items() if found]
    return "by condition, " + "; ".join(said) if said else "no condition differs by 1% of its log loss"


# ---- measures


def _heldout(both: _Both, draw: Draw, seed: int) -> list[Row]:
    """One true tag hidden, ranked among the tags that are known not to be true (and itself)."""
    true = both.known & (both.truth > 0.5)
    if not (true.sum(1) >= 2).any():
        return []
    draws = heldout_tag_draws(true, seed=seed, draws=3)
    scores: list[list[Floats]] = [[], []]
    for hidden in draws.hidden:
        confirmed = true[draws.rows] & ~one_of(hidden, true.shape[1])
        candidates = both.known[draws.rows] & ~confirmed
        for model, side in enumerate(both.sides):
            scores[model].append(ranking(side.rows(draws.rows).heldout(confirmed), candidates, hidden))
    return _rank_rows("held-out tag", [np.mean(s, 0) for s in scores], draw)


def _rank_rows(what: str, scores: Sequence[Floats], draw: Draw) -> list[Row]:
    """Accuracy and reciprocal rank of both models; scores: of `ranking`, (V, 3) for each model."""
    old, new = scores
    one = np.ones(len(old))
    return [
        paired_row(f"{what}: {name}", old[:, k], new[:, k], one, draw, good=True, level=level)
        for name, k, level in (("accuracy", 0, OTHERS_LEVEL), ("reciprocal rank", 2, LEVEL))
    ]


def _updates(both: _Both, draw: Draw) -> list[Row]:
    """What the models say of the others after the same tag was confirmed, and after the same was rejected."""
    true = both.known & (both.truth > 0.5)
    false = both.known & ~true
    joint = np.where(false, both.before[0] + both.before[1], -1.0)
    likeliest = joint.argmax(1)
    wrong = np.zeros_like(false)
    shown = joint.max(1) >= 2 * SEEN
    wrong[np.flatnonzero(shown), likeliest[shown]] = True
    out = []
    for name, made, yes in (("confirmed", true, True), ("rejected", wrong, False)):
        visit, subject = np.nonzero(made)
        decided = one_of(subject, made.shape[1])
        others = np.where(decided, 0.0, both.weight[visit])
        if not others.any():
            continue
        sums = []
        for side in both.sides:
            after = side.rows(visit).answer(decided if yes else None, None if yes else decided)
            sums.append((log_loss(after, both.truth[visit]) * others).sum(1))
        before, after_, size = (np.bincount(visit, s, len(made)).astype(float) for s in (*sums, others.sum(1)))
        out.append(paired_row(f"log loss of the others, one {name}", before, after_, size, draw, level=OTHERS_LEVEL))
    return out


def _reliability(both: _Both, draw: Draw) -> Row:
    """Sum over bins of |predicted - observed|, over the number of labels that are likely to either model."""
    heard = both.weight * (np.maximum(*both.before) >= SEEN)
    off = []  # for each model (V, bins): how far each visit's labels are from what was said of them
    for p in both.before:
        bin_of = np.clip(np.searchsorted(EDGES, p, side="right") - 1, 0, len(EDGES) - 2)
        off.append(np.stack([(heard * (p - both.truth) * (bin_of == k)).sum(1) for k in range(len(EDGES) - 1)], 1))
    size = heard.sum(1)

    def errors(counts: Floats) -> Floats:
        whole = np.maximum(counts @ size, 1e-300)
        return np.stack([np.abs(counts @ part).sum(-1) / whole for part in off], -1)

    old, new = errors(np.ones(len(size))).tolist()
    drawn = errors(draw(len(size)))
    low, high = interval(drawn[:, 1] - drawn[:, 0], OTHERS_LEVEL)
    return Row(RELIABILITY, len(size), old, new, new - old, low, high, False)


# ---- without labels


def heldout_anchor_rows(old: ModelView, new: ModelView, *, visits: int = ANCHOR_VISITS) -> list[Row]:
    """Held-out anchors of two models whose anchors may differ: accuracy and reciprocal rank with intervals.

    In a visit where the anchor of condition i fires for both models it is hidden from both. Both say how likely each
    anchor is to fire, P(A_c=1 | rest); the hidden anchor and all silent ones are unobserved. The candidates are i and
    the conditions whose anchors are silent for both. Empty if no anchor fires for both. Two posteriors a visit.
    """
    fired = [view.X[:, view.tagger.vocabulary_.anchor_columns[view.of]].toarray().astype(bool) for view in (old, new)]
    both = fired[0] & fired[1]
    if not both.any():
        return []
    draws = heldout_anchor_draws(both, visits=visits)
    (hidden,) = draws.hidden
    candidates = ~(fired[0] | fired[1])[draws.rows] | one_of(hidden, both.shape[1])
    scores = []
    for view in (old, new):
        columns = view.tagger.vocabulary_.anchor_columns
        chance = hidden_anchor(view.tagger.model_, view.X[draws.rows], columns, view.of[hidden])[0][:, view.of]
        scores.append(ranking(chance, candidates, hidden))
    return _rank_rows("held-out anchor", scores, resampling())
