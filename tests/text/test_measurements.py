"""Values, ages and durations in notes; columns; what values mean at which age."""

from __future__ import annotations

import json
import re
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from whatelse.errors import InputError
from whatelse.text.measurements import Measurement, Measures, load_measures, read_numbers

VALUES: list[tuple[str, dict[str, float]]] = [
    ("BP 85/50", {"systolic_bp": 85, "diastolic_bp": 50}),
    ("bp: 85 / 50", {"systolic_bp": 85, "diastolic_bp": 50}),
    ("BP of 85 over 50", {"systolic_bp": 85, "diastolic_bp": 50}),
    ("b/p 210/120 mmHg", {"systolic_bp": 210, "diastolic_bp": 120}),
    ("bp 90/palp", {"systolic_bp": 90}),
    ("bp 80s", {"systolic_bp": 80}),
    ("bp at 2pm 120/80", {"systolic_bp": 120, "diastolic_bp": 80}),
    ("sbp 78", {"systolic_bp": 78}),
    ("systolic 88", {"systolic_bp": 88}),
    ("T 102.3", {"temperature": 39.056}),
    ("t102", {"temperature": 38.889}),
    ("t99.7R", {"temperature": 37.611}),
    ("temp 39", {"temperature": 39}),
    ("temp of 101.5 F", {"temperature": 38.611}),
    ("temp: 38.5 C", {"temperature": 38.5}),
    ("T 38,5", {"temperature": 38.5}),
    ("tmax 103f", {"temperature": 39.444}),
    ("fever to 104.8 R", {"temperature": 40.444}),
    ("fever of 102", {"temperature": 38.889}),
    ("fever (101)", {"temperature": 38.333}),
    ("fever 103x 3 days", {"temperature": 39.444}),
    ("febrile to 103", {"temperature": 39.444}),
    ("temp reached 101", {"temperature": 38.333}),
    ("temp inc to 104", {"temperature": 40}),
    ("temp 99-100 degrees", {"temperature": 37.5}),
    ("102.5 F", {"temperature": 39.167}),
    ("103 degree fever", {"temperature": 39.444}),
    ("101.5 temp", {"temperature": 38.611}),
    ("rectal temp 94", {"temperature": 34.444}),
    ("high fever 102 in ER", {"temperature": 38.889}),
    ("fever x 1 day 100.8-103", {"temperature": 38.222}),
    ("t102-24 hrs", {"temperature": 38.889}),
    ("t102.7- 20JUL", {"temperature": 39.278}),
    ("fever upt to 105+", {"temperature": 40.556}),
    ("t103.5 c/o h/a", {"temperature": 39.722}),
    ("fevers for a day, up to 103.7", {"temperature": 39.833}),
    ("low grade fever on 29JUN inc to 105 R", {"temperature": 40.556}),
    ("T varied from 101-103", {"temperature": 38.889}),
    ("HR 120", {"heart_rate": 120}),
    ("hr=44", {"heart_rate": 44}),
    ("hr in the 120s", {"heart_rate": 120}),
    ("pulse of 55", {"heart_rate": 55}),
    ("irregular pulse which was over 200", {"heart_rate": 200}),
    ("heart rate 130-140", {"heart_rate": 135}),
    ("120 bpm", {"heart_rate": 120}),
    ("RR 28", {"respiratory_rate": 28}),
    ("resp rate of 8", {"respiratory_rate": 8}),
    ("resp-32", {"respiratory_rate": 32}),
    ("sat 83% ra", {"oxygen_saturation": 83}),
    ("o2 sat 92 on 2L", {"oxygen_saturation": 92}),
    ("O2 98% RA", {"oxygen_saturation": 98}),
    ("spo2 88%", {"oxygen_saturation": 88}),
    ("sats in 80s", {"oxygen_saturation": 80}),
    ("satting 79% on room air", {"oxygen_saturation": 79}),
    ("pulse ox 91", {"oxygen_saturation": 91}),
    ("92% on RA", {"oxygen_saturation": 92}),
    ("85% room air", {"oxygen_saturation": 85}),
    ("GCS 14", {"gcs": 14}),
    ("gcs=3", {"gcs": 3}),
    ("GCS 13/15", {"gcs": 13}),
    ("pain 8/10", {"pain_score": 8}),
    ("8/10 chest pain", {"pain_score": 8}),
    ("knee pain, 10/10", {"pain_score": 10}),
    ("pain 7 out of 10", {"pain_score": 7}),
    ("pain level 9", {"pain_score": 9}),
    ("rates headache 6/10", {"pain_score": 6}),
    ("glucose 45", {"glucose": 45}),
    ("bs 500", {"glucose": 500}),
    ("fsbg 32", {"glucose": 32}),
    ("blood sugar was 611", {"glucose": 611}),
    ("glucose 3.1 mmol/L", {"glucose": 55.85}),
    ("lactate 4.1", {"lactate": 4.1}),
    ("lactic acid 2.2", {"lactate": 2.2}),
    ("hgb 6.2", {"hemoglobin": 6.2}),
    ("hb 62 g/l", {"hemoglobin": 6.2}),
    ("h/h 7.1/21", {"hemoglobin": 7.1, "hematocrit": 21}),
    ("hct 24", {"hematocrit": 24}),
    ("wbc 18.2", {"white_cells": 18.2}),
    ("wbc 18k", {"white_cells": 18}),
    ("wbc 18,000", {"white_cells": 18}),
    ("WBC count=13.1", {"white_cells": 13.1}),
    ("white count 1.2", {"white_cells": 1.2}),
    ("plt 12", {"platelets": 12}),
    ("platelets 12,000", {"platelets": 12}),
    ("cr 3.2", {"creatinine": 3.2}),
    ("creat 2.1", {"creatinine": 2.1}),
    ("creatinine 250 umol/l", {"creatinine": 2.828}),
    ("trop 0.8", {"troponin": 0.8}),
    ("trop .8", {"troponin": 0.8}),
    ("troponin <0.01", {"troponin": 0.01}),
    ("na 118", {"sodium": 118}),
    ("sodium 161", {"sodium": 161}),
    ("k 6.8", {"potassium": 6.8}),
    ("potassium 2.1", {"potassium": 2.1}),
    ("inr 8", {"inr": 8}),
    ("INR=1.0", {"inr": 1}),
    ("wt 72 kg", {"weight": 72}),
    ("weight 160 lbs", {"weight": 72.575}),
    ("bilirubin 9", {"bilirubin": 9}),
    ("t bili 4.5", {"bilirubin": 4.5}),
    ("lipase 1200", {"lipase": 1200}),
    ("ast/alt 200/300", {"transaminases": 300}),
    ("ph 7.1", {"ph": 7.1}),
    ("bicarb 8", {"bicarbonate": 8}),
    ("d-dimer 2.4", {"d_dimer": 2.4}),
    ("d dimer 900", {"d_dimer": 0.9}),
    ("bnp 1200", {"bnp": 1200}),
    ("crp 88", {"crp": 88}),
    ("bhcg 12000", {"hcg": 12000}),
    (
        "T 98.6 P 88 R 18 BP 120/80",
        {"temperature": 37, "heart_rate": 88, "respiratory_rate": 18, "systolic_bp": 120, "diastolic_bp": 80},
    ),
    (
        "T 98.4 HR 90 BP 178/97 RR 18 O2 98% RA",
        {
            "temperature": 36.889,
            "heart_rate": 90,
            "systolic_bp": 178,
            "diastolic_bp": 97,
            "respiratory_rate": 18,
            "oxygen_saturation": 98,
        },
    ),
    (
        "VS: 98.4 90 178/97 18 98% RA",
        {
            "temperature": 36.889,
            "heart_rate": 90,
            "systolic_bp": 178,
            "diastolic_bp": 97,
            "respiratory_rate": 18,
            "oxygen_saturation": 98,
        },
    ),
]
NO_VALUES = [
    *["no fever", "fever x 3 days", "fever 3 days", "fever since 10/12", "fever 10AUG93", "temp taken at 1430"],
    *["fever, given 100 mg", "fever and 101 lesions", "fever, walked to 100 yards"],
    *["ceftriaxone 1g", "tylenol 650", "tylenol 650 mg", "potassium 20 meq", "insulin 10 units", "glucose 50 ml"],
    *["seen on 10/12/93", "call 555-123-4567", "8/10/95", "on 8/10 fell", "at 12:30", "24/7", "2/2 fall", "1 of 2"],
    *["a&ox3", "2+ edema", "pulses 2+", "cn 2-12 intact", "g2p1", "30 lb wt loss", "t4 lesion", "c5 fx"],
    *["room 12", "5 episodes of emesis", "vomiting x6", "3 cm lac", "25 mph", "fell 20 feet", "hit by 200 lb man"],
    *[
        "q 4 hr",
        "2 hr 30 min",
        "pain 2 weeks",
        'pain 2" below site',
        "sat down 2 hours ago",
        "p 2 days",
        "r 3rd finger",
        "k 9 unit",
    ],
    *["o2 2l nc", "o2 at 4 liters", "hr 2 days", "icd 401.9", "mrn 1234567", "zip 02139", "bed 4, t 3"],
]
AGES: list[tuple[str, float, str | None]] = [
    ("72M on coumadin fell", 72, "M"),
    ("72 y/o female", 72, "F"),
    ("79 Y/O/M FELL", 79, "M"),
    ("16 YOM", 16, "M"),
    ("43YOF LIFTED", 43, "F"),
    ("52YO WHITE MALE", 52, "M"),
    ("18Y O M", 18, "M"),
    ("4YF PLAYING", 4, "F"),
    ("15YR M", 15, "M"),
    ("54 yo", 54, None),
    ("45 year old man", 45, "M"),
    ("62-year-old woman", 62, "F"),
    ("pt is a 64M p/w cp", 64, "M"),
    ("80 years of age", 80, None),
    ("age 45", 45, None),
    ("3 mo old", 0.25, None),
    ("22 MOM STANDING", 1.8335, "M"),
    ("10 day old", 0.0274, None),
    ("2wk old female", 0.0383, "F"),
]
NO_AGES = [
    "24 hrs of vomiting",
    "98.6 F",
    "x3 m",
    "for 3 months",
    "gave 5 mom came",
    "140 yo",
    "20 wks pregnant",
    "fell 2 m down",
]
DURATIONS = [
    ("x 3 days", 3),
    ("x3d", 3),
    ("x 2 wks", 14),
    ("rash x 1d/depression", 1),
    ("for 2 weeks", 14),
    ("for past 19 days", 19),
    ("since 4 days ago", 4),
    ("since yesterday", 1),
    ("since this am", 0.5),
    ("since last week", 7),
    ("2 days ago", 2),
    ("3 day history of cough", 3),
    ("x 3 1/2 days", 3.5),
    ("for 4-6 hrs", 5 / 24),
    ("for two days", 2),
    ("several weeks ago", 21),
    ("lasted 30 min", 30 / 1440),
]
NO_DURATIONS = ["q 4 hrs", "every 6 hours", "20 wks pregnant", "g2p1 12wks", "at 2pm", "72M", "10/12"]


