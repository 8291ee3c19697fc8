"""Assertion of tokens: classes, cues, sections, old rules; the compiled pass against a slow reference."""

from __future__ import annotations

import importlib
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.reference_assertion import assertions
from whatelse.errors import InputError
from whatelse.text import load_rules, tokenize
from whatelse.text.assertion import ASSERTIONS
from whatelse.text.reader import NoteReader
from whatelse.text.rules import Rules, load_named_rules

CLINICAL = """
fever cough pain stroke chest hypertension diabetes . . , , ; : - + ? ( ) no not denies without history of hx
h/o pmh pmh: s/p fall prior previous old years ago 5 in 1998 resolved possible likely ? r/o vs rule out if
return should she prn precautions mother father has had with w/ states family fh: wife x 3 days today now
presents who male yo 72 and or but cannot exclude ruled was going to as a child hpi: plan: exam c/o before is
absent negative for neg pt the nor doesn't measured swollen struck
"""
WORDS = [*CLINICAL.split(), "\n"]
notes = st.lists(st.sampled_from(WORDS), max_size=30)
texts = st.one_of(notes.map(" ".join), notes.map("".join), st.text(max_size=60))


def marked(text: str, assertion: str) -> list[str]:
    return [t.text for t in tokenize(text) if t.assertion == assertion]


@given(texts, st.sampled_from(["default", "paper", "negation"]))
@settings(max_examples=400, deadline=None)
def test_compiled_pass_matches_slow_reference(text: str, name: str) -> None:
    rules = load_named_rules("default") if name == "negation" else load_rules(name)
    assert [t.assertion for t in tokenize(text, rules)] == assertions(text, rules)


@given(texts)
@settings(deadline=None)
def test_negation_rules_give_only_present_and_negated(text: str) -> None:
    for token in tokenize(text, load_named_rules("default")):
        assert token.assertion == ("negated" if token.negated else "present")


@given(texts)
@settings(deadline=None)
def test_cue_lies_in_the_text_and_beside_the_token(text: str) -> None:
    for token in tokenize(text):
        assert token.assertion in ASSERTIONS
        assert token.negated == (token.assertion == "negated")
        if token.assertion == "present":
            assert token.cue is None
        if token.cue:
            assert 0 <= token.cue.start < token.cue.end <= len(text)
            assert token.cue.end <= token.start or token.end <= token.cue.start


NEGATED = [
    ("I do not believe the patient is having an acute MI", ["is", "having", "an", "acute", "mi"]),
    ("denies fever,\nchills, or cough\nhas sore throat", ["fever", "chills", "or", "cough"]),
    ("LOC? no", ["loc"]),
    ("low suspicion for PE", ["pe"]),
    ("Menstrual period: {not entered} fever", []),
    ("pain not improved", []),
    ("denies history of stroke", ["history", "of", "stroke"]),
    ("no family history of MI", ["family", "history", "of", "mi"]),
    ("fever (not measured), cough", ["measured"]),
    ("not feeling right, dizzy, rash", ["feeling", "right"]),
    ("did not have fever, malaise or rash", ["fever", "malaise", "or", "rash"]),
    ("not red, hot or sore, has rash", ["red", "hot", "or", "sore"]),
    ("no bleeding (occult nor overt), anemia", ["bleeding", "occult", "overt", "anemia"]),
    ("no redness, swollen at site", ["redness"]),
    ("no LOC, immediate cry", ["loc"]),
    ("no helmet, striking head", ["helmet"]),
    ("denies CP, SOB since am, has fever", ["cp", "sob"]),
]
POSSIBLE = [
    ("?LOC, ? seizure, PE?", ["loc", "seizure", "pe"]),
    ("r/o MI, PE or dissection", ["mi", "pe", "or", "dissection"]),
    ("pneumonia vs CHF", ["pneumonia", "chf"]),
    ("likely UTI, has fever", ["uti"]),
    ("concern for sepsis", ["sepsis"]),
    ("suspicious for fracture", ["fracture"]),
    ("worrisome for dissection", ["dissection"]),
    ("cannot exclude fracture", ["fracture"]),
    ("may represent pneumonia", ["pneumonia"]),
    ("PE can not be excluded", ["pe", "can"]),
    ("unknown if LOC", ["loc"]),
    ("suspected overdose", ["overdose"]),
    ("doubt PE", ["pe"]),
    ("return as soon as possible", []),
]
HISTORICAL = [
    ("h/o asthma c/o sob", ["asthma"]),
    ("hx of CAD, DM and stroke presents with cough", ["cad", "dm", "and", "stroke"]),
    ("hx CAD s/p CABG, HTN p/w CP x 2 days", ["cad", "cabg", "htn"]),
    ("hx asthma, sob x 2 days, wheezing", ["asthma"]),
    ("s/p appendectomy with fever", ["appendectomy"]),
    ("s/p fall, s/p mechanical fall, s/p MVC", []),
    ("prior CVA, previous MI, old fracture", ["cva", "mi", "fracture"]),
    ("stroke 5 years ago, fever", ["stroke"]),
    ("h/o autism, suffered fall", ["autism"]),
    ("pt w/ hx of asthma, recvd vaccine", ["asthma"]),
    ("MI in 1998", ["mi"]),
    ("seizures as a child", ["seizures"]),
    ("chest pain resolved", ["chest", "pain"]),
    ("known CAD", []),
    ("45 year old male, 6 mo old", []),
    ("history of present illness", []),
    ("3 day history of cough", []),
    ("prior to arrival had seizure", []),
    ("78F with dementia who presents with fever", ["dementia"]),
    ("78F with fever", []),
    ("PMH: CAD, HTN. Pt presents with chest pain", ["cad", "htn", "pt"]),
    ("PAST MEDICAL HISTORY\nCAD\nMeds: aspirin", ["cad"]),
    ("Hypertension. Fever.", ["hypertension"]),
    ("hypertension", []),
    ("Allergies: PCN (rash)\nExam: wheezing", ["pcn", "rash"]),
]
HYPOTHETICAL = [
    ("return if fever, vomiting or worsening pain", ["fever", "vomiting", "or", "worsening", "pain"]),
    ("should she develop fever", ["develop", "fever"]),
    ("tylenol prn pain", ["pain"]),
    ("in case of fever", ["fever"]),
    ("Return precautions: fever, chills\nPlan: CT chest", ["fever", "chills"]),
    ("felt like she was going to pass out", ["pass", "out"]),
    ("DVT prophylaxis", ["dvt"]),
    ("seizure precautions", ["seizure"]),
    ("asked if she hit her head", []),
    ("call if no better", ["no", "better"]),
    ("percocet for pain as needed", ["pain"]),
]
OTHER = [
    ("mother has diabetes, pt has fever", ["diabetes"]),
    ("father died of MI at 45", ["father", "died", "of", "mi", "at", "##"]),
    ("family history of colon cancer", ["colon", "cancer"]),
    ("FH: mother DM\nSH: smokes", ["mother", "dm"]),
    ("roommate sick with flu", ["flu"]),
    ("brother with similar rash", ["similar", "rash"]),
    ("wife states he vomited", []),
    ("mom reports fever", []),
    ("here with mom with fever and cough", []),
    ("mother has noticed vomiting", []),
    ("bib husband for confusion", []),
]


