"""Findings of many visits at once are those of one visit after another, whatever the notes hold."""

from __future__ import annotations

import random
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
from scipy.sparse import csr_matrix

from tests.support import reference_findings, small_department
from whatelse.annotators import AnchorSet
from whatelse.cohort import Vocabulary, build_cohort
from whatelse.cohort.bands import cuts_of_counts, learn_cuts
from whatelse.cohort.batches import BatchReader
from whatelse.cohort.counting import Collector
from whatelse.cohort.findings import Finder
from whatelse.spark.chunks import freeze, thaw
from whatelse.text.rules import load_named_rules, load_rules
from whatelse.visits import Visit

ODD = ["  ", "\n", "\t", ".", ",", ";", ":", "-", "/", "(", "\r\n", "\u00a0", "İ", "101.5", "x3", "p.o.", "doesn't"]
CUES = ["no", "denies", "not", "without", "ruled out", "is absent", "no evidence of", "gram negative", "no change"]
CUES += ["but", "with", "-fever", "fever: no", "cough: yes", "negative for", "non-", "w/o", "w/", "neg", "hx of"]


def texts(vocabulary: Vocabulary, count: int, seed: int) -> list[str]:
    """Notes made of words, cues of negation, anchors and signs in any order."""
    rng = random.Random(seed)
    words = [name for name in vocabulary.names if ":" not in name][:300]
    words = [*(word.replace("_", " ") for word in words), *(" ".join(p) for p in sorted(vocabulary.bigrams)[:50])]
    anchors = [a.value for c in vocabulary.anchors.conditions for a in c.anchors if a.how == "phrase"]
    kinds = [ODD, CUES, words, anchors]
    return [
        "".join(rng.choice(rng.choice(kinds)) + rng.choice(["", " ", " "]) for _ in range(rng.randrange(1, 25)))
        for _ in range(count)
    ]


def same(vocabulary: Vocabulary, visits: list[Visit]) -> None:
    reader, index = BatchReader(vocabulary), vocabulary.index
    own = [(vocabulary.present(visit).tolist(), vocabulary.unobserved(visit).tolist()) for visit in visits]
    for visit, (present, _) in zip(visits, own, strict=True):
        assert set(present) == {index[name] for name in reference_findings.present(vocabulary, visit)}
        assert set(present) == {found.finding for found in vocabulary.find(visit)}
    for _ in range(2):  # from nothing, and with what the first round left
        assert list(zip(_rows(reader.present(visits)), _rows(reader.unobserved(visits)), strict=True)) == own


def _rows(found: csr_matrix) -> list[list[int]]:
    return [found.indices[a:b].tolist() for a, b in pairwise(found.indptr.tolist())]


def test_simulated_visits() -> None:
    same(small_department.cohort().vocabulary, list(small_department.visits("test")[:400]))


def test_notes_of_every_kind_of_word_and_sign() -> None:
    vocabulary = small_department.cohort().vocabulary
    made = texts(vocabulary, 1500, 1)
    fields = ("chief_complaint", "triage_note", "md_comments")
    same(vocabulary, [Visit(str(i), **{fields[i % 3]: text}) for i, text in enumerate(made)])


@pytest.mark.parametrize("rules", ["default", "paper", "negation"])
def test_phrases_with_signs_inside_and_other_rules(rules: str) -> None:
    conditions = {"belly": ["abd. pain", "abd pain", "s/p fall", "n/v; d"], "asthma": ["asthma", "asthma attack"]}
    anchors = _anchors(conditions)
    pieces = ["abd. pain", "abd pain", "abd; pain", "abd-pain", "no abd. pain", "s/p fall", "asthma attack", "denies"]
    rng = random.Random(3)
    visits = [
        Visit(str(i), triage_note=" ".join(rng.choices([*pieces, *ODD], k=8)), md_comments=rng.choice(pieces))
        for i in range(500)
    ]
    loaded = load_named_rules("default") if rules == "negation" else load_rules(rules)
    same(build_cohort(visits, anchors, rules=loaded, max_share=1.0, lexicon="none").vocabulary, visits)


def _anchors(conditions: dict[str, list[str]]) -> AnchorSet:
    shipped = AnchorSet.shipped().conditions[0]
    anchor = next(a for a in shipped.anchors if a.how == "phrase")
    return AnchorSet(
        tuple(
            replace(shipped, name=name, anchors=tuple(replace(anchor, value=p) for p in phrases))
            for name, phrases in conditions.items()
        )
    )


def test_nothing_to_read() -> None:
    vocabulary = small_department.cohort().vocabulary
    same(vocabulary, [Visit("1"), Visit("2", triage_note=""), Visit("3", age=44.0)])
    assert BatchReader(vocabulary).present([]).shape == (0, len(vocabulary.names))


def test_collector_is_the_same_after_freeze_and_thaw() -> None:
    finder = Finder(AnchorSet.shipped())
    whole = Collector(finder).add_all(small_department.visits()[:300])
    copy = thaw(finder, freeze(whole))
    assert _by_name(copy) == _by_name(whole)
    assert copy.labels.ids == whole.labels.ids and copy.left == whole.left
    assert freeze(copy)["known"] == freeze(whole)["known"]


def _by_name(collector: Collector) -> list[set[str]]:
    """The findings of each visit by name."""
    names, ends, numbers = collector.findings(frozenset(), {})
    return [{names[j] for j in numbers[a:b].tolist()} for a, b in pairwise(ends.tolist())]


@pytest.mark.parametrize("count", [2, 5, 9])
def test_cuts_are_quantiles(count: int, rng: np.random.Generator) -> None:
    values = rng.integers(40, 160, 1_000).astype(float)
    wanted = np.unique(np.quantile(values, np.arange(1, count) / count, method="higher"))
    assert learn_cuts(values, count) == tuple(w for w in wanted.tolist() if w > values.min())
    assert cuts_of_counts(*np.unique(values, return_counts=True), count) == learn_cuts(values, count)
    assert learn_cuts([], count) == () and learn_cuts([3.0, 3.0], count) == ()