@pytest.mark.parametrize(("text", "expected"), VALUES)
def test_values(text: str, expected: dict[str, float]) -> None:
    numbers = read_numbers(text)
    assert {m.name: m.value for m in numbers.measurements} == pytest.approx(expected, abs=0.01)
    assert numbers.impossible == 0


@pytest.mark.parametrize("text", NO_VALUES)
def test_doses_dates_and_counts_are_no_values(text: str) -> None:
    numbers = read_numbers(text)
    assert (numbers.measurements, numbers.impossible) == ((), 0)


@pytest.mark.parametrize("text", ["temp 3", "hr 900", "gcs 22", "bp 50/85", "sat 140%", "ph 9.9", "fever to 10.4"])
def test_impossible_values_are_ignored_and_counted(text: str) -> None:
    numbers = read_numbers(text)
    assert (numbers.measurements, numbers.impossible) == ((), 1)


@pytest.mark.parametrize(("text", "years", "sex"), AGES)
def test_ages(text: str, years: float, sex: str | None) -> None:
    (age,) = read_numbers(text).ages
    assert (age.years, age.sex) == (pytest.approx(years, abs=0.001), sex)


@pytest.mark.parametrize("text", NO_AGES)
def test_other_numbers_are_no_ages(text: str) -> None:
    assert read_numbers(text).ages == ()


