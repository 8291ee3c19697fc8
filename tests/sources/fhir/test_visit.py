"""FHIR files -> visits: what each element becomes, and what a broken or strange one costs."""

from __future__ import annotations

import base64
import copy
import gzip
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from whatelse.annotators import AnchorSet
from whatelse.cohort import build_cohort
from whatelse.errors import InputError
from whatelse.sources import read_visits
from whatelse.sources.codings import drug_name, load_codings
from whatelse.sources.fhir.models import Encounter
from whatelse.sources.fhir.resources import Resources, local, when
from whatelse.sources.fhir.visit import current, visit_of
from whatelse.visits import Code, Visit

LOINC, SNOMED, ICD10 = "http://loinc.org", "http://snomed.info/sct", "http://hl7.org/fhir/sid/icd-10-cm"
RXNORM = "http://www.nlm.nih.gov/research/umls/rxnorm"
CODINGS = load_codings()


def concept(code: str, system: str, name: str | None = None) -> dict[str, Any]:
    return {"coding": [{"system": system, "code": code, "display": name}]}


def inline(text: str, kind: str = "text/plain") -> dict[str, Any]:
    return {"attachment": {"contentType": kind, "data": base64.b64encode(text.encode()).decode()}}


def visit_resources() -> list[dict[str, Any]]:
    """A fall of a patient of 80, with one resource of each kind that is read."""
    whose, where = {"reference": "Patient/p1"}, {"reference": "Encounter/e1"}

    def doc(number: str, code: str, text: str, **more: Any) -> dict[str, Any]:
        return {
            "resourceType": "DocumentReference", "id": number, "status": "current", "type": concept(code, LOINC),
            "subject": whose, "context": {"encounter": [where]}, "content": [inline(text)], **more,
        }  # fmt: skip

    def sign(number: str, code: str, value: float, time: str = "2026-05-01T10:05:00Z") -> dict[str, Any]:
        return {
            "resourceType": "Observation", "id": number, "status": "final", "code": concept(code, LOINC),
            "subject": whose,
            "encounter": where, "effectiveDateTime": time, "valueQuantity": {"value": value},
            "category": [concept("vital-signs", "x")],
        }  # fmt: skip

    return [
        {"resourceType": "Patient", "id": "p1", "birthDate": "1946-05-02", "gender": "female"},
        {
            "resourceType": "Encounter", "id": "e1", "status": "in-progress", "class": {"code": "EMER"},
            "subject": whose,
            "period": {"start": "2026-05-01T10:00:00-04:00"}, "reasonCode": [{"text": "s/p fall"}],
        },
        doc("d1", "54094-8", "fell, hit head. denies loc"),
        doc("d2", "34111-5", "81F s/p fall. ct head neg"),
        doc("d3", "18842-5", "discharge diagnosis: subdural"),
        sign("o1", "8867-4", 118), sign("o2", "8867-4", 80, "2026-05-01T12:00:00Z"), sign("o3", "8310-5", 38.2),
        {
            "resourceType": "MedicationStatement", "id": "m1", "status": "active", "subject": whose,
            "medicationCodeableConcept": concept("855332", RXNORM, "warfarin sodium 5 MG Oral Tablet"),
        },
        {
            "resourceType": "MedicationAdministration", "id": "a1", "status": "completed", "subject": whose,
            "context": where, "effectiveDateTime": "2026-05-01T10:30:00-04:00",
            "medicationCodeableConcept": concept("313782", RXNORM, "acetaminophen 325 MG Oral Tablet"),
        },
        {
            "resourceType": "Condition", "id": "c1", "subject": whose, "category": [concept("problem-list-item", "x")],
            "code": {"coding": [concept("38341003", SNOMED)["coding"][0], concept("I10", ICD10)["coding"][0]]},
        },
        {
            "resourceType": "Condition", "id": "c2", "subject": whose, "encounter": where,
            "category": [concept("encounter-diagnosis", "x")], "code": concept("S06.5X0A", ICD10),
        },
    ]  # fmt: skip


def bundle(resources: list[Any]) -> dict[str, Any]:
    return {"resourceType": "Bundle", "type": "collection", "entry": [{"resource": r} for r in resources]}


def build(resources: list[Any], tmp_path: Path) -> Visit:
    file = tmp_path / "visit.json"
    file.write_text(json.dumps(bundle(resources)))
    (found,) = read_visits(file, "fhir")
    return found


