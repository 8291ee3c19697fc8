"""Vocabulary: findings by name and place, anchors and what leaves with them, unknown versus absent."""

from __future__ import annotations

import dataclasses
import json
import os
from pathlib import Path

import numpy as np
import pytest

from whatelse.annotators import AnchorSet
from whatelse.cohort import build_cohort, findings
from whatelse.cohort.coded import code_name
from whatelse.cohort.findings import Finder
from whatelse.cohort.vocabulary import Vocabulary
from whatelse.errors import CohortError, ConditionError
from whatelse.text.rules import load_named_rules
from whatelse.visits import Code, Visit

ANCHORS = AnchorSet.from_json(
    {
        "conditions": [
            {
                "name": "fall",
                "anchors": {"notes": ["s/p fall", "tripped"], "chief_complaint": ["fall"], "coded": {"rfv": ["58100"]}},
            },
            {"name": "uti", "anchors": {"notes": ["urinary tract infection"], "dispensed": ["macrobid"]}},
            {"name": "hiv", "anchors": {"medication_history": ["truvada"]}},
        ]
    }
)
NAMES = ("pain", "neg:fever", "head_strike", "age:40-50", "sex:F", "hx:aspirin", "rx:aspirin", "triage:level 2")


@pytest.fixture
def vocabulary() -> Vocabulary:
    names = (*NAMES, "anchor:fall", "anchor:uti", "anchor:hiv")
    return Vocabulary(names, np.arange(11), 20, ANCHORS, bigrams=frozenset({("head", "strike")}))


def names(vocabulary: Vocabulary, visit: Visit) -> set[str]:
    return {vocabulary.names[j] for j in vocabulary.present(visit)}


def test_findings_are_found_where_they_stand(vocabulary: Vocabulary) -> None:
    note = "pt S/P Fall with head strike, denies fever. Pain in arm"
    visit = Visit("1", triage_note=note)
    places = {vocabulary.names[f.finding]: (f.field, note[f.start : f.end], f.negated) for f in vocabulary.find(visit)}
    assert places == {
        "anchor:fall": ("triage_note", "S/P Fall", False),
        "head_strike": ("triage_note", "head strike", False),
        "neg:fever": ("triage_note", "fever", True),
        "pain": ("triage_note", "Pain", False),
    }


def test_codes_age_and_sex_are_findings(vocabulary: Vocabulary) -> None:
    aspirin = Code("gsn", "004380", "Aspirin 81mg TAB")
    visit = Visit("1", age=49.9, sex="F", medication_history=(aspirin,), coded=(Code("triage", "2", "level 2"),))
    assert names(vocabulary, visit) == {"age:40-50", "sex:F", "hx:aspirin", "triage:level 2"}
    assert [f.code for f in vocabulary.find(visit) if f.field == "medication_history"] == [aspirin]
    assert names(vocabulary, Visit("1", age=50, dispensed=(aspirin,))) == {"rx:aspirin"}


@pytest.mark.parametrize(
    ("visit", "fires"),
    [
        (Visit("1", triage_note="tripped on a rug"), {"anchor:fall"}),
        (Visit("1", triage_note="denies s/p fall"), set()),
        (Visit("1", triage_note="no fall"), set()),
        (Visit("1", triage_note="s/p. fall"), set()),
        (Visit("1", triage_note="fall"), set()),
        (Visit("1", chief_complaint="Fall"), {"anchor:fall"}),
        (Visit("1", coded=(Code("rfv", "58100", "Accident"),)), {"anchor:fall"}),
        (Visit("1", md_comments="urinary tract infection"), {"anchor:uti"}),
        (Visit("1", dispensed=(Code("gsn", "1", "Nitrofurantoin (MacroBID)"),)), {"anchor:uti"}),
        (Visit("1", medication_history=(Code("gsn", "1", "macrobid"),)), set()),
        (
            Visit("1", medication_history=(Code("gsn", "1", "Truvada"),), chief_complaint="fall"),
            {"anchor:fall", "anchor:hiv"},
        ),
    ],
)
def test_an_anchor_is_on_if_any_of_its_anchors_is(vocabulary: Vocabulary, visit: Visit, fires: set[str]) -> None:
    assert {n for n in names(vocabulary, visit) if n.startswith("anchor:")} == fires