@pytest.mark.parametrize(("text", "days"), DURATIONS)
def test_durations(text: str, days: float) -> None:
    (duration,) = read_numbers(text).durations
    assert duration.days == pytest.approx(days, abs=0.01)
    assert duration.lasting


@pytest.mark.parametrize("text", NO_DURATIONS)
def test_other_numbers_are_no_durations(text: str) -> None:
    assert read_numbers(text).durations == ()


def test_time_after_an_event_is_not_how_long_a_complaint_lasts() -> None:
    (duration,) = read_numbers("rash 2 hrs after vaccine").durations
    assert (duration.lasting, duration.concept) == (False, "")
    assert read_numbers("rash x 2 hrs").durations[0].concept == "lasting_hours"
    assert read_numbers("rash x 2 days").durations[0].concept == "lasting_days"
    assert read_numbers("pain for 3 years").durations[0].concept == "chronic_course"


def test_spans_cover_name_value_and_unit() -> None:
    text = "72M c/o cough x 3 days, Temp of 101.5 F, BP 85/50"
    assert [text[a:b] for a, b in read_numbers(text).spans] == ["72M", "x 3 days", "Temp of 101.5 F", "BP 85/50"]


CLINICAL = "bp hr temp fever t p 98.6 120/80 85 / x 3 days yo M F pain 8/10 % ra of : = - , . 1,000 10/12/93"
pieces = st.sampled_from([*CLINICAL.split(), "\n"])


