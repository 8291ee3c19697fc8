"""The prior of a cohort's vocabulary: what the knowledge base says, column by column."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from whatelse.annotators import Anchor, AnchorSet, Condition
from whatelse.cohort import Vocabulary
from whatelse.knowledge import load_knowledge
from whatelse.learning.prior import CODE, NAME, PHRASE, SYMPTOM_NAME, SYMPTOM_PHRASE, Prior, prior_of

FINDINGS = (
    *("flank_pain", "toothache", "rx:tramadol", "visit:injury", "hematuria", "wrist_pain", "ankle_pain"),
    *("wrist_fracture", "wrist_laceration", "age:70-80", "vital:systolic < 90", "unheard"),
)


def phrase(text: str) -> Anchor:
    return Anchor("phrase", text, ("triage_note", "chief_complaint"))


CONDITIONS = (
    Condition("kidney stone", "Kidney stone", "acute", {}, (phrase("kidney stone"),)),
    Condition("forearm or wrist fracture", "Forearm or wrist fracture", "acute", {}, (phrase("outstretched"),)),
    Condition("arm contusion", "Contusion of the arm", "acute", {}, ()),
    Condition("gizmo", "Gizmo", "acute", {}, (phrase("gizmo"),)),
)


@pytest.fixture(scope="module")
def vocabulary() -> Vocabulary:
    anchors = AnchorSet(CONDITIONS)
    names = (*FINDINGS, *(f"anchor:{c.name}" for c in CONDITIONS))
    return Vocabulary(names, np.full(len(names), 50), 1000, anchors)


@pytest.fixture(scope="module")
def prior(vocabulary: Vocabulary) -> Prior:
    return prior_of(vocabulary, load_knowledge())


def cell(prior: Prior, condition: int, finding: str) -> tuple[float, float]:
    facts, names = prior.weight[:, condition, FINDINGS.index(finding)]
    return facts, names


def test_a_finding_that_the_entry_lists_is_a_fact(prior: Prior) -> None:
    facts, names = cell(prior, 0, "flank_pain")
    assert facts > 1 and names == 0


def test_a_finding_that_is_common_in_the_cohort_speaks_less(prior: Prior, vocabulary: Vocabulary) -> None:
    common = replace(vocabulary, counts=np.full(len(vocabulary.names), 500))
    facts, _ = cell(prior_of(common, load_knowledge()), 0, "flank_pain")
    assert 0 < facts < cell(prior, 0, "flank_pain")[0]


def test_a_drug_speaks_by_its_class(prior: Prior) -> None:
    assert cell(prior, 0, "rx:tramadol")[0] > 0  # an opioid


def test_a_complaint_that_the_entry_does_not_bring_says_nothing(prior: Prior) -> None:
    assert cell(prior, 0, "toothache") == (0.0, 0.0)


def test_the_mark_of_an_injury_speaks_for_injuries_and_against_diseases(prior: Prior) -> None:
    assert cell(prior, 0, "visit:injury")[0] < 0 < cell(prior, 1, "visit:injury")[0]


def test_names_of_a_condition_and_complaints_at_its_body_site_are_names(prior: Prior) -> None:
    assert cell(prior, 1, "wrist_fracture")[1] > cell(prior, 1, "wrist_laceration")[1] > 0
    assert cell(prior, 1, "wrist_pain") > (0.0, 0.0)
    assert cell(prior, 1, "ankle_pain") == (0.0, 0.0)


def test_a_condition_that_the_base_does_not_know_has_flat_means(prior: Prior) -> None:
    assert not prior.weight[:, 3].any() and np.isnan(prior.share[3]) and prior.entries[3] == ()


def test_kinds_of_anchors(prior: Prior, vocabulary: Vocabulary) -> None:
    assert prior.anchor.tolist() == [NAME, PHRASE, CODE, NAME]
    assert Prior.flat(vocabulary).anchor.tolist() == [NAME, PHRASE, CODE, NAME]


def test_a_symptom_has_kinds_of_anchors_of_its_own() -> None:
    conditions = tuple(
        Condition(name, name.title(), "acute", {}, (phrase(anchor),))
        for name, anchor in (("vomiting", "vomiting"), ("headache", "pounding"))
    )
    anchors = AnchorSet(conditions)
    names = ("nausea", "headache", *(f"anchor:{c.name}" for c in conditions))
    made = prior_of(Vocabulary(names, np.full(4, 50), 1000, anchors), load_knowledge())
    assert made.anchor.tolist() == [SYMPTOM_NAME, SYMPTOM_PHRASE]
    assert np.argwhere(made.own).tolist() == [[1, 1]]  # the record states the headache itself


def test_flat_prior_says_nothing(vocabulary: Vocabulary) -> None:
    flat = Prior.flat(vocabulary)
    assert not flat.weight.any() and not flat.coupling.any() and not flat.known.any()