def test_each_element_goes_to_its_field(tmp_path: Path) -> None:
    visit = build(visit_resources(), tmp_path)
    assert (visit.id, visit.age, visit.sex, visit.chief_complaint) == ("e1", 79.0, "F", "s/p fall")
    assert visit.triage_note == "fell, hit head. denies loc" and visit.md_comments == "81F s/p fall. ct head neg"
    assert visit.medication_history == (Code("rxnorm", "855332", "warfarin"),)
    assert visit.dispensed == (Code("rxnorm", "313782", "acetaminophen"),)
    assert visit.billing == (Code("icd10", "S065X0A", None),)
    names = [f"{c.system} {c.code}" for c in visit.coded or ()]
    assert names == ["vital temperature-high", "vital pulse-high", "chronic htn"], (
        "the first pulse counts, and I10 once"
    )
    assert visit.time is not None and visit.time.isoformat() == "2026-05-01T10:00:00"
    assert AnchorSet.shipped().labels(visit) is not None


def test_order_and_form_make_no_difference(tmp_path: Path) -> None:
    """Bundle, NDJSON in one file a type, gzip, other order, absolute references: the same visit."""
    resources = visit_resources()
    expected = build(resources, tmp_path)
    folder = tmp_path / "bulk"
    (folder / "deep").mkdir(parents=True)
    for kind in {r["resourceType"] for r in resources}:
        lines = "\n".join(json.dumps(r) for r in reversed(resources) if r["resourceType"] == kind)
        (folder / "deep" / f"{kind}.000.ndjson.gz").write_bytes(gzip.compress(lines.encode()))
    assert list(read_visits(folder, "fhir")) == [expected]
    absolute = json.loads(json.dumps(resources).replace('"reference": "', '"reference": "https://ehr.example.org/r4/'))
    assert build(absolute[::-1], tmp_path) == expected
    linked = json.dumps(resources).replace("Patient/p1", "urn:uuid:1").replace("Encounter/e1", "urn:uuid:2")
    urns = {"p1": "urn:uuid:1", "e1": "urn:uuid:2"}
    entry = [{"fullUrl": urns.get(r["id"], "urn:uuid:x" + r["id"]), "resource": r} for r in json.loads(linked)]
    (tmp_path / "linked.json").write_text(json.dumps({"resourceType": "Bundle", "entry": entry}))
    assert list(read_visits(tmp_path / "linked.json", "fhir")) == [expected]


def test_a_broken_resource_costs_itself_and_is_counted(tmp_path: Path) -> None:
    whose = {"reference": "Patient/p1"}
    broken = [
        {"resourceType": "Observation", "id": "a/../b", "subject": whose},
        {"resourceType": "Observation", "id": "x", "subject": whose, "component": ["not a component"]},
        {"resourceType": "Condition", "id": "y"},
        7,
        {"id": "z"},
    ]
    file = tmp_path / "b.json"
    file.write_text(json.dumps(bundle([*broken[:3], *visit_resources(), *broken[3:]])))
    reader = read_visits(file, "fhir", on_error="skip")
    assert list(reader) == [build(visit_resources(), tmp_path)]
    assert reader.left_out == {
        "Observation is not valid": 2,
        "Condition names no patient": 1,
        "entry is not a resource": 2,
    }
    with pytest.raises(InputError, match=r"b\.json, row 3"):
        list(read_visits(file, "fhir"))


def test_what_nobody_looked_for_is_unknown_and_said(tmp_path: Path) -> None:
    resources = [r for r in visit_resources() if r["resourceType"] in ("Patient", "Encounter", "MedicationStatement")]
    (tmp_path / "v.json").write_text(json.dumps(bundle(resources)))
    reader = read_visits(tmp_path / "v.json", "fhir")
    (visit,) = reader
    assert visit.triage_note is None and visit.coded is None and visit.dispensed is None and visit.billing is None
    assert visit.medication_history is not None
    assert any("notes are unknown" in note for note in reader.notes)
    whole = Resources(asked=["DocumentReference", "Observation", "Condition"])
    encounter = Encounter.model_validate(resources[1])
    seen = visit_of(encounter, whole, CODINGS)
    assert seen.visit.triage_note == "" and seen.visit.coded == ()
    assert seen.unseen == ("age and sex", "home medications", "drugs given")


