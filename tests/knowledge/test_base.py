"""The knowledge base: entries check themselves, files of one's own change and extend it, errors name file and entry."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from typer.testing import CliRunner

from whatelse.cli import app
from whatelse.errors import ConditionError, InputError
from whatelse.knowledge import age_band, base, load_knowledge
from whatelse.knowledge.check import problems
from whatelse.knowledge.entries import read_concept, read_condition
from whatelse.knowledge.review import review

OWN = """
concepts:
  purple_toes: {kind: sign, rate: 0.0003, same: [purple toes, blue toes], is_a: [rash]}
conditions:
  migraine: {share: 0.031}
  cholesterol_emboli:
    {title: Cholesterol emboli, kind: disease, danger: 2, share: 0.0001, icd10: [I75],
     names: [cholesterol emboli], findings: {purple_toes: usually}}
"""


@pytest.fixture(scope="module", autouse=True)
def shipped_files_are_read_once() -> Iterator[None]:
    """Most of what `load_knowledge(own)` takes is reading the shipped YAML."""
    tables = base._shipped_tables()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(base, "_shipped_tables", lambda: {part: dict(table) for part, table in tables.items()})
        yield


def own_file(folder: Path, text: str) -> Path:
    path = folder / "own.yaml"
    path.write_text(text)
    return path


def test_a_file_of_ones_own_changes_and_adds_entries(tmp_path: Path) -> None:
    shipped, base = load_knowledge(), load_knowledge(own_file(tmp_path, OWN))
    assert base.conditions["migraine"].share == 0.031 != shipped.conditions["migraine"].share
    assert base.conditions["migraine"].findings == shipped.conditions["migraine"].findings
    assert base.conditions["cholesterol_emboli"].findings == {"purple_toes": 0.8}
    assert base.parents("purple_toes")[0] == "rash" and "purple_toes" not in shipped.concepts


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("concepts: {a: {kind: sign, rate: 0.1, same: [aa], is_a: [nowhere_known]}}", "'nowhere_known' is not defined"),
        ("concepts: {a: {kind: sign, is_a: [b]}, b: {kind: sign, is_a: [a]}}", "is a kind of itself"),
        ("concepts: {a: {kind: sing}}", "'kind' is 'sing', must be one of"),
        ("concepts: {a: {kind: sign, rate: 2}}", "'rate' is 2, must be a number from 0 to 1"),
        ("concepts: {a: {kind: sign, same: [no]}}", "must be a list of texts"),
        ("concepts: {a: {kind: sign, phrases: [x]}}", "unknown field 'phrases'"),
        ("conditions: {migraine: {findings: {headache: mostly}}}", "'findings' of 'headache' is 'mostly'"),
        ("conditions: {migraine: {age: {elderly: 2}}}", "'elderly' is neither a sex"),
        ("concept: {}", "a knowledge file has parts among"),
        ("concepts: [", "cannot be read as YAML: see line"),
        ("concepts:\n\ta: {kind: sign}", "see line 2; indent with blanks, not tabs"),
    ],
)
def test_a_wrong_file_is_refused_with_file_and_entry(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(InputError, match=message) as caught:
        load_knowledge(own_file(tmp_path, text))
    assert "own.yaml" in str(caught.value)


def test_composed_concepts_know_their_wider_ones() -> None:
    base = load_knowledge()
    fracture = base.concept("wrist_fracture")
    assert fracture is not None and "fracture" in base.parents("wrist_fracture")
    assert base.concept("wrist_banana") is None


def test_titles_are_what_a_person_reads() -> None:
    base = load_knowledge()
    assert (
        base.title("neg:fever") == "No fever" and base.title("hx:pulmonary_embolism") == "History of pulmonary embolism"
    )
    assert base.title("hx:warfarin") == "Warfarin at home" and base.title("rx:heparin") == "Heparin given"


def test_conditions_are_found_by_words_and_by_code() -> None:
    base = load_knowledge()
    assert "pulmonary_embolism" in [c.name for c in base.find("embolism lung")] + [c.name for c in base.find("I26.9")]
    assert [c.name for c in base.only(["migraine", "stroke"]).conditions.values()] == ["migraine", "stroke"]
    with pytest.raises(ConditionError, match="no condition 'migrane'"):
        base.only(["migrane"])


def test_age_bands_meet_at_their_ends() -> None:
    assert [age_band(age) for age in (0, 0.9, 1, 11.9, 12, 18, 40, 64.9, 65, 104)] == [
        "infant", "infant", "child", "child", "teen", "young", "middle", "middle", "old", "old"
    ]  # fmt: skip


def test_the_shipped_base_is_consistent() -> None:
    assert problems(load_knowledge()) == []


def test_problems_name_what_is_wrong(tmp_path: Path) -> None:
    text = """
