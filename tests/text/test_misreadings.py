"""Misreadings of real notes that were mended, with the shipped lexicon and rules. The sentences are our own."""

from __future__ import annotations

import pytest

from whatelse.text import NoteReader, load_lexicon, tokenize
from whatelse.text.lexicon import load_shorthand

READER = NoteReader(load_lexicon())


def findings(text: str) -> list[str]:
    """Findings of a note, without what normal values deny."""
    return [m.finding for m in READER.mentions(text) if not (m.value and m.finding.startswith("neg:"))]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("hx lung ca, facial swelling, sob", ["lung_cancer", "face_swelling", "dyspnea"]),
        ("hx migraine, headache", ["hx:migraine", "headache"]),
        ("hx of copd with sob", ["copd", "dyspnea"]),
        ("hx of dm, chronic back pain, depression", ["diabetes", "hx:back_pain", "depression"]),
        ("hx of chest pain, sob", ["hx:chest_pain", "hx:dyspnea"]),
        ("PMH: htn, back pain", ["hypertension", "hx:back_pain"]),
        ("h/o autism, fell", ["autism", "fall"]),
    ],
)
def test_a_history_ends_where_complaints_of_today_begin(text: str, expected: list[str]) -> None:
    found = findings(text)
    assert [name for name in expected if name not in found] == []
    assert [name for name in found if name.startswith("hx:") and name not in expected] == []


@pytest.mark.parametrize(
    ("text", "denied", "present"),
    [
        ("no LOC, c/o pain to forehead", "loss_of_consciousness", "forehead_pain"),
        ("denies LOC, immediate pain to shoulder", "loss_of_consciousness", "shoulder_pain"),
        ("crashed w/o helmet, struck head", "helmet_worn", "head_impact"),
        ("w/o helmet fell from skateboard", "helmet_worn", "skateboard_injury"),
        ("no rash, fever 104", "rash", "fever"),
        ("no sx of illness, fever prior to death", "fever", "death"),
    ],
)
def test_a_denial_ends_where_something_is_asserted(text: str, denied: str, present: str) -> None:
    found = findings(text)
    assert f"neg:{denied}" in found
    assert present in found and f"neg:{present}" not in found


@pytest.mark.parametrize(
    "text",
    [
        "denies fever, sore throat, cough",
        "no fever, stiff neck, rash",
        "denies fever, painful urination, swollen glands",
        "neg for sob, chest pain",
        "no fevers, chest pain, red rash",
        "denies nausea, numb hand, weak legs",
        "denies chest pain, LOC, hitting head",
        "no cough; neg for painful urination, sob",
    ],
)
def test_a_denial_covers_the_whole_list(text: str) -> None:
    found = findings(text)
    assert len(found) >= 2
    assert [name for name in found if not name.startswith("neg:")] == []


@pytest.mark.parametrize(
    ("text", "present", "denied"),
    [
        ("nausea; neg for sob, chest pain", ["nausea"], ["dyspnea", "chest_pain"]),
        ("also c/o RUQ pain. neg for painful urination", ["ruq_pain"], ["dysuria"]),
        ("vomiting, negative for fever and rash", ["vomiting"], ["fever", "rash"]),
    ],
)
def test_negative_for_after_a_complaint_denies_what_follows(text: str, present: list[str], denied: list[str]) -> None:
    found = findings(text)
    assert [name for name in [*present, *(f"neg:{name}" for name in denied)] if name not in found] == []


@pytest.mark.parametrize(
    ("text", "family", "patient"),
    [
        ("husband fell at home also", ["fall"], []),
        ("wife collapsed, pt c/o chest pain", ["collapse"], ["chest_pain"]),
        ("mother has strep, child w/ sore throat", ["strep_pharyngitis"], ["sore_throat"]),
        ("coworker sick with flu. c/o body aches", ["influenza"], ["myalgia"]),
        ("roommate with covid, now has fever", ["covid_19"], ["fever"]),
        ("brother diagnosed with mono, sore throat x 2 days", ["infectious_mononucleosis"], ["sore_throat"]),
        ("sister vomiting, she has abd pain", ["vomiting"], ["abdominal_pain"]),
        ("grandson has rsv. wheezing", ["bronchiolitis"], ["wheezing"]),
        ("mother has asthma and baby is wheezing", ["asthma"], ["wheezing"]),
        ("mother noticed rash on arm", [], ["arm_rash"]),
        ("brought by father for hand pain", [], ["hand_pain"]),
        ("10 mom with fever", [], ["fever"]),
        ("mom fell while carrying infant, hit head", [], ["fall", "head_impact"]),
    ],
)
def test_who_has_it(text: str, family: list[str], patient: list[str]) -> None:
    found = findings(text)
    assert [name for name in found if name.startswith("family:")] == [f"family:{name}" for name in family]
    assert [name for name in patient if name not in found] == []


