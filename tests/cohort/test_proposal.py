"""Conditions that records name often enough are proposed from the knowledge base."""

from __future__ import annotations

import csv
import re
from dataclasses import replace
from pathlib import Path

from typer.testing import CliRunner

from whatelse.annotators import AnchorSet
from whatelse.cli import app
from whatelse.cohort.proposal import FEWEST, anchored_condition, propose_conditions
from whatelse.knowledge import load_knowledge
from whatelse.visits import Code, Visit

NOTES = {
    "syncope while walking": 60,
    "wrist fracture. denies syncope": 40,
    "renal colic": FEWEST - 1,
    "seen by nurse": 200,
}


def visits() -> list[Visit]:
    notes = [note for note, count in NOTES.items() for _ in range(count)]
    return [Visit(f"V{i}", triage_note=note) for i, note in enumerate(notes)]


def test_conditions_named_in_enough_notes_are_proposed_and_denied_or_rare_ones_are_not() -> None:
    found = propose_conditions(visits(), load_knowledge())
    assert found is not None and found.looked_at == sum(NOTES.values())
    counts = dict(zip(found.anchors.names, found.visits, strict=True))
    assert counts["syncope"] == 60 and counts["wrist_fracture"] == 40
    assert not {"kidney_stone", "renal_colic"} & set(counts)
    assert list(found.visits) == sorted(found.visits, reverse=True)


def test_billing_codes_count_and_too_few_conditions_are_no_proposal() -> None:
    some = [Visit(f"C{i}", triage_note="seen", billing=(Code("icd10", "R55"),)) for i in range(100)]
    found = propose_conditions(visits() + some, load_knowledge())
    assert found is not None and dict(zip(found.anchors.names, found.visits, strict=True))["syncope"] == 100
    assert propose_conditions(some, load_knowledge()) is None


def test_of_conditions_named_in_the_same_visits_one_is_proposed() -> None:
    some = [Visit(f"F{i}", triage_note=("finger laceration", "syncope", "seen")[i % 3]) for i in range(150)]
    found = propose_conditions(some, load_knowledge())
    assert found is not None and len([name for name in found.anchors.names if "laceration" in name]) == 1


def test_notes_in_another_language_are_learned_from_by_their_billing_codes() -> None:
    codes = ("R55", "J18.9", "N39.0")
    some = [Visit(f"E{i}", triage_note="acude por fiebre", billing=(Code("icd10", codes[i % 3]),)) for i in range(150)]
    found = propose_conditions(some, load_knowledge())
    assert found is not None and {"syncope", "pneumonia"} <= set(found.anchors.names)


def test_a_condition_is_spelled_as_the_truth_of_the_visits_spells_it() -> None:
    some = [replace(visit, truth=("Wrist Fracture",)) for visit in visits()]
    found = propose_conditions(some, load_knowledge())
    assert found is not None and {"syncope", "Wrist Fracture"} <= set(found.anchors.names)


def test_a_condition_of_the_base_has_its_names_as_anchors() -> None:
    made = anchored_condition(load_knowledge(), "syncope")
    assert "syncope" in {anchor.value for anchor in made.anchors} and made.title == "Syncope" and made.codes["icd10"]


def test_build_proposes_conditions_and_writes_them_to_edit(tmp_path: Path) -> None:
    with (tmp_path / "visits.csv").open("w", newline="", encoding="utf-8") as stream:
        table = csv.writer(stream)
        table.writerow(["id", "triage_note"])
        table.writerows([visit.id, visit.triage_note] for visit in visits())
    build = ["build", str(tmp_path / "visits.csv"), "--out", str(tmp_path / "cohort")]
    made = CliRunner().invoke(app, build)
    assert made.exit_code == 0 and "occur often enough" in made.output and "Syncope (60)" in made.output, made.output
    assert "  Syncope (60), " in made.output  # on lines of their own, which are wrapped
    written = tmp_path / "cohort-conditions.yaml"
    assert "syncope" in AnchorSet.load(written).names
    again = CliRunner().invoke(app, [*build[:3], str(tmp_path / "other"), "--conditions", str(written)])
    assert again.exit_code == 0 and "occur often enough" not in again.output, again.output
    checked = CliRunner().invoke(app, ["anchors", "check", str(tmp_path / "cohort")])
    assert re.search(r"and \d+ more", checked.output.split("what fired")[1]), checked.output  # not all 50 phrases
    assert CliRunner().invoke(app, build).exit_code == 0  # what is there is what is proposed
    written.write_text(written.read_text("utf-8") + "# mine\n", encoding="utf-8")
    refused = CliRunner().invoke(app, build)
    assert refused.exit_code == 2 and "differs from what is proposed" in refused.output
    shipped = CliRunner().invoke(app, [*build[:2], "--conditions", "emergency-23"])
    assert shipped.exit_code == 0 and "(23 of them anchors)" in shipped.output
