"""A slow, obvious reader of notes: every phrase tried at every place, composition by the definition. For tests."""

from __future__ import annotations

from itertools import pairwise

from whatelse.text.lexicon import Lexicon, compose, cut_term

Unit = tuple[int, int, str]  # first word, last word, entry


def ends_of(words: list[str], at: int, phrase: tuple[str, ...], articles: frozenset[str]) -> int | None:
    """Last word of `phrase` if it begins at word `at`, with at most two articles passed over before each word."""
    if not words[at : at + 1] or words[at] != phrase[0]:
        return None
    for wanted in phrase[1:]:
        at += 1
        skipped = 0
        while at < len(words) and words[at] != wanted and words[at] in articles and skipped < 2:
            at += 1
            skipped += 1
        if at >= len(words) or words[at] != wanted:
            return None
    return at


def units(lexicon: Lexicon, words: list[str]) -> list[Unit]:
    """Longest phrases from left to right; one that overlaps with the start of a longer one is cut short or dropped."""
    articles = frozenset(lexicon.grammar["articles"])
    phrases = {cut_term(term): entry.name for entry in lexicon.entries for term in entry.terms}
    bare = {tuple(w for k, w in enumerate(p) if w != "a" or k in (0, len(p) - 1)): name for p, name in phrases.items()}
    phrases = bare | phrases  # "hit by a car" is "hit by car"

    def longest(at: int, limit: int) -> tuple[int, str] | None:
        found = [
            (end, name) for p, name in phrases.items() if (end := ends_of(words[:limit], at, p, articles)) is not None
        ]
        return max(found, default=None)

    out: list[Unit] = []
    at = 0
    while at < len(words):
        here = longest(at, len(words))
        if here is not None:
            for k in range(at + 1, here[0] + 1):
                other = longest(k, len(words))
                if other is not None and other[0] > here[0] and other[0] - k > here[0] - at:
                    here = longest(at, k)
                    break
        if here is None:
            at += 1
        else:
            out.append((at, here[0], here[1]))
            at = here[0] + 1
    return out


def gap(lexicon: Lexicon, words: list[str], soft: set[int], first: int, end: int) -> set[str] | None:
    """The kinds of words in words[first:end] that matter (links, verbs, conjunctions, commas); None if any other is."""
    if end - first > 6:
        return None
    found = set()
    for k in range(first, end):
        kinds = {role for role in ("links", "verbs", "conjunctions", "commas") if words[k] in lexicon.grammar[role]}
        if k in soft:
            continue
        if kinds:
            found |= kinds
        elif words[k] not in (*lexicon.grammar["articles"], *lexicon.grammar["modifiers"]):
            return None
    return found


def mentions(lexicon: Lexicon, words: list[str]) -> list[tuple[int, int, str]]:
    """(first word, last word, concept) of every mention, sorted."""
    found = units(lexicon, words)
    kind = {entry.name: entry.kind for entry in lexicon.entries}
    soft = {k for a, b, name in found if kind[name] == "quality" for k in range(a, b + 1)}
    order = [unit for unit in found if kind[unit[2]] != "quality"]
    between = [None, *(gap(lexicon, words, soft, a[1] + 1, b[0]) for a, b in pairwise(order))]
    is_head = [kind[name] == "head" for *_, name in order]
    is_site = [kind[name] == "site" for *_, name in order]
    joins = {"conjunctions", "commas"}
    sites: dict[int, list[int]] = {}
    behind: set[int] = set()
    for k in range(1, len(order)):
        here = between[k]
        if is_head[k] and is_site[k - 1] and here is not None and here <= {"verbs"}:
            chain = [k - 1]
            while len(chain) < 4 and chain[0] > 0 and is_site[chain[0] - 1]:
                before = between[chain[0]]
                if not before or not before <= joins:
                    break
                chain.insert(0, chain[0] - 1)
            first = chain[0]
            ahead = between[first]
            if len(chain) > 1 and first > 0 and is_head[first - 1] and ahead is not None and not ahead & joins:
                chain = [k - 1]
            sites[k] = chain
            behind.add(k)
    for k in range(len(order) - 1):
        here = between[k + 1]
        if not is_head[k] or k in sites or not is_site[k + 1] or here is None or here & joins:
            continue
        if "verbs" in here and "links" not in here:
            continue
        if "links" not in here and sites.get(k + 2, [None])[0] == k + 1:
            continue
        chain = [k + 1]
        while len(chain) < 4 and chain[-1] + 1 < len(order) and is_site[chain[-1] + 1]:
            after = between[chain[-1] + 1]
            if after is None or not after & joins or "verbs" in after or chain[-1] + 2 in behind:
                break
            chain.append(chain[-1] + 1)
        sites[k] = chain
    for k in reversed(range(len(order) - 1)):
        here = between[k + 1]
        if is_head[k] and k not in sites and here and here <= joins and k + 1 in sites and k + 1 not in behind:
            sites[k] = sites[k + 1]
    for k in range(1, len(order)):
        inherits = is_head[k] and k not in sites and order[k][2] in lexicon.grammar["inherit"]
        if inherits and between[k] == {"conjunctions"} and k - 1 in behind:
            sites[k] = sites[k - 1]
            behind.add(k)
    made_of = {compose(site, head): head.name for site in lexicon.sites for head in lexicon.heads}
    owned = {s for chain in sites.values() for s in chain}
    # "ankle and chest pain", "pain in chest and ankle", where "chest pain" is a term
    for k, (*_, name) in enumerate(order):
        if is_head[k] or is_site[k] or name not in made_of:
            continue
        chain = []
        while len(chain) < 4 and k - len(chain) > 0 and is_site[k - len(chain) - 1]:
            before = between[k - len(chain)]
            if not before or not before <= joins:
                break
            chain.insert(0, k - len(chain) - 1)
        while chain and (chain[0] in owned or "links" in (between[chain[0]] or ())):
            chain.pop(0)  # "sciatica of leg & knee pain"
        if not chain:
            while len(chain) < 4 and k + len(chain) + 1 < len(order) and is_site[k + len(chain) + 1]:
                after = between[k + len(chain) + 1]
                if not after or not after <= joins or k + len(chain) + 1 in owned:
                    break
                chain.append(k + len(chain) + 1)
        if chain:
            sites[k] = chain
            owned.update(chain)
    out = [unit for unit in found if kind[unit[2]] == "quality"]
    for k, (a, b, name) in enumerate(order):
        for s in sites.get(k, ()):
            site = order[s]
            made = compose(lexicon.by_name[site[2]], lexicon.by_name[made_of.get(name, name)])
            out.append((min(a, site[0]), max(b, site[1]), made))
        needs_site = is_head[k] and a == b and words[a] in lexicon.grammar["with_site"]
        if not is_site[k] and (k not in sites or not is_head[k]) and not (needs_site and k not in sites):
            out.append((a, b, name))
    return sorted(out)
