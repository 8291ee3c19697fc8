"""Votes: what annotators say about the conditions of visits.

An annotator votes on conditions and may be wrong: an anchor, a person, a billing code, a language model.
A label is a vote of an annotator that never errs.

    P(vote = 1 | y = 1) = sensitivity        P(vote = 1 | y = 0) = false_positive        abstention says nothing

Votes of several sources are a list. Votes with the same annotator name share their error rates.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, get_args

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import expit, logit

from whatelse.cohort import Cohort
from whatelse.errors import CohortError
from whatelse.types import Bools, Floats

Kind = Literal["label", "person", "anchor", "name", "drug", "code", "program"]
KINDS: tuple[str, ...] = get_args(Kind)
CERTAIN = 50.0  # log odds of a vote that cannot be wrong


@dataclass(frozen=True, eq=False)
class Votes:
    """Votes of one annotator on N visits and m conditions.

    annotator       name for tables and messages
    value           (N, m) bool   True: the annotator says that the visit has the condition; False where not `known`
    known           (N, m) bool   False: the annotator abstained; (N,) is taken for whole rows
    weight          (N, m) float  visits that each vote stands for (inverse of its sampling probability); (N,) is taken
                                  for whole rows, None for 1
    kind            which prior the error rates have: a `label` never errs; `name`, `drug` and `code` are anchors by
                    the kind of their phrase, `anchor` is any of these
    sensitivity     (m,) P(vote = 1 | condition); None: not known, to be estimated
    false_positive  (m,) P(vote = 1 | no condition); None: not known, to be estimated
    """

    annotator: str
    value: Bools
    known: Bools
    weight: Floats = None  # type: ignore[assignment]
    kind: Kind = "label"
    sensitivity: Floats | None = None
    false_positive: Floats | None = None

    def __post_init__(self) -> None:
        value = np.asarray(self.value, bool)
        if value.ndim != 2:
            raise self._error(f"value has shape {value.shape}, needs (visits, conditions)")
        m = value.shape[1]
        known = self._full("known", self.known, bool, value.shape)
        weight = self._full("weight", 1.0 if self.weight is None else self.weight, float, value.shape)
        if known.any() and not (np.isfinite(weight[known]) & (weight[known] >= 0)).all():
            raise self._error("weight must be a finite number, 0 or more, wherever there is a vote")
        if self.kind not in KINDS:
            raise self._error(f"kind {self.kind!r} is none of {', '.join(KINDS)}")
        if (self.sensitivity is None) != (self.false_positive is None):
            raise self._error("give both sensitivity and false_positive, or neither")
        rates: tuple[Any, Any] = (self.sensitivity, self.false_positive)
        if self.kind == "label":
            if self.sensitivity is not None and (np.any(rates[0] != 1) or np.any(rates[1] != 0)):
                raise self._error("a label never errs: give error rates with kind 'person' or 'program'")
            rates = (np.ones(m), np.zeros(m))
        for name, rate in zip(("sensitivity", "false_positive"), rates, strict=True):
            if rate is not None:
                rate = np.broadcast_to(np.asarray(rate, float), (m,)) if np.ndim(rate) == 0 else np.asarray(rate, float)
                if rate.shape != (m,) or not ((rate >= 0) & (rate <= 1)).all():
                    raise self._error(f"{name} needs {m} numbers from 0 to 1")
            object.__setattr__(self, name, rate)
        object.__setattr__(self, "value", value & known)
        object.__setattr__(self, "known", known)
        object.__setattr__(self, "weight", weight)

    def _full(self, name: str, given: ArrayLike, dtype: type, shape: tuple[int, int]) -> Any:
        """(N, m) of a number, (N,) or (N, m); a view where it can be."""
        array: Any = np.asarray(given, dtype)
        if array.shape not in ((), shape[:1], shape):
            raise self._error(f"{name} has shape {array.shape}, needs {shape} or {shape[:1]}")
        return np.broadcast_to(array[:, None] if array.shape == shape[:1] else array, shape)

    def _error(self, what: str) -> CohortError:
        return CohortError(f"votes of {self.annotator!r}: {what}")

    # ---- where votes come from

    @classmethod
    def of_cohort(cls, cohort: Cohort) -> Votes:
        """The labels that a cohort itself has."""
        value = np.zeros(cohort.known.shape, bool) if cohort.Y is None else cohort.Y
        return cls("labels of the cohort", value, cohort.known)

    @classmethod
    def of_anchors(cls, cohort: Cohort) -> Votes:
        """Anchors: each fires or is silent in every visit, so no anchor abstains. Error rates are not known."""
        return cls("anchors", cohort.A, np.ones(cohort.A.shape, bool), kind="anchor")

    # ---- parts

    def __len__(self) -> int:
        return len(self.value)

    @property
    def visits(self) -> int:
        """Number of visits with at least one vote."""
        return int(self.known.any(1).sum())

    @property
    def certain(self) -> bool:
        """Whether these votes cannot be wrong."""
        return self.sensitivity is not None and bool(np.all(self.sensitivity == 1) and np.all(self.false_positive == 0))

    def rows(self, which: ArrayLike) -> Votes:
        """The votes on the visits of a boolean mask or of row numbers, in that order, as `Cohort.rows`."""
        rows = np.asarray(which)
        return replace(self, value=self.value[rows], known=self.known[rows], weight=self.weight[rows])

    def with_rates(self, sensitivity: ArrayLike, false_positive: ArrayLike) -> Votes:
        """The same votes with error rates, (m,) or one number for all conditions."""
        return replace(self, sensitivity=sensitivity, false_positive=false_positive)  # type: ignore[arg-type]

    # ---- what votes say

    def vote_odds(self) -> tuple[Floats, Floats]:
        """(m,) log P(vote | y = 1) - log P(vote | y = 0) of a vote 1 and of a vote 0, within +-CERTAIN."""
        if self.sensitivity is None or self.false_positive is None:
            raise self._error("error rates are not known: estimate them, or give them with `with_rates`")
        with np.errstate(divide="ignore", invalid="ignore"):
            yes = np.log(self.sensitivity) - np.log(self.false_positive)
            no = np.log1p(-self.sensitivity) - np.log1p(-self.false_positive)
        yes, no = (np.clip(np.nan_to_num(odds, nan=0.0), -CERTAIN, CERTAIN) for odds in (yes, no))
        return yes, no

    def log_odds(self) -> Floats:
        """(N, m) log P(vote | y = 1) - log P(vote | y = 0); 0 where the annotator abstained."""
        yes, no = self.vote_odds()
        return np.where(self.known, np.where(self.value, yes, no), 0.0)


def check_votes(votes: Sequence[Votes], cohort: Cohort) -> None:
    """CohortError unless all votes are on the cohort's visits and conditions."""
    shape = (len(cohort), len(cohort.conditions))
    for each in votes:
        if each.value.shape != shape:
            sizes = "{:,} visits and {} conditions; the cohort has {:,} and {}".format(*each.value.shape, *shape)
            raise CohortError(f"votes of {each.annotator!r} are on {sizes}: read the votes with this cohort")


def votes_of_belief(belief: ArrayLike, known: Bools, weight: ArrayLike | None = None) -> tuple[Votes, ...]:
    """Votes that say the same as a belief (N, m), the likelihood of each label as a probability under a 50/50 prior.

    Log odds are rounded to 0.1 and kept within 10; 0 and 1 are labels. One entry for each strength.
    """
    chance = np.asarray(belief, float)
    if chance.shape != known.shape or not ((chance >= 0) & (chance <= 1))[known].all():
        raise CohortError(f"belief needs probabilities of shape {known.shape}, from 0 to 1")
    strength = np.round(np.minimum(np.abs(logit(np.clip(chance, 1e-9, 1 - 1e-9))), 10.0), 1)
    strength[(chance == 0) | (chance == 1)] = np.inf
    weight = None if weight is None else np.nan_to_num(np.asarray(weight, float))
    out = []
    for level in np.unique(strength[known]):
        part = Votes(f"belief {level:g}", chance > 0.5, known & (strength == level), weight, "person")  # type: ignore[arg-type]
        out.append(part.with_rates(expit(level), expit(-level)))
    return tuple(out)