@pytest.mark.parametrize(
    ("change", "field", "expected"),
    [
        (lambda r: r[1].update(reasonCode=[]), "chief_complaint", None),
        (lambda r: r[1].update(reasonCode=None), "chief_complaint", None),
        (lambda r: r[0].update(birthDate="1946"), "age", 80.0),
        (lambda r: r[0].update(birthDate="1846-01-01"), "age", None),
        (lambda r: r[0].update(gender="other"), "sex", None),
        (lambda r: r[2].update(status="entered-in-error"), "triage_note", ""),
        (lambda r: r[2].update(context={"encounter": [{"reference": "Encounter/other"}]}), "triage_note", ""),
        (lambda r: r[2].update(content=[inline("a picture", "application/pdf")]), "triage_note", None),
        (lambda r: r[8].update(status="not-taken"), "medication_history", ()),
        (lambda r: r[8].update(effectivePeriod={"end": "2020-01-01"}), "medication_history", ()),
        (lambda r: r[9].update(status="not-done"), "dispensed", ()),
        (lambda r: r[9].update(context=None), "dispensed", (Code("rxnorm", "313782", "acetaminophen"),)),
        (lambda r: r[9].update(context=None, effectiveDateTime="2026-06-01"), "dispensed", ()),
        (lambda r: r[11].update(verificationStatus=concept("refuted", "x")), "billing", ()),
        (lambda r: r[11].update(code=concept("1386000", SNOMED)), "billing", (Code("icd10", "I629", None),)),
    ],
)  # fmt: skip
def test_single_elements(change: Callable[[Any], None], field: str, expected: Any, tmp_path: Path) -> None:
    resources = visit_resources()
    change(resources)
    assert getattr(build(resources, tmp_path), field) == expected


def test_a_reason_is_a_complaint_unless_it_is_said_to_be_something_else(tmp_path: Path) -> None:
    resources = visit_resources()
    mark = [{"url": "http://x/reason-type", "valueCodeableConcept": {"text": "Admitting diagnosis"}}]
    resources[1]["reasonCode"] = [
        {"text": "Subdural hematoma", "extension": mark},
        concept("S06.5", ICD10, "Subdural hemorrhage"),
        concept("R51", ICD10, "Headache"),
        {"text": "fell  at home"},
    ]
    assert build(resources, tmp_path).chief_complaint == "Headache; fell at home"
    resources[1]["reasonCode"] = []
    resources.append({
        "resourceType": "Observation", "id": "cc", "subject": {"reference": "Patient/p1"}, "valueString": "fall",
        "encounter": {"reference": "Encounter/e1"}, "code": concept("8661-1", LOINC),
    })  # fmt: skip
    assert build(resources, tmp_path).chief_complaint == "fall"


def test_home_drugs_of_an_ehr_without_statements(tmp_path: Path) -> None:
    def request(number: str, **more: Any) -> dict[str, Any]:
        about = concept(number, RXNORM, f"drug{number} 5 MG Oral Tablet")
        whose = {"reference": "Patient/p1"}
        return {
            "resourceType": "MedicationRequest",
            "id": number,
            "subject": whose,
            "medicationCodeableConcept": about,
            **more,
        }

    here = {"reference": "Encounter/e1"}
    resources = [r for r in visit_resources() if not r["resourceType"].startswith("Medication")] + [
        request("1", status="active", intent="plan"),
        request("2", status="active", intent="order", reportedBoolean=True),
        request("3", status="active", intent="order", authoredOn="2025-01-01"),
        request("4", status="stopped", intent="plan"),
        request("5", status="active", intent="order", authoredOn="2027-01-01"),
        request("6", status="active", intent="order", encounter=here, authoredOn="2026-05-01T14:30:00Z"),
    ]
    visit = build(resources, tmp_path)
    assert [c.code for c in visit.medication_history or ()] == ["1", "2", "3"]
    assert [c.code for c in visit.dispensed or ()] == ["6"], "no administrations are kept: the order stands in"


def test_a_medication_by_reference(tmp_path: Path) -> None:
    resources = visit_resources()
    drug = resources[9]
    del drug["medicationCodeableConcept"]
    drug["medicationReference"] = {"reference": "Medication/m9"}
    other = {"resourceType": "Medication", "id": "m9", "code": {"text": "Aspirin 81 MG Oral Tablet"}}
    assert build([*resources, other], tmp_path).dispensed == (Code("name", "aspirin", "aspirin"),)
    drug |= {"medicationReference": {"reference": "#in"}, "contained": [{**other, "id": "in"}]}
    assert build(resources, tmp_path).dispensed == (Code("name", "aspirin", "aspirin"),)


def test_the_current_visit_is_the_newest_emergency_under_way() -> None:
    found = Resources()
    for number, status, kind, start in [
        ("old", "in-progress", "EMER", "2026-01-01T10:00:00Z"),
        ("new", "arrived", "EMER", "2026-02-01T10:00:00+05:00"),
        ("later", "finished", "EMER", "2026-03-01"),
        ("clinic", "in-progress", "AMB", "2026-03-02"),
    ]:
        found.add({
            "resourceType": "Encounter", "id": number, "status": status, "class": {"code": kind},
            "period": {"start": start}, "subject": {"reference": "Patient/p1"},
        })  # fmt: skip
    chosen = current(found, "p1")
    assert chosen is not None and chosen.id == "new"
    assert current(found, "p2") is None


