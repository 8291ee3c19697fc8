"""Evidence: what m linear classifiers say about the conditions, as log odds that add to those of the prior.

    e_i(x) = sum_j W_ij (x_j - c_j),        summed over the findings that were observed

A noisy-or counts each finding as if it told something new; a classifier knows which findings repeat one another. Added
to the prior's log odds its evidence is modular in y, so the search over states, its certificate and conditioning on
confirmed conditions are those of the plain model. c is the mean of each finding where it was learned: a finding that
nobody looked for counts as average, and brings nothing.

Models of 0.2 have excuses: where a finding is present that excuses the anchor of condition i, the evidence takes back
what the anchor told the noisy-or: log P(A_i | Y_i=1) - log P(A_i | Y_i=0). The anchor has no other parent.

What looks like a condition need not be it. The joint model is one of looks, and of each look that is there a share
`real` is the condition itself, whatever the others are:

    P(Y_i = 1 | x) = real_i P(look_i = 1 | x)

Confirming a condition says that its look is there; rejecting it leaves a look that is something else,
which goes on accounting for its findings (`query.py`). Else all that spoke for a condition would, once it is rejected,
speak for others.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
import scipy.sparse as sp

from whatelse.errors import ModelError
from whatelse.noisyor.likelihood import as_rows
from whatelse.noisyor.recalibration import IDENTITY, SIZE, bend, length_of
from whatelse.types import Bools, Floats, Ints


@dataclass(frozen=True, eq=False)
class Evidence:
    """Call it with what is present (and unobserved) in V visits to get (V, m) log odds.

    weight           (m, n) W;  centre (n,) c
    excuse           (m, n) bool: finding j excuses the anchor of condition i
    anchor_columns   (m,) the anchors
    anchor_log_odds  (2, m) what a silent and a firing anchor add to the log odds of their condition
    bias             (m,) log odds for every visit: what a prior within (0, 1) cannot hold
    field_weight     (m, n), field_centre (m,), curve (SIZE,), all three or none: what the whole model says of each
                     condition alone, f = field_centre + field_weight (x - c), is bent to C(f, x) (`recalibration.py`):
                     the evidence gains C(f, x) - f
    real             (m,) in (0, 1]: of visits that look like condition i, the share that have it
    company          (m, m): log odds that confirming a condition (column) adds to the others, beyond its coupling
    silence          (m, n), silence_base (m,), half_length: what a record does not mention. The evidence gains
                     s (silence_base + silence x), s = L / (L + half_length) for a record with L findings present
    """

    weight: Floats
    centre: Floats
    excuse: Bools
    anchor_columns: Ints
    anchor_log_odds: Floats
    bias: Floats = field(default=None)  # type: ignore[arg-type]
    field_weight: Floats = field(default=None)  # type: ignore[arg-type]
    field_centre: Floats = field(default=None)  # type: ignore[arg-type]
    curve: Floats = field(default=None)  # type: ignore[arg-type]
    real: Floats = field(default=None)  # type: ignore[arg-type]
    silence: Floats = field(default=None)  # type: ignore[arg-type]
    silence_base: Floats = field(default=None)  # type: ignore[arg-type]
    half_length: Floats = field(default=None)  # type: ignore[arg-type]
    company: Floats = field(default=None)  # type: ignore[arg-type]

    def __post_init__(self) -> None:
        m, n = np.shape(self.weight) if np.ndim(self.weight) == 2 else (0, 0)
        needed = {"weight": (m, n), "centre": (n,), "excuse": (m, n), "anchor_columns": (m,), "anchor_log_odds": (2, m)}
        needed |= {"bias": (m,), "field_weight": (m, n), "field_centre": (m,), "curve": (SIZE,), "real": (m,)}
        needed |= {"silence": (m, n), "silence_base": (m,), "half_length": (1,), "company": (m, m)}
        nothing = {"curve": IDENTITY, "real": np.ones(m), "half_length": np.ones(1)}  # zeros for all others
        kinds = {"excuse": np.bool_, "anchor_columns": np.int64}
        arrays: dict[str, Any] = {}
        for name, shape in needed.items():
            given = getattr(self, name)
            value: Any = np.array(
                nothing.get(name, np.zeros(shape)) if given is None else given, kinds.get(name, np.float64)
            )
            if value.shape != shape:
                raise ModelError(f"{name} of the evidence has shape {value.shape}, needs {shape}")
            if not np.isfinite(value).all():
                raise ModelError(f"{name} of the evidence must be finite")
            value.setflags(write=False)
            object.__setattr__(self, name, value)
            arrays[name] = value
        if m and not (arrays["real"].min() > 0 and arrays["real"].max() <= 1):
            raise ModelError("real of the evidence must be above 0 and at most 1")
        if m and not (arrays["anchor_columns"].min() >= 0 and arrays["anchor_columns"].max() < n):
            raise ModelError(f"anchor_columns of the evidence must be finding indices from 0 to {n - 1}")

    @classmethod
    def none(cls, m: int, n: int) -> Evidence:
        """Evidence that says nothing, of a model whose anchors nobody needs to know."""
        nothing = np.zeros((m, n))
        return cls(nothing, np.zeros(n), nothing.astype(bool), np.zeros(m, np.int64), np.zeros((2, m)))

    @cached_property
    def says_nothing(self) -> bool:
        """Whether the evidence is zero for every visit, and every look real."""
        told = self.weight.any() or self.excuse.any() or self.bias.any() or self.bends or self.hears_silence
        return not (told or (self.real < 1).any())

    @cached_property
    def hears_silence(self) -> bool:
        """Whether what is not mentioned counts, by the length of the record."""
        return bool(self.silence_base.any() or self.silence.any())

    @cached_property
    def keeps_company(self) -> bool:
        """Whether a confirmed condition adds to the log odds of others, beyond its coupling."""
        return bool(self.company.any())

    @cached_property
    def _columns(self) -> tuple[sp.csc_array, sp.csc_array]:
        """Weight and silence by columns: a visit needs few of them."""
        return sp.csc_array(self.weight), sp.csc_array(self.silence)

    @cached_property
    def bends(self) -> bool:
        """Whether the curve is more than the identity."""
        return not np.array_equal(self.curve, IDENTITY)

    def __call__(self, X: Any, unobserved: Any = None) -> Floats:
        """(V, m) of V visits, each given as indices or as a row of CSR (V, n). Costs O(nnz m)."""
        if self.says_nothing:
            return np.zeros((as_rows(X, self.centre.size, "X")[0].size - 1, len(self.weight)))
        x, (weight, silence) = _matrix(X, self.centre.size), self._columns
        total: Floats = (x @ weight.T).toarray()
        total += self.bias - self._at_centre
        if self.hears_silence:
            length = np.diff(x.indptr)[:, None]
            heard = length / (length + self.half_length[0])
            total += heard * (self.silence_base + (x @ silence.T).toarray())
        hidden = _matrix([] if unobserved is None else unobserved, self.centre.size)
        if unobserved is not None and self._centred:
            average = sp.csr_array((self.centre[hidden.indices], hidden.indices, hidden.indptr), hidden.shape)
            total += (average @ weight.T).toarray()
        back: Floats = np.zeros(1)
        if self._excuses:
            seen = hidden[:, self.anchor_columns].toarray() == 0 if unobserved is not None else np.ones(1, bool)
            excused = np.asarray(x @ self.excuse.T.astype(float)) > 0
            back = self._taken_back(excused & seen, x[:, self.anchor_columns].toarray() > 0)
        if not self.bends:
            return total + back
        fields = np.asarray(x @ self.field_weight.T) + self._field_at_none + back
        typical = np.full(len(total), self.centre.sum())
        if unobserved is not None:
            fields += np.asarray(hidden @ (self.field_weight * self.centre).T)
            typical -= np.asarray(hidden @ self.centre)
        length = length_of(np.diff(x.indptr).astype(float), np.maximum(typical, 0.0))
        return total + back + bend(self.curve, fields, length) - fields

    @cached_property
    def _field_at_none(self) -> Floats:
        """(m,) the fields of a visit of which everything was observed and nothing found."""
        fields: Floats = self.field_centre - self.field_weight @ self.centre
        return fields

    @cached_property
    def _excuses(self) -> bool:
        return bool(self.excuse.any())

    @cached_property
    def _centred(self) -> bool:
        return bool(self.centre.any())

    @cached_property
    def _at_centre(self) -> Floats:
        """(m,) W c: what findings would say if each were as common as where it was learned."""
        said: Floats = self.weight @ self.centre
        return said

    def lines(self, present: Ints, unobserved: Ints) -> Floats:
        """(m, n) the same for one visit, finding by finding: what each contributes to each condition's evidence.

        What bending the sum adds belongs to no finding, and is left out.
        """
        x, observed = np.zeros(self.centre.size), np.ones(self.centre.size, bool)
        x[present] = 1.0
        observed[unobserved] = False
        out: Floats = self.weight * np.where(observed, x - self.centre, 0.0)
        columns = self.anchor_columns
        beside = self.excuse[:, present].any(1) & observed[columns]
        out[np.arange(len(out)), columns] += self._taken_back(beside, x[columns] > 0)
        return out

    def _taken_back(self, where: Bools, fires: Bools) -> Floats:
        """Less what the anchors that are excused told; of shape (m,) or (V, m)."""
        return np.where(where, -np.where(fires, self.anchor_log_odds[1], self.anchor_log_odds[0]), 0.0)


def _matrix(rows: Any, n: int) -> sp.csr_array:
    start, index = as_rows(rows, n, "X")
    return sp.csr_array((np.ones(index.size), index, start), shape=(start.size - 1, n))
