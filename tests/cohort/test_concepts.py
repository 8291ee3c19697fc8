"""Columns of a cohort and the findings of the knowledge base."""

from __future__ import annotations

import pytest

from whatelse.annotators import AnchorSet
from whatelse.cohort import build_cohort, concepts_of_finding
from whatelse.cohort.build import coded_only
from whatelse.text.lexicon import load_lexicon
from whatelse.visits import Code, Visit

ANCHORS = AnchorSet.from_json({"conditions": [{"name": "x", "anchors": {"notes": ["zzz"]}}]})
DYSURIA = Code("rfv", "16400", "Painful urination")


@pytest.mark.parametrize(
    ("name", "concepts"),
    [
        ("rfv:painful urination", ("dysuria",)),
        ("rfv:knee pain, ache, soreness, discomfort", ("knee_pain",)),
        ("rx:acetaminophen-codeine", ("rx:codeine",)),
        ("rx:albuterol", ("rx:albuterol",)),
        ("hx:warfarin", ("hx:warfarin",)),
        ("vital:temperature >= 100.4 f", ("fever",)),
        ("pain:none", ("neg:pain",)),
        ("chronic:dementia", ("dementia",)),
        ("fever", ("fever",)),
        ("neg:fever", ("neg:fever",)),
        ("hx:stroke", ("hx:stroke",)),
        ("wrist_pain", ("wrist_pain",)),
        ("age:70-80", ("age:old",)),
        ("age:old", ("age:old",)),
        ("sex:F", ("sex:F",)),
        ("abd_pain", ("abdominal_pain",)),
        ("neg:vomited", ("neg:vomiting",)),
        ("gizmo", ()),
        ("gizmo_pain", ()),
        ("triage:level 3", ()),
        ("anchor:pneumonia", ()),
    ],
)
def test_column_corresponds_to_findings_of_the_knowledge_base(name: str, concepts: tuple[str, ...]) -> None:
    assert concepts_of_finding(name) == concepts


def test_codes_stay_columns_where_no_visit_has_a_note() -> None:
    visits = [Visit("1", coded=(DYSURIA,)), Visit("2", coded=())]
    assert coded_only(visits)
    vocabulary = build_cohort(visits, ANCHORS).vocabulary
    assert vocabulary.names == ("rfv:painful urination", "anchor:x")
    assert vocabulary.concepts == (("dysuria",), ())
    typed = Visit("3", triage_note="burning urination")
    assert vocabulary.present(typed).tolist() == [0]
    assert vocabulary.unobserved(typed).tolist() == []
    assert type(vocabulary).from_json(vocabulary.to_json()).present(typed).tolist() == [0]


def test_codes_are_concepts_beside_notes() -> None:
    visits = [Visit("1", coded=(DYSURIA,)), Visit("2", triage_note="burning urination"), Visit("3", triage_note="ok")]
    assert not coded_only(visits)
    assert "dysuria" in build_cohort(visits, ANCHORS, max_share=1.0).vocabulary.names


def test_narrower_concept_implies_the_wider_ones() -> None:
    visits = [Visit("1", triage_note="rlq pain, no rlq tenderness"), Visit("2", triage_note="ok"), Visit("3", sex="F")]
    names = build_cohort(visits, ANCHORS, max_share=1.0).vocabulary.names
    assert {"rlq_pain", "abdominal_pain"} <= set(names)
    assert "neg:abdominal_tenderness" not in names
    assert "abdominal_pain" in load_lexicon().ancestors("rlq_pain")