# ---- strange elements

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=8,
)


@given(st.integers(0, 11), st.data())
def test_a_strange_element_never_fails_the_visit(which: int, data: st.DataObject) -> None:
    """Whatever one element holds, the visit is built from the rest, or the one resource is counted."""
    resources = copy.deepcopy(visit_resources())
    changed = resources[which]
    key = data.draw(st.sampled_from(sorted(set(changed) - {"resourceType"})))
    changed[key] = data.draw(JSON)
    found = Resources(asked=["Observation", "Condition", "DocumentReference", "MedicationAdministration"])
    for raw in resources:
        found.add(raw)
    for encounter in found.all(Encounter):
        assert visit_of(encounter, found, CODINGS).visit.id == encounter.id
    assert sum(found.broken.values()) <= 1


# ---- codings


@pytest.mark.parametrize(
    ("written", "name"),
    [
        ("24 HR metformin hydrochloride 500 MG Extended Release Oral Tablet", "metformin"),
        ("acetaminophen 325 MG / hydrocodone bitartrate 5 MG Oral Tablet [Norco]", "acetaminophen-hydrocodone [Norco]"),
        ("NDA020503 200 ACTUAT albuterol 0.09 MG/ACTUAT Metered Dose Inhaler", "albuterol"),
        ("1 ML epinephrine 1 MG/ML Injection", "epinephrine"),
        ("potassium chloride 20 MEQ Oral Tablet", "potassium chloride"),
        ("Magnesium Sulfate 500 MG/ML", "magnesium sulfate"),
        ("Clonazepam [Klonopin]", "clonazepam [Klonopin]"),
        ("Zosyn", "zosyn"),
        ("500 MG", "500 mg"),
    ],
)
def test_drug_names(written: str, name: str) -> None:
    assert drug_name(written) == name


def test_codings_agree_with_the_shipped_conditions() -> None:
    shipped = AnchorSet.shipped()
    assert set(CODINGS.drafts) <= set(shipped.names)
    for condition in shipped.conditions:  # what a draft entry would be coded as counts as that condition, and no other
        for code in CODINGS.drafts.get(condition.name, ()):
            if code.system == "icd10":
                assert shipped.labels(Visit("x", billing=(code,))) == tuple(n == condition.name for n in shipped.names)


def test_a_hospital_adds_its_own_codes(tmp_path: Path) -> None:
    own = tmp_path / "own.yaml"
    own.write_text(
        "chronic:\n  - {flag: sickle, name: sickle cell disease, icd10: [D57]}\n"
        "notes: {triage: {words: [rapid assessment]}}\n"
    )
    codings = load_codings(own)
    assert codings.problem([Code("icd10", "D57.1")], None) == Code("chronic", "sickle", "sickle cell disease")
    assert codings.problem([Code("icd10", "I10")], None) == Code("chronic", "htn", "hypertension")
    assert codings.note([], "RN Rapid Assessment") == "triage" and CODINGS.note([], "RN Rapid Assessment") is None
    assert codings.problem([Code("snomed", "1")], "Gout") == Code("problem", "snomed:1", "gout")
    own.write_text("chronic: [{flag: x, icd10: [42]}]")
    with pytest.raises(InputError, match="text in quotes"):
        load_codings(own)
    with pytest.raises(InputError, match="codings file: no such file"):
        load_codings(tmp_path / "none.yaml")


def test_references_and_dates() -> None:
    assert local("https://x/r4/Patient/7/_history/2") == "Patient/7" and local("Patient/7") == "Patient/7"
    assert (
        local("Patient/../etc") is None and local("urn:uuid:5") is None and local("#x") is None and local(None) is None
    )
    assert when("2020") == when("2020-01-01") and when("2020-13") is None and when("x" * 100) is None


# ---- the public data


def test_synthea_builds_and_says_what_it_lacks(data_folder: Path) -> None:
    reader = read_visits(data_folder / "synthea-fhir", "fhir")
    visits = list(reader)
    assert len(visits) == 4 and not reader.left_out
    assert [note.partition(": ")[2].partition(" in")[0] for note in reader.notes] == [
        "no DocumentReference",
        "no MedicationAdministration",
    ]
    assert all(v.medication_history is not None and v.dispensed for v in visits)
    cohort = build_cohort(visits, AnchorSet.shipped())
    assert cohort.X.shape[0] == 4 and cohort.Y is not None
