"""Codes and numbers are read as what they mean: labels as text, ICD codes by prefix, vital signs by their limits."""

from __future__ import annotations

import pytest

from tests.text.test_reader import entry
from whatelse.annotators import AnchorSet
from whatelse.cohort import Vocabulary, build_cohort
from whatelse.cohort.findings import Finder
from whatelse.text.lexicon import DRUG, DRUG_CLASS, Lexicon
from whatelse.visits import Code, Visit

ENTRIES = [
    entry("dysuria", "dysuria; painful urination; burning urination"),
    entry("fever", "fever"),
    entry("hypotension", "hypotension"),
    entry("pain", "pain", "head"),
    entry("knee", "knee", "site"),
    entry("diabetes", "diabetes; diabetes mellitus; dm2", "disease", lasting=True),
    entry("pulmonary_embolism", "pulmonary embolism", "disease", ("clot",)),
    entry("clot", "blood clot", "disease"),
    entry("warfarin", "warfarin; coumadin", DRUG, ("anticoagulant",)),
    entry("hydrocodone", "hydrocodone; vicodin", DRUG, ("opioid",)),
    entry("acetaminophen", "acetaminophen; tylenol; vicodin es", DRUG),
    entry("anticoagulant", "blood thinner", DRUG_CLASS),
    entry("opioid", "opioid", DRUG_CLASS),
]
LEXICON = Lexicon.of(ENTRIES, {"icd10": {"I26": "pulmonary_embolism", "E11": "diabetes", "E116": "fever"}})
ANCHORS = AnchorSet.from_json({"conditions": [{"name": "x", "anchors": {"notes": ["zzz"]}}]})
RX_APAP = {"rx:acetaminophen", "rx:hydrocodone"}
FINDER = Finder(ANCHORS, "default", LEXICON)


@pytest.mark.parametrize(
    ("field", "code", "names"),
    [
        ("coded", Code("rfv", "16400", "Painful urination"), {"dysuria"}),
        ("coded", Code("rfv", "16401", "Painful urination, other and unspecified"), {"dysuria"}),
        ("coded", Code("rfv", "1", "Painful urination, wedding"), {"dysuria", "rfv:painful urination, wedding"}),
        ("coded", Code("rfv", "2", "Knee pain"), {"knee_pain", "pain"}),
        ("coded", Code("rfv", "3", "Progress visit"), {"rfv:progress visit"}),
        ("coded", Code("chronic", "dm", "Diabetes mellitus, type II"), {"diabetes"}),
        ("coded", Code("problem", "icd10:I26.99", None), {"hx:pulmonary_embolism", "hx:clot"}),
        ("coded", Code("icd10", "E11.9"), {"diabetes"}),
        ("coded", Code("icd10", "E1165"), {"hx:fever"}),
        ("coded", Code("icd10", "Z99", "nothing known"), {"icd10:nothing known"}),
        ("coded", Code("vital", "temperature-high", "temperature >= 100.4 F"), {"fever"}),
        ("medication_history", Code("gsn", "1", "Coumadin 5mg TAB"), {"hx:warfarin", "hx:anticoagulant"}),
        ("dispensed", Code("gsn", "1", "WARFARIN"), {"rx:warfarin", "rx:anticoagulant"}),
        ("dispensed", Code("drug", "d", "ACETAMINOPHEN-HYDROCODONE"), {*RX_APAP, "rx:opioid"}),
        ("dispensed", Code("gsn", "1", "Frobnazole 5 mg"), {"rx:frobnazole"}),
    ],
)  # fmt: skip
def test_codes_are_concepts(field: str, code: Code, names: set[str]) -> None:
    assert set(FINDER.code(field, code)[0]) == names


def test_typed_and_picked_are_the_same_finding() -> None:
    visits = [
        Visit("1", triage_note="burning urination since noon"),
        Visit("2", coded=(Code("rfv", "16400", "Painful urination"),)),
        Visit("3", triage_note="gizmo"),
    ]
    cohort = build_cohort(visits, ANCHORS, lexicon=LEXICON, max_share=1.0)
    column = cohort.vocabulary.index["dysuria"]
    assert cohort.X[:, [column]].toarray().ravel().tolist() == [1, 1, 0]


def test_numbers_of_columns_mean_what_they_mean_in_a_note() -> None:
    visits = [
        Visit("1", age=50.0, numbers={"temperature": 39.5, "sbp": 120.0, "shoe_size": 44.0}),  # type: ignore[arg-type]
        Visit("2", age=50.0, triage_note="temp 39.5, sbp 120"),
        Visit("3", numbers={"shoe_size": 38.0}),  # type: ignore[arg-type]
    ]
    cohort = build_cohort(visits, ANCHORS, lexicon=LEXICON, max_share=1.0, bands=2)
    names = [{cohort.vocabulary.names[j] for j in cohort.X[[row]].indices} for row in range(3)]
    assert {"fever", "neg:hypotension"} <= names[0] & names[1]
    assert {"shoe_size:>=44"} <= names[0] and not any("temperature" in name for name in cohort.vocabulary.names)


def test_a_vocabulary_with_a_lexicon_survives_json() -> None:
    visits = [Visit("1", triage_note="no knee pain. takes coumadin; gizmo"), Visit("2", triage_note="fever")]
    vocabulary = build_cohort(visits, ANCHORS, lexicon=LEXICON, max_share=1.0).vocabulary
    again = Vocabulary.from_json(vocabulary.to_json())
    assert again.lexicon == vocabulary.lexicon and again.names == vocabulary.names
    assert {"neg:knee_pain", "hx:warfarin", "hx:anticoagulant", "fever", "gizmo"} <= set(vocabulary.names)
    for visit in visits:
        assert again.find(visit) == vocabulary.find(visit)


def test_words_that_are_names_of_concepts_and_body_sites_are_no_findings() -> None:
    names = build_cohort([Visit("1", triage_note="gizmo in knee")], ANCHORS, lexicon=LEXICON, max_share=1.0).vocabulary
    assert "knee" not in names.index and "gizmo" in names.index


def test_a_concept_that_an_anchor_names_leaves() -> None:
    anchors = AnchorSet.from_json({"conditions": [{"name": "x", "anchors": {"notes": ["fever"]}}]})
    cohort = build_cohort(
        [Visit("1", triage_note="fever"), Visit("2", triage_note="no fever")], anchors, lexicon=LEXICON
    )
    assert "fever" not in cohort.vocabulary.index and "neg:fever" in cohort.vocabulary.index
    assert cohort.A.ravel().tolist() == [True, False]
