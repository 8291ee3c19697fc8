"""AnchorSet: the shipped conditions, users' files, the published forms, labels by prefix, and what is refused."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from whatelse.annotators import Anchor, AnchorSet
from whatelse.errors import ConditionError
from whatelse.visits import Code, Visit


def test_the_shipped_conditions_are_those_of_table_1_and_each_has_anchors_and_codes() -> None:
    anchors = AnchorSet.shipped()
    assert len(anchors.names) == 23
    assert [c.name for c in anchors.conditions if c.kind == "history"] == ["liver history", "hiv history"]
    for condition in anchors.conditions:
        assert condition.anchors and condition.codes["icd9"] and condition.codes["icd10"], condition.name
    assert anchors.shared() == {}
    assert anchors.anchored() == anchors


def test_json_round_trip() -> None:
    anchors = AnchorSet.shipped()
    assert AnchorSet.from_json(json.loads(json.dumps(anchors.to_json()))) == anchors


@pytest.mark.parametrize(
    ("system", "code", "condition"),
    [
        ("icd10", "N39.0", "uti"),
        ("icd10", "n390", "uti"),
        ("icd9", "599.0", "uti"),
        ("icd10", "W18.30XA", "fall"),
        ("cause", "W18", "fall"),
        ("icd9", "E888.9", "fall"),
        ("icd9", "V08", "hiv history"),
        ("icd10", "V08", "vehicle collision"),  # the same letters, another code system
        ("icd9", "042", "hiv history"),
        ("icd10", "S06.5X0A", "intracranial hemorrhage"),
    ],
)
def test_billing_codes_count_by_prefix_within_their_own_system(system: str, code: str, condition: str) -> None:
    anchors = AnchorSet.shipped()
    labels = anchors.labels(Visit("1", billing=(Code(system, code),)))
    assert labels is not None
    assert [n for n, on in zip(anchors.names, labels, strict=True) if on] == [condition]


def test_truth_counts_before_billing_and_unknown_is_not_false() -> None:
    anchors = AnchorSet.shipped()
    assert anchors.labels(Visit("1")) == (None,) * 23
    assert anchors.labels(Visit("1", billing=())) == (False,) * 23
    labels = anchors.labels(Visit("1", billing=(Code("icd9", "599.0"),), truth=("fall", "gout")))
    assert labels is not None and [n for n, on in zip(anchors.names, labels, strict=True) if on] == ["fall"]


@pytest.mark.parametrize(
    ("anchor", "name", "fires"),
    [
        ("truvada", "emtricitabine-tenofovir [Truvada]", True),
        ("emtricitabine", "emtricitabine-tenofovir [Truvada]", True),
        ("tenofovir", "emtricitabine-tenofovir [Truvada]", False),
        ("macrobid", "Nitrofurantoin Monohy (MacroBID)", True),
        ("epinephrine", "EPINEPHrine (for dilution)", True),
        ("epinephrine", "Norepinephrine", False),
        ("nitro", "nitrofurantoin", False),
    ],
)
def test_drugs_match_by_name_or_brand_as_whole_words(anchor: str, name: str, fires: bool) -> None:
    assert Anchor("drug", anchor, ("dispensed",)).matches(Code("gsn", "1", name)) is fires


def test_labels_match_alone_or_as_the_first_part() -> None:
    label = Anchor("label", "EMTRICITABINE", ("dispensed",))
    names = ["EMTRICITABINE", "EMTRICITABINE-TENOFOVIR", "EFAVIRENZ;EMTRICITABINE;TENOFOVIR", "EMTRICITABINE TOPICAL"]
    assert [label.matches(Code("drug", "d", name)) for name in names] == [True, True, False, False]
    assert not label.matches(Code("drug", "d"))


def test_gsn_codes_match_whatever_their_padding() -> None:
    gsn = Anchor("code", "004939", ("dispensed",), "gsn")
    assert gsn.matches(Code("gsn", "4939")) and gsn.matches(Code("gsn", "004939"))
    assert not gsn.matches(Code("ndc", "004939"))


def write(path: Path, text: str) -> Path:
    path.write_text(text, encoding="utf-8")
    return path


def test_a_users_file_is_read_and_may_be_brief(tmp_path: Path) -> None:
    path = write(
        tmp_path / "mine.yaml", "conditions:\n- {name: gout, anchors: {notes: [gout], coded: {flag: [joint]}}}"
    )
    gout = AnchorSet.load(path).conditions[0]
    assert (gout.title, gout.kind, gout.codes) == ("gout", "acute", {})
    assert {a.how for a in gout.anchors} == {"phrase", "code"}


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("conditions: []", "at least one"),
        ("- a", "'conditions'"),
        ("a: [b", "cannot be read"),
        ("conditions:\n- {title: x}", "number 1 needs a 'name'"),
        ("conditions:\n- {name: a}\n- {name: a}", "'a' is defined twice"),
        ("conditions:\n- {name: a, colour: red}", "condition 'a': unknown key 'colour'"),
        ("conditions:\n- {name: a, kind: old}", "condition 'a': 'kind'"),
        ("conditions:\n- {name: a, codes: {icd9: [042]}}", "put codes of digits in quotes"),
        ("conditions:\n- {name: a, anchors: {smell: [x]}}", "condition 'a': unknown kind of anchor 'smell'"),
        ("conditions:\n- {name: a, anchors: {notes: x}}", "'notes' must be a list"),
        ("conditions:\n- {name: a, anchors: [x]}", "'anchors' must be a mapping"),
    ],
)
def test_a_wrong_file_is_named_with_condition_and_key(tmp_path: Path, text: str, says: str) -> None:
    path = write(tmp_path / "mine.yaml", text)
    with pytest.raises(ConditionError, match=r"mine\.yaml") as error:
        AnchorSet.load(path)
    assert says in str(error.value)


def test_the_published_folder_form(tmp_path: Path) -> None:
    (tmp_path / "conditions").mkdir()
    write(tmp_path / "legend.txt", "si_acute -- suicidal ideation\n")
    lines = "icd9|V62.84\ntriage note|si\nmdcomments|cd simnum\nmed history|024470\n"
    write(tmp_path / "conditions" / "si_acute", lines)
    write(tmp_path / "conditions" / "gout_history", "icd9|274.0\n")
    gout, si = AnchorSet.load(tmp_path).conditions
    assert (gout.name, gout.kind, gout.anchors) == ("gout", "history", ())
    assert (si.name, si.title, si.codes) == ("suicidal ideation", "Suicidal ideation", {"icd9": ("V6284",)})
    assert [(a.value, a.fields) for a in si.anchors] == [
        ("si", ("triage_note",)),
        ("cd #", ("md_comments",)),
        ("024470", ("medication_history",)),
    ]
    assert AnchorSet.load(tmp_path).anchored().names == ("suicidal ideation",)
    write(tmp_path / "conditions" / "gout_history", "icd9|274.0\nnotes|gout\n")
    with pytest.raises(ConditionError, match="gout_history, line 2: unknown source 'notes'"):
        AnchorSet.load(tmp_path)


def test_nhamcs_form_names_what_is_wrong(tmp_path: Path) -> None:
    path = write(tmp_path / "conditions.json", '{"fall": {"icd10_prefixes": "W"}}')
    with pytest.raises(ConditionError, match="condition 'fall': 'icd10_prefixes'"):
        AnchorSet.load(path)


def test_unknown_conditions_are_refused() -> None:
    assert AnchorSet.shipped().only(["uti", "fall"]).names == ("uti", "fall")
    with pytest.raises(ConditionError, match="unknown condition 'gout'"):
        AnchorSet.shipped().only(["gout"])


@pytest.mark.data
def test_the_public_definitions_are_read_as_they_are(data_folder: Path) -> None:
    shipped = AnchorSet.shipped()
    assert AnchorSet.load(data_folder / "nhamcs" / "conditions.json").names == shipped.names
    published = AnchorSet.load(data_folder / "clinical-anchors")
    assert len(published.names) == 42 and set(shipped.names) - set(published.names) == {"fall"}
    with_anchors = set(published.anchored().names) & set(shipped.names)
    assert len(with_anchors) == 7
