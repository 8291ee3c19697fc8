"""MIMIC-IV-ED: the demo as downloaded, and small folders made here."""

from __future__ import annotations

import gzip
from datetime import datetime
from pathlib import Path
from typing import Literal

import pytest

from whatelse.errors import InputError
from whatelse.sources import read_visits
from whatelse.visits import Code

TABLES = {
    "edstays": "subject_id,hadm_id,stay_id,intime,outtime,gender,race,arrival_transport,disposition\n"
    "1,,200,2150-03-01 10:00:00,2150-03-01 12:00:00,F,WHITE,AMBULANCE,ADMITTED\n"
    "2,,100,2151-04-02 11:00:00,2151-04-02 12:00:00,M,WHITE,WALK IN,HOME\n",
    "triage": "subject_id,stay_id,temperature,heartrate,resprate,o2sat,sbp,dbp,pain,acuity,chiefcomplaint\n"
    '1,200,100.4,101,24,92,85,60,10,2,"Fever, Cough"\n'
    "2,100,98.6,70,16,99,120,80,uta,3,\n",
    "medrecon": "subject_id,stay_id,charttime,name,gsn,ndc,etc_rn,etccode,etcdescription\n"
    "1,200,2150-03-01 10:05:00,lisinopril,000389,0,1,1,a\n"
    "1,200,2150-03-01 10:05:00,lisinopril,000389,0,2,2,b\n"
    "1,200,2150-03-01 10:05:00,*Fish Oil,0,0,1,,\n",
    "pyxis": "subject_id,stay_id,charttime,med_rn,name,gsn_rn,gsn\n"
    "1,200,2150-03-01 11:00:00,2,Vancomycin 1g,1,009331\n"
    "1,200,2150-03-01 10:30:00,1,Acetaminophen 500mg,1,004490\n"
    "1,200,2150-03-01 11:30:00,3,LeVETirace 500mg,1,\n",
    "diagnosis": "subject_id,stay_id,seq_num,icd_code,icd_version,icd_title\n"
    "1,200,2,J189,10,PNEUMONIA\n1,200,1,486,9,PNEUMONIA OLD\n",
}
PATIENTS = "subject_id,gender,anchor_age,anchor_year,anchor_year_group,dod\n1,F,60,2148,2011 - 2013,\n"


def make(folder: Path, **changed: str | None) -> Path:
    (folder / "ed").mkdir()
    (folder / "hosp").mkdir()
    for table, text in {**TABLES, "patients": PATIENTS, **changed}.items():
        if text is not None:
            place = folder / ("hosp" if table == "patients" else "ed")
            (place / f"{table}.csv.gz").write_bytes(gzip.compress(text.encode()))
    return folder


def test_join(tmp_path: Path) -> None:
    first, second = read_visits(make(tmp_path), source="mimic-ed")
    assert (first.id, second.id) == ("100", "200")  # sorted by stay
    assert second.age == 62 and second.sex == "F" and second.time == datetime(2150, 3, 1, 10)
    assert second.chief_complaint == "Fever, Cough" and second.triage_note is None
    assert second.medication_history == (Code("name", "*fish oil", "*Fish Oil"), Code("gsn", "000389", "lisinopril"))
    assert second.dispensed == (
        Code("gsn", "004490", "Acetaminophen 500mg"),
        Code("gsn", "009331", "Vancomycin 1g"),
        Code("name", "levetirace 500mg", "LeVETirace 500mg"),
    )
    assert second.billing == (Code("icd9", "486", "PNEUMONIA OLD"), Code("icd10", "J189", "PNEUMONIA"))
    assert [code.code for code in second.coded or ()] == [
        *("ambulance", "temperature-high", "pulse-high", "respirations-high"),
        *("systolic-low", "saturation-low", "2", "high", "admitted"),
    ]
    assert first.age is None  # this patient is not in hosp/patients
    assert first.medication_history == first.dispensed == first.billing == ()
    assert first.chief_complaint == "" and [code.code for code in first.coded or ()] == ["3"]


@pytest.mark.data
def test_the_demo(data_folder: Path) -> None:
    folder = data_folder / "mimic-iv-ed-demo"
    if not folder.is_dir():
        pytest.skip("the MIMIC-IV-ED demo is not here")
    reader = read_visits(folder, source="mimic_ed")
    visits = list(reader)
    assert len(visits) == 222 and not reader.left_out and not reader.notes
    assert [visit.id for visit in visits] == sorted(visit.id for visit in visits)
    assert all(visit.age is not None and 18 <= visit.age < 100 and visit.sex for visit in visits)
    assert sum(len(visit.billing or ()) for visit in visits) == 544  # 545 rows, one of them repeats a code
    assert visits == list(read_visits(folder / "ed", source="mimic-ed"))  # the inner folder will do


