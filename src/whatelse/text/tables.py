"""A lexicon and anchor phrases as arrays, for the compiled pass (`matcher.py`)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from whatelse.text.lexicon import DRUG, DRUG_CLASS, HEAD, IDIOM, QUALITY, SITE, Lexicon, Words, compose
from whatelse.text.terms import TermTable
from whatelse.text.trie import Trie
from whatelse.types import Bools, Int32s

# Kinds of units, as the pass tells them apart.
PLAIN, IS_HEAD, IS_SITE, IS_DRUG, IS_QUALITY, IS_IDIOM = range(6)
_UNIT = {HEAD: IS_HEAD, SITE: IS_SITE, DRUG: IS_DRUG, DRUG_CLASS: IS_DRUG, QUALITY: IS_QUALITY, IDIOM: IS_IDIOM}
# What a unit is about, for where a history ends: a complaint of today, or a disease, procedure or device.
NO_TOPIC, COMPLAINT, DISEASE = range(3)
_TOPIC = dict.fromkeys((HEAD, "symptom", "sign", "mechanism", "result"), COMPLAINT)
_TOPIC |= dict.fromkeys(("disease", "procedure", "device", "history", "social"), DISEASE)


class LexiconTables(NamedTuple):
    """A lexicon as arrays: E entries, C >= E concepts (entries, then composed ones), T terms, S sites, H heads.

    trie                phrase -> entry
    role                (T,) bits of what grammar words do
    stem                (T,) the number that the forms of one verb share
    unit                (C,) kind of unit
    topic               (C,) NO_TOPIC, COMPLAINT or DISEASE; lasting signs and symptoms count as diseases
    head, site          (C,) number of a head and of a site; -1 of all others
    composed            (S, H) concept
    head_in             (C,) head of a concept that is a head at a site and has terms of its own ("knee pain"); -1
    inherit             (H,) whether a head takes the site of the head before it
    senses              (T + 1,) first sense of each shorthand: senses[t] to senses[t + 1]
    sense               (N, 9) concept, alone, begin and end in `neighbours` of next, previous, near; whether denied
    neighbours          terms, sorted within each list
    up_start, up        wider concepts of each concept
    part_start, part    members of each combination ("n/v")
    lasting             (C,) whether a historical mention counts as present
    """

    trie: Trie
    role: Int32s
    stem: Int32s
    unit: Int32s
    topic: Int32s
    head: Int32s
    site: Int32s
    composed: Int32s
    head_in: Int32s
    inherit: Bools
    senses: Int32s
    sense: Int32s
    neighbours: Int32s
    up_start: Int32s
    up: Int32s
    part_start: Int32s
    part: Int32s
    lasting: Bools


class AnchorTables(NamedTuple):
    """A anchors as arrays. An anchor that names a concept fires where the concept or a kind of it is mentioned;
    any other fires where its phrase stands, G different phrases.

    trie            phrase -> group
    groups, group   (G + 1,) anchors of each group: group[groups[g] : groups[g + 1]]
    of, concept     (C + 1,) anchors of each concept: concept[of[c] : of[c + 1]]
    fields          (A,) the fields an anchor is looked for in, as bits
    historical      (A,) whether a historical mention fires it
    """

    trie: Trie
    groups: Int32s
    group: Int32s
    of: Int32s
    concept: Int32s
    fields: Int32s
    historical: Bools


class CompiledLexicon(NamedTuple):
    """A lexicon ready for reading: its words, its arrays and the names of its C concepts."""

    terms: TermTable
    tables: LexiconTables
    concepts: tuple[str, ...]


def compile_lexicon(lexicon: Lexicon) -> CompiledLexicon:
    """The arrays of a lexicon. Some 0.5 s for 30,000 terms; `Lexicon.compiled` keeps the result."""
    terms = TermTable(lexicon)
    entries = lexicon.entries
    names = [entry.name for entry in entries]
    number = {name: k for k, name in enumerate(names)}
    heads = {entry.name: k for k, entry in enumerate(lexicon.heads)}
    sites = {entry.name: k for k, entry in enumerate(lexicon.sites)}
    composed = np.full((max(len(sites), 1), max(len(heads), 1)), -1, np.int32)
    for s, site in enumerate(lexicon.sites):
        for h, head in enumerate(lexicon.heads):
            name = compose(site, head)
            if name not in number:
                number[name] = len(names)
                names.append(name)
            composed[s, h] = number[name]
    head_in = np.full(len(names), -1, np.int32)
    for h in range(len(heads)):
        head_in[composed[: len(sites), h]] = h
    unit = np.full(len(names), PLAIN, np.int32)
    unit[: len(entries)] = [_UNIT.get(entry.kind, PLAIN) for entry in entries]
    lasting = np.zeros(len(names), np.bool_)
    lasting[: len(entries)] = [entry.lasting for entry in entries]
    topic = np.full(len(names), NO_TOPIC, np.int32)
    topic[: len(entries)] = [DISEASE if entry.lasting else _TOPIC.get(entry.kind, NO_TOPIC) for entry in entries]
    topic[: len(entries)][(head_in[: len(entries)] >= 0) & ~lasting[: len(entries)]] = COMPLAINT  # a wrist fracture
    head_of, site_of = np.full(len(names), -1, np.int32), np.full(len(names), -1, np.int32)
    head_of[[number[name] for name in heads]] = list(heads.values())
    site_of[[number[name] for name in sites]] = list(sites.values())
    up = [[number[parent] for parent in lexicon.ancestors(name) if parent in number] for name in names]
    senses, sense, neighbours = _senses(lexicon, terms, number)
    inherit = set(lexicon.grammar.get("inherit", ()))
    tables = LexiconTables(
        terms.trie(lexicon.phrases),
        np.append(terms.role, np.int32(0)).astype(np.int32),
        terms.stems(),
        unit,
        topic,
        head_of,
        site_of,
        composed,
        head_in,
        np.array([entry.name in inherit for entry in lexicon.heads] or [False], np.bool_),
        senses,
        sense,
        neighbours,
        *_lists(up),
        *_lists([[number[part] for part in lexicon.members(name)] for name in names]),
        lasting,
    )
    return CompiledLexicon(terms, tables, tuple(names))


def _senses(lexicon: Lexicon, terms: TermTable, number: dict[str, int]) -> tuple[Int32s, Int32s, Int32s]:
    """Shorthand as arrays. A sense whose concept the lexicon does not have is left out, as is a word that is a term."""
    start = np.zeros(len(terms.numbers) + 2, np.int32)
    rows: list[list[int]] = []
    flat: list[int] = []
    by_term = sorted((terms.numbers[word], word) for word in lexicon.shorthand)
    for term, word in by_term:
        for sense in lexicon.shorthand[word]:
            means = sense.means.removeprefix("neg:")
            if means not in number or (word,) in lexicon.phrases:
                continue
            row = [number[means], int(sense.alone or not (sense.next or sense.previous or sense.near))]
            row[1] += int(not (sense.next or sense.previous or sense.near or sense.alone))  # 2: whatever stands around
            for some in (sense.next, sense.previous, sense.near):
                row.append(len(flat))
                flat.extend(sorted(terms.numbers[w] for w in set(some)))
                row.append(len(flat))
            rows.append([*row, int(means != sense.means)])
            start[term + 1 :] += 1
    return start, np.array(rows, np.int32).reshape(-1, 9), np.array(flat, np.int32)


def anchor_tables(
    terms: TermTable,
    tables: LexiconTables,
    phrases: Sequence[Words],
    concepts: Sequence[int] | Int32s,
    fields: Sequence[int],
    historical: Sequence[bool],
) -> AnchorTables:
    """The arrays of anchors, one for each of `phrases`; concepts: the concept that each names, -1 for none."""
    by_phrase: dict[Words, list[int]] = {}
    by_concept: dict[int, list[int]] = {}
    for a, (words, concept) in enumerate(zip(phrases, np.asarray(concepts).tolist(), strict=True)):
        if concept >= 0:
            by_concept.setdefault(concept, []).append(a)
        elif words:
            by_phrase.setdefault(words, []).append(a)
    count = tables.unit.size
    of_concept: list[list[int]] = [[] for _ in range(count)]
    if by_concept:
        for c in range(count):
            wider = (c, *tables.up[tables.up_start[c] : tables.up_start[c + 1]].tolist())
            of_concept[c] = [a for w in wider for a in by_concept.get(w, ())]
    return AnchorTables(
        terms.trie({words: g for g, words in enumerate(by_phrase)}),
        *_lists(list(by_phrase.values())),
        *_lists(of_concept),
        np.array(fields, np.int32),
        np.array(historical, np.bool_),
    )


def _lists(lists: list[list[int]]) -> tuple[Int32s, Int32s]:
    """Lists one after the other: where each begins, and what they hold."""
    starts = np.concatenate([[0], np.cumsum([len(some) for some in lists])]).astype(np.int32)
    return starts, np.array([item for some in lists for item in some], np.int32)