@given(
    st.one_of(
        st.text(max_size=80), st.lists(pieces, max_size=25).map(" ".join), st.lists(pieces, max_size=25).map("".join)
    )
)
def test_places_lie_in_the_text_and_values_are_possible(text: str) -> None:
    measures = load_measures()
    numbers = read_numbers(text)
    for start, end in numbers.spans:
        assert 0 <= start < end <= len(text)
        assert re.search(r"\d|since|for|ago|x|past|last|over|about|these", text[start:end].lower())
    for item in numbers.measurements:
        low, high = measures.measures[item.name].possible
        assert low <= item.value <= high


@pytest.mark.parametrize(
    "unit", ["temp ", "bp 1", "1/", "1-", "x 3 days ", "of ", "98.6 ", "1,", "pain 8/10 ", "t", " ", "("]
)
def test_time_is_linear_in_the_note(unit: str) -> None:
    def seconds(size: int) -> float:
        text = unit * (size // len(unit))
        start = time.process_time()
        read_numbers(text)
        return time.process_time() - start

    assert any(seconds(96_000) < 60 * seconds(6_000) + 0.2 for _ in range(10))


# Meaning


def findings(text: str, age: float | None = None) -> set[str]:
    return set(load_measures().findings(read_numbers(text).measurements, age))


@pytest.mark.parametrize(
    ("text", "age", "expected"),
    [
        ("T 100.4", 40, {"fever", "neg:hypothermia"}),
        ("temp 38 C", 40, {"fever", "neg:hypothermia"}),
        ("temp 98.6", None, {"neg:fever", "neg:hypothermia"}),
        ("temp 93", 40, {"neg:fever", "hypothermia"}),
        ("HR 150", 0.2, {"neg:tachycardia", "neg:bradycardia"}),
        ("HR 150", 30, {"tachycardia", "neg:bradycardia"}),
        ("HR 85", 0.1, {"neg:tachycardia", "bradycardia"}),
        ("HR 55", None, {"neg:tachycardia", "bradycardia"}),
        ("RR 40", 0.5, {"neg:tachypnea", "neg:bradypnea"}),
        ("RR 40", 50, {"tachypnea", "neg:bradypnea"}),
        ("BP 80/40", 5, {"neg:hypotension", "neg:elevated_blood_pressure", "neg:severe_hypertension"}),
        ("BP 80/40", 70, {"hypotension", "neg:elevated_blood_pressure", "neg:severe_hypertension"}),
        ("BP 190/100", 70, {"neg:hypotension", "elevated_blood_pressure", "severe_hypertension"}),
        ("sat 83%", 70, {"hypoxia"}),
        ("sat 98%", 70, {"neg:hypoxia"}),
        ("gcs 14", 70, {"reduced_gcs"}),
        ("pain 9/10", 70, {"severe_pain"}),
        ("glucose 45", 70, {"hypoglycemia_value", "neg:hyperglycemia_value", "neg:very_high_glucose"}),
        ("glucose 50", 0.01, {"neg:hypoglycemia_value", "neg:hyperglycemia_value", "neg:very_high_glucose"}),
        ("k 6.8", 70, {"hyperkalemia_value", "neg:hypokalemia_value"}),
        ("h/h 7.1/21", 70, {"low_hemoglobin"}),
        ("ph 7.1", 70, {"acidosis"}),
        ("wt 72 kg", 70, set()),
    ],
)
def test_meaning_by_age(text: str, age: float | None, expected: set[str]) -> None:
    assert findings(text, age) == expected


def test_one_abnormal_value_outweighs_normal_ones() -> None:
    assert findings("temp 98.6, later temp 103", 40) == {"fever", "neg:hypothermia"}


def test_concepts_are_those_of_the_knowledge_contract() -> None:
    expected = """fever hypothermia tachycardia bradycardia hypotension severe_hypertension elevated_blood_pressure
    tachypnea bradypnea hypoxia hyperglycemia_value very_high_glucose hypoglycemia_value elevated_lactate low_hemoglobin
    leukocytosis leukopenia thrombocytopenia_value elevated_creatinine elevated_troponin reduced_gcs
    severe_pain hyponatremia_value
    hypernatremia_value hyperkalemia_value hypokalemia_value elevated_bilirubin elevated_lipase elevated_inr
    elevated_d_dimer elevated_bnp positive_pregnancy_test acidosis elevated_crp elevated_transaminases
        hypercalcemia_value hypocalcemia_value hypomagnesemia_value hypermagnesemia_value hyperphosphatemia_value
        hypophosphatemia_value elevated_uric_acid high_tsh low_tsh elevated_esr macrocytosis microcytosis elevated_ck
        neutropenia elevated_ammonia elevated_a1c elevated_bun elevated_alcohol_level low_ejection_fraction"""
    found = {c for m in load_measures().measures.values() for c, _ in (*m.rises, *m.falls)}
    assert found == set(expected.split())


def test_columns_mean_the_same_as_notes() -> None:
    measures = load_measures()
    columns = [
        ("heartrate", 120.0),
        ("O2 Sat", 83.0),
        ("sbp", 85.0),
        ("temperature", 101.5),
        ("TEMPF", 1015.0),
        ("shoe", 9.0),
    ]
    found = measures.of_columns(columns)
    assert [m.name for m in found] == ["heart_rate", "oxygen_saturation", "systolic_bp", "temperature", "temperature"]
    assert found[3].value == found[4].value == pytest.approx(38.611, abs=0.01)
    assert measures.of_columns([("pulse", 900.0)]) == []
    assert measures.findings(found[:1], 40)["tachycardia"] == Measurement("heart_rate", 120.0, "/min")


def test_table_can_be_carried_as_json_values() -> None:
    again = Measures(load_measures().content)
    assert again.read("BP 85/50") == read_numbers("BP 85/50")


@pytest.mark.parametrize(
    "row",
    [
        {"names": ["x"]},
        {"unit": "C", "names": ["x"], "guess": {"f": [1, 2]}},
        {"unit": "C", "names": ["x"], "pair": ["a", "b"]},
        {"unit": "C", "names": ["x"], "from": {"fever": {"2": 3}}},
    ],
)
def test_bad_tables_are_refused(row: dict[str, object]) -> None:
    with pytest.raises(InputError):
        Measures({"strange": row})


def test_table_whose_keys_were_sorted_by_a_model_file_means_the_same() -> None:
    made = load_measures()
    plain = json.loads(json.dumps(made.content))  # keys are text
    again = Measures(json.loads(json.dumps(plain, sort_keys=True)))
    assert again.measures == made.measures and again.columns == made.columns and again.names == made.names


def test_a_heart_rate_after_a_blood_pressure_is_no_number_of_hours() -> None:
    found = {m.name: m.value for m in read_numbers("foul urine, BP 85/50 HR 120").measurements}
    assert found == {"systolic_bp": 85.0, "diastolic_bp": 50.0, "heart_rate": 120.0}


def test_age_and_sex_before_the_word_fever_are_no_temperature() -> None:
    numbers = read_numbers("81F fever 39, confusion")
    assert [(m.name, m.value) for m in numbers.measurements] == [("temperature", 39.0)]
    assert [(age.years, age.sex) for age in numbers.ages] == [(81.0, "F")]


@pytest.mark.parametrize(
    ("text", "values"),
    [
        ("O2 sat 88 -> 95% on 2L", [88.0, 95.0]),
        ("t102 & 104", [38.889, 40.0]),
        ("HR 180 -> 120 -> 98", [180.0, 120.0, 98.0]),
        ("HR 120 and 98% sat", [120.0]),
        ("temp 102 and 3 episodes", [38.889]),
        ("ca 7.2, tetany", [7.2]),
        ("temp got as high as 101R", [38.333]),
        ("elevated temp sudden onset 103 R", [39.444]),
        ("rash for 100 days", []),
        ("lung ca 3 yrs ago", []),
    ],
)
def test_a_value_may_be_followed_by_further_values(text: str, values: list[float]) -> None:
    assert [m.value for m in read_numbers(text).measurements if m.value != 98 or "sat" not in text] == values