@pytest.mark.parametrize("table", list(TABLES))
def test_missing_table(tmp_path: Path, table: str) -> None:
    with pytest.raises(InputError, match=f"no table {table} here; expected ed/{table}.csv.gz"):
        next(read_visits(make(tmp_path, **{table: None}), source="mimic-ed"))


def test_without_patients_ages_are_unknown_and_it_says_so(tmp_path: Path) -> None:
    reader = read_visits(make(tmp_path, patients=None), source="mimic-ed")
    assert [visit.age for visit in reader] == [None, None]
    assert "ages are unknown" in reader.notes[0]


def test_missing_column(tmp_path: Path) -> None:
    text = TABLES["triage"].replace("chiefcomplaint", "chief_complaint")
    with pytest.raises(InputError, match=r"no column 'chiefcomplaint'.*did you mean 'chief_complaint'"):
        next(read_visits(make(tmp_path, triage=text), source="mimic-ed"))


@pytest.mark.parametrize(
    ("old", "new", "problem"),
    [
        ("2150-03-01 10:00:00,", "soon,", "intime is not a date"),
        (",F,WHITE", ",Q,WHITE", "gender is none of"),
        ("1,,200,", "1,,,", "stay_id is missing"),
        ("2150-03-01 10:00:00,", "2290-03-01 10:00:00,", "age is above 130"),
    ],
)
def test_bad_rows(tmp_path: Path, old: str, new: str, problem: str) -> None:
    folder = make(tmp_path, edstays=TABLES["edstays"].replace(old, new, 1))
    with pytest.raises(InputError, match=r"edstays\.csv\.gz, row 1, column '\w+': " + problem):
        list(read_visits(folder, source="mimic-ed"))
    reader = read_visits(folder, source="mimic-ed", on_error="skip")
    assert [visit.id for visit in reader] == ["100"] and reader.left_out.total() == 1


def test_the_same_stay_twice(tmp_path: Path) -> None:
    text = TABLES["edstays"] + TABLES["edstays"].splitlines()[1] + "\n"
    reader = read_visits(make(tmp_path, edstays=text), source="mimic-ed", on_error="skip")
    assert len(list(reader)) == 2 and reader.left_out == {"duplicate id": 1}


def test_two_triage_rows_do_not_double_the_stay(tmp_path: Path) -> None:
    text = TABLES["triage"] + TABLES["triage"].splitlines()[1] + "\n"
    assert len(list(read_visits(make(tmp_path, triage=text), source="mimic-ed"))) == 2


def test_ragged_row(tmp_path: Path) -> None:
    folder = make(tmp_path, pyxis=TABLES["pyxis"] + "1,200,SECRETNOTE\n")
    with pytest.raises(InputError, match=r"pyxis\.csv\.gz.*not a complete CSV table") as caught:
        list(read_visits(folder, source="mimic-ed"))
    assert "SECRETNOTE" not in str(caught.value) and caught.value.__cause__ is None
    reader = read_visits(folder, source="mimic-ed", on_error="skip")
    assert len(list(reader)) == 2 and reader.left_out == {"pyxis: row is not valid CSV": 1}


@pytest.mark.parametrize("on_error", ["raise", "skip"])
@pytest.mark.parametrize("cut", [4, 60])
def test_truncated_gzip(tmp_path: Path, on_error: Literal["raise", "skip"], cut: int) -> None:
    folder = make(tmp_path)
    file = folder / "ed" / "medrecon.csv.gz"
    file.write_bytes(file.read_bytes()[:-cut])
    with pytest.raises(InputError, match=r"medrecon\.csv\.gz: is damaged or cut short"):
        list(read_visits(folder, source="mimic-ed", on_error=on_error))


def test_empty_stays(tmp_path: Path) -> None:
    folder = make(tmp_path, edstays=TABLES["edstays"].splitlines()[0] + "\n")
    with pytest.raises(InputError, match=r"edstays\.csv\.gz: has no rows"):
        list(read_visits(folder, source="mimic-ed"))


def test_a_file_is_not_a_folder(tmp_path: Path) -> None:
    file = tmp_path / "edstays.csv"
    file.write_text(TABLES["edstays"])
    with pytest.raises(InputError, match="read from its folder"):
        next(read_visits(file, source="mimic-ed"))
