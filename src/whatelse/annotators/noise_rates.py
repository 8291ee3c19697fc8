"""NoiseRates: how anchors and conditions go together, as one consistent object.

An anchor A is a noisy version of its condition Y. Three numbers say all there is to say about the pair:

    prior           P(Y = 1)
    sensitivity     P(A = 1 | Y = 1)
    false_positive  P(A = 1 | Y = 0)

and the other three follow from them by Bayes' rule:

    anchor_rate     P(A = 1)         = sensitivity prior + false_positive (1 - prior)
    ppv             P(Y = 1 | A = 1) = sensitivity prior / anchor_rate
    fn              P(Y = 1 | A = 0) = (1 - sensitivity) prior / (1 - anchor_rate)

Whichever of them were given or estimated, the three stored ones are computed once, so no two parts of a program
can use rates that contradict each other.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from scipy.sparse import issparse
from scipy.stats import beta

from whatelse.errors import ModelError
from whatelse.types import Bools, Floats

RATES = ("prior", "sensitivity", "false_positive", "anchor_rate", "ppv", "fn")
_GIVEN = (
    ("prior", "sensitivity", "false_positive"),
    ("anchor_rate", "ppv", "fn"),
    ("anchor_rate", "sensitivity", "false_positive"),
)

# Before any label, as `assumed_of` has it: half of the anchors that fire are right, and half a case is missed for each.
# The prior of ppv is worth PPV_VISITS labels; that of the missed cases has a relative spread of 1 / sqrt(MISSED_SHAPE).
PPV_VISITS, MISSED, MISSED_SHAPE = 4.0, 0.5, 2.0
LEVEL = 0.95  # of intervals
SMOOTHING = 0.5  # visits added to each cell of a 2 x 2 table: Jeffreys' prior
DRAWS = 2_000  # from the posterior of a sample's rates


@dataclass(frozen=True, eq=False)
class NoiseRates:
    """The rates of m anchors.

    prior, sensitivity, false_positive  (m,) float64, read-only; prior strictly between 0 and 1, the others in [0, 1]
    conditions  m names, used in messages and in the JSON form ("0", "1", … if none are given)
    intervals   for the rates that were estimated: name of the rate -> (m, 2) lower and upper limits; else empty
    """

    prior: Floats
    sensitivity: Floats
    false_positive: Floats
    conditions: tuple[str, ...] = ()
    intervals: Mapping[str, Floats] = field(default_factory=dict)

    def __post_init__(self) -> None:
        names = tuple(self.conditions) or tuple(str(i) for i in range(np.size(self.prior)))
        object.__setattr__(self, "conditions", names)
        for name in RATES[:3]:
            value = np.array(getattr(self, name), dtype=np.float64, ndmin=1)
            _check(name, value, names)
            value.setflags(write=False)
            object.__setattr__(self, name, value)
        for name, limits in self.intervals.items():
            if name not in RATES or np.shape(limits) != (len(names), 2):
                raise ModelError(f"interval {name!r} of shape {np.shape(limits)}: needs ({len(names)}, 2) limits")

    @property
    def m(self) -> int:
        """Number of conditions."""
        return len(self.conditions)

    @property
    def anchor_rate(self) -> Floats:
        """P(A = 1), (m,)."""
        rate: Floats = self.sensitivity * self.prior + self.false_positive * (1 - self.prior)
        return rate

    @property
    def ppv(self) -> Floats:
        """P(Y = 1 | A = 1), (m,); the prior where the anchor cannot fire."""
        return _ratio(self.sensitivity * self.prior, self.anchor_rate, self.prior)

    @property
    def fn(self) -> Floats:
        """P(Y = 1 | A = 0), (m,); the prior where the anchor always fires."""
        return _ratio((1 - self.sensitivity) * self.prior, 1 - self.anchor_rate, self.prior)

    @property
    def uninformative(self) -> tuple[str, ...]:
        """Conditions whose anchor is no more likely with the condition than without: nothing can be learned from it."""
        return tuple(c for c, bad in zip(self.conditions, self.sensitivity <= self.false_positive, strict=True) if bad)

    def informative(self) -> NoiseRates:
        """The rates, if every anchor fires more often with its condition than without; ModelError otherwise."""
        if self.uninformative:
            problem = f"the anchor of {self.uninformative[0]!r} fires no more often with the condition than without"
            raise ModelError(f"{problem}: choose another ('anchors check' shows them); or are its labels upside down?")
        return self

    def named(self, conditions: Sequence[str]) -> NoiseRates:
        """Rates whose conditions are nameless (numbers), with these names by position; rates with names as they are."""
        if self.conditions != tuple(str(i) for i in range(self.m)) or len(conditions) != self.m:
            return self
        return NoiseRates(self.prior, self.sensitivity, self.false_positive, tuple(conditions), self.intervals)

    # ---- where they come from

    @classmethod
    def from_labels(cls, A: Any, Y: Any = None, conditions: Sequence[str] = (), *, known: Any = None) -> NoiseRates:
        """Count them in labelled visits. A and Y are (N, m) booleans, or A is a cohort with labels; costs O(N m).

        known   (N, m) which labels of Y are known; each condition is counted in the visits labelled for it

        Half a visit is added to each cell of every 2 x 2 table of (A, Y) (Jeffreys' prior), so no rate is 0 or 1.
        The posterior of each of the six rates is a Beta distribution: `intervals` holds its central 95%.
        """
        if hasattr(A, "conditions"):  # a cohort brings labels and names
            Y, known = (A.Y, A.known) if Y is None else (Y, known)
            A, conditions = A.A, tuple(conditions) or A.conditions
        if Y is None:
            raise ModelError("there are no labels to count noise rates in: give Y, or a cohort with labels")
        a, y = _dense("A", A), _dense("Y", Y)
        if a.shape != y.shape or not len(a):
            raise ModelError(f"A has shape {a.shape} and Y {y.shape}: both need a row a visit and a column a condition")
        told = _known(known, y)
        some = np.asarray(told.any(0))
        if not some.all():
            names = tuple(conditions) or tuple(str(i) for i in range(some.size))
            raise ModelError(f"no visit is labelled for {names[int(np.argmin(some))]!r}: its rates cannot be counted")
        n11, n10, n01, n00 = ((x & z & told).sum(0) for x, z in ((a, y), (a, ~y), (~a, y), (~a, ~y)))
        return cls.from_counts(n11, n10, n01, n00, conditions)

    @classmethod
    def from_counts(cls, n11: Any, n10: Any, n01: Any, n00: Any, conditions: Sequence[str] = ()) -> NoiseRates:
        """`from_labels` of visits that were counted: those with (A, Y) = (1, 1), (1, 0), (0, 1), (0, 0), each (m,)."""
        n11, n10, n01, n00 = (np.asarray(count) + SMOOTHING for count in (n11, n10, n01, n00))
        pairs = {
            "prior": (n11 + n01, n10 + n00),
            "sensitivity": (n11, n01),
            "false_positive": (n10, n00),
            "anchor_rate": (n11 + n10, n01 + n00),
            "ppv": (n11, n10),
            "fn": (n01, n00),
        }
        rate = {name: yes / (yes + no) for name, (yes, no) in pairs.items()}
        limits = {name: np.stack(beta.interval(LEVEL, yes, no), axis=1) for name, (yes, no) in pairs.items()}
        return cls(rate["prior"], rate["sensitivity"], rate["false_positive"], tuple(conditions), limits)

    @classmethod
    def from_sample(
        cls,
        A: Any,
        Y_labelled: Any,
        rows: ArrayLike,
        conditions: Sequence[str] = (),
        *,
        weights: ArrayLike | None = None,
        known: Any = None,
        fired: tuple[Any, Any] | None = None,
    ) -> NoiseRates:
        """Estimate them from a few labelled visits and the anchors of all (docs/noise-rates.md).

        A           (N, m) the anchors of every visit, or a cohort of them all; P(A) comes from all of them
        Y_labelled  (k, m) the conditions of the labelled visits
        rows        (k,) which rows of A those are
        weights     (k,) or (k, m) how many visits each stands for, up to a factor: 1 / its chance of being chosen;
                    None: all the same, for visits chosen at random, or by anchors alone
        known       (k, m) which labels are known; None: all
        fired       (m,), (m,) visits with and without each anchor, where A has only some of the visits

        ppv = P(Y=1|A=1) and fn = P(Y=1|A=0) are counted in the sample, under priors that say what is typical:

            ppv ~ Beta(2, 2)        fn ~ Beta(2, 2 / odds),   odds = 0.5 P(A=1) / P(A=0)

        Combined with P(A) they give the rest: prior = ppv P(A=1) + fn P(A=0), and so on. The rates are posterior means
        of ppv and fn, which carry the uncertainty into a fit: P(Y=1 | A=1, labels) is the mean of ppv, exactly.

        A sample without weights may hold more anchored visits than all visits do, but within visits that have the
        anchor, and within those that do not, it must be a random sample; if visits were picked because somebody
        suspected the condition, the rates are biased and nothing here can tell.

        Intervals are central 95% ranges of draws from the posterior. An anchor is taken to raise the chance of its
        condition: draws in which it does not are left out, unless nearly all are such.
        """
        if hasattr(A, "conditions"):  # a cohort brings the names
            A, conditions = A.A, tuple(conditions) or A.conditions
        anchors, y, rows = _dense("A", A), _dense("Y_labelled", Y_labelled), np.asarray(rows)
        N, m = anchors.shape
        if rows.ndim != 1 or y.shape != (rows.size, m):
            raise ModelError(f"{rows.size} labelled rows and Y_labelled of shape {y.shape}: needs ({rows.size}, {m})")
        if not rows.size:
            raise ModelError("no labelled visits: give the rates by hand with NoiseRates.from_given")
        if not np.issubdtype(rows.dtype, np.integer) or rows.min() < 0 or rows.max() >= N:
            raise ModelError(f"labelled rows must be row numbers of A, from 0 to {N - 1}")
        if np.unique(rows).size != rows.size:
            raise ModelError("a visit was labelled twice: keep one label of each visit")
        w = np.ones(rows.size) if weights is None else np.asarray(weights, dtype=np.float64)
        if w.shape not in (rows.shape, y.shape) or not np.isfinite(w).all() or not (w > 0).all():
            raise ModelError(f"weights of shape {w.shape} for {rows.size} labelled visits: needs one above 0 for each")
        told = _known(known, y)
        on, off = (anchors.sum(0), (~anchors).sum(0)) if fired is None else fired
        odds = MISSED * (np.asarray(on) + 0.5) / (np.asarray(off) + 0.5)
        right, wrong = effective_counts(y, told & anchors[rows], w)
        missed, absent = effective_counts(y, told & ~anchors[rows], w)
        posteriors = (
            (np.asarray(on) + 0.5, np.asarray(off) + 0.5),
            (PPV_VISITS / 2 + right, PPV_VISITS / 2 + wrong),
            (MISSED_SHAPE + missed, MISSED_SHAPE / odds + absent),
        )
        mean = [yes / (yes + no) for yes, no in posteriors]
        rng = np.random.default_rng(0)
        drawn = [rng.beta(yes, no, size=(DRAWS, m)) for yes, no in posteriors]
        raises = drawn[1] > drawn[2]
        raises |= raises.mean(0) < 0.01  # labels that say the anchor is useless are believed, and a learner refuses it
        drawn = [np.where(raises, value, np.nan) for value in drawn]
        mean = [np.where(mean[1] > mean[2], a, np.nanmean(b, 0)) for a, b in zip(mean, drawn, strict=True)]
        tail = (1 - LEVEL) / 2
        limits = {
            name: np.nanquantile(value, [tail, 1 - tail], axis=0).T
            for name, value in zip(RATES, _all_six(*drawn), strict=True)
        }
        prior, sensitivity, false_positive, *_ = _all_six(*mean)
        return cls(prior, sensitivity, false_positive, tuple(conditions), limits)

    @classmethod
    def assumed_of(cls, fires: Any, visits: int, conditions: Sequence[str] = ()) -> NoiseRates:
        """Typical rates, where nobody has labelled anything and (m,) visits have each anchor: half of the anchors that
        fire are right, and half of the cases have one. Then a condition is as common as its anchor."""
        rate = (np.asarray(fires) + 0.5) / (visits + 1)
        prior = np.minimum(rate, 0.9)
        return cls(prior, np.full(rate.size, 0.5), 0.5 * rate / (1 - prior), tuple(conditions))

    @classmethod
    def from_given(cls, conditions: Sequence[str] = (), **given: ArrayLike) -> NoiseRates:
        """Take rates that somebody knows: (prior, sensitivity, false_positive), (anchor_rate, ppv, fn) or
        (anchor_rate, sensitivity, false_positive), each (m,). Numbers that no P(A, Y) has are refused by name."""
        if set(given) not in [set(way) for way in _GIVEN]:
            ways = " or ".join("(" + ", ".join(way) + ")" for way in _GIVEN)
            raise ModelError(f"rates given: {', '.join(sorted(given)) or 'none'}; give {ways}")
        value = {name: np.array(v, dtype=np.float64, ndmin=1) for name, v in given.items()}
        if len({v.shape for v in value.values()}) > 1:
            raise ModelError(f"rates of different shapes: {', '.join(f'{k} {v.shape}' for k, v in value.items())}")
        names = tuple(conditions) or tuple(str(i) for i in range(value[next(iter(value))].size))
        for name, v in value.items():
            _check(name, v, names)
        if "prior" in value:
            return cls(value["prior"], value["sensitivity"], value["false_positive"], names)
        rate = value["anchor_rate"]
        if "ppv" in value:
            _check("prior", value["ppv"] * rate + value["fn"] * (1 - rate), names)
            prior, sensitivity, false_positive, *_ = _all_six(rate, value["ppv"], value["fn"])
            return cls(prior, sensitivity, false_positive, names)
        low, high = value["false_positive"], value["sensitivity"]
        for c, r, lo, hi in zip(names, rate, low, high, strict=True):
            if not lo < r < hi:
                limits = f"false_positive {lo:.4g} and sensitivity {hi:.4g}"
                fires = f"the anchor of {c!r} fires in {r:.4g} of visits"
                raise ModelError(f"{fires}, which no prior explains: it must lie between {limits}")
        return cls((rate - low) / (high - low), high, low, names)

    # ---- JSON

    def to_json(self) -> dict[str, dict[str, Any]]:
        """One object for each condition, with the three stored rates and, where there are any, intervals."""
        out: dict[str, dict[str, Any]] = {}
        for i, condition in enumerate(self.conditions):
            out[condition] = {name: float(getattr(self, name)[i]) for name in RATES[:3]}
            if self.intervals:
                out[condition]["intervals"] = {k: [float(v[i][0]), float(v[i][1])] for k, v in self.intervals.items()}
        return out

    @classmethod
    def from_json(cls, value: Any) -> NoiseRates:
        """Read what `to_json` writes, or the same written by hand: any of the triples of `from_given`, by condition."""
        if not isinstance(value, Mapping) or not value or not all(isinstance(v, Mapping) for v in value.values()):
            raise ModelError("noise rates must be an object with one object of rates for each condition")
        parts = []
        for condition, entry in value.items():
            given = {k: v for k, v in entry.items() if k != "intervals"}
            if bad := [k for k, v in given.items() if not isinstance(v, (int, float)) or isinstance(v, bool)]:
                raise ModelError(f"noise rates of {condition!r}: {', '.join(map(str, bad))} must be a number")
            try:
                parts.append(cls.from_given([str(condition)], **{str(k): [v] for k, v in given.items()}))
            except ModelError as error:
                raise ModelError(f"noise rates of {condition!r}: {error}") from None
        known = [set(entry.get("intervals", ())) for entry in value.values()]
        shared = sorted(set.intersection(*known))
        try:
            limits = {k: np.array([entry["intervals"][k] for entry in value.values()], dtype=float) for k in shared}
        except (TypeError, ValueError):
            raise ModelError("noise rates: an interval must be two numbers") from None
        prior, sensitivity, false_positive = (np.concatenate([getattr(p, k) for p in parts]) for k in RATES[:3])
        return cls(prior, sensitivity, false_positive, tuple(map(str, value)), limits)


def _check(name: str, value: Floats, names: tuple[str, ...]) -> None:
    if value.shape != (len(names),):
        raise ModelError(f"{name} has shape {value.shape}, needs ({len(names)},): one rate for each condition")
    open_ends = name in ("prior", "anchor_rate")
    inside = (value > 0) & (value < 1) if open_ends else (value >= 0) & (value <= 1)
    if not inside.all():
        i = int(np.argmin(inside))
        raise ModelError(f"{name} of {names[i]!r} is {value[i]:.6g}, must be in {'(0, 1)' if open_ends else '[0, 1]'}")


def _dense(name: str, value: Any) -> Bools:
    array = np.asarray(value.toarray() if issparse(value) else value)
    if array.ndim != 2:
        raise ModelError(f"{name} has {array.ndim} dimensions, needs 2: one row a visit, one column a condition")
    return array.astype(bool)


def _known(known: Any, y: Bools) -> Bools:
    """(N, m) which labels of y are known; None: all."""
    told = np.ones_like(y) if known is None else _dense("known", known)
    if told.shape != y.shape:
        raise ModelError(f"known has shape {told.shape} and the labels have {y.shape}: both need the same")
    return told


def _ratio(top: Floats, bottom: Floats, otherwise: Floats) -> Floats:
    out = np.array(otherwise, dtype=np.float64)
    np.divide(top, bottom, out=out, where=bottom > 0)
    return out


def _all_six(anchor_rate: Floats, ppv: Floats, fn: Floats) -> tuple[Floats, ...]:
    """The rates in the order of RATES, from the second triple."""
    prior = ppv * anchor_rate + fn * (1 - anchor_rate)
    return prior, ppv * anchor_rate / prior, (1 - ppv) * anchor_rate / (1 - prior), anchor_rate, ppv, fn


def effective_counts(y: Bools, among: Bools, weight: Floats) -> tuple[Floats, Floats]:
    """How many of the visits `among` (k, m) have y (k, m) and have not, (m,) each, when visit j stands for weight_j,
    (k,), or each of its labels for its own weight, (k, m).

    The share is Hajek's, sum(w y) / sum(w), of Kish's effective number of visits, sum(w)^2 / sum(w^2). With equal
    weights these are the plain counts. O(k m).
    """
    w = np.where(among, weight[:, None] if weight.ndim == 1 else weight, 0.0)
    total = w.sum(0)
    each = np.divide(total, (w**2).sum(0), out=np.zeros_like(total), where=total > 0)
    yes = (w * y).sum(0) * each
    return yes, total * each - yes
