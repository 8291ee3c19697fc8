"""Trie: phrases of numbered words as a tree in arrays, which the compiled passes walk."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import chain
from typing import NamedTuple

import numpy as np
from numba import njit

from whatelse.types import Int32s


class Trie(NamedTuple):
    """Phrases as a tree of nodes. Node 0 is the root.

    root        (T,) node that a first word leads to; 0: no phrase begins with it
    edge_start  (nodes + 1,) edges of a node: edge_start[node] to edge_start[node + 1], sorted by word
    edge_word, edge_node   (edges,) the word of an edge and the node it leads to
    value       (nodes,) value of the phrase that ends at a node; `nothing` where none ends
    """

    root: Int32s
    edge_start: Int32s
    edge_word: Int32s
    edge_node: Int32s
    value: Int32s


def build_trie(phrases: Iterable[tuple[Sequence[int], int]], roots: int, nothing: int = -1) -> Trie:
    """The trie of (words, value) pairs; first words are numbers below `roots`."""
    children: list[dict[int, int]] = [{}]
    values = [nothing]
    for words, value in phrases:
        node = 0
        for word in words:
            after = children[node].get(word)
            if after is None:
                after = children[node][word] = len(children)
                children.append({})
                values.append(nothing)
            node = after
        values[node] = value
    root = np.zeros(roots, np.int32)
    root[list(children[0])] = list(children[0].values())
    edges = list(chain.from_iterable(sorted(some.items()) for some in children))
    return Trie(
        root,
        np.cumsum([0, *map(len, children)], dtype=np.int32),
        np.array([word for word, _ in edges], np.int32),
        np.array([node for _, node in edges], np.int32),
        np.array(values, np.int32),
    )


@njit(cache=True, nogil=True)
def child(node, word, trie):  # type: ignore[no-untyped-def]
    """The node that `word` leads to from `node`; 0: none."""
    low, high = trie.edge_start[node], trie.edge_start[node + 1]
    while low < high:
        middle = (low + high) >> 1
        if trie.edge_word[middle] < word:
            low = middle + 1
        else:
            high = middle
    if low < trie.edge_start[node + 1] and trie.edge_word[low] == word:
        return trie.edge_node[low]
    return 0
