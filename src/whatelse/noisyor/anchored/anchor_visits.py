"""Visits as their anchors show them, and the noisy-or that takes anchors for the truth.

`AnchorBlocks` are all the visits, in blocks wherever they are; `AnchorVisits` some of them, as matrices.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import scipy.sparse as sp

from whatelse.noisyor.anchored.excuses import only
from whatelse.noisyor.anchored.hidden import Pairs, noisyor_gains
from whatelse.noisyor.blocks import Arrays, Blocks, Draws, fires, joined, matrix
from whatelse.noisyor.evidence import excused
from whatelse.noisyor.mle import count_states, edit_anchors, model_of_counts
from whatelse.noisyor.params import NoisyOr
from whatelse.noisyor.rates import Rates
from whatelse.types import Bools, Floats, Ints

HALF = 0.5
MANY = 4_000_000  # visits up to which a permutation of all is drawn to choose some


@dataclass(frozen=True, eq=False)
class AnchorVisits:
    """X whole, its findings without anchors (x, same columns), anchors A that are not excused, their pairs."""

    X: sp.csr_matrix
    x: sp.csr_matrix
    A: Bools
    columns: Any
    pairs: Pairs

    @classmethod
    def of(cls, X: sp.csr_matrix, columns: Any, excuse: Bools) -> AnchorVisits:
        x = only(X, np.isin(np.arange(X.shape[1]), columns, invert=True))
        A = X[:, columns].toarray().astype(bool) & ~excused(X, excuse)
        return cls(sp.csr_matrix(X), x, A, columns, Pairs.of(x, A))

    def rows(self, which: Any) -> AnchorVisits:
        """Some of the visits."""
        A, x = self.A[which], self.x[which]
        return AnchorVisits(self.X[which], x, A, self.columns, Pairs.of(x, A))

    def findings(self, keep: Bools) -> AnchorVisits:
        """As if only these findings (n,), and anchors, had been looked for."""
        x = only(self.x, keep)
        return replace(self, x=x, pairs=Pairs.of(x, self.A))

    @property
    def log_rate(self) -> Floats:
        """(m,) log of how often each anchor fires unexcused; never -inf."""
        rate: Floats = np.log((self.A.sum(0) + 0.5) / (len(self.A) + 1))
        return rate

    def of_conditions(self, bias: Floats, rates: Rates) -> Floats:
        """(m,) biases of conditions from those of their anchors, log(pi / P(A)) higher."""
        return bias - self.log_rate + np.log(rates.prior)


@dataclass(frozen=True, eq=False)
class AnchorBlocks:
    """All visits: blocks of findings without anchors (same columns) and of the anchors A (V, m) that are not excused.

    firing, present   (m,), (n,) visits with each anchor that is not excused, and with each finding
    """

    X: Blocks
    blocks: Blocks
    columns: Ints
    excuse: Bools
    firing: Floats
    present: Floats

    @classmethod
    def of(cls, X: Blocks, columns: Ints, excuse: Bools) -> AnchorBlocks:
        n = X.shape[1]

        def made(block: Arrays) -> Arrays:
            whole = matrix(block, n)
            ordinary = np.isin(block["indices"], columns, invert=True)
            ends = np.concatenate([[0], np.cumsum(ordinary)])[block["indptr"]].astype(np.int64)
            A = fires(block, columns, n) & ~excused(whole, excuse)
            own = {"number": block["number"], "first": block["first"], "A": A}
            return own | {"indptr": ends, "indices": block["indices"][ordinary]}

        blocks = X.derive(made)
        count = blocks.total(lambda block: {"A": block["A"].sum(0), "x": np.bincount(block["indices"], minlength=n)})
        return cls(X, blocks, columns, excuse, count["A"].astype(float), count["x"].astype(float))

    def __len__(self) -> int:
        return self.X.shape[0]

    def rows(self, which: Ints) -> AnchorVisits:
        """Some of the visits."""
        return AnchorVisits.of(self.X[which], self.columns, self.excuse)

    @property
    def log_rate(self) -> Floats:
        """(m,) log of how often each anchor fires unexcused; never -inf."""
        rate: Floats = np.log((self.firing + 0.5) / (len(self) + 1))
        return rate

    @property
    def centre(self) -> Floats:
        """(n,) how common each finding is; 0 for anchors."""
        return self.present / len(self)

    def of_conditions(self, bias: Floats, rates: Rates) -> Floats:
        """(m,) biases of conditions from those of their anchors, log(pi / P(A)) higher."""
        return bias - self.log_rate + np.log(rates.prior)

    def noisyor(self, rates: Rates, some: Callable[[Arrays], Bools] | None = None) -> NoisyOr:
        """Anchors taken for conditions; then anchors as the noise rates say, and no edges to what excuses them.

        some   (V,) which visits of a block are learned from; None: all
        """

        def conditions(block: Arrays) -> tuple[Arrays, Bools]:
            return (block, block["A"]) if some is None else chosen(block, some(block))

        counts = count_states(self.blocks, conditions)
        model = cut(model_of_counts(counts, prior=rates.prior), self.excuse)
        return edit_anchors(model, self.columns, rates.sensitivity, rates.false_positive)

    def with_any_anchor(self, most: int, rng: np.random.Generator) -> Ints:
        """At most so many of the visits that have an anchor, at random, in order."""
        return self._marked(lambda block: np.asarray(block["A"].any(1))[:, None], most, rng)

    def with_each_anchor(self, most: int, rng: np.random.Generator) -> Ints:
        """Visits in which an anchor fires, at most so many of every anchor, at random, in order."""
        return self._marked(lambda block: block["A"], most, rng)

    def _marked(self, marks: Callable[[Arrays], Bools], most: int, rng: np.random.Generator) -> Ints:
        """Numbers of the visits that have one of the marks (V, k), at most so many of each."""
        sizes = self.blocks.total(lambda block: {"n": marks(block).sum(0)[None]}, joined)["n"]
        before = np.vstack([np.zeros_like(sizes[:1]), np.cumsum(sizes, axis=0)])
        wanted = [some_of(int(count), most, rng) for count in before[-1]]

        def numbers(block: Arrays) -> Arrays:
            k, found = int(block["number"]), []
            for own, column, start in zip(wanted, marks(block).T, before[k : k + 2].T, strict=True):
                low, high = np.searchsorted(own, start)
                found.append(np.flatnonzero(column)[own[low:high] - start[0]])
            return {"row": block["first"] + np.unique(np.concatenate(found))}

        return self.blocks.total(numbers, joined)["row"]


def chosen(block: Arrays, which: Bools) -> tuple[Arrays, Bools]:
    """The visits of a block that a mask (V,) chooses, and their anchors."""
    sizes = np.diff(block["indptr"])
    ends = np.concatenate([[0], np.cumsum(sizes[which])]).astype(np.int64)
    own = {"indptr": ends, "indices": block["indices"][np.repeat(which, sizes)]}
    return own, block["A"][which]


def some_of(count: int, most: int, rng: np.random.Generator) -> Ints:
    """At most so many of 0 … count - 1, at random, in order. O(most) memory where there are very many."""
    drawn = rng.permutation(count)[:most] if count <= MANY else rng.choice(count, most, replace=False, shuffle=False)
    return np.sort(drawn).astype(np.int64)


def cut(model: NoisyOr, edges: Bools) -> NoisyOr:
    """The model without these edges, (m, n) or all edges to these findings (n,)."""
    return replace(model, fail=np.where(edges, 1.0, model.fail))


@dataclass(frozen=True, eq=False)
class Halves:
    """Two noisy-ors, each learned from one half of the visits, to speak of the other.

    first   (V,) which half each of some visits is of
    """

    draws: Draws
    of_first: NoisyOr
    of_second: NoisyOr
    columns: Ints
    first: Bools

    @classmethod
    def of(cls, visits: AnchorBlocks, rates: Rates, rng: np.random.Generator) -> Halves:
        """A half at random, and the rest."""
        draws = Draws(rng, len(visits))
        one = visits.noisyor(rates, lambda block: _in_first(draws, block))
        other = visits.noisyor(rates, lambda block: ~_in_first(draws, block))
        return cls(draws, one, other, visits.columns, np.zeros(0, bool))

    def rows(self, which: Ints) -> Halves:
        """Of some of the visits, by number."""
        return replace(self, first=self.draws.at(which) < HALF)

    def cut(self, edges: Bools) -> Halves:
        """Both without these edges."""
        return replace(self, of_first=cut(self.of_first, edges), of_second=cut(self.of_second, edges))

    def gains(self, pairs: Pairs) -> Floats:
        """(P, m) gains of each pair by the noisy-or that did not see its visit."""
        out = np.empty(pairs.confirmed.shape)
        first = self.first[pairs.visit]
        for theirs, model in ((first, self.of_second), (~first, self.of_first)):
            out[theirs] = noisyor_gains(model, pairs.rows(theirs), self.columns)
        return out

    def pairs(self, visits: AnchorBlocks) -> Blocks:
        """The pairs of all visits with their gains, in blocks."""
        n = visits.X.shape[1]

        def made(block: Arrays) -> Arrays:
            pairs = Pairs.of(matrix(block, n), block["A"])
            gains = replace(self, first=_in_first(self.draws, block)).gains(pairs)
            own = {"indptr": pairs.x.indptr.astype(np.int64), "indices": pairs.x.indices.astype(np.int32)}
            return own | {"hidden": pairs.hidden, "confirmed": pairs.confirmed, "gains": gains}

        return visits.blocks.derive(made)


def _in_first(draws: Draws, block: Arrays) -> Bools:
    """(V,) the visits of a block that are in the first half."""
    first = int(block["first"])
    return draws.part(first, first + block["indptr"].size - 1) < HALF