def test_a_cue_that_holds_a_term_is_read_alike_with_and_without_a_lexicon() -> None:
    text = "no dizziness, hitting head on a pole"
    assert findings(text)[:2] == ["neg:dizziness", "head_impact"]
    assert {t.text: t.assertion for t in tokenize(text)}["hitting"] == "present"


@pytest.mark.parametrize(
    ("text", "present"),
    [
        ("PMH: htn, dm. T 101.5 HR 130 BP 80/40", ["fever", "tachycardia", "hypotension"]),
        ("hx HTN, CAD s/p stent, ef 35%, obesity", ["low_ejection_fraction"]),
        ("hypotensive to 80/40, hypoxic to 85% on ra", ["hypotension", "hypoxia"]),
        ("BP 150/90, P 88; standing 80/50, P 120", ["hypotension", "tachycardia"]),
        ("BP 110/70 -> 75/40", ["hypotension"]),
        ("fever 101 rising to 104 w/rash", ["fever"]),
        ("found down, gcs 3t, etoh 320", ["reduced_gcs", "elevated_alcohol_level"]),
        ("BAC .21", ["elevated_alcohol_level"]),
    ],
)
def test_values_count_wherever_they_stand(text: str, present: list[str]) -> None:
    found = findings(text)
    assert [name for name in present if name not in found] == []


def test_a_pair_of_numbers_alone_is_no_blood_pressure() -> None:
    assert READER.note("vision 20/200, on combivir 150/90, seen 10/12").numbers.measurements == ()


def test_plus_before_a_word_ends_a_denial() -> None:
    assert "loss_of_consciousness" in findings("no helmet, +LOC")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("neck, hip, ankle, knee pain", {"neck_pain", "hip_pain", "ankle_pain", "knee_pain"}),
        ("left shoulder and left ankle pain", {"shoulder_pain", "ankle_pain"}),
        ("pain in knee and rt hip", {"knee_pain", "hip_pain"}),
        ("L hand/wrist pain", {"hand_pain", "wrist_pain"}),
        ("lac to chin, knee pain", {"chin_laceration", "knee_pain"}),
        ("sciatica of leg & knee pain", {"sciatica", "knee_pain"}),
        ("pop in neck", {"neck_popped_during_injury"}),
        ("twisted rt ankle", {"ankle_twisting_injury"}),
        ("landed on r elbow", {"elbow_landing"}),
        ("fell onto back", {"back_landing"}),
        ("struck in chest", {"chest_impact"}),
        ("cut in groin", {"groin_laceration"}),
        ("inj wrist", {"wrist_injury"}),
        ("hurt lower back", {"low_back_pain"}),
        ("arm px", {"arm_pain"}),
        ("broke wrist", {"wrist_fracture"}),
    ],
)
def test_the_site_of_an_injury_is_a_finding(text: str, expected: set[str]) -> None:
    assert set(findings(text)) == expected


