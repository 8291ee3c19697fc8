"""Matcher: from the pieces of a note to its mentions. One compiled pass, O(pieces).

1. The longest phrase of the lexicon at each piece; of two that overlap the longer one stays. Articles inside a phrase
   are passed over. Shorthand with several meanings is told by its neighbours.
2. Assertion of every piece (`assertion.py`). A cue inside a phrase of the lexicon is no cue ("unable to walk"), but a
   stop at its beginning is a stop, and a cue may hold a whole phrase (", hitting head on"). Kinds of concepts tell
   where a history ends ("hx lung ca, facial swelling").
3. Composition: a head ("fracture") and a body site ("radius") with only sides, degrees, articles and linking words
   between them are one mention; "pain and swelling to ankle" is two.
4. Anchors: where the concept they name or a kind of it is mentioned; an anchor that names no concept, where its words
   stand, but not inside a longer phrase of the lexicon.
5. Words, with flags that say which belong to a mention or an anchor.
"""

from __future__ import annotations

import numpy as np
from numba import njit

from whatelse.text.assertion import AT_COMPLAINT, AT_TURN, HISTORICAL, IN_TERM, NEGATED, PRESENT, assert_pieces
from whatelse.text.composition import MOST_SITES, attach_sites
from whatelse.text.phrases import find_units, step
from whatelse.text.pieces import SIGN, WORD
from whatelse.text.tables import COMPLAINT, DISEASE, IS_DRUG, IS_HEAD, IS_IDIOM, IS_QUALITY, IS_SITE
from whatelse.text.terms import ALLERGY, AND, COMMA, GIVEN, VERB, WITH_SITE

# Kinds of items
MENTION, WORD_ITEM, ANCHOR, DROPPED = range(4)
# Where a drug comes from
HOME, DRUG_GIVEN, DRUG_ALLERGY = range(3)
NOTE, TYPE, ID, START, END, ASSERTION, CUE_START, CUE_END, FLAGS = range(9)  # columns of an item
# Flags of a word: a gap stands before it; it belongs to an anchor; it belongs to a mention, a value or a body site
APART, TAKEN, COVERED = 1, 2, 4


@njit(cache=True, nogil=True)
def _drug_from(first, last, count, term, kind, role, drug):  # type: ignore[no-untyped-def]
    """Where the drug over these pieces comes from. `drug` (P,): pieces of drugs, over which lists go on."""
    k, words = first - 1, 0
    while k >= 0 and words < 4:
        bits = role[term[k]] if 0 <= term[k] < role.size else 0
        if kind[k] == SIGN:
            if not bits & (AND | COMMA | VERB):
                break
        elif bits & GIVEN:
            return DRUG_GIVEN
        elif bits & ALLERGY:
            return DRUG_ALLERGY
        elif not drug[k] and not bits & AND:
            words += 1
        k -= 1
    for k in range(last + 1, min(last + 3, count)):  # "DPH given", "Adrenalin was given"; a sign ends it
        if kind[k] == SIGN:
            break
        bits = role[term[k]] if 0 <= term[k] < role.size else 0
        if bits & ALLERGY and k == last + 1:
            return DRUG_ALLERGY
        if bits & GIVEN:
            return DRUG_GIVEN
    return HOME


@njit(cache=True, nogil=True)
def _mark_turns(many, order, first_of, last_of, what, tables, known):  # type: ignore[no-untyped-def]
    """Mark the pieces before a complaint, and those where a disease, procedure or device stands before them."""
    before = -1
    for k in range(many):
        u = order[k]
        if tables.unit[what[u]] == IS_SITE:
            continue
        if tables.topic[what[u]] == COMPLAINT:
            turns = before >= 0 and tables.topic[what[before]] == DISEASE
            for i in range(last_of[before] + 1 if before >= 0 else 0, first_of[u]):
                known[i] |= AT_COMPLAINT | (AT_TURN if turns else 0)
        before = u