def test_what_an_anchor_is_made_of_leaves() -> None:
    finder = Finder(ANCHORS)
    for word in (
        "s/p",
        "fall",
        "tripped",
        "urinary",
        "tract",
        "infection",
        "urinary_tract",
        "s/p_fall",
        "tripped_over",
    ):
        assert finder.leaves(word), word
    for word in ("head", "fall_risk_score", "skin_infection", "chest_pain"):
        # "fall" alone is an anchor of the chief complaint, so a joined word that holds it leaves too
        assert finder.leaves(word) == ("fall" in word), word


def test_negated_mentions_stay() -> None:
    assert not any(Finder(ANCHORS).leaves(word) for word in ("neg:tripped", "neg:s/p_fall", "neg:old_tripped"))


def test_the_words_of_a_mention_are_not_joined_with_their_neighbours() -> None:
    names = ("bad_trip", "bad", "slow_gait", "anchor:fall", "anchor:uti", "anchor:hiv")
    pairs = frozenset({("bad", "tripped"), ("slow", "gait")})
    vocabulary = Vocabulary(names, np.zeros(6, np.int64), 1, ANCHORS, bigrams=pairs)
    found = vocabulary.find(Visit("1", triage_note="bad tripped. slow tripped gait"))
    assert [names[f.finding] for f in found] == ["bad", "anchor:fall", "anchor:fall"]


def test_unknown_is_not_absent(vocabulary: Vocabulary) -> None:
    def unobserved(visit: Visit) -> set[str]:
        return {vocabulary.names[j] for j in vocabulary.unobserved(visit)}

    assert unobserved(Visit("1")) == set(vocabulary.names)
    words = {"pain", "neg:fever", "head_strike"}
    assert unobserved(Visit("1", age=3, sex="M", chief_complaint="", dispensed=(), coded=())) == {
        "hx:aspirin",
        "anchor:hiv",
    }
    assert words <= unobserved(Visit("1", dispensed=()))
    everything = Visit("1", 3, "M", "", "", "", (), (), (), ())
    assert vocabulary.unobserved(everything).size == 0 and vocabulary.present(everything).size == 0


def test_json_round_trip_finds_the_same(vocabulary: Vocabulary) -> None:
    again = Vocabulary.from_json(json.loads(json.dumps(vocabulary.to_json())))
    visit = Visit("1", age=44, sex="F", triage_note="s/p fall, head strike", chief_complaint="fall")
    assert again.names == vocabulary.names and again.bigrams == vocabulary.bigrams
    assert again.find(visit) == vocabulary.find(visit)


def test_it_carries_the_rules_themselves(vocabulary: Vocabulary, tmp_path: Path) -> None:
    file = tmp_path / "own.yaml"
    file.write_text("before: [sans]\nstop: ['.']\n", encoding="utf-8")
    made = build_cohort([Visit("1", triage_note="sans fever. cough")], ANCHORS, rules=str(file), max_share=1).vocabulary
    stored = json.loads(json.dumps(made.to_json()))
    assert str(tmp_path) not in json.dumps(stored)
    file.write_text("before: [without]\n", encoding="utf-8")  # moved or edited since: it does not matter
    again = Vocabulary.from_json(stored)
    assert again.rules == made.rules and again.rules.name == "own.yaml"
    assert names(again, Visit("2", triage_note="sans fever. cough")) == {"neg:fever", "sans", "cough"}
    assert Vocabulary.from_json(vocabulary.to_json()).rules == vocabulary.rules


def test_an_older_vocabulary_opens_with_shipped_rules_and_never_opens_a_path(
    vocabulary: Vocabulary, tmp_path: Path
) -> None:
    old = {k: v for k, v in vocabulary.to_json().items() if k != "schema"}
    for name in ("default", "paper"):
        assert Vocabulary.from_json(old | {"rules": name}).rules == load_named_rules(name)
    os.mkfifo(tmp_path / "fifo")  # opening it would wait for ever
    for path in (tmp_path / "fifo", "/dev/zero", "own.yaml"):
        with pytest.raises(CohortError, match="not opened: build the cohort again with '--setting rules"):
            Vocabulary.from_json(old | {"rules": str(path)})
    phrases = ({"other": []}, {"stop": 3}, [], None)
    for wrong in (None, 3, {"name": "x"}, *({"name": "x", "phrases": p} for p in phrases)):
        with pytest.raises(CohortError, match="damaged"):
            Vocabulary.from_json(vocabulary.to_json() | {"rules": wrong})
    with pytest.raises(CohortError, match="upgrade whatelse"):
        Vocabulary.from_json(vocabulary.to_json() | {"schema": 99})