concepts: {blue_nose: {kind: sign, rate: 0.00001, same: [migraine headache]}}
conditions:
  x_disease: {kind: disease, danger: 0, share: 0.4, names: [x disease], age: {old: 9}, icd10: [I26],
    findings: {green_ears: often, blue_nose: always}, goes_with: {nowhere: 2}, given: {moonlight: often}}
"""
    found = "\n".join(problems(load_knowledge(own_file(tmp_path, text))))
    parts = ["also names", "'green_ears', which no concept knows", "'nowhere', which is no condition"]
    parts += ["'moonlight', which is no drug", "age factors average", "conditions alone bring it", "same icd10 codes"]
    assert [part for part in parts if part not in found] == []


def test_entries_read_frequency_words_and_numbers() -> None:
    entry = {"kind": "disease", "danger": 1, "share": 0.01, "findings": {"a": "often", "b": 0.3}, "icd10": ["R10.1"]}
    condition = read_condition("x", entry, "f.yaml")
    assert condition.findings == {"a": 0.5, "b": 0.3} and condition.codes["icd10"] == ("R101",)
    assert read_concept("neck_stiffness", {"kind": "sign"}, "f.yaml").title == "Neck stiffness"


def test_review_names_what_is_missing_contradicted_and_strong() -> None:
    base = load_knowledge()
    entry = base.conditions["ectopic_pregnancy"]
    odd = replace(entry, settle="", against={"missed_period": 0.1}, findings={"missed_period": 0.9, "nausea": 0.2})
    lines = review(base, odd, {"nausea": 0.9}, cases=50)
    assert any(line.startswith("inconsistent: Missed period") for line in lines)
    assert any(line == "missing: what would settle it" for line in lines)
    assert any(line.startswith("records contradict: Nausea in 90% of 50 cases") for line in lines)
    assert any(line.startswith("strong claim: Missed period in 90% of cases, 180 times") for line in lines)
    assert not any("records" in line for line in review(base, odd, {"nausea": 0.9}, cases=3))
    silent = replace(entry, findings={"nausea": 0.9})
    assert any(line.startswith("must not be missed, and 100% of cases") for line in review(base, silent))


def test_the_shipped_base_is_checked_without_a_file(tmp_path: Path) -> None:
    shown = CliRunner().invoke(app, ["conditions", "check"])
    assert shown.exit_code == 0 and "shipped base: nothing is inconsistent" in shown.output
    wrong = own_file(tmp_path, "conditions: {migraine: {goes_with: {no_such_condition: 3}}}")
    shown = CliRunner().invoke(app, ["conditions", "check", str(wrong)])
    assert shown.exit_code == 1 and "no_such_condition" in shown.output


def test_a_finding_that_also_speaks_against_is_a_problem(tmp_path: Path) -> None:
    text = "conditions: {migraine: {findings: {headache: 0.9, fever: 0.1}, against: {fever: 0.3}}}"
    found = problems(load_knowledge(own_file(tmp_path, text)))
    assert any(line.startswith("migraine: fever is one of its findings") for line in found)
