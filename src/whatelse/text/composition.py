"""Composition, compiled: which body sites belong to which heads ("fx of the distal radius", "ankle pain and swelling").

Between a head and its site stand only sides, degrees and articles, with a linking word ("laceration to") or, after
the site, a verb ("arm is swollen"). Both may be joined ("wrist and hand pain", "pain and swelling to ankle"), also
where the last of them is a term of its own ("wrist and knee pain", where the lexicon has "knee pain").
"""

from __future__ import annotations

from numba import njit

from whatelse.text.tables import IS_HEAD, IS_SITE
from whatelse.text.terms import AND, ARTICLE, COMMA, LINK, MODIFIER, VERB

BREAK = 1 << 20  # between two units that do not belong together
WINDOW = 6  # pieces between a head and its body site, at most
MOST_SITES = 4  # of one head


@njit(cache=True, nogil=True)
def _gap(begin, end, term, soft, role):  # type: ignore[no-untyped-def]
    """What stands in the pieces begin to end - 1: bits LINK, VERB, AND, COMMA; BREAK if anything else does.

    soft   (P,) pieces of qualities ("severe"), which stand between as a modifier does
    """
    found = 0
    if end - begin > WINDOW:
        return BREAK
    for k in range(begin, end):
        if soft[k]:
            continue
        if term[k] < 0 or term[k] >= role.size:
            return BREAK
        bits = role[term[k]]
        if bits & (LINK | VERB | AND | COMMA):
            found |= bits & (LINK | VERB | AND | COMMA)
        elif not bits & (ARTICLE | MODIFIER):
            return BREAK
    return found


@njit(cache=True, nogil=True)
def attach_sites(many, order, first_of, last_of, what, term, soft, tables, from_site, to_site, gap, back):  # type: ignore[no-untyped-def]
    """Find the body sites of each head.

    order                (U,) units that are no qualities, in reading order; `many` of them
    from_site, to_site   (U,) places in `order` of the first and last site of a head; -1: none
    gap, back            (U,) room: what stands before a unit; whether the site of a head stands before it
    """
    for k in range(many):
        from_site[k], to_site[k], back[k] = -1, -1, False
        gap[k] = BREAK
        if k > 0:
            gap[k] = _gap(last_of[order[k - 1]] + 1, first_of[order[k]], term, soft, tables.role)
    for k in range(1, many):  # site, then head: "wrist pain", "wrist and hand pain", "arm is swollen"
        if tables.unit[what[order[k]]] != IS_HEAD or tables.unit[what[order[k - 1]]] != IS_SITE or gap[k] & ~VERB:
            continue
        first = k - 1
        while (
            first > 0
            and k - first < MOST_SITES
            and gap[first] & (AND | COMMA)
            and not gap[first] & (BREAK | VERB | LINK)
            and tables.unit[what[order[first - 1]]] == IS_SITE
        ):
            first -= 1
        linked = first > 0 and not gap[first] & (BREAK | AND | COMMA)
        if linked and tables.unit[what[order[first - 1]]] == IS_HEAD:  # "cut to knee and elbow pain": the knee's head
            first = k - 1
        from_site[k], to_site[k], back[k] = first, k - 1, True
    for k in range(many - 1):  # head, then site: "laceration to knee", "swollen ankle", "pain to neck and back"
        if tables.unit[what[order[k]]] != IS_HEAD or from_site[k] >= 0:
            continue
        between = gap[k + 1]
        if tables.unit[what[order[k + 1]]] != IS_SITE or between & (BREAK | AND | COMMA):
            continue
        if between & VERB and not between & LINK:
            continue
        if not between & LINK and k + 2 < many and from_site[k + 2] == k + 1:  # "pain knee swelling"
            continue
        last = k + 1
        while (
            last + 1 < many
            and last - k < MOST_SITES
            and gap[last + 1] & (AND | COMMA)
            and not gap[last + 1] & (BREAK | VERB)
            and tables.unit[what[order[last + 1]]] == IS_SITE
            and not (last + 2 < many and back[last + 2])
        ):
            last += 1
        from_site[k], to_site[k] = k + 1, last
    for k in range(many - 2, -1, -1):  # "pain and swelling to ankle"
        if tables.unit[what[order[k]]] == IS_HEAD and from_site[k] < 0:
            joins = gap[k + 1] & (AND | COMMA) and not gap[k + 1] & (BREAK | VERB | LINK)
            if joins and from_site[k + 1] > k + 1:
                from_site[k], to_site[k] = from_site[k + 1], to_site[k + 1]
    for k in range(1, many):  # "ankle pain and swelling"
        unit = what[order[k]]
        alone = tables.unit[unit] == IS_HEAD and from_site[k] < 0
        if alone and tables.inherit[tables.head[unit]] and gap[k] == AND and back[k - 1]:
            from_site[k], to_site[k], back[k] = from_site[k - 1], to_site[k - 1], True
    for k in range(many):  # "hip and knee pain", "pain in knee and hip", where "knee pain" and "pain in knee" are terms
        unit = what[order[k]]
        if tables.unit[unit] == IS_HEAD or tables.unit[unit] == IS_SITE or tables.head_in[unit] < 0:
            continue
        first = k
        while first > 0 and k - first < MOST_SITES and _joined(first, gap):
            if tables.unit[what[order[first - 1]]] != IS_SITE:
                break
            first -= 1
        while first < k and (_owned(first, many, from_site, to_site) or gap[first] & (LINK | BREAK) == LINK):
            first += 1  # "sciatica of leg & knee pain": the leg belongs to what stands before it
        if first < k:
            from_site[k], to_site[k] = first, k - 1
            continue
        last = k
        while last + 1 < many and last - k < MOST_SITES and _joined(last + 1, gap):
            site = tables.unit[what[order[last + 1]]] == IS_SITE
            if not site or _owned(last + 1, many, from_site, to_site):
                break
            if last + 2 < many and gap[last + 2] == 0 and tables.unit[what[order[last + 2]]] != IS_SITE:
                break  # "LLQ pain, vag spotting": the site belongs to what follows
            last += 1
        if last > k:
            from_site[k], to_site[k] = k + 1, last


@njit(cache=True, nogil=True)
def _joined(k, gap):  # type: ignore[no-untyped-def]
    """Whether only "and", a slash or a comma stands before a unit."""
    return gap[k] & (AND | COMMA) != 0 and not gap[k] & (BREAK | VERB | LINK)


@njit(cache=True, nogil=True)
def _owned(site, many, from_site, to_site):  # type: ignore[no-untyped-def]
    """Whether a site belongs to a head or a term near it already."""
    for k in range(max(0, site - MOST_SITES - 1), min(many, site + MOST_SITES + 2)):
        if from_site[k] >= 0 and from_site[k] <= site <= to_site[k]:
            return True
    return False