@njit(cache=True, nogil=True)
def match_notes(ends, coded, table, cues, tables, anchors, fields, items):  # type: ignore[no-untyped-def]
    """Into `items` (K, 9): mentions, words and anchors of each note. Returns how many; -1 if there is no room.

    ends, coded   (N + 1,), pieces of N notes; table: rows of `PieceTable`
    fields        (N,) the field of each note, as a bit
    """
    widest = 0
    for v in range(ends.size - 1):
        widest = max(widest, ends[v + 1] - ends[v])
    text, kind, term = np.empty(widest, np.int64), np.empty(widest, np.int64), np.empty(widest, np.int64)
    start, end = np.empty(widest, np.int64), np.empty(widest, np.int64)
    cue, plain, stem = np.empty(widest, np.int64), np.empty(widest, np.int64), np.empty(widest, np.int64)
    glued, assertion = np.empty(widest, np.bool_), np.empty(widest, np.int8)
    cue_first, cue_last = np.empty(widest, np.int32), np.empty(widest, np.int32)
    longest, value, covered = np.empty(widest, np.int32), np.empty(widest, np.int32), np.empty(widest, np.bool_)
    first_of, last_of, what = np.empty(widest, np.int32), np.empty(widest, np.int32), np.empty(widest, np.int32)
    order, from_site, to_site = np.empty(widest, np.int32), np.empty(widest, np.int32), np.empty(widest, np.int32)
    gap, back, soft = np.empty(widest, np.int32), np.empty(widest, np.bool_), np.empty(widest, np.bool_)
    known, denies = np.empty(widest, np.int8), np.empty(widest, np.bool_)
    drug, taken, unit_at = np.empty(widest, np.bool_), np.empty(widest, np.bool_), np.empty(widest, np.int32)
    room, found = len(items), 0
    zero = np.int64(0)  # numba compiles what is called with the literal 0 once more for the literal
    for v in range(ends.size - 1):
        count, at, words, before = zero, 0, zero, -1
        for k in range(ends[v], ends[v + 1]):
            row = table[coded[k]]
            if row[0] >= 0:
                text[count], kind[count], cue[count], term[count] = row[0], row[1], row[5], row[6]
                start[count], end[count] = at + row[2], at + row[2] + row[3]
                glued[count] = start[count] == before
                before = end[count]
                words += row[1] == WORD
                count += 1
            at += row[4]
        covered[:count], taken[:count], soft[:count], drug[:count] = False, False, False, False
        unit_at[:count], known[:count], plain[:count] = -1, 0, cue[:count]
        units = many = zero
        if tables.unit.size:
            units = find_units(count, words, term, stem, kind, tables, longest, value, first_of, last_of, what, denies)
        for u in range(units):
            unit = tables.unit[what[u]]
            unit_at[first_of[u] : last_of[u] + 1] = u
            if last_of[u] > first_of[u]:
                known[first_of[u]] = IN_TERM
                cue[first_of[u] + 1 : last_of[u] + 1] = -1
            if unit == IS_QUALITY:
                soft[first_of[u] : last_of[u] + 1] = True
            else:
                order[many] = u
                many += 1
                if unit == IS_DRUG:
                    drug[first_of[u] : last_of[u] + 1] = True
        _mark_turns(many, order, first_of, last_of, what, tables, known)
        assert_pieces(cue, plain, kind, glued, known, count, cues, assertion, cue_first, cue_last)
        for u in range(units):
            if denies[u] and assertion[first_of[u]] in (PRESENT, NEGATED):
                assertion[first_of[u]] = NEGATED if assertion[first_of[u]] == PRESENT else PRESENT
        if found + 2 * count + (MOST_SITES + 1) * many + 8 > room:
            return -1
        if many > 1:
            attach_sites(many, order, first_of, last_of, what, term, soft, tables, from_site, to_site, gap, back)
        elif many:
            from_site[0] = to_site[0] = -1
        # ---- mentions
        k = 0  # place in `order`
        for u in range(units):
            unit = tables.unit[what[u]]
            first, last, concept = first_of[u], last_of[u], what[u]
            extra = 0  # 1: the unit has a site of its own and takes further ones ("wrist and" before "knee pain")
            sites = 1
            if unit != IS_QUALITY:
                if unit in (IS_SITE, IS_IDIOM):  # alone it is no mention, and its words say no more
                    covered[first : last + 1] = True
                    k += 1
                    continue
                if unit == IS_HEAD and from_site[k] < 0 and first == last and tables.role[term[first]] & WITH_SITE:
                    k += 1
                    continue
                if from_site[k] >= 0:
                    extra = unit != IS_HEAD
                    sites = to_site[k] - from_site[k] + 1 + extra
            for j in range(sites):
                if unit != IS_QUALITY and from_site[k] >= 0 and j >= extra:
                    site = order[from_site[k] + j - extra]
                    head = tables.head_in[what[u]] if extra else tables.head[what[u]]
                    concept = tables.composed[tables.site[what[site]], head]
                    first, last = min(first_of[u], first_of[site]), max(last_of[u], last_of[site])
                a = first_of[u]
                items[found, NOTE], items[found, TYPE], items[found, ID] = v, MENTION, concept
                items[found, START], items[found, END], items[found, ASSERTION] = start[first], end[last], assertion[a]
                items[found, CUE_START] = items[found, CUE_END] = -1
                if cue_first[a] >= 0:
                    items[found, CUE_START], items[found, CUE_END] = start[cue_first[a]], end[cue_last[a]]
                items[found, FLAGS] = 0
                if unit == IS_DRUG:
                    items[found, FLAGS] = _drug_from(first, last, count, term, kind, tables.role, drug)
                mention = found
                found += 1
                covered[first : last + 1] = True
                if assertion[a] != PRESENT:  # a denied combination denies each of its members
                    for p in range(tables.part_start[concept], tables.part_start[concept + 1]):
                        items[found] = items[mention]
                        items[found, ID] = tables.part[p]
                        found += 1
                for p in range(anchors.of[concept], anchors.of[concept + 1]):
                    anchor = anchors.concept[p]
                    fires = assertion[a] == PRESENT or (assertion[a] == HISTORICAL and anchors.historical[anchor])
                    if fires and anchors.fields[anchor] & fields[v]:
                        if found + 2 * count + (MOST_SITES + 1) * many + 8 > room:
                            return -1
                        items[found] = items[mention]
                        items[found, TYPE], items[found, ID], items[found, FLAGS] = ANCHOR, anchor, 0
                        found += 1
            if unit != IS_QUALITY:
                k += 1
        # ---- anchors
        for i in range(count):
            if term[i] < 0 or not anchors.trie.root[term[i]]:
                continue
            node, at = np.int64(anchors.trie.root[term[i]]), i
            while node:
                group = anchors.trie.value[node]
                u = unit_at[i]
                inside = u >= 0 and at <= last_of[u] and last_of[u] - first_of[u] > at - i  # of a longer phrase
                if group >= 0 and not inside:
                    present = historical = True
                    for j in range(i, at + 1):
                        if kind[j] == WORD and assertion[j] != PRESENT:
                            present = False
                            historical = historical and assertion[j] == HISTORICAL
                    for p in range(anchors.groups[group], anchors.groups[group + 1]):
                        a = anchors.group[p]
                        fires = present or (historical and anchors.historical[a])
                        if not fires or not anchors.fields[a] & fields[v]:
                            continue
                        if found + 2 * count + 8 > room:
                            return -1
                        taken[i : at + 1] = True
                        items[found, NOTE], items[found, TYPE], items[found, ID] = v, ANCHOR, a
                        items[found, START], items[found, END], items[found, ASSERTION] = start[i], end[at], PRESENT
                        items[found, CUE_START] = items[found, CUE_END] = -1
                        items[found, FLAGS] = 0
                        found += 1
                node, at = step(node, at, count, term, tables.role, anchors.trie)
        # ---- words
        apart = False
        for i in range(count):
            if kind[i] == SIGN:
                apart = True
                continue
            items[found, NOTE], items[found, TYPE], items[found, ID] = v, WORD_ITEM, text[i]
            items[found, START], items[found, END], items[found, ASSERTION] = start[i], end[i], assertion[i]
            items[found, CUE_START] = items[found, CUE_END] = -1
            if cue_first[i] >= 0:
                items[found, CUE_START], items[found, CUE_END] = start[cue_first[i]], end[cue_last[i]]
            items[found, FLAGS] = (APART if apart else 0) | (TAKEN if taken[i] else 0) | (COVERED if covered[i] else 0)
            found += 1
            apart = False
    return found
