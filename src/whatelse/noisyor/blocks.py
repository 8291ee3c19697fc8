"""Sums over visits, the same to the last bit wherever they are taken.

Whatever a learner needs of the visits is a sum over them. Visits are cut into blocks of BLOCK consecutive ones. What a
block contributes is a function of the block alone; contributions are added in a binary tree over the blocks' numbers,

    ((b0 + b1) + (b2 + b3)) + ((b4 + b5) + …

so an engine that adds up any aligned run of 2^k blocks in one place, and the runs in another, gives what a single loop
gives. `LocalBlocks` are in memory and summed by threads; `whatelse.spark` has blocks that lie on many machines.
"""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, TypeVar

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from whatelse.types import Bools

BLOCK = 4_096  # visits
MANY = 4_000_000  # from so many on, a sample is drawn without permuting all
Arrays = dict[str, NDArray[Any]]
Work = Callable[[Arrays], Arrays]
Merge = Callable[[Arrays, Arrays], Arrays]
T = TypeVar("T")


def added(a: Arrays, b: Arrays) -> Arrays:
    """Name by name."""
    return {name: a[name] + b[name] for name in a}


def joined(a: Arrays, b: Arrays) -> Arrays:
    """One after the other."""
    return {name: np.concatenate([a[name], b[name]]) for name in a}


def tree(values: Iterable[T], merge: Callable[[T, T], T]) -> T:
    """All values in one, by the tree above; log2 of their number are held at a time."""
    held: list[tuple[int, T]] = []  # (how many levels of the tree are below, value), fewer and fewer
    for value in values:
        level = 0
        while held and held[-1][0] == level:
            value = merge(held.pop()[1], value)
            level += 1
        held.append((level, value))
    if not held:
        raise ValueError("a sum over no blocks")
    _, value = held.pop()
    while held:
        value = merge(held.pop()[1], value)
    return value


class Blocks(ABC):
    """Visits in blocks, each a dict of arrays. Those of visits have

    number, first     ()  the block's own number, and that of its first visit
    indptr, indices   its findings, as in CSR
    """

    shape: tuple[int, int]
    """(N visits, n findings), as that of the matrix they are."""

    @abstractmethod
    def total(self, of: Work, merge: Merge = added) -> Arrays:
        """The sum over blocks of what `of` makes of each."""

    @abstractmethod
    def derive(self, make: Work) -> Blocks:
        """Blocks that are made of these one by one, and kept until `release`."""

    @abstractmethod
    def __getitem__(self, rows: Any) -> sp.csr_matrix:
        """The visits of some numbers, which rise, as a matrix: for samples."""

    def release(self) -> None:
        """Derived blocks are no longer needed."""
        return None


class LocalBlocks(Blocks):
    """Blocks in memory."""

    def __init__(self, blocks: Sequence[Arrays], shape: tuple[int, int], X: sp.csr_matrix | None = None) -> None:
        self.blocks, self.shape, self._X = blocks, shape, X

    @classmethod
    def of(cls, X: sp.csr_matrix, **rows: NDArray[Any]) -> LocalBlocks:
        """Of a matrix (N, n) of 0/1 without stored zeros, and of arrays that have a row a visit."""
        blocks = []
        for number, first in enumerate(range(0, max(X.shape[0], 1), BLOCK)):
            end = min(first + BLOCK, X.shape[0])
            low, high = X.indptr[first], X.indptr[end]
            own: Arrays = {
                "number": np.array(number),
                "first": np.array(first),
                "indptr": (X.indptr[first : end + 1] - low).astype(np.int64),
                "indices": X.indices[low:high],
            }
            blocks.append(own | {name: values[first:end] for name, values in rows.items()})
        return cls(blocks, X.shape, X)

    def total(self, of: Work, merge: Merge = added) -> Arrays:
        return tree(_in_order(of, self.blocks), merge)

    def derive(self, make: Work) -> Blocks:
        return LocalBlocks(list(_in_order(make, self.blocks)), self.shape)

    def __getitem__(self, rows: Any) -> sp.csr_matrix:
        if self._X is None:
            raise TypeError("blocks that were derived have no rows")
        return self._X[rows]


def as_blocks(X: sp.csr_matrix | Blocks) -> Blocks:
    """A matrix in blocks; blocks as they are."""
    return X if isinstance(X, Blocks) else LocalBlocks.of(X)


def matrix(block: Arrays, n: int) -> sp.csr_matrix:
    """The visits of a block (V, n), as floats."""
    values = np.ones(block["indices"].size)
    return sp.csr_matrix((values, block["indices"], block["indptr"]), shape=(block["indptr"].size - 1, n))


def fires(block: Arrays, columns: NDArray[np.int64], n: int) -> Bools:
    """(V, m) which of some findings each visit of a block has."""
    place = np.full(n, -1)
    place[columns] = np.arange(columns.size)
    at = place[block["indices"]]
    row = np.repeat(np.arange(block["indptr"].size - 1), np.diff(block["indptr"]))
    out: Bools = np.zeros((block["indptr"].size - 1, columns.size), np.bool_)
    out[row[at >= 0], at[at >= 0]] = True
    return out


def finding_counts(X: sp.csr_matrix | Blocks, n: int) -> NDArray[np.int64]:
    """(n,) visits that have each finding."""
    if not isinstance(X, Blocks):
        return np.bincount(X.indices, minlength=n)
    return X.total(lambda block: {"count": np.bincount(block["indices"], minlength=n)})["count"]


def some_of(count: int, most: int, rng: np.random.Generator) -> NDArray[np.int64]:
    """At most so many of 0 … count - 1, at random, in order. O(most) memory where there are very many."""
    drawn = rng.permutation(count)[:most] if count <= MANY else rng.choice(count, most, replace=False, shuffle=False)
    return np.sort(drawn).astype(np.int64)


def _in_order(work: Callable[[T], Any], items: Sequence[T]) -> Iterator[Any]:
    """What `work` makes of each item, in order, by threads; few are held at a time."""
    workers = min(os.cpu_count() or 1, len(items))
    if workers < 2:
        yield from map(work, items)
        return
    with ThreadPoolExecutor(workers) as pool:
        waiting: deque[Future[Any]] = deque()
        for item in items:
            waiting.append(pool.submit(work, item))
            if len(waiting) > 2 * workers:
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()