@pytest.mark.parametrize(("text", "expected"), NEGATED)
def test_negated(text: str, expected: list[str]) -> None:
    assert marked(text, "negated") == expected


@pytest.mark.parametrize(("text", "expected"), POSSIBLE)
def test_possible(text: str, expected: list[str]) -> None:
    assert marked(text, "possible") == expected


@pytest.mark.parametrize(("text", "expected"), HISTORICAL)
def test_historical(text: str, expected: list[str]) -> None:
    assert marked(text, "historical") == expected


@pytest.mark.parametrize(("text", "expected"), HYPOTHETICAL)
def test_hypothetical(text: str, expected: list[str]) -> None:
    assert marked(text, "hypothetical") == expected


@pytest.mark.parametrize(("text", "expected"), OTHER)
def test_other_person(text: str, expected: list[str]) -> None:
    assert marked(text, "other") == expected


def test_cue_is_the_phrase_that_decided() -> None:
    text = "Surgeries: appendectomy. Exam: rash, r/o sepsis"
    cues = {t.text: t.cue and text[t.cue.start : t.cue.end] for t in tokenize(text)}
    assert (cues["appendectomy"], cues["rash"], cues["sepsis"]) == ("Surgeries:", None, "r/o")


def test_rules_with_classes_survive_json() -> None:
    rules = load_rules()
    again = Rules.from_json(rules.to_json())
    assert again == rules
    assert all(map(np.array_equal, again.tables.trie, rules.tables.trie))
    assert np.array_equal(again.tables.uses, rules.tables.uses)


def test_cue_words_of_one_note_and_of_many_are_the_same() -> None:
    rules = load_rules()
    many = NoteReader(rules=rules).pieces
    ends, coded = many.read(["hx CAD, no fever"])
    cue_words = many.table[coded, 5].tolist()
    assert ends.tolist() == [0, 5]
    assert cue_words == [rules.cue_words.get(word, -1) for word in ("hx", "cad", ",", "no", "fever")]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("possible: [maybe]\n", "must be a mapping"),
        ("possible: {befor: [maybe]}\n", "keys among"),
        ("possible: {near: [maybe], reach: many}\n", "number of words"),
        ("sections: {past: [pmh]}\n", "keys among"),
        ('before: ["{kin} has"]\n', "'words' does not have: kin"),
        ("words: {a: 3}\n", "list of phrases"),
        ("historical: {open: [as well]}\n", "single words"),
    ],
)
def test_bad_classes_say_what_is_wrong(tmp_path: Path, content: str, message: str) -> None:
    path = tmp_path / "bad.yaml"
    path.write_text(content)
    with pytest.raises(InputError, match=message):
        load_rules(path)


def test_phrases_that_multiply_without_end_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "bomb.yaml"
    many = ", ".join(f"w{k}" for k in range(100))
    path.write_text(f'words: {{a: [{many}]}}\nbefore: ["{"{a} " * 9}"]\n')
    with pytest.raises(InputError, match="stands for more than"):
        load_rules(path)


@pytest.mark.data
@pytest.mark.parametrize(
    ("file", "least"),
    [
        ("annotated_sentences_dev.tsv", {"negated": 0.975}),
        ("context_dev.tsv", {"negated": 0.975, "historical alone": 0.75, "hypothetical": 0.9, "other": 0.75}),
    ],
)
def test_assertion_f1_on_negex_kit(
    data_folder: Path, file: str, least: dict[str, float], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(Path(__file__).parents[2])
    benchmark = importlib.import_module("benchmarks.negation")
    path = data_folder / "negex" / file
    if not path.exists():
        pytest.skip("the NegEx kit is not here")
    mentions = list(benchmark.read_kit(path))
    found = [benchmark.assertion(m, "default") for m in mentions]
    for name, floor in least.items():
        holds, wanted = benchmark.CLASSES[name]
        truth = np.array([holds(m) for m in mentions])
        assert benchmark.score(truth, np.array([f == wanted for f in found])).f1 >= floor