def test_vocabularies_of_equal_width_are_told_apart(vocabulary: Vocabulary) -> None:
    vocabulary.check_same(Vocabulary.from_json(vocabulary.to_json()))
    n, m = len(vocabulary.names), len(vocabulary.conditions)
    names = (*vocabulary.names[1 : n - m], "other", *vocabulary.names[n - m :])
    moved = dataclasses.replace(vocabulary, names=names)
    with pytest.raises(
        CohortError, match=rf"{n - m} of the cohort's {n} columns mean other findings .* --vocabulary-from"
    ):
        vocabulary.check_same(moved)
    fewer = dataclasses.replace(vocabulary, names=names[1:], counts=vocabulary.counts[1:])
    with pytest.raises(CohortError, match=rf"of the cohort's {n - 1} columns mean other findings than the model's {n}"):
        vocabulary.check_same(fewer)


def test_what_is_remembered_of_codes_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(findings, "REMEMBERED", 10)
    finder = Finder(ANCHORS)
    for i in range(35):
        assert finder.code("dispensed", Code("name", f"drug {i}", f"drug{i}")) == ((f"rx:drug{i}",), ())
        assert len(finder._memo) <= 10


@pytest.mark.parametrize("damage", ["names", "counts", "conditions", "bigrams"])
def test_a_damaged_vocabulary_is_refused(vocabulary: Vocabulary, damage: str) -> None:
    whole = vocabulary.to_json()
    for wrong in ("x", [3], [[1, 2]], None):
        with pytest.raises(CohortError):
            Vocabulary.from_json(whole | {damage: wrong})
    with pytest.raises(CohortError):
        Vocabulary.from_json({k: v for k, v in whole.items() if k != damage})


@pytest.mark.parametrize(
    ("field", "code", "name"),
    [
        ("dispensed", Code("gsn", "1", "Ondansetron 4mg/2mL 2mL VIAL"), "rx:ondansetron"),
        ("medication_history", Code("gsn", "1", "emtricitabine-tenofovir [Truvada]"), "hx:emtricitabine-tenofovir"),
        ("medication_history", Code("gsn", "003136"), "hx:gsn 003136"),
        ("dispensed", Code("drug", "d1", "POLYETHYLENE GLYCOL 3350"), "rx:polyethylene glycol 3350"),
        ("coded", Code("rfv", "10100", "Fever"), "rfv:fever"),
        ("coded", Code("rfv", "10100"), "rfv:10100"),
    ],
)
def test_names_of_codes(field: str, code: Code, name: str) -> None:
    assert code_name(field, code) == name


def test_an_anchor_without_a_word_is_refused() -> None:
    with pytest.raises(ConditionError, match=r"'x'.*no word"):
        Finder(AnchorSet.from_json({"conditions": [{"name": "x", "anchors": {"notes": ["++"]}}]}))


def test_words_of_grammar_and_bare_numbers_are_no_findings_unless_asked_for() -> None:
    from whatelse.text.function_words import says_nothing

    assert all(says_nothing(word) for word in ("of", "neg:the", "of_the", "###", "##:##", "pt_states", "pmh"))
    assert not any(says_nothing(word) for word in ("fever", "neg:fever", "chest_pain", "o2", "of_breath", "h/a"))
    visits = [
        Visit(str(k), triage_note="pt states fever of ### on arrival, cough" if k % 3 else "cough") for k in range(30)
    ]
    plain, whole = build_cohort(visits, max_share=1.0), build_cohort(visits, max_share=1.0, function_words=True)
    assert {"of", "pt"} <= set(whole.vocabulary.names) - set(plain.vocabulary.names)
    assert {"fever", "cough"} <= set(plain.vocabulary.names)