def test_a_landing_is_a_fall_and_an_injury_of_its_site() -> None:
    wider = set(READER.lexicon.ancestors("knee_landing"))
    assert {"fall", "knee_impact", "knee_injury", "landing"} <= wider


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("fell asleep", []),
        ("ladder broke", []),
        ("broke out in hives", ["hives"]),
        ("weight 12 kg", []),
        ("bicarb 8", ["acidosis"]),
        ("afebrile", ["neg:fever"]),
        ("VS: 38.5 120 90/60 24 92% RA", ["fever", "tachycardia", "tachypnea", "hypoxia"]),
        ("baby very limp", ["hypotonia"]),
        ("walks with a limp", ["limping"]),
        ("recvd DT vax", ["hx:tetanus_vaccine"]),
        ("dose of hep b", ["hx:hepatitis_b_vaccine"]),
        ("rash not resolved", ["rash"]),
        ("cough 4 days later", ["cough"]),
        ("cut on lid of can", ["laceration"]),
        ("nasal piercing", []),
        ("eval of lac to shin", ["shin_laceration"]),
        ("s/p distal radius fx", ["distal_radius_fracture"]),
        ("s/p pneumonia", ["hx:pneumonia"]),
    ],
)
def test_mended_misreadings(text: str, expected: list[str]) -> None:
    assert findings(text) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("sober 5 yrs", {"sobriety"}),
        ("r/o MI, cp radiating to L arm", {"possible:myocardial_infarction", "chest_pain", "radiation_to_arm"}),
        ("65yo M CP radiating to L arm, diaphoretic", {"chest_pain", "radiation_to_arm", "diaphoresis"}),
        ("pulses are weak", {"diminished_pulse"}),
        ("weak pulse, cry was weak", {"diminished_pulse", "weak_cry"}),
        ("tingling in rt hand", {"hand_tingling"}),
        ("fell on outstretched L hand", {"fall_on_outstretched_hand"}),
        ("d/c'd home w/ f/u", set()),
        ("cut rt thigh on fence", {"thigh_laceration", "door_wall_or_fence"}),
        ("csf grew haemophilus influenzae", set()),
        ("denies fever, cp, cough", {"neg:fever", "neg:chest_pain", "neg:cough"}),
        ("no m/r/g, afebrile, cervical lad", {"neg:heart_murmur", "neg:fever", "cervical_lymphadenopathy"}),
        ("abd nontender, neck supple", {"neg:abdominal_tenderness", "neg:neck_stiffness"}),
        ("swelling gone, itching", {"hx:swelling", "itching"}),
        ("temp fell to 99", set()),
        ("infant crying, serum iron 20", {"crying"}),
        ("admitted to rule out gbs", {"hospital_care", "possible:guillain_barre_syndrome"}),
        ("door jammed, knife ran over palm", {"door_wall_or_fence"}),
        ("was not given tylenol after injection", {"neg:acetaminophen", "injection"}),
        ("r/o dvt, calf pain", {"possible:deep_vein_thrombosis", "calf_pain"}),
        ("doubt PE", {"possible:pulmonary_embolism"}),
        ("denies n/v", {"neg:nausea_and_vomiting", "neg:nausea", "neg:vomiting"}),
        ("+n/v, -f/c", {"nausea_and_vomiting", "neg:fever_and_chills", "neg:fever", "neg:chills"}),
        ("denies si/hi", {"neg:suicidal_ideation", "neg:homicidal_ideation"}),
        ("no cp/sob", {"neg:chest_pain", "neg:dyspnea"}),
        ("s/p MVC, neg loc, neck pain", {"vehicle_collision", "neg:loss_of_consciousness", "neck_pain"}),
        ("+le edema", {"leg_swelling"}),
        ("13yo with CP, g-tube, fever", {"cerebral_palsy", "gastrostomy_tube", "fever"}),
        ("denies cp, sob, n/v, c/o headache",
         {"neg:chest_pain", "neg:dyspnea", "neg:nausea_and_vomiting", "neg:nausea", "neg:vomiting", "headache"}),
        ("measles like rash", {"rash"}),
        ("rash after exposure to his cousin who had chickenpox", {"rash", "family:varicella"}),
        ("hit rib on an iron beam", {"rib_impact"}),
        ("ran temp of 102", {"fever"}),
        ("lump size of a golf ball", {"mass"}),
        ("given apap suppository", {"rx:acetaminophen"}),
        ("discharged home", set()),
        ("lovenox for prophylaxis of dvt", {"hx:enoxaparin"}),
        ("in the event he has a seizure", set()),
    ],
)  # fmt: skip
def test_shorthand_and_words_with_two_meanings(text: str, expected: set[str]) -> None:
    assert set(findings(text)) - {""} == expected


def test_neighbours_of_shorthand_are_single_words() -> None:
    """A neighbour of several words would never be found."""
    for word, senses in load_shorthand().items():
        for sense in senses:
            for neighbour in (*sense.next, *sense.previous, *sense.near):
                assert "#" in neighbour or " " not in neighbour.strip(), (word, neighbour)
                assert not neighbour.strip("-").count("-"), (word, neighbour)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("drank a pint of vodka", {"alcohol_today"}),  # "drank a lot" is a phrase too
        ("drank a lot tonight", {"binge_drinking", "lasting_hours"}),
        ("ua pos, strain urine", set[str]()),
    ],
)
def test_an_article_is_passed_over_where_another_phrase_has_it(text: str, expected: set[str]) -> None:
    assert set(findings(text)) == expected


def test_a_site_before_another_finding_belongs_to_that_finding() -> None:
    found = findings("LLQ pain, vag spotting, knee pain, hip swelling")
    assert {"llq_pain", "vaginal_spotting", "hip_swelling"} <= set(found)
    assert not {"vaginal_pain", "hip_pain"} & set(found)


@pytest.mark.parametrize(
    ("text", "lasting"),
    [
        ("s/p TKR 2 wks ago, calf swelling", None),
        ("LMP 7 wks ago", None),
        ("had a hip replacement two weeks ago, now sob for 2 days", "lasting_days"),
        ("hip replacement last year, fell 3 weeks ago", "lasting_weeks"),
    ],
)
def test_the_time_of_a_past_event_is_not_how_long_the_complaint_lasts(text: str, lasting: str | None) -> None:
    assert [name for name in findings(text) if name.startswith("lasting_")] == ([lasting] if lasting else [])


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("back pain with movement", {"back_pain", "worse_with_movement"}),
        ("RUQ pain after eating", {"ruq_pain", "pain_after_eating"}),
        ("tearing back pain", {"tearing_back_pain"}),
        ("chestpain/sob", {"chest_pain", "dyspnea"}),
        ("abdpain", {"abdominal_pain"}),
        ("burning his thumbs", {"thumb_burn"}),
        ("left arm pain", {"left_arm_pain"}),
        ("slurred speech 45 min ago", {"slurred_speech"}),
    ],
)
def test_words_of_triage_nurses_are_read(text: str, expected: set[str]) -> None:
    assert set(findings(text)) == expected
