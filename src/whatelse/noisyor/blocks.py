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
Arrays = dict[str, NDArray[Any]]
Work = Callable[[Arrays], Arrays]
Merge = Callable[[Arrays, Arrays], Arrays]
T = TypeVar("T")


def added(a: Arrays, b: Arrays) -> Arrays:
    """The sum of two contributions: arrays of one name are added."""
    return {name: a[name] + b[name] for name in a}


def joined(a: Arrays, b: Arrays) -> Arrays:
    """Two contributions as one: arrays of one name are put end to end."""
    return {name: np.concatenate([a[name], b[name]]) for name in a}


def tree(values: Iterable[T], merge: Callable[[T, T], T]) -> T:
    """Merge all values in the order of the tree above. At most log2 of their number are in memory at a time."""
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
    """Visits in blocks, each a dict of arrays: `first` (), the number of its first visit, and its findings as
    `indptr` and `indices` of CSR."""

    shape: tuple[int, int]
    """(N visits, n findings), as that of the matrix they are."""

    @abstractmethod
    def total(self, of: Work, merge: Merge = added) -> Arrays:
        """The sum over blocks of what `of` makes of each."""

    @abstractmethod
    def __getitem__(self, rows: Any) -> sp.csr_matrix:
        """The visits of some numbers, which rise, as a matrix: for samples."""


class LocalBlocks(Blocks):
    """A matrix X (N, n) of 0/1 without stored zeros in memory, and arrays that have a row a visit."""

    def __init__(self, X: sp.csr_matrix, **rows: NDArray[Any]) -> None:
        self.X, self.shape = X, X.shape
        self.blocks = list(cut(X.indptr, X.indices, rows))

    def total(self, of: Work, merge: Merge = added) -> Arrays:
        return tree(_in_order(of, self.blocks), merge)

    def __getitem__(self, rows: Any) -> sp.csr_matrix:
        return self.X[rows]


def cut(
    indptr: NDArray[Any], indices: NDArray[Any], rows: Arrays, start: int = 0, size: int = BLOCK
) -> Iterator[Arrays]:
    """CSR arrays, and arrays that have a row a visit, in blocks of `size`. The first visit has number `start`."""
    count = len(indptr) - 1
    for first in range(0, max(count, 1), size):
        end = min(first + size, count)
        low, high = indptr[first], indptr[end]
        own: Arrays = {
            "first": np.array(start + first),
            "indptr": (indptr[first : end + 1] - low).astype(np.int64),
            "indices": indices[low:high],
        }
        yield own | {name: values[first:end] for name, values in rows.items()}


def as_blocks(X: sp.csr_matrix | Blocks) -> Blocks:
    """A matrix in blocks; blocks as they are."""
    return X if isinstance(X, Blocks) else LocalBlocks(X)


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
