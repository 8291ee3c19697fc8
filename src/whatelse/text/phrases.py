"""Phrases of a lexicon in a note, compiled: the longest at each place, and shorthand told by its neighbours."""

from __future__ import annotations

import numpy as np
from numba import njit

from whatelse.text.pieces import WORD
from whatelse.text.tables import IS_HEAD, IS_QUALITY, IS_SITE
from whatelse.text.terms import ARTICLE, BE_NUMBER, VERB
from whatelse.text.trie import child

NEIGHBOURS = 8  # pieces on each side in which `near` of a shorthand is looked for
ALONE = 3  # words of a note in which a shorthand stands alone


@njit(cache=True, nogil=True)
def step(node, at, limit, term, role, trie):  # type: ignore[no-untyped-def]
    """(next node, its piece) after the piece `at`, over at most two articles; node 0: none. A run of linking verbs
    ("has been very") is one "is"."""
    k = at + 1
    if k < limit and 0 <= term[k] < role.size and role[term[k]] & VERB:
        after = child(node, BE_NUMBER, trie)
        if after:
            while k + 1 < limit and k < at + 4 and 0 <= term[k + 1] < role.size and role[term[k + 1]] & VERB:
                k += 1
            return np.int64(after), k
    while k < limit and term[k] >= 0 and k < at + 4:
        after = child(node, term[k], trie)
        if after:
            return np.int64(after), k
        if term[k] >= role.size or not role[term[k]] & ARTICLE:
            break
        k += 1
    return np.int64(0), k


@njit(cache=True, nogil=True)
def _walk(i, limit, term, role, trie):  # type: ignore[no-untyped-def]
    """(last piece, value) of the longest phrase that begins at piece i and ends before `limit`; (-1, -1): none."""
    last, value = -1, -1
    if term[i] < 0 or term[i] >= trie.root.size:  # words of anchors have numbers above those of the lexicon
        return last, value
    node, at, fork, passed = np.int64(trie.root[term[i]]), i, np.int64(0), i
    while node:
        if trie.value[node] >= 0 and at > last:
            last, value = at, trie.value[node]
        before, (node, at) = (node, at), step(node, at, limit, term, role, trie)
        if node and at == before[1] + 1 and passed == i and term[at] < role.size and role[term[at]] & ARTICLE:
            fork, passed = before[0], at
        if not node and fork:  # "drank a" begins "drank a lot"; "drank a pint of vodka" is "drank pint of vodka"
            node, at = step(fork, passed, limit, term, role, trie)
            fork = np.int64(0)
    return last, value


@njit(cache=True, nogil=True)
def _longest(i, limit, term, stem, tables):  # type: ignore[no-untyped-def]
    """The longest phrase as `_walk`, by its words or by the stems of its words; as written if both are as long."""
    last, value = _walk(i, limit, term, tables.role, tables.trie)
    longer, other = _walk(i, limit, stem, tables.role, tables.trie)
    return (longer, other) if longer > last else (last, value)


@njit(cache=True, nogil=True)
def _within(term, begin, end, neighbours):  # type: ignore[no-untyped-def]
    while begin < end:
        middle = (begin + end) >> 1
        if neighbours[middle] == term:
            return True
        if neighbours[middle] < term:
            begin = middle + 1
        else:
            end = middle
    return False


@njit(cache=True, nogil=True)
def _sense(i, count, words, term, tables):  # type: ignore[no-untyped-def]
    """The row of `tables.sense` that a shorthand means at piece i; -1 if no neighbour tells."""
    for s in range(tables.senses[term[i]], tables.senses[term[i] + 1]):
        row = tables.sense[s]
        if row[1] == 2 or (row[1] == 1 and words <= ALONE):
            return s
        if i + 1 < count and term[i + 1] >= 0 and _within(term[i + 1], row[2], row[3], tables.neighbours):
            return s
        if i > 0 and term[i - 1] >= 0 and _within(term[i - 1], row[4], row[5], tables.neighbours):
            return s
        if row[6] < row[7]:
            for k in range(max(0, i - NEIGHBOURS), min(count, i + NEIGHBOURS + 1)):
                if k != i and term[k] >= 0 and _within(term[k], row[6], row[7], tables.neighbours):
                    return s
    return -1


@njit(cache=True, nogil=True)
def find_units(count, words, term, stem, kind, tables, last, value, first_of, last_of, what, denies):  # type: ignore[no-untyped-def]
    """Phrases of the lexicon in a note, from left to right without overlap; returns how many.

    stem, last, value         (P,) room for the stems of terms and the longest phrase at each piece
    first_of, last_of, what   (U,) pieces and concept of each unit; denies: whether the word itself denies the concept
    """
    for k in range(count):
        stem[k] = tables.stem[term[k]] if 0 <= term[k] < tables.stem.size else -1
    for k in range(count):
        last[k], value[k] = _longest(k, count, term, stem, tables)
    units = i = np.int64(0)
    while i < count:
        end, concept = last[i], value[i]
        if end < 0:
            known = term[i] >= 0 and term[i] + 1 < tables.senses.size and kind[i] == WORD
            if known and tables.senses[term[i]] < tables.senses[term[i] + 1]:
                sense = _sense(i, count, words, term, tables)
                if sense >= 0:
                    first_of[units], last_of[units], what[units] = i, i, tables.sense[sense, 0]
                    denies[units] = tables.sense[sense, 8] > 0
                    units += 1
            i += 1
            continue
        for k in range(i + 1, end + 1):
            if last[k] > end and last[k] - k > end - i:  # a longer phrase begins inside this one
                end, concept = _longest(i, k, term, stem, tables)
                break
        if end < 0:
            i += 1
            continue
        if end > i and tables.unit[concept] == IS_QUALITY and units and last_of[units - 1] == i - 1:
            one, head = _longest(i, i + 1, term, stem, tables)  # "back pain with movement": the pain has a site
            if one == i and tables.unit[head] == IS_HEAD and tables.unit[what[units - 1]] == IS_SITE:
                first_of[units], last_of[units], what[units], denies[units] = i, i, head, False
                units += 1
                i += 1
        first_of[units], last_of[units], what[units], denies[units] = i, end, concept, False
        units += 1
        i = end + 1
    return units
