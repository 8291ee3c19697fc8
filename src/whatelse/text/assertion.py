"""Assertion: what a note says about each of its pieces (present, negated, possible, historical, hypothetical, other).

A class of assertion (`negated`, `possible`, ...) has its own cue phrases, stops and open words (`rules.py`). Each class
is read as if the other classes did not exist; sections give the default; then the class of the highest priority
that covers a piece decides:

    section default  <  possible  <  historical  <  present  <  other  <  negated  <  hypothetical

So "no history of stroke" is negated, "family history of stroke" is other, "return if no better" is hypothetical.
Cues of `present` ("x 2 days") take a word out of the history: "hx asthma, wheezing x 2 days".
One compiled pass, O(pieces) time and memory.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numba import njit
from numpy.typing import NDArray

from whatelse.text.pieces import WORD
from whatelse.text.trie import Trie, child

ASSERTIONS = ("present", "negated", "possible", "historical", "hypothetical", "other")
PRESENT, NEGATED, POSSIBLE, HISTORICAL, HYPOTHETICAL, OTHER = range(6)
SECTIONS = len(ASSERTIONS)  # the table of section headings; table k below it holds the cues of assertion k
PRIORITY = (POSSIBLE, HISTORICAL, PRESENT, OTHER, NEGATED, HYPOTHETICAL)  # later ones overwrite earlier ones

# What a cue phrase does, as bits. See `rules.py`.
_KINDS = "before next_word prefix after answer pseudo stop near suffix before_if confirm alone clause close turn itself"
KINDS = {name: 1 << bit for bit, name in enumerate(_KINDS.split())}
BEFORE, NEXT_WORD, PREFIX, AFTER, ANSWER, PSEUDO, STOP, NEAR = list(KINDS.values())[:8]
SUFFIX, BEFORE_IF, CONFIRM, ALONE, CLAUSE, CLOSE, TURN, ITSELF = list(KINDS.values())[8:]
END_SECTION = 1 << len(ASSERTIONS)  # in the table of sections; a heading is 1 << its assertion
JOINS = 1 << 16  # in CueTables.uses
NO_LIMIT = 1 << 30
LONGEST = 16  # words of the longest phrase
LIST = 40  # pieces after a comma in which the "or" of a list is looked for

# What the lexicon says about a piece, as bits: it begins a term of several words, and cues other than stops do
# nothing there ("no" of "no appetite"); a complaint is named after it; and a disease or procedure before it.
IN_TERM, AT_COMPLAINT, AT_TURN = 1, 2, 4


class CueTables(NamedTuple):
    """Cue phrases in arrays. A cue word is a word or sign of some phrase; K are numbered.

    uses   (K,) int32   bit t: the word begins a phrase of table t; bit 8 + t: it is an open word of table t;
                        JOINS: a line break after it ends nothing
    trie                what phrases do, as bits (0: nothing); word w begins a phrase of table t as t * K + w
    reach  (7,) int32   words that a short scope reaches at most
    signs  (6,) int32   cue words ":", newline, "-", ",", "or" and "("
    """

    uses: NDArray[np.int32]
    trie: Trie
    reach: NDArray[np.int32]
    signs: NDArray[np.int32]


@njit(cache=True, nogil=True)
def assert_pieces(cue, plain, kind, glued, known, count, tables, assertion, cue_first, cue_last):  # type: ignore[no-untyped-def]
    """Assertion of the first `count` pieces of one note, blanks left out, into the last three arrays. O(count).

    cue        (P,) cue word of each piece, -1 where a piece is none or stands inside a term of the lexicon
    plain      (P,) cue word of each piece, also inside terms: a cue may hold a whole term
    kind       (P,) WORD or SIGN
    glued      (P,) bool: no blank stands between the piece and the piece before
    known      (P,) bits IN_TERM, AT_COMPLAINT and AT_TURN; zeros without a lexicon
    assertion  (P,) index into ASSERTIONS
    cue_first, cue_last   (P,) first and last piece of the cue that decided; -1 where there is none
    """
    cues = np.empty(count, np.int64)  # pieces that are cue words, without line breaks inside a sentence
    word_at = np.empty(count, np.int64)  # pieces that are words
    rank = np.empty(count + 1, np.int64)  # words before each piece
    found = words = 0
    for i in range(count):
        assertion[i], cue_first[i], cue_last[i], rank[i] = PRESENT, -1, -1, words
        if kind[i] == WORD:
            word_at[words] = i
            words += 1
        if cue[i] >= 0 and not (
            cue[i] == tables.signs[1] and i > 0 and cue[i - 1] >= 0 and tables.uses[cue[i - 1]] & JOINS
        ):
            cues[found] = i
            found += 1
    rank[count] = words
    if found:
        path = np.empty((LONGEST, 2), np.int64)
        cues, word_at = cues[:found], word_at[:words]
        _sections(cue, cues, count, tables, path, assertion, cue_first, cue_last)
        for code in PRIORITY:
            said = assertion, cue_first, cue_last
            _scopes(code, cue, plain, kind, glued, known, cues, word_at, rank, tables, path, *said)


@njit(cache=True, nogil=True, inline="always")
def _find(table, cue, i, count, tables, path):  # type: ignore[no-untyped-def]
    """Phrases of a table that begin at piece i, the shortest first, into path as (end, bits); returns how many."""
    found = 0
    node = tables.trie.root[table * tables.uses.size + cue[i]]
    k = i + 1
    while node:
        if tables.trie.value[node]:
            path[found, 0], path[found, 1] = k, tables.trie.value[node]
            found += 1
        if k == count or cue[k] < 0 or found == LONGEST:
            break
        node = child(node, cue[k], tables.trie)
        k += 1
    return found


@njit(cache=True, nogil=True)
def _sections(cue, cues, count, tables, path, assertion, cue_first, cue_last):  # type: ignore[no-untyped-def]
    """Give each piece the default of its section. A heading is followed by a colon, or stands alone on its line."""
    colon, newline, dash = tables.signs[0], tables.signs[1], tables.signs[2]
    section, first, begin = PRESENT, -1, 0  # section that is open, first piece of its heading, its own first piece
    for i in cues:
        if i < begin or not tables.uses[cue[i]] & (1 << SECTIONS):
            continue
        for p in range(_find(SECTIONS, cue, i, count, tables, path) - 1, -1, -1):
            after, does = path[p, 0], path[p, 1]
            if not does & END_SECTION:
                line = i == 0 or cue[i - 1] == newline
                if after < count and cue[after] == colon:
                    after += 1
                elif not (line and (after == count or cue[after] == newline or cue[after] == dash)):
                    continue
            if section != PRESENT:
                _mark(begin, i, section, first, begin - 1, assertion, cue_first, cue_last)
            section, first, begin = PRESENT, i, after
            for code in range(1, len(ASSERTIONS)):
                if does & (1 << code):
                    section = code
            break
    if section != PRESENT:
        _mark(begin, count, section, first, begin - 1, assertion, cue_first, cue_last)


@njit(cache=True, nogil=True, inline="always")
def _alone(word, code, tables):  # type: ignore[no-untyped-def]
    """What a cue word does alone: 0 if it is no phrase of one word."""
    return tables.trie.value[tables.trie.root[code * tables.uses.size + word]] if word >= 0 else 0


@njit(cache=True, nogil=True, inline="always")
def _opens(word, code, tables):  # type: ignore[no-untyped-def]
    """Whether a piece is an open word of a class."""
    return word >= 0 and tables.uses[word] & (1 << (8 + code)) != 0


@njit(cache=True, nogil=True, inline="always")
def _resolve(does, i, end, code, cue, kind, glued, count, tables):  # type: ignore[no-untyped-def]
    """What a phrase over pieces i to end - 1 does there: ANSWER, SUFFIX and ALONE count in their place only."""
    if does & ALONE:
        begins = i == 0 or (kind[i - 1] != WORD and not _opens(cue[i - 1], code, tables))
        if not begins or end >= count or not _alone(cue[end], code, tables) & STOP:
            does &= ~ALONE
    if does & SUFFIX:
        does &= ~SUFFIX
        if i > 0 and glued[i] and kind[i - 1] == WORD:
            return AFTER
    if does & ANSWER:
        if end < count:
            stops = _alone(cue[end], code, tables) & STOP
            if not stops and (kind[end] == WORD or not _opens(cue[end], code, tables)):
                return does & ~ANSWER
        return AFTER
    return does


@njit(cache=True, nogil=True, inline="always")
def _mark(begin, end, code, first, last, assertion, cue_first, cue_last):  # type: ignore[no-untyped-def]
    if code == PRESENT:
        first = last = -1
    for k in range(begin, end):
        assertion[k], cue_first[k], cue_last[k] = code, first, last


@njit(cache=True, nogil=True, inline="always")
def _list_goes_on(i, code, cue, count, tables):  # type: ignore[no-untyped-def]
    """Whether an "or" stands between the comma at piece i and the next stop of a class."""
    for k in range(i + 1, min(count, i + LIST)):
        if cue[k] == tables.signs[4]:
            return True
        if _alone(cue[k], code, tables) & STOP:
            return False
    return False


@njit(cache=True, nogil=True)
def _scopes(  # type: ignore[no-untyped-def]
    code, cue, plain, kind, glued, known, cues, word_at, rank, tables, path, assertion, cue_first, cue_last
):
    """Mark the scopes of one class.

    A forward scope runs from the end of its cue to the next stop or cue of the class. A backward scope runs from the
    start of its cue back to the last stop, open word or cue of the class. So scopes of one class and direction do not
    overlap, and the time is linear.
    """
    count, reach = rank.size - 1, tables.reach[code]
    starts, opens = 1 << code, 1 << (8 + code)
    forward = near = tentative = False  # a forward scope is open; it is a short one; it needs a confirming stop
    clause = False  # the open scope ends at a comma
    begin = back = done = 0  # start of the open scope; how far back a scope may reach; end of the last phrase
    bracket = -1  # the last "("
    outer = outer_clause = False  # whether a long scope was open there, and whether a comma ends that scope
    outer_first = outer_last = 0  # its cue
    first = last = 0  # cue of the open scope
    limit = count  # where a short scope ends at the latest
    for i in cues:
        uses = tables.uses[cue[i]]
        if not uses & (starts | opens):
            continue
        if near and i >= begin and (i >= limit or uses & opens):
            _mark(begin, min(i, limit), code, first, last, assertion, cue_first, cue_last)
            forward = near = False
        if clause and forward and cue[i] == tables.signs[3]:
            if _list_goes_on(i, code, cue, count, tables):
                done = max(done, i + 1)
            else:
                _mark(begin, i, code, first, last, assertion, cue_first, cue_last)
                forward = False
        if cue[i] == tables.signs[5]:
            bracket, outer, outer_clause = i, forward and not near and not tentative, clause
            outer_first, outer_last = first, last
        if i < done or not uses & starts:
            continue
        does = 0
        done = i + 1
        for p in range(_find(code, plain, i, count, tables, path) - 1, -1, -1):
            if cue[path[p, 0] - 1] < 0:  # ends inside a term
                continue
            does = _resolve(path[p, 1], i, path[p, 0], code, cue, kind, glued, count, tables)
            if does:
                done = path[p, 0]
                break
        if (known[i] & IN_TERM and done == i + 1) or known[done - 1] & IN_TERM:
            does &= STOP | CONFIRM | ITSELF
        if does & TURN and does & NEAR and known[i] & AT_COMPLAINT:  # "s/p wrist fracture" is why the patient came
            does = 0
        closes = does & CLOSE != 0 and begin > bracket >= 0
        if closes or (does & TURN and known[i] & AT_TURN):
            does |= STOP
        long = forward and not near and not tentative
        if forward and does & (STOP | BEFORE | CLAUSE | AFTER | NEAR | BEFORE_IF | CONFIRM):
            if not tentative or does & CONFIRM:
                _mark(begin, i, code, first, last, assertion, cue_first, cue_last)
            forward = near = tentative = False
        if does & (STOP | CONFIRM):
            back = done
        if closes and outer:  # "no bleeding (occult nor overt), weight loss": what the bracket interrupted goes on
            forward, clause, begin, first, last = True, outer_clause, done, outer_first, outer_last
        if does & CLOSE:
            bracket = -1
        if does & (ALONE | ITSELF):
            _mark(i, done, code, -1, -1, assertion, cue_first, cue_last)
        if does & AFTER and not does & (BEFORE | CLAUSE):
            k = max(back, word_at[rank[i] - reach - 1] + 1) if rank[i] > reach else back
            for j in range(i - 1, k - 1, -1):
                if cue[j] >= 0 and tables.uses[cue[j]] & opens:
                    k = j + 1
                    break
            _mark(k, i, code, i, done - 1, assertion, cue_first, cue_last)
            back = done
        if does & (BEFORE | CLAUSE | NEAR | BEFORE_IF):
            forward = True
            clause = does & CLAUSE != 0
            near = not does & (BEFORE | CLAUSE) and does & NEAR != 0 and (not long or does & (STOP | AFTER) != 0)
            tentative = not does & (BEFORE | CLAUSE | NEAR)
            begin = back = done
            first, last = i, done - 1
            limit = word_at[rank[done] + reach] if near and rank[done] + reach < word_at.size else count
        elif not does & AFTER and done < count and (does & NEXT_WORD or (does & PREFIX and glued[done])):
            _mark(done, done + 1, code, i, done - 1, assertion, cue_first, cue_last)
    if forward and not tentative:
        _mark(begin, limit if near else count, code, first, last, assertion, cue_first, cue_last)
